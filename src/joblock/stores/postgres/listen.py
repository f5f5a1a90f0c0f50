"""One client's ear: a thread with a connection of its own that LISTENs on the client's channel.

It reconnects by itself. Behind a pooler LISTEN is lost on the server connection that happened to
run it; the process id that the server reports then differs from the one that the connection was
told, so the ear knows that it would be deaf, and the client polls. So it does where the ear goes
another way than the store (``where`` says which database that one has) and ends up elsewhere.
"""

from __future__ import annotations

import os
import select
import threading
from collections.abc import Callable
from typing import Any, NamedTuple

from joblock.store.contract import Deliver
from joblock.store.ops import Notice
from joblock.stores.postgres.statements import WHERE
from joblock.values.log import logger

HERE = f"select pg_backend_pid(), {WHERE}"
FIRST_PAUSE, LONGEST_PAUSE = 0.05, 2.0


class Hearing(NamedTuple):
    """For whom an ear listens, and what it does with what it hears."""

    client: str
    deliver: Deliver
    connected: Callable[[], None]
    key_behind: Callable[[str], str]

    def tell(self, payload: str) -> None:
        """Take in a notice."""
        try:
            after, mark, holder = payload.split(" ", 2)
            self.deliver(Notice(self.client, self.key_behind(mark), holder, int(after)))
        except Exception:  # noqa: BLE001 - one bad notice must not cost the others
            logger("wait").exception("a notice could not be taken in")


class Ear:
    """See `joblock.store.contract.Subscription`."""

    def __init__(
        self,
        connect: Callable[[], Any],
        channel: str,
        hearing: Hearing,
        where: Callable[[], str] | None,
    ) -> None:
        self.listening = False
        self._connect = connect
        self._channel = channel
        self._hearing = hearing
        self._where = where
        self._closing = False
        self._connection: Any = None
        self._wake_read, self._wake_write = os.pipe()
        self._pid = os.getpid()
        self._thread = threading.Thread(target=self._run, name="joblock-listener", daemon=True)
        self._thread.start()

    def is_alive(self) -> bool:
        """Whether it tries to listen; it gives up where it would be deaf."""
        return self._thread.is_alive()

    def close(self) -> None:
        """Stop listening."""
        self.listening = False
        self._closing = True
        if self._pid != os.getpid():
            return  # the thread, and its pipe, are the parent's
        if self._thread.is_alive():
            os.write(self._wake_write, b"x")
            if self._thread is not threading.current_thread():
                self._thread.join(1.0)

    def _run(self) -> None:
        pause, told = FIRST_PAUSE, False
        try:
            while not self._closing:
                try:
                    heard = self._listen()
                except Exception as error:  # noqa: BLE001 - whatever it is, it may pass
                    heard = True
                    if not told:
                        told = True
                        logger("wait").warning(
                            "no notices for now, waiters are looked after by polling: %s", error
                        )
                if self.listening:
                    self.listening, pause, told = False, FIRST_PAUSE, False
                if not heard:
                    return
                if not self._closing:
                    select.select([self._wake_read], [], [], pause)
                    pause = min(LONGEST_PAUSE, pause * 2)
        finally:
            os.close(self._wake_read)
            os.close(self._wake_write)

    def _listen(self) -> bool:
        """Hear until the connection breaks or the ear is closed; False if it would be deaf."""
        connection = self._connection = self._connect()
        try:
            pid, where = connection.execute(HERE).fetchone()
            if self._is_deaf(pid, connection.pgconn.backend_pid, where):
                return False
            connection.execute(f'LISTEN "{self._channel}"')
            self.listening = True
            self._hearing.connected()
            self._hear(connection.pgconn)
        finally:
            self.listening = self.listening and not self._closing
            self._connection = None
            connection.close()
        return True

    def _is_deaf(self, pid: int, told: int, where: str) -> bool:
        if self._where is not None and self._where() != where:
            logger("wait").warning(
                "what is to carry the notices (listen_url= or notifier=) leads to another database "
                "than the store: waiters poll"
            )
            return True
        if pid != told:
            logger("wait").info(
                "connected through a pooler, which cannot carry notices: waiters poll; give "
                "listen_url= or notifier= with a direct URL to have them woken"
            )
            return True
        return False

    def _hear(self, pg: Any) -> None:
        poll = select.poll()
        poll.register(pg.socket, select.POLLIN)
        poll.register(self._wake_read, select.POLLIN)
        while not self._closing:
            # Notices that came along with the reply to LISTEN are there before any poll.
            while (notify := pg.notifies()) is not None:
                self._hearing.tell(notify.extra.decode())
            poll.poll()
            if not self._closing:
                pg.consume_input()
