"""Many at once: threads (through the asyncio driver: as many tasks) on the same key."""

from __future__ import annotations

import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from queue import Empty, SimpleQueue
from typing import TypeVar

from joblock.store.ops import Busy, Granted, Notice
from joblock.testing.contract.bench import PATIENCE, Bench, Contract, Key

T = TypeVar("T")

THREADS = 16


def at_once(count: int, work: Callable[[int], T]) -> list[T]:
    """Call ``work`` in so many threads that start together; what they return, or raise."""
    start = threading.Barrier(count)

    def begin(number: int) -> T:
        start.wait(PATIENCE)
        return work(number)

    with ThreadPoolExecutor(count) as pool:
        return list(pool.map(begin, range(count)))


class Witness:
    """Sees whether more are inside than may be."""

    def __init__(self, limit: int) -> None:
        self._lock = threading.Lock()
        self._limit = limit
        self._inside = 0
        self.tokens: list[int] = []

    def enter(self, token: int) -> None:
        with self._lock:
            self._inside += 1
            self.tokens.append(token)
            assert self._inside <= self._limit, "more inside than the limit allows"

    def leave(self) -> None:
        with self._lock:
            self._inside -= 1


class Threads(Contract):
    """Exclusion and liveness when everybody comes at the same moment."""

    def test_only_one_of_many_threads_holds_a_mutex_at_any_time(self, key: Key) -> None:
        witness = Witness(1)

        def work(number: int) -> None:
            for turn in range(25):
                holder = f"{number}.{turn}"
                reply = key.acquire(holder)
                if isinstance(reply, Granted):
                    witness.enter(reply.token)
                    witness.leave()
                    assert key.release(holder, token=reply.token)

        at_once(THREADS, work)
        assert witness.tokens
        assert witness.tokens == sorted(set(witness.tokens))
        assert key.states() == {}

    def test_no_more_threads_hold_a_permit_than_there_are(self, key: Key) -> None:
        witness = Witness(3)

        def work(number: int) -> None:
            for turn in range(25):
                holder = f"{number}.{turn}"
                reply = key.acquire(holder, limit=3)
                if isinstance(reply, Granted):
                    witness.enter(reply.token)
                    witness.leave()
                    assert key.release(holder, token=reply.token)

        at_once(THREADS, work)
        assert len(witness.tokens) == len(set(witness.tokens)) >= 3
        assert key.states() == {}

    def test_many_threads_that_insert_the_same_new_key_see_no_error(self, bench: Bench) -> None:
        for _ in range(10):
            key = bench.key()
            replies = at_once(THREADS, lambda number, key=key: key.acquire(f"holder {number}"))
            winners = [reply for reply in replies if isinstance(reply, Granted)]
            assert len(winners) == 1
            assert key.leases()[0].token == winners[0].token

    def test_many_threads_that_queue_for_a_new_key_are_all_queued(self, bench: Bench) -> None:
        key = bench.key()
        replies = at_once(THREADS, lambda number: key.ask(f"holder {number}"))
        queued = [reply.arrival for reply in replies if isinstance(reply, Busy)]
        assert len(queued) == THREADS - 1
        assert len(set(queued)) == len(queued)
        assert sorted(key.line()) == sorted(set(key.line()))
        assert len(key.line()) == THREADS - 1

    def test_a_waiter_that_queues_while_the_key_is_released_is_not_forgotten(
        self, bench: Bench
    ) -> None:
        """It is granted at once, or handed the key; never left waiting for nobody."""
        for _ in range(30):
            key = bench.key()
            key.grant("A")
            work = (lambda key=key: key.release("A"), lambda key=key: key.ask("W"))
            released, reply = at_once(2, lambda number, work=work: work[number]())
            assert released is True
            assert isinstance(reply, Granted) or key.check("W").claimed == ("W",)

    def test_refresh_and_expiry_and_acquire_at_once_leave_one_holder(self, bench: Bench) -> None:
        for _ in range(10):
            key = bench.key()
            key.grant("A", ttl=bench.short)
            key.elapse(bench.short)
            work = (
                lambda key=key: key.refresh("A"),
                lambda key=key: isinstance(key.acquire("B"), Granted),
                lambda key=key: isinstance(key.acquire("C"), Granted),
            )
            assert at_once(3, lambda number, work=work: work[number]()).count(True) == 1

    def test_each_of_many_waiting_threads_gets_its_turn(self, bench: Bench) -> None:
        """Each waits until it is told, or asks again after a second where nobody is told."""
        key = bench.key()
        witness = Witness(1)

        def work(number: int) -> int:
            turns = 0
            told: SimpleQueue[Notice] = SimpleQueue()
            client = key.client(f"client {number}")
            subscription = key.store.subscribe(client, told.put, lambda: None)
            for turn in range(5):
                self._take_turn(key, f"{number}.{turn}", f"client {number}", told, witness)
                turns += 1
            subscription.close()
            return turns

        assert at_once(8, work) == [5] * 8
        assert witness.tokens == sorted(set(witness.tokens))
        assert len(witness.tokens) == 40
        assert key.waiters() == ()

    @staticmethod
    def _take_turn(
        key: Key, holder: str, client: str, told: SimpleQueue[Notice], witness: Witness
    ) -> None:
        for _ in range(100):
            reply = key.ask(holder, client=client)
            if isinstance(reply, Granted):
                witness.enter(reply.token)
                witness.leave()
                assert key.release(holder, token=reply.token)
                return
            try:
                told.get(timeout=1.0)
            except Empty:
                continue
        raise AssertionError(f"{holder} never got its turn")
