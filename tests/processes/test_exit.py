"""However a process ends in good order, it takes its leases and its places in queues with it."""

from __future__ import annotations

import signal
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from worker_process import Spectator, Workers

ENDS = {
    "at its last line": ("", 0),
    "by sys.exit": ("sys.exit(3)", 3),
    "by an exception": ("raise KeyError('nobody catches it')", 1),
}


@pytest.mark.parametrize("end", ENDS)
def test_a_process_that_ends_releases_what_it_holds(
    workers: Workers, spectator: Spectator, end: str
) -> None:
    line, code = ENDS[end]
    worker = workers.start(
        f"""
        locks = JobLocks(url)
        lease = locks.acquire("key", ttl=60)
        lock = locks.lock("other", ttl=60)
        lock.acquire()
        say("holds")
        hear()
        {line}
        """
    )
    assert worker.hear() == "holds"
    assert len(spectator.holders()) == 1
    worker.tell()
    assert worker.ended() == code
    assert spectator.leases() == ()
    assert spectator.leases("other") == ()


def test_a_process_of_tasks_that_ends_releases_what_it_holds(
    workers: Workers, spectator: Spectator
) -> None:
    worker = workers.start(
        """
        locks = AsyncJobLocks(url)
        async def main():
            return await locks.acquire("key", ttl=60)
        lease = asyncio.run(main())
        say(lease.held)
        """
    )
    assert worker.hear() == "True"
    assert worker.ended() == 0
    assert spectator.leases() == ()


def test_a_process_that_asked_for_it_releases_on_sigterm(
    workers: Workers, spectator: Spectator
) -> None:
    worker = workers.start(
        """
        joblock.release_on_sigterm()
        locks = JobLocks(url)
        lease = locks.acquire("key", ttl=60)
        with locks.lock("block", ttl=60):
            say("holds")
            while True:  # a signal just before one long call would be seen only after it
                time.sleep(0.01)
        """
    )
    assert worker.hear() == "holds"
    worker.signal(signal.SIGTERM)
    assert worker.ended() == 128 + signal.SIGTERM
    assert spectator.leases() == ()
    assert spectator.leases("block") == ()


def test_without_that_a_sigterm_leaves_the_lease_to_its_ttl(
    workers: Workers, spectator: Spectator
) -> None:
    worker = workers.start(
        """
        locks = JobLocks(url)
        lease = locks.acquire("key", ttl=60)
        say("holds")
        hear()
        """
    )
    worker.hear()
    worker.signal(signal.SIGTERM)
    assert worker.ended() == -signal.SIGTERM
    assert len(spectator.holders()) == 1


def test_a_sigterm_ends_a_wait_and_leaves_the_queue(workers: Workers, spectator: Spectator) -> None:
    holder = workers.start(
        """
        with JobLocks(url).lock("key", ttl=60):
            say("holds")
            hear()
        """
    )
    holder.hear()
    waiter = workers.start(
        """
        joblock.release_on_sigterm()
        with JobLocks(url).lock("key"):
            pass
        """
    )
    spectator.until_queued(1)
    waiter.signal(signal.SIGTERM)
    assert waiter.ended() == 128 + signal.SIGTERM
    assert spectator.queue() == ()
    holder.tell()
    assert holder.ended() == 0


def test_a_background_thread_that_still_waits_at_exit_leaves_the_queue_without_a_word(
    workers: Workers, spectator: Spectator
) -> None:
    holder = workers.start(
        """
        with JobLocks(url).lock("key", ttl=60):
            say("holds")
            hear()
        """
    )
    holder.hear()
    waiter = workers.start(
        """
        locks = JobLocks(url)
        threading.Thread(target=locks.lock("key").acquire, daemon=True).start()
        hear()
        """
    )
    spectator.until_queued(1)
    waiter.tell()
    assert waiter.ended() == 0
    assert waiter.errors() == ""
    assert spectator.queue() == ()
    holder.tell()
    assert holder.ended() == 0


def test_a_client_that_was_never_used_costs_nothing_at_exit(
    workers: Workers, spectator: Spectator
) -> None:
    worker = workers.start("locks = JobLocks(url)\nsay(threading.active_count())")
    assert worker.hear() == "1"
    assert worker.ended() == 0
    assert worker.errors() == ""
