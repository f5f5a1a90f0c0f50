"""Servers in a network namespace of their own, with an address for each worker to be cut off at.

Needs root and Linux; `Network` raises Impossible where that is missing.
"""

from __future__ import annotations

import os
import subprocess
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from itertools import count

import postgres_servers
import redis_servers

HOST = 254
"""The last number of this side's address; those of the other side count from 1."""

_made = count(1)


class Impossible(Exception):
    """This machine does not let anybody make network namespaces."""


class Network:
    """A namespace behind a pair of virtual interfaces. Its addresses are of the range for tests
    of networks (RFC 2544), and another in each process.
    """

    def __init__(self, addresses: int) -> None:
        # A namespace lives on for as long as a connection in it does.
        mark = f"{os.getpid()}.{next(_made)}"
        self.name = f"joblock{mark}"
        self.subnet = f"198.18.{os.getpid() % 256}"
        self._near, far = f"jn{mark}", f"jf{mark}"
        try:
            _run("ip", "netns", "add", self.name)
        except (OSError, subprocess.CalledProcessError) as error:
            raise Impossible(getattr(error, "stderr", "") or str(error)) from error
        try:
            self._join(far)
            self.inside("ip", "link", "set", "lo", "up")
            for number in range(addresses + 1):
                address = self.address(number)
                self.inside("ip", "address", "add", f"{address}/24", "dev", far)
            self.inside("ip", "link", "set", far, "up")
        except BaseException:
            self.remove()
            raise

    @property
    def entrance(self) -> tuple[str, ...]:
        """What a command is put behind to run inside."""
        return "ip", "netns", "exec", self.name

    def address(self, number: int) -> str:
        """One of the other side: 0 is always reached, the others are the workers' own."""
        return f"{self.subnet}.{number + 1}"

    def inside(self, *command: str) -> None:
        """Run a command there."""
        _run(*self.entrance, *command)

    def mute(self, worker: int) -> Callable[[], None]:
        """What it sends is dropped; what undoes that."""
        return self._drop("INPUT", "-d", worker)

    def deaf(self, worker: int) -> Callable[[], None]:
        """What it is sent is dropped."""
        return self._drop("OUTPUT", "-s", worker)

    def partition(self, worker: int) -> Callable[[], None]:
        """Both."""
        undoing = [self.mute(worker), self.deaf(worker)]

        def undo() -> None:
            for one in undoing:
                one()

        return undo

    def remove(self) -> None:
        """Its processes must have ended."""
        with suppress(subprocess.CalledProcessError):
            _run("ip", "link", "del", self._near)  # where it came to be
        _run("ip", "netns", "del", self.name)

    def _join(self, far: str) -> None:
        near = self._near
        _run("ip", "link", "add", near, "type", "veth", "peer", "name", far, "netns", self.name)
        _run("ip", "address", "add", f"{self.subnet}.{HOST}/24", "dev", near)
        _run("ip", "link", "set", near, "up")

    def _drop(self, chain: str, end: str, worker: int) -> Callable[[], None]:
        rule = (chain, end, self.address(worker + 1), "-j", "DROP")
        self.inside("iptables", "-w", "-A", *rule)
        return lambda: self.inside("iptables", "-w", "-D", *rule)


def _run(*command: str) -> None:
    subprocess.run(command, check=True, capture_output=True, text=True, timeout=30)


class FarRedis(redis_servers.Server):
    """Redis over there."""

    def __init__(self, folder, network: Network) -> None:
        self.host, self.listens_at = network.address(0), "*"
        self.before = network.entrance
        program = redis_servers.binary("redis-server")
        super().__init__(program, folder, "--protected-mode", "no")

    def url_at(self, address: str) -> str:
        return f"redis://{address}:{self.port}/0"


class FarPostgres(postgres_servers.Server):
    """PostgreSQL over there."""

    def __init__(self, network: Network) -> None:
        self.network = network
        self.host = network.address(0)
        super().__init__(listen_addresses="*")

    def spawn(self, *command: str) -> subprocess.Popen[bytes]:
        """As the account that it runs under, which may not enter the namespace by itself."""
        assert self.who is not None
        hba = self.folder / "data" / "pg_hba.conf"
        if hba.exists():
            hba.write_text(f"host all all {self.network.subnet}.0/24 trust\n")
        with (self.folder / "log").open("ab") as log:
            return subprocess.Popen(
                (
                    *self.network.entrance,
                    *("setpriv", f"--reuid={self.who.pw_uid}", f"--regid={self.who.pw_gid}"),
                    *("--clear-groups", *command),
                ),
                cwd=self.folder,
                stdout=log,
                stderr=log,
            )

    def url_at(self, address: str) -> str:
        return f"postgresql://postgres@{address}:{self.port}/postgres"


class Later:
    """What a call in another thread returns, or raises."""

    def __init__(self, call: Callable[[], object]) -> None:
        self._pool = ThreadPoolExecutor(1)
        self._future = self._pool.submit(call)

    def result(self) -> object:
        try:
            return self._future.result(120)
        finally:
            self._pool.shutdown(wait=False)
