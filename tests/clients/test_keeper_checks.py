"""The keeper forgets no check that a waiter asks for while a round of it is under way."""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING, Any

from joblock import JobLocks
from joblock.client.seat import ClientSeat

if TYPE_CHECKING:
    import pytest


def test_a_check_asked_for_in_the_middle_of_a_round_is_kept(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    with JobLocks("memory://") as locks:
        hub: Any = locks._hub  # noqa: SLF001 - the race is between two of its steps
        monkeypatch.setattr(hub.keeper, "_wake", lambda: None)
        look = hub.waiting_for
        threads: list[threading.Thread] = []

        def sit_down() -> None:
            hub.seats["key", "holder"] = ClientSeat(hub, "key", "holder")
            hub.keeper.check_in("key", 60.0)

        def look_and_be_overtaken() -> Any:
            seats = look()
            threads.append(threading.Thread(target=sit_down))
            threads[0].start()
            # Either it gets through now, or it has to wait until the round has written down what
            # it found: it is let run for long enough to get through if it can.
            threads[0].join(0.2)
            return seats

        monkeypatch.setattr(hub, "waiting_for", look_and_be_overtaken)
        hub.keeper._check()  # noqa: SLF001
        threads[0].join(10)
        assert "key" in hub.keeper._checks  # noqa: SLF001
        hub.seats.clear()
