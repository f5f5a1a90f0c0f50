"""The open lease file: one connection for the whole process, used by one thread at a time.

SQLite lets one writer in at a time anyway. Whoever uses the connection has the *turn*, the one
element of a list: taking it is a pop, which no interrupt can leave half done, and a thread that
vanished with it (an interrupt between two bytecodes) has dropped it, so that it can be made anew:
at once, or once it is seen that nobody is at it where the traceback of the interrupt keeps it. It
costs a third of a lock. Whoever finds it taken says so in `wanted`; the others then stay away.

Across a fork SQLite cannot be used at all: a child that inherits a connection takes its parent's
locks for its own and loses its writes. So the connection is closed before a fork, and opened again
at need on either side. One that is inherited all the same is kept, untouched, for good.
"""

from __future__ import annotations

import atexit
import contextlib
import os
import sqlite3
import sys
import threading
import time
import weakref
from collections.abc import Callable, Generator
from typing import TYPE_CHECKING, Any, TypeVar

from joblock.store.machine import Now
from joblock.stores.sqlite import place
from joblock.stores.sqlite.boot import clock_base
from joblock.stores.sqlite.trouble import (
    DAMAGED,
    code_of,
    explain,
    is_busy,
    replaced,
    without_frames,
)
from joblock.values.clock import Clock
from joblock.values.errors import StoreError, StoreMisconfigured
from joblock.values.identity import on_fork
from joblock.values.imports import around_forks
from joblock.values.log import logger

if TYPE_CHECKING:
    from types import CodeType, FrameType

APPLICATION_ID = 0x6A626C6B  # "jblk"
MAJOR, MINOR = 1, 0
"""The format of the file, kept in it as its user_version, 1000 for each major one.

A layout that older joblock cannot work with is a new major format, columns that it need not know
are a new minor one."""

PAGE_SIZE = 2048
"""Half of SQLite's default: a lease fits well, and each change writes and sums up one page."""

CHECKPOINT = 2000
"""Pages of log after which they are moved to the file and synced: as many bytes as by default."""

LOOK_EVERY = 1000
"""Milliseconds after which it is made sure that the file at the path is still the open one."""

PATIENCE = 5.0
"""Seconds for which a busy file is tried again."""

FIRST_PAUSE = 50e-6

FORK_PATIENCE = 1.0
"""Seconds that a fork waits for the operation that another thread is just doing."""

_opening = threading.Lock()  # see place: nothing may be opened while a file is being made
_warned: set[str] = set()


class Occupied(sqlite3.OperationalError):
    """Somebody is in the way, but not for long: mostly another thread that has the turn."""

    sqlite_errorcode = sqlite3.SQLITE_BUSY


MEND_AFTER = 0.05
"""Seconds for which the turn is away before it is looked for."""

LOOKS = 3
"""Looks, so long apart, that must find nobody at it: threads move on while one looks."""

_users: set[CodeType] = set()
_F = TypeVar("_F", bound=Callable[..., Any])


class _Turn:
    __slots__ = ("__weakref__",)


def uses_turn(function: _F) -> _F:
    """Whoever has the turn is in such a function, which gives it back and never waits for it."""
    _users.add(function.__code__)
    return function


class Missing:
    """How often somebody who waits for the turn has found nobody at it, and when to look again."""

    __slots__ = ("look_at", "looks")

    def __init__(self) -> None:
        self.look_at = time.monotonic() + MEND_AFTER
        self.looks = 0


