"""Two processes are two holders, whatever their host names and process ids."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from worker_process import Spectator, Workers

CONTAINER = """
os.getpid = lambda: 1
os.uname = lambda real=os.uname(): type(real)((real.sysname, "web", *real[2:]))
locks = JobLocks(url)
lease = locks.acquire("key", ttl=30)
say(lease.holder if lease else None)
hear()
"""


def test_two_containers_with_pid_1_and_one_host_name_are_two_holders(
    workers: Workers, spectator: Spectator
) -> None:
    first = workers.start(CONTAINER)
    holder = first.hear()
    (stored,) = spectator.leases()
    assert (stored.holder, stored.worker.host, stored.worker.pid) == (holder, "web", 1)
    second = workers.start(CONTAINER)
    assert second.hear() == "None"
    first.tell()
    assert first.ended() == 0
    third = workers.start(CONTAINER)
    assert third.hear() != holder
