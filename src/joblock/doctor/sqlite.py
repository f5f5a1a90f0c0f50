"""How a lease file is kept: on which file system, who may use it, how much room there is.

The file is opened by SQLite alone: closing another descriptor of it would drop SQLite's locks.
"""

from __future__ import annotations

import os
import shutil
import sqlite3
import stat
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING

from joblock.doctor.report import Finding, Look, broken, good, note, risk, unchecked, untried
from joblock.stores.sqlite import mounts
from joblock.stores.sqlite.file import MAJOR, MINOR
from joblock.stores.sqlite.place import MOUNTS

if TYPE_CHECKING:
    from joblock.stores.sqlite.store import SqliteStore

LITTLE = 64 * 1024 * 1024
"""Bytes of free space below which the disk counts as nearly full."""


def look(store: SqliteStore) -> Look:
    """Look at the file and where it is; raises nothing for what is wrong with it."""
    path = Path(store.file.path)
    findings = [*_reach(store), *_file_system(path)]
    if not _folder(path).is_dir():
        return Look([*findings, _no_folder(path), untried("there is no folder for it yet")], None)
    findings += _room(path)
    if not path.exists():
        return _before_the_first_use(path, findings)
    findings += [*_permissions(path), *_inside(path)]
    if any(finding.severity == "broken" for finding in findings):
        return Look([*findings, untried()], None)
    findings += _sockets(store, path)
    return Look(findings, store)


def _folder(path: Path) -> Path:
    return Path(os.path.realpath(path)).parent


def _no_folder(path: Path) -> Finding:
    folder = _folder(path)
    if folder.parent.is_dir() and os.access(folder.parent, os.W_OK | os.X_OK):
        return note("file", f"{path} is not there yet: the first use makes it and its folder")
    return broken(
        "file",
        f"{path} is not there, nor is its folder, and it cannot be made by uid {os.geteuid()}",
        "no lease can be had",
        f"make {folder} for the user that runs the jobs, with mode 700",
    )


def _before_the_first_use(path: Path, findings: list[Finding]) -> Look:
    """Try a file beside it: whoever makes the real one owns it, and that should be the jobs."""
    from joblock.stores.sqlite.store import SqliteStore

    if not os.access(_folder(path), os.W_OK | os.X_OK):
        lacking = broken(
            "permissions",
            f"{path} is not there, and uid {os.geteuid()} may not write its folder",
            "no lease can be had",
            "let the user that runs the jobs write the folder, or examine as that user",
        )
        return Look([*findings, lacking, untried("no file can be made")], None)
    beside = _folder(path) / f".joblock-doctor-{os.getpid()}"
    trial = SqliteStore(beside)

    def clean_up() -> None:
        trial.close()
        for end in ("", "-wal", "-shm"):
            with suppress(OSError):
                beside.with_name(beside.name + end).unlink()
        shutil.rmtree(f"{beside}.sockets", ignore_errors=True)

    found = f"{path} is not there yet: what follows was tried with a file beside it"
    return Look([*findings, note("file", found)], trial, clean_up=clean_up)


def _reach(store: SqliteStore) -> list[Finding]:
    if store.file.relative:
        return [
            risk(
                "reach",
                f"its path is relative, so it is {store.file.path}",
                "a process that is started in another folder has a file of its own: the same job "
                "runs in both at a time",
                f"write sqlite:///{store.file.path}",
            )
        ]
    if not store.file.default:
        return [good("reach", f"{store.file.path}, for the processes of this machine")]
    return [
        risk(
            "reach",
            f"no store is named, so it is {store.file.path}",
            "another user, container or machine has a file of its own: the same job runs in both "
            "at a time",
            "set JOBLOCK_URL wherever the job runs",
        )
    ]


def _file_system(path: Path) -> list[Finding]:
    try:
        text = Path(MOUNTS).read_text(encoding="utf-8", errors="surrogateescape")
    except OSError:
        kind = ""
    else:
        kind = mounts.type_of(os.path.realpath(path), text)
    if not kind:
        found = "this system does not tell which file system the file is on"
        return [unchecked("file system", found, "see that it is a local disk, and no network")]
    if kind in mounts.REMOTE:
        return [
            broken(
                "file system",
                f"{kind}, a network file system",
                "its locks do not keep machines apart: two hold the same lease",
                "name a file on a local disk, or use a shared store",
            )
        ]
    if kind == "overlay":
        return [
            risk(
                "file system",
                "overlay, most likely a container's own layer",
                "other containers have a file of their own: the same job runs in both at a time",
                "put the file into a volume that all of them share, or use a shared store",
            )
        ]
    if kind in ("tmpfs", "ramfs"):
        return [note("file system", kind, "a key that was closed after its run opens at a reboot")]
    return [good("file system", f"{kind}, local")]


