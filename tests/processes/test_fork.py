"""A forked child is another process: it renews, releases and closes nothing of its parent's."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from worker_process import Spectator, Workers

CHILD_ENDS = {
    "by leaving the block": "",
    "by its exit": "sys.exit(0)",
    "at once": "os._exit(0)",
    "by collecting": "del lease; gc.collect()",
}


@pytest.mark.parametrize("end", CHILD_ENDS)
def test_a_child_that_ends_leaves_its_parents_lease_alone(
    workers: Workers, spectator: Spectator, end: str
) -> None:
    parent = workers.start(
        f"""
        locks = JobLocks(url)
        with locks.lock("key", ttl=6) as lease:
            say(lease.token)
            pid = os.fork()
            if not pid:
                say(lease.held, current())
                {CHILD_ENDS[end]}
            else:
                _, status = os.waitpid(pid, 0)
                say(os.waitstatus_to_exitcode(status))
                hear()
                say(lease.held)
                hear()
        """
    )
    token = int(parent.hear())
    assert parent.hear() == "False None"
    assert parent.hear() == "0"
    spectator.until_renewed("key")
    (stored,) = spectator.leases()
    assert stored.token == token
    parent.tell()
    assert parent.hear() == "True"
    parent.tell()
    assert parent.ended() == 0
    assert spectator.leases() == ()


def test_a_child_takes_leases_of_its_own_under_its_own_name_and_keeps_them(
    workers: Workers, spectator: Spectator
) -> None:
    parent = workers.start(
        """
        locks = JobLocks(url)
        mine = worker_id()
        lease = locks.acquire("key", ttl=6)
        pid = os.fork()
        if not pid:
            own = locks.acquire("child", ttl=6)
            say(worker_id() != mine, joblock.WORKER_ID == worker_id())
            say(own.holder.startswith(worker_id()), os.getpid())
            say(locks.acquire("key") is None)
            hear()
            say(own.held)
            sys.exit(0)
        os.waitpid(pid, 0)
        say(lease.held)
        """
    )
    assert parent.hear() == "True True"
    named, pid = parent.hear().split()
    assert named == "True"
    (stored,) = spectator.leases("child")
    assert stored.worker.pid == int(pid)
    assert parent.hear() == "True"
    spectator.until_renewed("key", "child")  # each by a keeper of its own
    parent.tell()
    assert parent.hear() == "True"
    assert parent.hear() == "True"
    assert parent.ended() == 0
    assert spectator.leases("child") == ()
    assert spectator.leases() == ()


def test_a_child_waits_and_is_woken_by_its_parent(workers: Workers, spectator: Spectator) -> None:
    parent = workers.start(
        """
        locks = JobLocks(url)
        lease = locks.acquire("key", ttl=30)
        pid = os.fork()
        if not pid:
            with locks.lock("key", ttl=30, wait=20) as own:
                say(own.token > lease.token)
            sys.exit(0)
        hear()
        lease.release()
        _, status = os.waitpid(pid, 0)
        say(os.waitstatus_to_exitcode(status))
        """
    )
    spectator.until_queued(1)
    parent.tell()
    assert parent.hear() == "True"
    assert parent.hear() == "0"
    assert parent.ended() == 0


def test_a_child_forked_from_a_thread_while_others_wait_works_and_disturbs_nobody(
    workers: Workers, spectator: Spectator
) -> None:
    parent = workers.start(
        """
        locks = JobLocks(url)
        lease = locks.acquire("key", ttl=30)
        got = []
        def wait():
            with locks.lock("key", ttl=30):
                got.append(1)
        waiters = [threading.Thread(target=wait) for _ in range(4)]
        for waiter in waiters:
            waiter.start()
        hear()
        def fork():
            pid = os.fork()
            if not pid:
                own = locks.acquire("child", ttl=30)
                say(own.held)
                own.release()
                os._exit(0)
            _, status = os.waitpid(pid, 0)
            say(os.waitstatus_to_exitcode(status))
        forking = threading.Thread(target=fork)
        forking.start()
        forking.join()
        lease.release()
        for waiter in waiters:
            waiter.join()
        say(len(got))
        """
    )
    spectator.until_queued(4)
    parent.tell()
    assert parent.hear() == "True"
    assert parent.hear() == "0"
    assert parent.hear() == "4"
    assert parent.ended() == 0
    assert spectator.queue() == ()


def test_a_process_of_multiprocessing_releases_what_it_holds_when_it_ends(
    workers: Workers, spectator: Spectator
) -> None:
    parent = workers.start(
        """
        import multiprocessing
        locks = JobLocks(url)
        lease = locks.acquire("key", ttl=30)
        def work():
            global own
            assert not lease.held
            own = locks.acquire("child", ttl=60)
            say(own.held)
        context = multiprocessing.get_context("fork")
        process = context.Process(target=work)
        process.start()
        process.join()
        say(process.exitcode, lease.held)
        hear()
        """
    )
    assert parent.hear() == "True"
    assert parent.hear() == "0 True"
    assert spectator.leases("child") == ()
    parent.tell()
    assert parent.ended() == 0


CLIENT = "locks = AsyncJobLocks(url)"
CLIENT_ON_ASYNCPG = """
import asyncpg
locks = AsyncJobLocks(asyncpg.create_pool(url))
"""
FORKS_IN_A_LOOP = """
hears, told = os.pipe()
async def child(lease):
    async with locks.lock("child", ttl=30) as own:
        say(own.held, lease.held, current() is own)
        os.write(told, b"!")
        await asyncio.to_thread(hear)