class LeaseFile:
    """See the module. ``default``: it is the user's own file, which nobody named.

    ``relative``: which file it is depends on the folder in which the process was started.
    """

    def __init__(self, path: str, clock: Clock) -> None:
        self.path = path
        self.default = False
        self.relative = False
        self.clock = clock
        self.monotonic = clock.monotonic
        self.wall = clock.wall
        self.closings = 0
        self._begin()
        _every.add(self)

    def _begin(self) -> None:
        self.queue = threading.Lock()
        self._mending = threading.Lock()
        self.turns: list[_Turn] = []
        self.wanted: list[object] = []
        self._paused: _Turn | None = None
        self._renew_turn()
        self._let_go()

    def _renew_turn(self) -> None:
        turn = _Turn()
        self._turn = weakref.ref(turn)
        self.turns.append(turn)

    def _let_go(self) -> None:
        """There is no connection: with a look that is due, nothing is tried before `ready`."""
        self._con: sqlite3.Connection | None = None
        self.look_at = 0
        self.base = 0.0

    @uses_turn
    def take(self) -> _Turn:
        """The right to use the connection, for one who is first. Raises Occupied."""
        try:
            return self.turns.pop()
        except IndexError:
            with self._mending:
                if self._turn() is None:
                    self._renew_turn()
            raise Occupied(f"another thread is using {self.path}") from None

    def mend(self, missing: Missing) -> None:
        """Make the turn anew if an interrupt lost it; for whoever waits for it, now and then."""
        if missing.looks < LOOKS and time.monotonic() >= missing.look_at:
            missing.look_at = time.monotonic() + MEND_AFTER
            missing.looks = 0 if self._is_used() else missing.looks + 1
            if missing.looks == LOOKS:
                with self._mending:
                    if not self._is_used():
                        self._renew_turn()

    def _is_used(self) -> bool:
        if self.turns or self._paused is not None:
            return True
        # There is no other way to tell.
        tops = sys._current_frames()  # pyright: ignore[reportPrivateUsage] # noqa: SLF001
        for top in tops.values():
            frame: FrameType | None = top
            while frame is not None:
                if frame.f_code in _users:
                    return True
                frame = frame.f_back
        return bool(self.turns)

    @contextlib.contextmanager
    def first(self) -> Generator[None]:
        """Keep newcomers away meanwhile, or threads that are quick would never let others in."""
        me = object()
        try:
            self.wanted.append(me)
            yield
        finally:
            with contextlib.suppress(ValueError):
                self.wanted.remove(me)

    @property
    def is_open(self) -> bool:
        """Whether there is a connection."""
        return self._con is not None

    def now(self) -> Now:
        """The time by the store's clocks; the file is open."""
        return Now(int((self.monotonic() + self.base) * 1000), int(self.wall() * 1_000_000))

    def ready(self) -> sqlite3.Connection:
        """The connection to the file that is at the path now, for whoever has the turn.

        Raises StoreError, and sqlite3.Error if the file is busy.
        """
        con = self._con
        if con is not None and self.now().ms < self.look_at:
            return con
        if con is not None and self._identity != place.identity(self.path):
            self._tell_replaced()
            # Closed, it would delete the log that belongs to the new file.
            self.abandon()
            con = None
        if con is None:
            with _opening:
                con = self._open()
                self.cursor = con.cursor()
                self._con = con
        self.look_at = self.now().ms + LOOK_EVERY
        return con

    def failed(self, error: sqlite3.Error) -> StoreError:
        """What to raise for an error that is no busy file; opened anew it may be understood."""
        gone = self._con is not None and self._identity != place.identity(self.path)
        if gone:
            self._tell_replaced()
        keep = gone or code_of(error) in DAMAGED
        self._insist(self.abandon if keep else self._close, PATIENCE)
        return replaced(self.path, error) if gone else explain(self.path, error)

    def _tell_replaced(self) -> None:
        logger("store").warning(
            "the lease file %s was moved, deleted or replaced while in use; from now on leases "
            "are in what is there now, and those held before are lost",
            self.path,
        )

    def close(self) -> None:
        """Close the connection; a later call opens it again."""
        self.closings += 1
        self.hang_up()

    def hang_up(self) -> None:
        """Close the connection, if that can be done without waiting for long."""
        self._insist(self._close, PATIENCE)

    def abandon(self) -> None:
        """Let go of the connection without closing it."""
        if self._con is not None:
            _abandoned.append(self._con)
        self._let_go()

    def pause(self) -> None:
        """Before a fork: close the connection, and keep the turn until `resume`."""
        self._insist(self._close, FORK_PATIENCE, keep=True)

    def resume(self) -> None:
        """After a fork, in the parent."""
        turn, self._paused = self._paused, None
        if turn is not None:
            self.turns.append(turn)

    def forked(self) -> None:
        """In a child: begin anew, with nothing of the parent's."""
        self.abandon()
        self._begin()

    def _insist(self, work: Callable[[], None], patience: float, *, keep: bool = False) -> None:
        """Do that as soon as the turn is to be had; not at all if that takes too long."""
        give_up, missing = time.monotonic() + patience, Missing()
        with self.first():
            while time.monotonic() < give_up:
                with contextlib.suppress(Occupied):
                    self._do(work, keep=keep)
                    return
                self.mend(missing)
                time.sleep(FIRST_PAUSE)

    @uses_turn
    def _do(self, work: Callable[[], None], *, keep: bool) -> None:
        turn = self.take()
        try:
            work()
        finally:
            if keep:
                self._paused = turn
            else:
                self.turns.append(turn)

    def _close(self) -> None:
        con = self._con
        self._let_go()
        if con is not None:
            # A cursor keeps the statement that last failed on it (the file was busy), and with a
            # statement left SQLite only seems to close: a fork then inherited an open connection.
            self.cursor.close()
            con.close()

    def _open(self) -> sqlite3.Connection:
        real = place.prepare(self.path, default=self.default)
        self._identity = place.identity(self.path)
        con: sqlite3.Connection | None = None
        try:
            _look_inside(real, self.path)
            con = _connect(real, "mode=rw")  # only what was made by `place` is opened
            self._check_identity()
            _set_up(con, self.path)
            self.base = clock_base(con, self.clock)
        except BaseException as error:
            if isinstance(error, sqlite3.Error):
                without_frames(error)
            if con is not None:
                con.close()
            if isinstance(error, sqlite3.Error) and not is_busy(error):
                raise explain(self.path, error) from error
            raise
        self._warn_once()
        return con

    def _warn_once(self) -> None:
        """Say which file it is, if another process may well have another one."""
        if not (self.default or self.relative) or self.path in _warned:
            return
        _warned.add(self.path)
        if self.relative:
            logger("store").warning(
                "the path of the lease file is relative, so it is %s: a process that is started in "
                "another folder has another file, and no lock in common. Write sqlite:///%s",
                self.path,
                self.path,
            )
        else:
            logger("store").warning(
                "no store was named, so leases are in %s: they keep apart only the processes of "
                "this user on this machine. Set JOBLOCK_URL, or pass a URL (this file's is "
                "sqlite:///%s) if that is what you want",
                self.path,
                self.path,
            )

    def _check_identity(self) -> None:
        """Opening can change it: an overlay file system then makes its own copy of the file."""
        if self._identity != place.identity(self.path):
            raise Occupied(f"{self.path} was replaced just now")


