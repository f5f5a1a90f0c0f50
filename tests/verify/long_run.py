"""The long runs of docs/faults.md: ``python tests/verify/long_run.py STORE SECONDS [SEED]``.

It prints the report, and keeps it as JSON and the history beside it in the current folder.
"""

from __future__ import annotations

import json
import sys
import tempfile
from pathlib import Path

_TESTS = Path(__file__).parents[1]
sys.path += [str(_TESTS / "postgres"), str(_TESTS / "redis")]

import postgres_servers  # noqa: E402
import redis_servers  # noqa: E402
from shaken_cluster import ShakenCluster  # noqa: E402
from shaken_sentinels import ShakenSentinels  # noqa: E402

from joblock.verify import Plan, run  # noqa: E402
from joblock.verify.nemesis import FAULTS, ServerFault  # noqa: E402

WORKERS = 4
LOCAL = ("pause", "kill", "clock")


def sqlite(folder, seed):
    """Three faults are all there are."""
    del seed
    return f"sqlite:///{folder}/leases.db", LOCAL, {}, lambda: None


def postgresql(folder, seed):
    """Without fsync; it is stopped, and crashes."""
    del folder, seed
    server = postgres_servers.Server()

    def restart():
        server.stop()
        server.start()

    def crash():
        server.crash()
        server.start()

    faults = {"restart": ServerFault(restart), "crash": ServerFault(crash, forgets=True)}
    return server.url, tuple(FAULTS), faults, server.remove


def redis(folder, seed):
    """Without persistence."""
    del seed
    server = redis_servers.Server(redis_servers.binary("redis-server"), folder / "redis")
    faults = {
        "restart": ServerFault(server.restart, voids=True),
        "flush": ServerFault(lambda: server.ask("FLUSHALL"), voids=True),
        "forget-scripts": ServerFault(lambda: server.ask("SCRIPT", "FLUSH")),
    }
    return server.url, tuple(FAULTS), faults, server.stop


def cluster(folder, seed):
    """With faults that lose something."""
    shaken = ShakenCluster(folder, seed)
    return shaken.url, LOCAL, shaken.faults, shaken.stop


def orderly_cluster(folder, seed):
    """With those alone that lose nothing: no promise is suspended for a moment."""
    shaken = ShakenCluster(folder, seed)
    faults = {name: fault for name, fault in shaken.faults.items() if not fault.voids}
    return shaken.url, LOCAL, faults, shaken.stop


def sentinels(folder, seed):
    """A failover every few seconds."""
    del seed
    shaken = ShakenSentinels(folder)
    return shaken.url, LOCAL, shaken.faults, shaken.stop


def cautious_sentinels(folder, seed):
    """With failovers, too, in which the old primary goes on."""
    del seed
    shaken = ShakenSentinels(folder, cautious=True)
    return shaken.url, LOCAL, shaken.faults, shaken.stop


STORES = (sqlite, postgresql, redis, cluster, orderly_cluster, sentinels, cautious_sentinels)


def main(store, seconds, seed="0"):
    """Make one run, and say how it went by the exit code."""
    make = {each.__name__: each for each in STORES}[store]
    kept = f"{store}-{seed}"
    Path(f"{kept}.jsonl").unlink(missing_ok=True)  # a history is added to
    with tempfile.TemporaryDirectory() as folder:
        url, faults, server_faults, stop = make(Path(folder), int(seed))
        try:
            plan = Plan(
                url,
                seconds=float(seconds),
                workers=WORKERS,
                seed=int(seed),
                faults=faults,
                server_faults=server_faults,
                history=f"{kept}.jsonl",
            )
            report = run(plan)
        finally:
            stop()
    sys.stdout.write(f"{report.to_text()}\n")
    Path(f"{kept}.json").write_text(json.dumps(report.to_json()))
    return 0 if report.kept else 1


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
