"""What both clients share: how they are set up, and what their arguments mean."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Any

from joblock.client.hub import Hub
from joblock.stores.registry import open_store, safe_url
from joblock.values.clock import SYSTEM_CLOCK, Clock
from joblock.values.imports import importing
from joblock.values.shown import shown

if TYPE_CHECKING:
    from collections.abc import Callable

    from joblock.client.events import Event, Subscription
    from joblock.client.seat import Waker
    from joblock.protocol.job import Terms, Verdict
    from joblock.protocol.steps import Flow
    from joblock.store.contract import Store


class BaseClient:
    """A client: one store, one prefix, one keeper."""

    _for_tasks = False

    def __init__(
        self,
        store: Any,
        prefix: str | None,
        label: str,
        clock: Clock | None,
        notifier: Any,
        waker: Waker,
    ) -> None:
        # What can be refused without I/O is refused here; the rest waits for the first use, so
        # that a module may make a client while it is imported.
        leases = self._open(store) if _is_plain(store) else store
        bell = self._open(notifier) if _is_plain(notifier) else notifier
        opened = None
        if _is_plain(leases) and (bell is None or _is_plain(bell)):
            opened = self._open(leases, bell)
        self._given = store
        self._hub = Hub(
            lambda: opened if opened is not None else self._open(leases, bell),
            prefix=os.environ.get("JOBLOCK_PREFIX", "") if prefix is None else prefix,
            label=label,
            clock=SYSTEM_CLOCK if clock is None else _checked_clock(clock),
            waker=waker,
        )

    def _open(self, given: Any, notifier: Any = None) -> Store:
        if notifier is not None:
            with importing():
                from joblock.stores.notified import notified

            return notified(self._open(given), self._open(notifier))
        store = open_store(given)
        if not self._for_tasks and getattr(store, "tasks_only", False):
            raise TypeError(
                "an asyncpg pool belongs to an event loop: it is a store for AsyncJobLocks; give "
                "JobLocks a URL"
            )
        return store

    @property
    def store(self) -> Store:
        """The store behind this client, opened if it was not yet."""
        return self._hub.store

    @property
    def prefix(self) -> str:
        """What is put before every key."""
        return self._hub.prefix

    def subscribe(self, callback: Callable[[Event], object]) -> Subscription:
        """Call that for everything that happens to leases of this client, from now on.

        It is called in a thread of its own, with one `joblock.Event` after the other; what it
        raises is logged, and however slow it is, no lease waits for it. Close the subscription, or
        leave its `with` block, to hear no more.
        """
        with importing():
            from joblock.client.events import subscribe

        return subscribe(self._hub, callback)

    def job_flow(
        self, terms: Terms, work: Callable[[], Any], args: tuple[Any, ...], kwargs: dict[str, Any]
    ) -> Flow[Verdict]:
        """The flow of one call of a job; for the library's own use."""
        with importing():
            from joblock.protocol.job import run_job

        return run_job(self._hub, self._hub.prefix, terms, work, args, kwargs)

    def __repr__(self) -> str:
        given = safe_url(self._given) if isinstance(self._given, str) else repr(self._given)
        return f"<{type(self).__name__} {given}>"


def _checked_clock(clock: Any) -> Clock:
    methods = ("monotonic", "wall", "wait", "await_", "idle")
    if isinstance(clock, type) or not all(callable(getattr(clock, each, None)) for each in methods):
        raise TypeError(
            "a clock tells the time and waits for it, such as joblock.testing.ManualClock(); "
            f"got {shown(clock)}"
        )
    return clock


def _is_plain(given: Any) -> bool:
    """Whether it says by itself what it means; the environment and functions are asked later."""
    return isinstance(given, str) or (given is not None and not callable(given))
