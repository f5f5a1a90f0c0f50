"""A client's ear: one channel on a connection and a thread of its own."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from joblock.store.ops import Notice
from joblock.stores.redis.login import refusal
from joblock.stores.redis.scripts import CHANNEL
from joblock.stores.redis.sync import Connection, SyncDriver
from joblock.stores.redis.wire import ConnectFailed, Disconnected, ServerError, TimedOut, pack
from joblock.values.errors import StoreError
from joblock.values.log import logger

if TYPE_CHECKING:
    from joblock.store.contract import Deliver

FIRST_PAUSE, LONGEST_PAUSE = 0.05, 2.0
QUIET = 10.0
"""Seconds of silence after which the server is asked whether it is still there."""

PATIENCE = 5.0
"""Seconds it then has to answer, and that a subscription may take."""


class RedisSubscription:
    """See `joblock.store.contract.Subscription`."""

    def __init__(
        self,
        driver: SyncDriver,
        client: str,
        key_of: Callable[[str], str],
        deliver: Deliver,
        connected: Callable[[], None],
    ) -> None:
        self._driver = driver
        self._client = client
        self._channel = CHANNEL + client
        self._key_of = key_of
        self._deliver = deliver
        self._connected = connected
        self._listening = False
        self._lock = threading.Lock()
        self._connection: Connection | None = None
        self._closed = threading.Event()
        self._thread = threading.Thread(target=self._run, name="joblock-redis-ear", daemon=True)
        self._thread.start()

    @property
    def listening(self) -> bool:
        """Whether a notice sent now would arrive."""
        return self._listening

    def close(self) -> None:
        """Stop listening; returns when the connection is closed."""
        self._listening = False
        with self._lock:
            self._closed.set()
            if self._connection is not None:
                self._connection.interrupt()
        if self._thread is not threading.current_thread():
            self._thread.join(PATIENCE)

    def pass_on(self, payload: str) -> None:
        """Deliver the notice that a message stands for, wherever it was heard."""
        after, mark, holder = payload.split(" ", 2)
        self._deliver(Notice(self._client, self._key_of(mark), holder, int(after)))

    def _run(self) -> None:
        pause, told = FIRST_PAUSE, False
        while not self._closed.is_set():
            try:
                heard = self._listen()
            except (ConnectFailed, Disconnected, TimedOut, StoreError) as error:
                heard = self._listening
                self._listening = False
                if not told and not self._closed.is_set():
                    told = True
                    logger("wait").warning(
                        "hears no notices, so waiters ask from time to time instead: %s", error
                    )
            except Exception:  # noqa: BLE001 - nothing may end the thread for good
                heard, self._listening = False, False
                logger("wait").exception("the listening thread failed; it goes on")
            if heard:
                pause, told = FIRST_PAUSE, False
            self._closed.wait(pause)
            pause = min(LONGEST_PAUSE, pause * 2)

    def _listen(self) -> bool:
        """Connect, subscribe, and pass on what is heard until the connection ends."""
        connection = self._driver.connect()
        try:
            with self._lock:
                self._connection = connection
                if self._closed.is_set():
                    return False
            connection.send(pack("SUBSCRIBE", self._channel))
            patience = PATIENCE
            while True:
                messages = connection.listen(patience)
                if messages is not None:
                    self._take(messages)
                    patience = QUIET
                elif patience == QUIET:
                    connection.send(pack("PING"))
                    patience = PATIENCE
                else:
                    raise _silent()
        except (Disconnected, TimedOut):
            self._driver.broken(connection)
            raise
        finally:
            with self._lock:
                self._connection = None
                connection.close()

    def _take(self, messages: list[Any]) -> None:
        for message in messages:
            if isinstance(message, ServerError):
                raise refusal(f"channel {self._channel}", message)
            kind = message[0]
            if kind == b"message":
                self.pass_on(message[2].decode())
            elif kind == b"subscribe":
                self._listening = True
                self._connected()


def _silent() -> TimedOut:
    return TimedOut(f"no answer within {PATIENCE:g} s")
