"""Which primary is believed in behind sentinels: step by step, and through a failover."""

from __future__ import annotations

import pytest
from redis_servers import Guarded, wait_until

from joblock import AsyncJobLocks, JobLocks
from joblock.stores.redis import route
from joblock.stores.redis.route import Drop, Send, SentinelRoute
from joblock.stores.redis.target import Place, from_url
from joblock.stores.redis.wire import ConnectFailed, Disconnected
from joblock.values.errors import StoreUnavailable

OLD, NEW = Place("old", 1), Place("new", 2)
SENTINELS = [Place("a", 26379), Place("b", 26379)]


class Told:
    """A route whose requests the test answers: what sentinels name, and who is there at all."""

    def __init__(self):
        self.route = SentinelRoute(from_url("redis+sentinel://a,b/main"))
        self.named = OLD
        self.away = {}
        self.steps = []

    def find(self):
        flow, reply, error = self.route.find("k"), None, None
        while True:
            try:
                step = flow.send(reply) if error is None else flow.throw(error)
            except StopIteration as stop:
                return stop.value
            self.steps.append((type(step), step.place))
            reply, error = None, None
            if isinstance(step, Send):
                error = self.away.get(step.place)
                if isinstance(error, list):
                    error = error.pop(0) if error else None
                reply = self.answer(step.place)

    def answer(self, place):
        if place in SENTINELS:
            return [[self.named.host.encode(), str(self.named.port).encode()]]
        if place == OLD:
            self.connected()
        return [b"PONG"]

    def connected(self):
        """Somebody has connected to the old primary."""

    def asked(self):
        asked = [place for kind, place in self.steps if kind is Send and place in SENTINELS]
        self.steps.clear()
        return asked


@pytest.fixture
def told():
    return Told()


def test_a_primary_that_another_replaces_while_a_connection_to_it_is_made_is_not_believed_in(told):
    told.connected = lambda: setattr(told, "named", NEW)
    assert told.find() == NEW
    assert told.steps == [
        (Send, SENTINELS[0]),
        (Send, OLD),
        (Send, SENTINELS[0]),
        (Drop, OLD),
        (Send, NEW),
        (Send, SENTINELS[0]),
    ]


def test_what_the_sentinels_said_is_believed_for_a_moment_and_then_asked_again(told, monkeypatch):
    assert told.find() == OLD
    told.asked()
    monkeypatch.setattr(told.route, "_ask_at", float("inf"))
    told.named = NEW
    assert told.find() == OLD
    assert told.asked() == []
    monkeypatch.setattr(told.route, "_ask_at", 0.0)
    assert told.find() == NEW
    assert (Drop, OLD) in told.steps


def test_a_primary_is_used_on_while_no_sentinel_can_be_reached(told, monkeypatch):
    assert told.find() == OLD
    monkeypatch.setattr(told.route, "_ask_at", 0.0)
    told.away = dict.fromkeys(SENTINELS, ConnectFailed("gone"))
    told.asked()
    assert told.find() == OLD
    assert told.asked() == SENTINELS
    assert told.find() == OLD
    assert told.asked() == []


def test_a_connection_that_has_broken_while_it_was_idle_is_made_again(told):
    told.away = {SENTINELS[0]: [Disconnected("cut")], OLD: [Disconnected("cut")]}
    assert told.find() == OLD
    assert SENTINELS[1] not in told.asked()


def test_a_primary_that_cannot_be_reached_is_told_in_a_sentence(told):
    told.away = {OLD: ConnectFailed("cannot connect: refused")}
    with pytest.raises(StoreUnavailable, match="old:1: cannot connect: refused"):
        told.find()
    told.named, told.away = NEW, {}
    assert told.find() == NEW


@pytest.fixture
def guarded(tmp_path, monkeypatch):
    monkeypatch.setattr(route, "FRESH", 0.1)
    guarded = Guarded(tmp_path)
    yield guarded
    guarded.stop()


async def test_clients_leave_a_primary_that_goes_on_after_a_replica_has_taken_its_place(guarded):
    old = guarded.primary
    with JobLocks(guarded.url) as locks:
        async with AsyncJobLocks(guarded.url) as tasks:
            assert locks.model.acquire("before", 60, "A")
            assert await tasks.model.acquire("before, too", 60, "A")
            sentinel = guarded.sentinels[0]
            sentinel.ask("SENTINEL", "FAILOVER", "mymaster")
            name = ("SENTINEL", "GET-MASTER-ADDR-BY-NAME", "mymaster")
            wait_until(lambda: int(sentinel.ask(*name)[1]) != old.port, "it names the other one")
            old.ask("REPLICAOF", "NO", "ONE")  # whatever the sentinels make of it meanwhile
            wait_until(lambda: old.ask("ROLE")[0] == b"master", "it is a primary all the same")
            old.ask("FLUSHALL")
            told = route.time.monotonic() + route.FRESH
            wait_until(lambda: route.time.monotonic() > told, "what was said is old")
            assert locks.model.acquire("after", 60, "A")
            assert await tasks.model.acquire("after, too", 60, "A")
            assert "joblock:{.after}" not in old.keys()  # noqa: SIM118
            assert "joblock:{.after, too}" not in old.keys()  # noqa: SIM118