def _connect(path: str, options: str) -> sqlite3.Connection:
    # In a URI these three characters mean something else.
    quoted = path.replace("%", "%25").replace("?", "%3f").replace("#", "%23")
    return sqlite3.connect(
        f"file:{quoted}?{options}",
        timeout=0,
        isolation_level=None,
        check_same_thread=False,
        uri=True,
    )


def _look_inside(real: str, path: str) -> None:
    """See whose file it is without a trace: opened as usual, SQLite would apply a log it finds."""
    con = _connect(real, "immutable=1")
    try:
        _check_owner(con, path)
    except sqlite3.DatabaseError as error:
        # Read without locks, it may be in the middle of a change and look damaged.
        if code_of(error) == sqlite3.SQLITE_NOTADB:
            raise
    finally:
        con.close()


def _check_owner(con: sqlite3.Connection, path: str) -> bool:
    """Whether there is anything in the file; if so, it is joblock's."""
    # In this order: who makes the file commits both at once.
    [(tables,)] = con.execute("SELECT count(*) FROM sqlite_master")
    [(application,)] = con.execute("PRAGMA application_id")
    if application != APPLICATION_ID and (application or tables):
        raise StoreMisconfigured(
            f"{path} is the database of another program. It is left as it is: "
            "name a file for the leases alone, which joblock makes"
        )
    return bool(tables)