def _room(path: Path) -> list[Finding]:
    try:
        free = shutil.disk_usage(_folder(path)).free
    except OSError as error:
        return [unchecked("disk", f"how much is free cannot be told: {error}")]
    found = f"{free // (1024 * 1024):,} MiB are free"
    if free >= LITTLE:
        return [good("disk", found)]
    return [
        risk(
            "disk",
            found,
            "on a full disk leases are neither granted nor renewed: they are lost",
            "make room, or name a file on another disk",
        )
    ]


def _permissions(path: Path) -> list[Finding]:
    lacking = [
        f"write {place}"
        for place, rights in ((path, os.R_OK | os.W_OK), (_folder(path), os.W_OK | os.X_OK))
        if not os.access(place, rights)
    ]
    if lacking:
        return [
            broken(
                "permissions",
                f"uid {os.geteuid()} may not {' nor '.join(lacking)}",
                "no lease can be had: SQLite keeps two more files beside it",
                "let the user that runs the jobs write both, or examine as that user",
            )
        ]
    found: list[Finding] = []
    file, folder = path.stat(), _folder(path).stat()
    mode = f"mode {stat.S_IMODE(file.st_mode):o}, in a folder of mode"
    shown = f"{mode} {stat.S_IMODE(folder.st_mode):o}"
    anybody_folder = folder.st_mode & stat.S_IWOTH and not folder.st_mode & stat.S_ISVTX
    if file.st_mode & stat.S_IWOTH or anybody_folder:
        found.append(
            risk(
                "permissions",
                shown,
                "every user of this machine may break every lease",
                f"chmod o-w {path} {_folder(path)}",
            )
        )
    if file.st_uid != os.geteuid():
        what = "waiters of other users than its owner are not woken, but ask now and then"
        found.append(note("owner", f"uid {file.st_uid} owns it, this is {os.geteuid()}", what))
    return found or [good("permissions", shown)]


def _inside(path: Path) -> list[Finding]:
    quoted = str(path.resolve()).replace("%", "%25").replace("?", "%3f").replace("#", "%23")
    try:
        con = sqlite3.connect(f"file:{quoted}?mode=ro", uri=True, timeout=2)
        try:
            [(version,)] = con.execute("PRAGMA user_version")
            [(mode,)] = con.execute("PRAGMA journal_mode")
            [(synced,)] = con.execute("PRAGMA quick_check(1)")
        finally:
            con.close()
    except sqlite3.Error as error:
        # The trial opens it as the store does, and tells what is wrong with it.
        return [unchecked("format", f"it cannot be read as it is: {error}")]
    return [*_format(version), *_journal(mode, version), *_soundness(synced)]


def _format(version: int) -> list[Finding]:
    known, found = f"{MAJOR}.{MINOR}", f"{version // 1000}.{version % 1000}"
    if version // 1000 != MAJOR:
        return []  # the trial says what that means
    if version % 1000 > MINOR:
        newer = f"format {found}, which a newer joblock made; this one knows {known}"
        return [note("format", newer, "harmless: it need not know what is new")]
    return [good("format", found)]


def _journal(mode: str, version: int) -> list[Finding]:
    if mode == "wal":
        return [good("journal", "write-ahead log")]
    if not version:
        return []  # an empty file becomes one at the first use
    return [note("journal", f"{mode}; the next use makes it a write-ahead log")]


def _soundness(result: str) -> list[Finding]:
    if result == "ok":
        return []
    return [
        broken(
            "file",
            f"it is damaged: {result}",
            "leases in it may be lost, or held by two",
            "move it away while nothing uses it: a new one is made",
        )
    ]


def _sockets(store: SqliteStore, path: Path) -> list[Finding]:
    """The folder through which waiters are woken, made as the first waiter would make it."""
    if path.stat().st_uid != os.geteuid():
        return []
    sockets = store.sockets()
    if sockets.find(make=True):
        return [good("sockets", f"{path.name}.sockets beside the file")]
    return [
        risk(
            "sockets",
            f"waiters cannot be woken: {sockets.trouble}",
            "they ask the file instead, four times a second, and a hand-off takes that long",
            "let the owner of the file make that folder, on a file system that has sockets",
        )
    ]
