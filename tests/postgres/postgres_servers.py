"""PostgreSQL and PgBouncer for the tests: on ports of their own, stopped by their own pid."""

from __future__ import annotations

import os
import pwd
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import psycopg

sys.path.append(str(Path(__file__).parents[1]))

from reserved_ports import reserved_port

READY = 60.0

SILENT = 10
"""Seconds that a server waits for a caller to say who it is. One that is shutting down waits for
such callers too, and kills its other processes only after five seconds.
"""

GONE = 90.0
"""Seconds in which a server must have ended that was told to, on however busy a machine."""


def binary(name: str) -> str:
    found = sorted(Path("/usr/lib/postgresql").glob(f"*/bin/{name}"), reverse=True)
    path = str(found[0]) if found else shutil.which(name) or shutil.which(name, path="/usr/sbin")
    assert path, f"{name} is missing: apt-get install postgresql pgbouncer"
    return path


def account() -> pwd.struct_passwd | None:
    """Both servers refuse to run as root."""
    return pwd.getpwnam("postgres") if os.getuid() == 0 else None


class Process:
    """A server process with a folder of its own."""

    def __init__(self) -> None:
        self.folder = Path(tempfile.mkdtemp(prefix="joblock-pg-"))
        self.port = reserved_port()
        self.who = account()
        if self.who is not None:
            os.chown(self.folder, self.who.pw_uid, self.who.pw_gid)
        self.process: subprocess.Popen[bytes] | None = None

    def spawn(self, *command: str) -> subprocess.Popen[bytes]:
        who = self.who
        as_whom = (
            {"user": who.pw_uid, "group": who.pw_gid, "extra_groups": []} if who is not None else {}
        )
        with (self.folder / "log").open("ab") as log:
            return subprocess.Popen(command, cwd=self.folder, stdout=log, stderr=log, **as_whom)

    def wait_until_ready(self, url: str) -> None:
        end = time.monotonic() + READY
        while True:
            try:
                psycopg.connect(url, connect_timeout=2).close()
                return
            except psycopg.OperationalError:
                log = (self.folder / "log").read_text(errors="replace")
                assert time.monotonic() < end, f"the server did not start:\n{log}"
                assert self.process is not None
                assert self.process.poll() is None, f"the server ended:\n{log}"
                time.sleep(0.02)

    def end(self, how: int) -> None:
        """With all its processes: it ends as the last of them."""
        process, self.process = self.process, None
        if process is None:
            return
        process.send_signal(how)
        try:
            process.wait(GONE)
        except subprocess.TimeoutExpired:
            process.kill()  # or it would outlive the tests
            process.wait()
            log = (self.folder / "log").read_text(errors="replace")
            raise AssertionError(f"the server did not end:\n{log}") from None

    def remove(self) -> None:
        self.end(signal.SIGINT)
        shutil.rmtree(self.folder, ignore_errors=True)


class Server(Process):
    """PostgreSQL. Without fsync unless said: nothing here survives a power cut anyway."""

    host = "127.0.0.1"

    def __init__(self, *, fsync: bool = False, **settings: str) -> None:
        super().__init__()
        self.settings = {
            "fsync": "on" if fsync else "off",
            "max_connections": "200",
            "authentication_timeout": f"{SILENT}s",
            **settings,
        }
        made = self.spawn(
            binary("initdb"), "-D", str(self.folder / "data"), "-A", "trust", "-U", "postgres",
            "--no-sync", "-E", "UTF8", "--locale=C.UTF-8",
        )  # fmt: skip
        assert made.wait(READY) == 0, (self.folder / "log").read_text()
        self.start()

    @property
    def url(self) -> str:
        return self.url_of("postgres")

    def url_of(self, role: str, database: str = "postgres") -> str:
        return f"postgresql://{role}@{self.host}:{self.port}/{database}"

    def start(self, *, wait: bool = True) -> None:
        options = [f"--{name}={value}" for name, value in self.settings.items()]
        self.process = self.spawn(
            binary("postgres"), "-D", str(self.folder / "data"), "-h", self.host,
            "-p", str(self.port), "-k", "", *options,
        )  # fmt: skip
        if wait:
            self.wait_until_ready(self.url)

    def stop(self) -> None:
        """A fast shutdown: open transactions are rolled back."""
        self.end(signal.SIGINT)

    def crash(self) -> None:
        """An immediate shutdown, as in a power cut of the process."""
        self.end(signal.SIGQUIT)

    def run(self, *statements: str) -> list[tuple[object, ...]]:
        """Run SQL as the superuser; the rows of the last statement."""
        with psycopg.connect(self.url, autocommit=True) as connection:
            cursor = connection.cursor()
            for statement in statements:
                cursor.execute(statement.encode())
            return cursor.fetchall() if cursor.description else []


class Standby(Server):
    """A streaming copy of a server, which can only be read."""

    def __init__(self, primary: Server) -> None:
        Process.__init__(self)
        self.settings = primary.settings
        made = self.spawn(
            binary("pg_basebackup"), "-D", str(self.folder / "data"), "-R", "-c", "fast",
            "-d", primary.url,
        )  # fmt: skip
        assert made.wait(READY) == 0, (self.folder / "log").read_text()
        self.start()


class Bouncer(Process):
    """PgBouncer in transaction mode before a server."""

    def __init__(self, server: Server) -> None:
        super().__init__()
        config = self.folder / "pgbouncer.ini"
        config.write_text(
            "[databases]\n"
            f"* = host=127.0.0.1 port={server.port} user=postgres\n"
            "[pgbouncer]\n"
            f"listen_addr = 127.0.0.1\nlisten_port = {self.port}\nunix_socket_dir =\n"
            "auth_type = any\npool_mode = transaction\nmax_client_conn = 500\n"
            "default_pool_size = 5\nignore_startup_parameters = extra_float_digits\n"
        )
        config.chmod(0o644)
        self.process = self.spawn(binary("pgbouncer"), str(config))
        self.url = f"postgresql://postgres@127.0.0.1:{self.port}/postgres"
        self.wait_until_ready(self.url)