async def main():
    async with locks.lock("key", ttl=6) as lease:
        pid = os.fork()
        if not pid:
            asyncio.run(child(lease))
            os._exit(0)
        await asyncio.to_thread(os.read, hears, 1)
        async with locks.lock("child", ttl=30) as own:  # released by the child, which wakes it
            say(own.held)
        _, status = os.waitpid(pid, 0)
        say(os.waitstatus_to_exitcode(status))
        await asyncio.to_thread(hear)
        say(lease.held)
    async with locks.lock("key", ttl=30) as again:
        say(again.held)
"""


def test_a_child_forked_inside_an_event_loop_begins_anew(
    workers: Workers, spectator: Spectator
) -> None:
    check_fork_in_a_loop(workers, spectator, CLIENT)


@pytest.mark.parametrize("url", ["postgres"], indirect=True)
def test_a_child_forked_inside_an_event_loop_uses_no_connection_of_an_asyncpg_pool(
    workers: Workers, spectator: Spectator
) -> None:
    check_fork_in_a_loop(workers, spectator, CLIENT_ON_ASYNCPG)


def check_fork_in_a_loop(workers: Workers, spectator: Spectator, client: str) -> None:
    parent = workers.start(f"{client}\n{FORKS_IN_A_LOOP}\nasyncio.run(main())")
    assert parent.hear() == "True False True"
    spectator.until_queued(1, "child")
    parent.tell()
    assert [parent.hear(), parent.hear()] == ["True", "0"]
    spectator.until_renewed("key")
    parent.tell()
    assert [parent.hear(), parent.hear()] == ["True", "True"]
    assert parent.ended() == 0
    assert spectator.leases() == ()


def test_a_child_that_goes_on_in_its_parents_event_loop_uses_no_connection_of_its_parents(
    workers: Workers, spectator: Spectator
) -> None:
    parent = workers.start(
        """
        locks = AsyncJobLocks(url)
        async def main():
            lease = await locks.acquire("key", ttl=30)
            line = locks._hub.waker.lines[asyncio.get_running_loop()]
            loop = asyncio.get_running_loop()
            pid = os.fork()
            if not pid:
                asyncio._set_running_loop(loop)
                say(loop in locks._hub.waker.lines)
                os._exit(0)
            os.waitpid(pid, 0)
            await lease.release()
        asyncio.run(main())
        """
    )
    assert parent.hear() == "False"
    assert parent.ended() == 0
    assert spectator.leases() == ()
