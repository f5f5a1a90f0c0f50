"""A store whose waiters are notified by something else, say SQLite leases and Redis notices.

The store decides who is to be told, as always, and hands that over once it is committed. A thread
sends it on, so that no operation waits for it. What is lost on the way only costs time: a client
that waits asks the store every few seconds all the same.
"""

from __future__ import annotations

import threading
from collections import deque
from typing import TYPE_CHECKING, Any, cast

from joblock.store.contract import ELSEWHERE, Guarding, Handing, Notifier
from joblock.store.ops import Acquire, Check
from joblock.values.log import logger

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from joblock.store.contract import AsyncDriver, Deliver, Driver, Store, Subscription
    from joblock.store.ops import Notice

KEPT = 10_000
"""Notices that are kept for a notifier that is slow; older ones are dropped."""

TOGETHER = 500
IDLE = 60.0
"""Seconds without notices after which the thread ends."""

PATIENCE = 2.0
"""Seconds that closing waits for notices that are on their way."""


def notified(store: Store, notifier: Any) -> Store:
    """That store with that notifier, which is one of Redis or Valkey, or of PostgreSQL.

    Raises TypeError if the one cannot carry notices, or the other does not give them away.
    """
    if not isinstance(notifier, Notifier):
        raise TypeError(
            "a notifier is a URL or client of Redis, Valkey or PostgreSQL; "
            f"{type(notifier).__qualname__} cannot carry notices"
        )
    listen_by: Any = getattr(store, "listen_by", None)
    if listen_by is not None and listen_by(notifier):
        return store
    if not isinstance(store, Handing):
        raise TypeError(f"{store.url} does not hand its notices to others: it takes no notifier")
    return NotifiedStore(store, notifier)


class NotifiedStore:
    """See the module."""

    def __init__(self, store: Store, notifier: Notifier) -> None:
        self._store = store
        self._notifier = notifier
        self._office = _Office(notifier)
        cast("Handing", store).hand_notices_to(self._office.post)
        self.url = store.url
        self.abilities = store.abilities._replace(push=True)
        self.tasks_only: bool = getattr(store, "tasks_only", False)
        if isinstance(store, Guarding):
            self.guard = store.guard

    def driver(self) -> Driver:
        """The blocking driver."""
        return cast("Driver", _Driver(self._store.driver()))

    def async_driver(self) -> AsyncDriver:
        """A driver for the running event loop."""
        return cast("AsyncDriver", _AsyncDriver(self._store.async_driver()))

    def subscribe(
        self, client: str, deliver: Deliver, connected: Callable[[], None]
    ) -> Subscription:
        """Hear the notices for ``client`` from the notifier."""

        def heard(notice: Notice) -> None:
            deliver(notice._replace(client=client))

        return self._notifier.subscribe(ELSEWHERE + client, heard, connected)

    def after_fork(self) -> None:
        """In a forked child: abandon what was inherited without closing it."""
        self._store.after_fork()
        self._notifier.after_fork()
        self._office.begin()

    def close(self) -> None:
        """Send what is left, and give back every resource; a later call opens them again."""
        self._office.close()
        self._store.close()
        self._notifier.close()


class _Driver:
    def __init__(self, inner: Any) -> None:
        self._call = inner.call

    def call(self, op: Any) -> Any:
        """Do ``op``; see `joblock.store.contract.Driver`."""
        return self._call(_elsewhere(op))


class _AsyncDriver(_Driver):
    def __init__(self, inner: Any) -> None:
        super().__init__(inner)
        self.settled = inner.settled
        self.aclose = inner.aclose


def _elsewhere(op: Any) -> Any:
    """The same for a client that is notified elsewhere."""
    kind: Any = cast("Any", type(op))
    if kind is Acquire:
        queue = op.queue
        if queue is None:
            return op
        return op._replace(queue=queue._replace(client=ELSEWHERE + queue.client, listening=False))
    if kind is Check:
        return op._replace(client=ELSEWHERE + op.client, listening=False)
    return op


class _Office:
    """Sends notices on, in a thread that is there while there are any."""

    def __init__(self, notifier: Notifier) -> None:
        self._notifier = notifier
        self.begin()

    def begin(self) -> None:
        """Begin with nothing, as in a forked child."""
        self._box: deque[Notice] = deque(maxlen=KEPT)
        self._changed = threading.Condition()
        self._thread: threading.Thread | None = None
        self._closing = False
        self._told = False

    def post(self, notices: Sequence[Notice]) -> None:
        """Send these soon; from any thread, without waiting."""
        with self._changed:
            self._box.extend(notices)
            if self._thread is None:
                thread = threading.Thread(target=self._run, name="joblock-notifier", daemon=True)
                try:
                    thread.start()
                except RuntimeError:
                    return  # the interpreter ends: `close` sends them
                self._thread = thread
            else:
                self._changed.notify_all()

    def close(self) -> None:
        """Send what is left, within bounds."""
        with self._changed:
            thread, self._closing = self._thread, True
            self._changed.notify_all()
        if thread is not None and thread is not threading.current_thread():
            thread.join(PATIENCE)
        elif self._box:
            self._send(self._some())
        self._closing = False

    def _run(self) -> None:
        while True:
            with self._changed:
                if not self._box and not self._closing:
                    self._changed.wait_for(lambda: self._box or self._closing, IDLE)
                if not self._box:
                    self._thread = None
                    return
                notices = self._some()
            self._send(notices)

    def _some(self) -> list[Notice]:
        return [self._box.popleft() for _ in range(min(TOGETHER, len(self._box)))]

    def _send(self, notices: list[Notice]) -> None:
        try:
            self._notifier.publish(notices)
        except Exception as error:  # noqa: BLE001 - whatever it is, the waiters ask by themselves
            # Those that came in meanwhile are as late.
            self._box.clear()
            if not self._told:
                self._told = True
                logger("wait").warning(
                    "%s does not carry notices for now, waiters ask the store from time to time "
                    "instead: %s",
                    self._notifier.url,
                    error,
                )
        else:
            self._told = False
