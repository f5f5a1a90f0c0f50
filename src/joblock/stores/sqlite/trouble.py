"""What SQLite and the file system complain of, told to the person who is paged."""

from __future__ import annotations

import errno
import os
import sqlite3

from joblock.values.errors import StoreError, StoreMisconfigured, StoreUnavailable

DAMAGED = (sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_NOTADB)
_FORBIDDEN = (sqlite3.SQLITE_PERM, sqlite3.SQLITE_AUTH, sqlite3.SQLITE_READONLY)
_WRONG_PATH = {
    errno.ENOTDIR: "what should be a directory of its path is a file",
    errno.ELOOP: "its path has symbolic links that lead in a circle",
    errno.ENOENT: "its directory is not there and cannot be made",
    errno.ENAMETOOLONG: "its path, or a name in it, is too long",
}
_PASSING = {
    errno.EDQUOT,
    errno.EIO,
    errno.EMFILE,
    errno.ENFILE,
    errno.ENOMEM,
    errno.ENOSPC,
}


def code_of(error: sqlite3.Error) -> int:
    """SQLite's primary result code, or 0 if the error is not SQLite's."""
    return getattr(error, "sqlite_errorcode", 0) & 0xFF


def is_busy(error: sqlite3.Error) -> bool:
    """Whether another connection is just at it, so that the same may work in a moment."""
    return code_of(error) in (
        sqlite3.SQLITE_BUSY,
        sqlite3.SQLITE_LOCKED,
        sqlite3.SQLITE_PROTOCOL,
    )


def explain(path: str, error: sqlite3.Error) -> StoreError:
    """The error to raise for one of SQLite's about the lease file ``path``."""
    code = code_of(error)
    if code in DAMAGED:
        return StoreMisconfigured(
            f"{path} is damaged, or is no SQLite database ({error}). It is left as it is: move it "
            "away and a new one is made (the leases in it are lost), or name another file"
        )
    if code in _FORBIDDEN:
        return unwritable(path, error)
    if code == sqlite3.SQLITE_CANTOPEN:
        return _cannot_open(path, error)
    if getattr(error, "sqlite_errorcode", 0) == sqlite3.SQLITE_IOERR_SHORT_READ:
        # Shorter than the index of its log says: that index is of what was there before.
        return _emptied(path, error)
    if code == sqlite3.SQLITE_FULL:
        return StoreUnavailable(
            f"there is no room to write to the lease file {path} ({error}): "
            "free some on its file system"
        )
    if code == sqlite3.SQLITE_ERROR:
        return StoreMisconfigured(
            f"the lease file {path} is not as joblock made it ({error}): "
            "move it away and a new one is made, or name another file"
        )
    return StoreUnavailable(
        f"the lease file {path} cannot be used now ({error}): "
        "look at the disk it is on (full, over quota, failing?) and at the machine's memory"
    )


def explain_os(path: str, error: OSError) -> StoreError:
    """The same for an error of the operating system."""
    if error.errno in _PASSING:
        return StoreUnavailable(
            f"the lease file {path} cannot be used now ({error}): free what is used up"
        )
    if error.errno in _WRONG_PATH:
        return StoreMisconfigured(
            f"the lease file {path} cannot be made: {_WRONG_PATH[error.errno]} ({error}): "
            "correct the path, or name another file"
        )
    return unwritable(path, error)


def replaced(path: str, error: sqlite3.Error) -> StoreUnavailable:
    """An error that comes of another file, or none, being at the path by now."""
    return StoreUnavailable(
        f"the lease file {path} was moved, deleted or replaced while in use ({error}): "
        "the same call again uses what is there now, and the leases in the old one are lost"
    )


def locked(path: str, seconds: float) -> StoreUnavailable:
    """Others kept the file locked for too long."""
    if _has_foreign_index(path):
        return _emptied(path, None)
    return StoreUnavailable(
        f"other processes have kept the lease file {path} locked for {seconds:g} s; "
        f"see which: fuser {path}"
    )


def _has_foreign_index(path: str) -> bool:
    """Whether the log's index belongs to what was there before: an empty file has none yet."""
    try:
        return os.stat(path).st_size == 0 < os.stat(f"{path}-shm").st_size  # noqa: PTH116
    except OSError:
        return False


def _emptied(path: str, error: Exception | None) -> StoreUnavailable:
    said = "" if error is None else f" ({error})"
    return StoreUnavailable(
        f"the lease file {path} was deleted or truncated while processes had it open{said}, and "
        f"they still use {path}-shm: end them (fuser {path}-shm); then the file is made anew, and "
        "the leases that were in it are lost"
    )


def unwritable(path: str, error: Exception) -> StoreMisconfigured:
    """This user may not write the file, or what SQLite puts beside it."""
    return StoreMisconfigured(
        f"the lease file {path} cannot be written ({error}): let uid {os.geteuid()} write the file "
        "and its directory, where SQLite keeps two more files, or name another file"
    )


def _cannot_open(path: str, error: sqlite3.Error) -> StoreError:
    # SQLite does not say why. Out of descriptors is the one reason that passes by itself.
    try:
        os.close(os.open(os.devnull, os.O_RDONLY | os.O_CLOEXEC))
    except OSError as reason:
        return explain_os(path, reason)
    return unwritable(path, error)


def without_frames(error: sqlite3.Error) -> sqlite3.Error:
    """Let go of the frames that an error went through so far.

    They can hold cursors, and with a cursor's statement left SQLite only seems to close a
    connection: a fork meanwhile would inherit an open one, take its locks for its own and lose what
    it writes.
    """
    error.__traceback__ = None
    return error
