"""How the suites of `joblock.testing` get their SQLite stores: one file, many store objects.

Their clock is turned by hand, and notices take their time all the same: they go through sockets. A
clock that overtook them would make the tests see what no user sees, so it waits for them first.
"""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING

from joblock.stores.sqlite import SqliteStore
from joblock.testing import ManualClock, ManualHarness

if TYPE_CHECKING:
    from pathlib import Path

    from joblock.store.contract import Subscription

PATIENCE = 10.0


class Mail:
    """The notices that are on their way to those who listen."""

    def __init__(self):
        self._changed = threading.Condition()
        self._pending = {}

    def open(self, client):
        with self._changed:
            self._pending[client] = 0

    def close(self, client):
        with self._changed:
            self._pending.pop(client, None)
            self._changed.notify_all()

    def count(self, client, change):
        with self._changed:
            if client in self._pending:
                self._pending[client] += change
                self._changed.notify_all()

    def wait(self):
        with self._changed:
            arrived = self._changed.wait_for(lambda: not any(self._pending.values()), PATIENCE)
            assert arrived, self._pending


class PatientClock(ManualClock):
    def __init__(self, mail):
        super().__init__()
        self._mail = mail

    def advance(self, seconds, *, settle=True):
        self._mail.wait()
        super().advance(seconds, settle=settle)

    def settle(self, threads=0):
        self._mail.wait()
        super().settle(threads)
        self._mail.wait()
        super().settle()


class PostedStore(SqliteStore):
    """A store whose notices are counted from when they are sent until they were heard."""

    def __init__(self, path, clock, mail):
        super().__init__(path, clock=clock)
        self._mail = mail

    def post(self, letters):
        letters = list(letters)
        for letter in letters:
            self._mail.count(letter.notice.client, 1)
        return super().post(letters)

    def subscribe(self, client, deliver, connected) -> Subscription:
        def hear(notice):
            try:
                deliver(notice)
            finally:
                self._mail.count(client, -1)

        self._mail.open(client)
        subscription = super().subscribe(client, hear, connected)
        close = subscription.close

        def close_counted():
            close()
            self._mail.close(client)

        subscription.close = close_counted
        return subscription


class SqliteHarness(ManualHarness):
    many = 2_500  # more than two transactions' worth of renewals

    def __init__(self, folder: Path) -> None:
        super().__init__()
        self._mail = Mail()
        self.manual = self.clock = PatientClock(self._mail)
        self.path = folder / "leases.db"

    def make_store(self) -> SqliteStore:
        return PostedStore(self.path, self.clock, self._mail)

    def close(self) -> None:
        self._mail.wait()