def _set_up(con: sqlite3.Connection, path: str) -> None:
    """Make sure that this is joblock's file, in a layout known here; an empty one becomes it."""
    made = _check_owner(con, path)
    if made:
        _check_format(con, path)
    else:
        con.execute(f"PRAGMA page_size = {PAGE_SIZE}")
    [(mode,)] = con.execute("PRAGMA journal_mode = WAL")
    if mode != "wal":
        raise StoreMisconfigured(
            f"{path} cannot be used by several processes at once (SQLite keeps to its journal mode "
            f"{mode!r} there): name a file on a local disk"
        )
    con.execute("PRAGMA synchronous = NORMAL")
    con.execute(f"PRAGMA wal_autocheckpoint = {CHECKPOINT}")
    if not made:
        _create(con)
        _check_format(con, path)


def _check_format(con: sqlite3.Connection, path: str) -> None:
    [(version,)] = con.execute("PRAGMA user_version")
    if version // 1000 != MAJOR:
        raise StoreMisconfigured(
            f"{path} has format {version / 1000:.3f}, and this joblock works with {MAJOR}.x: "
            "use one version of joblock wherever this file is used, or name another file"
        )


def _create(con: sqlite3.Connection) -> None:
    with con:
        con.execute("BEGIN IMMEDIATE")
        [(tables,)] = con.execute("SELECT count(*) FROM sqlite_master")
        if tables:
            return  # another process was first
        for statement in schema().split(";"):
            con.execute(statement)
        con.execute("INSERT INTO meta VALUES (1, '', 0, 0, 0)")
        con.execute(f"PRAGMA application_id = {APPLICATION_ID}")
        con.execute(f"PRAGMA user_version = {1000 * MAJOR + MINOR}")


def schema() -> str:
    """The DDL of the lease file."""
    path = f"{__file__.rpartition(os.sep)[0]}{os.sep}schema.sql"
    with open(path, encoding="utf-8") as file:  # noqa: PTH123 - see place
        return file.read()


# Around a fork.

_every: weakref.WeakSet[LeaseFile] = weakref.WeakSet()
_abandoned: list[sqlite3.Connection] = []
_forking = threading.Lock()  # one fork at a time
_paused: list[LeaseFile] = []
_kept_closed = [False]


def _before_fork() -> None:
    """Close every connection, and keep other threads from opening one until the fork is over."""
    _forking.acquire()
    for file in tuple(_every):
        _pause(file)
    # Others may have begun with a file since: it is not opened, or else it is open by now.
    _kept_closed[0] = _opening.acquire(timeout=FORK_PATIENCE)
    for file in tuple(_every):
        if file.is_open and file not in _paused:
            _pause(file)


def _pause(file: LeaseFile) -> None:
    file.pause()
    _paused.append(file)


def _after_fork_in_parent() -> None:
    if _kept_closed[0]:
        _opening.release()
    for file in _paused:
        file.resume()
    _paused.clear()
    _forking.release()


def _after_fork_in_child() -> None:
    global _opening, _forking
    _paused.clear()
    _opening, _forking = threading.Lock(), threading.Lock()
    for file in tuple(_every):
        file.forked()


def _at_exit() -> None:
    """Keep what was abandoned from being closed by the end of the interpreter."""
    if _abandoned:
        import ctypes

        for con in _abandoned:
            ctypes.pythonapi.Py_IncRef(ctypes.py_object(con))


around_forks(_before_fork, _after_fork_in_parent)
on_fork(_after_fork_in_child)
atexit.register(_at_exit)
