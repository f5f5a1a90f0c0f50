"""Events: each acquisition told from asking to its end, to subscribers that can break nothing."""

from __future__ import annotations

import threading
from queue import SimpleQueue
from typing import Any

import pytest

from joblock.client.events import Event
from joblock.store.ops import Acquire, Refresh, Release
from joblock.testing.clients.stage import PATIENCE, Actor, Client, ClientScenarios, Stage
from joblock.values.errors import StoreUnavailable


class Heard:
    """What a subscriber heard; each event is waited for."""

    def __init__(self, client: Client) -> None:
        self.queue: SimpleQueue[Event] = SimpleQueue()
        self.subscription = client.subscribe(self.queue.put)

    def next(self) -> Event:
        return self.queue.get(timeout=PATIENCE)

    def kinds(self, count: int) -> list[str]:
        return [self.next().kind for _ in range(count)]

    def until(self, kind: str) -> Event:
        """The next event of that kind."""
        while (event := self.next()).kind != kind:
            pass
        return event


def raises(event: Event) -> None:
    """A subscriber that fails."""
    raise RuntimeError(event)


class Eventful(ClientScenarios):
    """See the module."""

    def test_a_lease_is_told_from_its_grant_to_its_release(
        self, stage: Stage, a: Actor, locks: Client
    ) -> None:
        heard = Heard(locks)
        with a.inside(locks.lock(stage.key, stage.ttl)) as lease:
            got = heard.next()
            assert (got.kind, got.key, got.holder, got.token) == (
                "acquired",
                stage.key,
                lease.holder,
                lease.token,
            )
            assert got.waited is not None
            assert got.waited >= 0
        gone = heard.next()
        assert (gone.kind, gone.key, gone.token) == ("released", stage.key, lease.token)
        assert gone.held is not None
        assert gone.held >= 0
        assert gone.at > 0

    def test_the_key_of_an_event_is_the_one_the_caller_wrote(self, stage: Stage, a: Actor) -> None:
        locks = stage.client(prefix=f"{stage.key}:")
        heard = Heard(locks)
        with a.inside(locks.lock("plain", stage.ttl)):
            assert heard.next().key == "plain"
        a.do(locks.model.acquire, "raw", stage.ttl, "holder")
        a.do(locks.model.delete, "raw", by="ops", why="it hangs")
        broken = heard.until("broken")
        assert (broken.key, broken.holder, broken.other, broken.reason) == (
            "raw",
            "holder",
            "ops",
            "it hangs",
        )

    def test_one_who_tries_once_in_vain_is_told_who_is_in_the_way(
        self, stage: Stage, a: Actor, b: Actor, locks: Client, others: Client
    ) -> None:
        heard = Heard(others)
        with a.inside(locks.lock(stage.key, stage.ttl)) as lease:
            assert b.do(others.acquire, stage.key, stage.ttl) is None
            contended, skipped = heard.next(), heard.next()
        assert (contended.kind, contended.other, contended.token, contended.reason) == (
            "contended",
            lease.holder,
            lease.token,
            "held",
        )
        assert (skipped.kind, skipped.other, skipped.reason) == ("skipped", lease.holder, "held")

    def test_one_who_waits_is_told_in_the_order_of_what_happens(
        self, stage: Stage, a: Actor, b: Actor, locks: Client, others: Client
    ) -> None:
        heard = Heard(others)
        with a.inside(locks.lock(stage.key, stage.ttl)):
            waiting = b.start(others.acquire, stage.key, stage.ttl, wait=True)
            stage.until_queued(1)
            assert heard.kinds(2) == ["contended", "queued"]
        lease = waiting.result(PATIENCE)
        acquired = heard.next()
        assert (acquired.kind, acquired.token) == ("acquired", lease.token)
        b.do(lease.release)
        assert heard.kinds(1) == ["released"]

    def test_one_who_gives_up_is_told_as_skipped_with_how_long_it_waited(
        self, stage: Stage, a: Actor, b: Actor, locks: Client, others: Client
    ) -> None:
        heard = Heard(others)
        with a.inside(locks.lock(stage.key, stage.ttl)):
            waiting = b.start(others.acquire, stage.key, stage.ttl, wait=0.5)
            stage.until_queued(1)
            stage.elapse(0.5)
            assert waiting.result(PATIENCE) is None
        skipped = heard.until("skipped")
        assert skipped.reason == "timeout"
        assert skipped.waited is not None
        assert skipped.waited >= 0.5

    def test_joiners_and_runs_that_are_over_are_told_as_such(
        self, stage: Stage, a: Actor, b: Actor, locks: Client, others: Client
    ) -> None:
        heard = Heard(others)
        work = stage.work(paused=True)
        options: dict[str, Any] = {"name": stage.key, "ttl": stage.ttl, "join": True}
        running = a.start(locks.job(**options, occurrence=7)(work))
        work.wait_until_begun()
        joining = b.start(others.job(**options)(stage.work()))
        stage.until_queued(1)
        work.finish()
        token = running.result(PATIENCE).token
        assert joining.result(PATIENCE).reason == "joined"
        joined = heard.until("joined")
        assert (joined.key, joined.token) == (stage.key, token)
        assert b.do(others.job(**options, occurrence=7)(stage.work())).reason == "done"
        assert heard.until("skipped").reason == "done"

    def test_a_loss_is_told_with_its_reason(self, stage: Stage, a: Actor, locks: Client) -> None:
        heard = Heard(locks)
        lease = a.do(locks.acquire, stage.key, stage.ttl)
        stage.break_leases(stage.key)
        stage.lapse(lease)
        lost = heard.until("lost")
        assert (lost.key, lost.token) == (stage.key, lease.token)
        assert lost.reason in ("refused", "deadline")
        a.do(lease.release)

    def test_a_takeover_names_whom_it_replaced(
        self, stage: Stage, a: Actor, b: Actor, locks: Client, others: Client
    ) -> None:
        heard = Heard(others)
        a.do(locks.model.acquire, stage.key, stage.ttl, "gone")
        stage.elapse(stage.ttl + 0.01)
        with b.inside(others.lock(stage.key, stage.ttl)):
            took = heard.until("took_over")
        assert took.other == "gone"

    def test_a_store_that_fails_is_told(self, stage: Stage, a: Actor, locks: Client) -> None:
        heard = Heard(locks)
        stage.faults(locks).fail(Acquire)
        with pytest.raises(StoreUnavailable):
            a.do(locks.acquire, stage.key, stage.ttl)
        assert heard.next().kind == "store_error"
        lease = a.do(locks.acquire, stage.key, stage.ttl)
        stage.faults(locks).fail(Release)
        a.do(lease.release)
        failed = heard.until("store_error")
        assert (failed.key, failed.token) == (stage.key, lease.token)
        stage.until_free()

    def test_a_renewal_that_fails_is_told_for_each_lease(
        self, stage: Stage, a: Actor, locks: Client
    ) -> None:
        stage.needs_manual_clock()
        heard = Heard(locks)
        lease = a.do(locks.acquire, stage.key, stage.ttl)
        stage.faults(locks).fail(Refresh)
        stage.elapse(stage.ttl / 3 + 0.01)
        assert heard.until("store_error").token == lease.token
        a.do(lease.release)

    def test_a_lease_that_nothing_bounds_is_told_once_when_it_gets_old(
        self, stage: Stage, a: Actor, locks: Client
    ) -> None:
        stage.needs_manual_clock()
        heard = Heard(locks)
        with (
            a.inside(locks.lock(stage.key, 30)) as lease,
            a.inside(locks.lock(f"{stage.key}:bounded", 30, max_duration="1h")),
        ):
            assert heard.kinds(2) == ["acquired", "acquired"]
            stage.elapse(290)
            assert heard.queue.empty()
            stage.elapse(600)
            old = heard.next()
            assert (old.kind, old.key, old.holder, old.token) == (
                "held_long",
                stage.key,
                lease.holder,
                lease.token,
            )
            assert old.held is not None
            assert 300 <= old.held < 320
        assert heard.kinds(2) == ["released", "released"]

    def test_a_subscriber_that_fails_or_hangs_breaks_and_delays_nothing(
        self, stage: Stage, a: Actor, locks: Client, caplog: pytest.LogCaptureFixture
    ) -> None:
        hanging, go = threading.Event(), threading.Event()

        def hangs(event: Event) -> None:
            hanging.set()
            assert go.wait(PATIENCE), event

        locks.subscribe(raises)
        locks.subscribe(hangs)
        heard = Heard(locks)
        for _ in range(3):
            assert a.do(locks.run_with_lock, stage.key, stage.ttl, stage.work())
        assert hanging.wait(PATIENCE)
        assert stage.leases() == ()
        go.set()
        assert heard.kinds(6) == ["acquired", "released"] * 3
        assert "a subscriber failed on" in caplog.text

    def test_one_who_unsubscribed_hears_no_more(
        self, stage: Stage, a: Actor, locks: Client
    ) -> None:
        gone, stays = Heard(locks), Heard(locks)
        with gone.subscription:
            a.do(locks.run_with_lock, stage.key, stage.ttl, stage.work())
            assert gone.kinds(2) == ["acquired", "released"]
        a.do(locks.run_with_lock, stage.key, stage.ttl, stage.work())
        assert stays.kinds(4) == ["acquired", "released"] * 2
        assert gone.queue.empty()

    def test_closing_a_client_delivers_what_was_told(
        self, stage: Stage, a: Actor, locks: Client
    ) -> None:
        del locks
        client = stage.client()
        told: list[str] = []

        def note(event: Event) -> None:
            told.append(event.kind)

        client.subscribe(note)
        lease = a.do(client.acquire, stage.key, stage.ttl)
        a.do(client.close)
        assert told == ["acquired", "lost"]
        assert not lease.held

    def test_what_cannot_be_called_in_a_thread_is_refused(self, locks: Client) -> None:
        async def later(event: Event) -> None: ...

        with pytest.raises(TypeError, match="call_soon_threadsafe"):
            locks.subscribe(later)
        with pytest.raises(TypeError, match="function"):
            locks.subscribe(5)  # type: ignore[arg-type]

    def test_every_event_is_logged_for_whoever_logs_at_debug(
        self, stage: Stage, a: Actor, caplog: pytest.LogCaptureFixture
    ) -> None:
        with caplog.at_level("DEBUG", logger="joblock.events"):
            locks = stage.client()
            with a.inside(locks.lock(stage.key, stage.ttl)) as lease:
                pass
            a.do(locks.close)
        lines = [text for name, _, text in caplog.record_tuples if name == "joblock.events"]
        assert [line.split()[0] for line in lines] == ["acquired", "released"]
        assert f"token={lease.token}" in lines[0]

    # Permits.

    def test_another_limit_elsewhere_is_told_once(
        self,
        stage: Stage,
        a: Actor,
        b: Actor,
        locks: Client,
        others: Client,
        caplog: pytest.LogCaptureFixture,
    ) -> None:
        held = [a.do(locks.acquire, stage.key, stage.ttl, limit=2) for _ in range(2)]
        assert b.do(others.acquire, stage.key, stage.ttl, limit=2) is None
        assert "limit" not in caplog.text
        new = stage.client()
        for _ in range(3):
            assert b.do(new.acquire, stage.key, stage.ttl, limit=3, weight=2) is None
        told = [text for _, _, text in caplog.record_tuples if "states limit 3" in text]
        assert len(told) == 1
        assert "is held under limit 2" in told[0]
        for lease in held:
            a.do(lease.release)
