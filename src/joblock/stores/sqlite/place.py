"""Where the lease file is: made with private permissions, or refused with the reason.

The file itself is opened here only to create it. Closing any descriptor of a file drops the locks
that the whole process has on it, those of SQLite's connections among them.
"""

# pathlib takes longer to load than all that is done here.
# ruff: noqa: PTH102, PTH103, PTH112, PTH116, PTH120, PTH123

from __future__ import annotations

import os
import stat

from joblock.stores.sqlite import mounts
from joblock.stores.sqlite.trouble import explain_os
from joblock.values.errors import StoreMisconfigured

MOUNTS = "/proc/self/mountinfo"


def prepare(path: str, *, default: bool) -> str:
    """Make sure that there is a file to open at ``path``; its resolved path.

    A missing directory is made if the one above it is there; all of them for the ``default`` file.
    """
    try:
        real = os.path.realpath(path)
        _make_directory(os.path.dirname(real), deep=default)
        _refuse_network(real)
        _make_file(real)
        kind = os.stat(real).st_mode
    except OSError as error:
        raise explain_os(path, error) from error
    if not stat.S_ISREG(kind):
        what = "a directory" if stat.S_ISDIR(kind) else "no regular file"
        raise StoreMisconfigured(f"{path} is {what}: name a file to keep the leases in")
    return real


def identity(path: str) -> tuple[int, int]:
    """What tells the file at a path from one that takes its place; (0, 0) if there is none."""
    try:
        found = os.stat(path)
    except OSError:
        return 0, 0
    return found.st_dev, found.st_ino


def _make_directory(directory: str, *, deep: bool) -> None:
    if os.path.isdir(directory):
        return
    above = os.path.dirname(directory)
    if deep:
        os.makedirs(above, exist_ok=True)
    elif not os.path.isdir(above):
        raise StoreMisconfigured(
            f"the lease file's directory {directory} does not exist, nor does {above}: "
            "make it, or correct the path (sqlite:/// and an absolute path make four slashes)"
        )
    try:
        os.mkdir(directory, 0o700)
    except FileExistsError:
        return


def _make_file(path: str) -> None:
    flags = os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC
    try:
        os.close(os.open(path, flags, 0o600))
    except FileExistsError:
        return


def _refuse_network(path: str) -> None:
    try:
        with open(MOUNTS, encoding="utf-8", errors="surrogateescape") as lines:
            text = lines.read()
    except OSError:
        return  # not Linux
    kind = mounts.type_of(path, text)
    if kind in mounts.REMOTE:
        raise StoreMisconfigured(
            f"{path} is on a network file system ({kind}), where SQLite's locks do not keep "
            "machines apart and two could hold the same lease: name a file on a local disk, or use "
            "a shared store such as postgresql:// or redis://"
        )
