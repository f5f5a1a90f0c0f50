"""The keeper forgets no check that a waiter asks for while a round of it is under way."""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING, Any

from joblock import JobLocks
from joblock.client.seat import ClientSeat

if TYPE_CHECKING:
    import pytest

PATIENCE = 10.0


class TellingLock:
    """A lock that tells when somebody finds it taken."""

    def __init__(self, contended: threading.Event) -> None:
        self._lock = threading.Lock()
        self._contended = contended

    def __enter__(self) -> None:
        if not self._lock.acquire(blocking=False):
            self._contended.set()
            self._lock.acquire()

    def __exit__(self, *exc: object) -> None:
        self._lock.release()


def test_a_check_asked_for_in_the_middle_of_a_round_is_kept(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    with JobLocks("memory://") as locks:
        hub: Any = locks._hub  # noqa: SLF001 - the race is between two of its steps
        through_or_kept_out = threading.Event()
        monkeypatch.setattr(hub.keeper, "_wake", lambda: None)
        monkeypatch.setattr(hub.keeper, "_lock", TellingLock(through_or_kept_out))
        look = hub.waiting_for
        threads: list[threading.Thread] = []

        def sit_down() -> None:
            hub.seats["key", "holder"] = ClientSeat(hub, "key", "holder")
            hub.keeper.check_in("key", 60.0)
            through_or_kept_out.set()

        def look_and_be_overtaken() -> Any:
            seats = look()
            threads.append(threading.Thread(target=sit_down))
            threads[0].start()
            # Either it gets through now, or it has to wait until the round has written down what
            # it found.
            assert through_or_kept_out.wait(PATIENCE)
            return seats

        monkeypatch.setattr(hub, "waiting_for", look_and_be_overtaken)
        hub.keeper._check()  # noqa: SLF001
        threads[0].join(PATIENCE)
        assert "key" in hub.keeper._checks  # noqa: SLF001
        hub.seats.clear()


def test_a_connection_that_somebody_listens_on_is_not_given_back_as_unused() -> None:
    with JobLocks("memory://") as locks:
        held: Any = locks.acquire("key")
        got: list[Any] = []
        waiting = threading.Thread(target=lambda: got.append(locks.acquire("key", wait=PATIENCE)))
        waiting.start()
        hub: Any = locks._hub  # noqa: SLF001 - the keeper looks for quiet just as one sits down
        while not hub.subscribed:
            waiting.join(0.001)
        hub.stop_listening(if_unused=True)
        assert hub.subscribed
        assert hub.listening
        held.release()
        waiting.join(PATIENCE)
        got[0].release()
