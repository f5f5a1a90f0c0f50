"""The servers that are measured with: the tests' own, started for a subject and stopped after it.

A server for cycles is pinned to the processor that its clients are pinned to, so that a figure is
the work of both sides and repeats; one for hand-offs is not.
"""

from __future__ import annotations

import importlib.util
import socket
import sys
import tempfile
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

from benchmarks.contenders import ROOT
from benchmarks.processor import pin, processor

if TYPE_CHECKING:
    from types import ModuleType


def _tests_module(path: str) -> ModuleType:
    """The tests start servers, too; their folders are no packages."""
    name = Path(path).stem
    if name not in sys.modules:
        spec = importlib.util.spec_from_file_location(name, ROOT / "tests" / path)
        assert spec is not None
        assert spec.loader is not None
        sys.modules[name] = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(sys.modules[name])
    return sys.modules[name]


def _pin(pid: int, pinned: bool) -> None:
    if pinned and processor():
        pin(pid, processor())


class Store:
    """Something with a URL, and a count of the commands it was sent."""

    def __init__(self, url: str, name: str) -> None:
        self.url = url
        self.name = name

    @contextmanager
    def counting(self) -> Iterator[list[int]]:
        """Count the commands sent meanwhile; the list holds the number afterwards."""
        yield []

    def empty(self) -> None:
        """Forget everything."""


class Redis(Store):
    """Redis, at a port and a Unix socket."""

    def __init__(self, server: Any, path: Path) -> None:
        version = server.ask("INFO", "server").decode().partition("redis_version:")[2]
        super().__init__(server.url, f"Redis {version.split()[0]}")
        self.server = server
        self.unix = f"unix://{path}"

    @contextmanager
    def counting(self) -> Iterator[list[int]]:
        """As MONITOR shows them: what a script calls in the server is not sent by anybody."""
        counted: list[int] = []
        with socket.create_connection(("127.0.0.1", self.server.port)) as ear:
            ear.sendall(b"MONITOR\r\n")
            ear.recv(5)
            heard = _Monitor(ear)
            yield counted
            ear.shutdown(socket.SHUT_RDWR)
            heard.join()
        counted.append(heard.commands)

    def empty(self) -> None:
        self.server.ask("FLUSHALL")


class _Monitor(threading.Thread):
    """Counts what clients sent."""

    def __init__(self, ear: socket.socket) -> None:
        super().__init__(daemon=True)
        self.ear = ear
        self.commands = 0
        self.start()

    def run(self) -> None:
        with self.ear.makefile("rb") as lines:
            for line in lines:
                origin = line[line.find(b"[") : line.find(b"]")]
                if line[:1] == b"+" and origin and not origin.endswith(b" lua"):
                    self.commands += 1


@contextmanager
def redis(*, pinned: bool = False) -> Iterator[Redis]:
    """A Redis without persistence."""
    module = _tests_module("redis/redis_servers.py")
    with tempfile.TemporaryDirectory(prefix="jbench") as folder:
        path = Path(folder) / "redis.sock"
        server = module.Server(
            module.binary("redis-server"),
            Path(folder),
            *("--unixsocket", str(path), "--maxclients", "15000"),
        )
        try:
            _pin(server.process.pid, pinned)
            yield Redis(server, path)
        finally:
            server.stop()


_QUIET = "alter system set pg_stat_statements.track = 'none'"
"""Counting costs a little: it is on only while something is counted."""


class Postgres(Store):
    """PostgreSQL; statements are counted by its own extension."""

    def __init__(self, server: Any) -> None:
        ((version,),) = server.run("show server_version")
        super().__init__(server.url, f"PostgreSQL {str(version).split()[0]}")
        self.server = server

    @contextmanager
    def counting(self) -> Iterator[list[int]]:
        """What clients sent, BEGIN and COMMIT too; what a function runs is not sent."""
        counted: list[int] = []
        self.server.run("alter system reset pg_stat_statements.track")
        self.server.run("select pg_reload_conf()", "select pg_stat_statements_reset()")
        yield counted
        ((calls,),) = self.server.run(
            "select coalesce(sum(calls), 0) from pg_stat_statements "
            "where query not like '%pg_stat_statements%'"
        )
        self.server.run(_QUIET, "select pg_reload_conf()")
        counted.append(int(calls))


@contextmanager
def postgres(*, fsync: bool, pinned: bool = False, **settings: str) -> Iterator[Postgres]:
    """A PostgreSQL, with fsync on the file system of the temporary folder, or without."""
    module = _tests_module("postgres/postgres_servers.py")
    server = module.Server(
        fsync=fsync,
        max_connections="400",
        shared_preload_libraries="pg_stat_statements",
        **settings,
    )
    try:
        server.run("create extension pg_stat_statements")
        server.run(_QUIET, "select pg_reload_conf()")
        if pinned:
            # What it has forked so far is pinned too, or commits would wait for another processor.
            for pid in _family(server.process.pid):
                with suppress(ProcessLookupError):  # one that has ended meanwhile
                    _pin(pid, pinned)
        yield Postgres(server)
    finally:
        server.remove()


def _family(pid: int) -> list[int]:
    children = Path(f"/proc/{pid}/task/{pid}/children")
    found = children.read_text().split() if children.is_file() else []
    return [pid, *(int(child) for child in found)]


@contextmanager
def sqlite() -> Iterator[Store]:
    """A folder for a lease file, and for the lock files of others."""
    import sqlite3

    with tempfile.TemporaryDirectory(prefix="jbench") as folder:
        yield Store(f"sqlite:///{folder}/locks.db", f"SQLite {sqlite3.sqlite_version}")
