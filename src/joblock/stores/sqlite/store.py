"""The SQLite store as its users meet it: a path or URL, the drivers, notices, fork and close."""

from __future__ import annotations

import atexit
import os
import threading
import weakref
from collections.abc import Callable, Iterable, Sequence
from typing import TYPE_CHECKING

from joblock.store.contract import ELSEWHERE, Abilities, Deliver, digest
from joblock.store.ops import Holders
from joblock.stores.sqlite.driver import AsyncSqliteDriver, SqliteDriver
from joblock.stores.sqlite.file import LeaseFile
from joblock.values.clock import SYSTEM_CLOCK, Clock
from joblock.values.errors import StoreMisconfigured
from joblock.values.identity import on_fork
from joblock.values.imports import importing

if TYPE_CHECKING:
    from concurrent.futures import ThreadPoolExecutor

    from joblock.borrowed import Statement
    from joblock.store.contract import Subscription
    from joblock.store.ops import Notice, Strike
    from joblock.stores.sqlite.operations import Letter
    from joblock.stores.sqlite.sockets import Sockets

# In a transaction of somebody else's. It writes, and so keeps every other writer away, which is all
# it takes: nobody else can get the lease before that commits.
_GUARD = """
UPDATE {place}.job_locks SET holder = holder
WHERE key = :key AND holder = :holder AND token = :token
    AND client IS NULL AND ended_at = 0 AND expires_at > :now
RETURNING token"""

THREADS = 4
"""Threads for the tasks that find the file busy; it serves one at a time anyway."""


class SqliteStore:
    """Leases in a file, for all processes of this machine that can write it.

    A path that is not absolute is below the working directory at this moment.
    """

    abilities = Abilities(shared=False)

    def __init__(self, path: str | os.PathLike[str], *, clock: Clock = SYSTEM_CLOCK) -> None:
        self.file = LeaseFile(_checked(os.fspath(path)), clock)
        self.url = f"sqlite:///{self.file.path}"
        self._elsewhere: Callable[[Sequence[Notice]], None] | None = None
        self._begin()
        _every.add(self)

    @classmethod
    def from_url(cls, url: str) -> SqliteStore:
        """The store of ``sqlite:////absolute/path`` or ``sqlite:///relative/path``."""
        from urllib.parse import unquote

        from joblock.stores.registry import safe_url

        scheme, separator, path = url.partition(":///")
        if scheme != "sqlite" or not separator:
            raise ValueError(
                "an SQLite URL is sqlite:/// and a path, which makes four slashes if the path is "
                f"absolute, such as sqlite:////var/lib/app/locks.db; got {safe_url(url)!r}"
            )
        if "?" in path or "#" in path:
            raise ValueError(
                "an SQLite URL has no options; in a path ? is %3F and # is %23; "
                f"got {safe_url(url)!r}"
            )
        store = cls(unquote(path))
        store.file.relative = not path.startswith("/")
        return store

    @classmethod
    def default(cls) -> SqliteStore:
        """The store of this user on this machine, for when none is named."""
        from platformdirs import user_state_dir

        try:
            folder = user_state_dir("joblock", appauthor=False)
        except RuntimeError:
            folder = ""
        if not folder.startswith("/"):
            raise StoreMisconfigured(
                f"no store is named, and uid {os.geteuid()} has no home directory to keep a lease "
                "file in: set JOBLOCK_URL, or HOME"
            )
        store = cls(f"{folder}/leases.db")
        store.file.default = True
        return store

    def _begin(self) -> None:
        self._lock = threading.Lock()
        self._executor: ThreadPoolExecutor | None = None
        self._sockets: Sockets | None = None

    def driver(self) -> SqliteDriver:
        """The blocking driver, shared by all threads."""
        return SqliteDriver(self)

    def async_driver(self) -> AsyncSqliteDriver:
        """A driver for the running event loop."""
        return AsyncSqliteDriver(self)

    def subscribe(
        self, client: str, deliver: Deliver, connected: Callable[[], None]
    ) -> Subscription:
        """Hear the notices for ``client`` through a socket beside the file."""
        return self.sockets().listen(client, deliver, connected)

    def guard(self, key: str, holder: str, token: int) -> Statement:
        """See `joblock.store.contract.Guarding`."""
        with importing():
            from joblock.borrowed import Statement  # pathlib: see place

        if not self.file.is_open:
            self.driver().call(Holders(key))  # the store's clock is in the file
        now = self.file.now().ms
        values: dict[str, str | int] = {"key": key, "holder": holder, "token": token, "now": now}
        return Statement(_GUARD, values, ("sqlite",), file=self.file.path)

    def after_fork(self) -> None:
        """In a forked child: abandon what was inherited; what the parent has stays as it is."""
        self.file.forked()
        if self._sockets is not None:
            self._sockets.forked()
        self._begin()

    def close(self) -> None:
        """Give back the connection, the sockets and the threads; a later call opens them again."""
        with self._lock:
            executor, self._executor = self._executor, None
            sockets, self._sockets = self._sockets, None
        if sockets is not None:
            sockets.close()
        if executor is not None:
            executor.shutdown(wait=False)
        self.file.close()

    def post(self, letters: Iterable[Letter]) -> list[Strike]:
        """Send what a committed transaction says; whom to pass over because nobody was there."""
        letters = self._hand_over(list(letters))
        if not letters:
            return []
        dead = self.sockets().post(letter.notice for letter in letters)
        return [
            letter.strike
            for letter in letters
            if letter.strike is not None and letter.notice.client in dead
        ]

    def hand_notices_to(self, post: Callable[[Sequence[Notice]], None]) -> None:
        """See `joblock.store.contract.Handing`."""
        self._elsewhere = post

    def _hand_over(self, letters: list[Letter]) -> list[Letter]:
        """Hand over what others are to carry; the rest."""
        if self._elsewhere is None:
            return letters
        here: list[Letter] = []
        away: list[Notice] = []
        for letter in letters:
            notice = letter.notice
            if notice.client.startswith(ELSEWHERE):
                away.append(notice._replace(key=digest(notice.key)))
            else:
                here.append(letter)
        if away:
            self._elsewhere(away)
        return here

    def sockets(self) -> Sockets:
        """What notices go through, made at the first use."""
        with self._lock:
            if self._sockets is None:
                with importing():
                    from joblock.stores.sqlite.sockets import Sockets

                self._sockets = Sockets(self.file.path)
            return self._sockets

    def executor(self) -> ThreadPoolExecutor:
        """The threads to wait in for tasks."""
        with self._lock:
            if self._executor is None:
                with importing():
                    from concurrent.futures import ThreadPoolExecutor

                self._executor = ThreadPoolExecutor(THREADS, "joblock-sqlite")
            return self._executor


def _checked(path: str) -> str:
    if not path:
        raise ValueError("the lease file needs a path; leases of one process alone are memory://")
    if path == ":memory:" or path.startswith("file:"):
        raise ValueError(
            f"{path!r} is a database in memory, or a URI; leases are kept in a plain file, whose "
            "path is asked for here. For leases of one process alone there is memory://"
        )
    if "\0" in path:
        raise ValueError(f"a path holds no NUL character; got {path!r}")
    return os.path.abspath(path)  # noqa: PTH100 - see place


_every: weakref.WeakSet[SqliteStore] = weakref.WeakSet()


def _after_fork() -> None:
    for store in tuple(_every):
        store.after_fork()


def _at_exit() -> None:
    for store in tuple(_every):
        store.close()


on_fork(_after_fork)
atexit.register(_at_exit)
