"""Holders and waiters that are killed or stopped: the others wait for a ttl, and no longer."""

from __future__ import annotations

import signal
import time
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from worker_process import until

from joblock.store.ops import PRESENCE_MS

if TYPE_CHECKING:
    from worker_process import Spectator, Worker, Workers

# A ttl that has to pass is longer than a busy machine keeps a process from renewing; one that need
# not is much longer.
#
# Each has connected before it asks for a lease: on a busy machine that may take as long as a ttl,
# and counts against it.

HOLDER = {
    "sync": """
locks = JobLocks(url)
locks.model.peek("key")
lease = locks.acquire("key", ttl=TTL)
say(lease.token)
while True:
    order = hear()
    if order == "held":
        say(lease.held)
    elif order == "check":
        try:
            lease.check()
            say("fine")
        except LockLost as lost:
            say(lost.reason)
    elif order == "release":
        say(lease.release())
    else:
        break
""",
    "async": """
async def main():
    locks = AsyncJobLocks(url)
    await locks.model.peek("key")
    lease = await locks.acquire("key", ttl=TTL)
    say(lease.token)
    while True:
        order = await asyncio.to_thread(hear)
        if order == "held":
            say(lease.held)
        elif order == "check":
            try:
                lease.check()
                say("fine")
            except LockLost as lost:
                say(lost.reason)
        elif order == "release":
            say(await lease.release())
        else:
            break
asyncio.run(main())
""",
}

WAITER = {
    "sync": """
locks = JobLocks(url)
locks.model.peek("key")
say("waits")
begun = time.monotonic()
with locks.lock("key", ttl=60, wait=100) as lease:
    say(lease.token, time.monotonic() - begun)
    hear()
""",
    "async": """
async def main():
    locks = AsyncJobLocks(url)
    await locks.model.peek("key")
    say("waits")
    begun = time.monotonic()
    async with locks.lock("key", ttl=60, wait=100) as lease:
        say(lease.token, time.monotonic() - begun)
        await asyncio.to_thread(hear)
asyncio.run(main())
""",
}

RUN = {
    "sync": """
locks = JobLocks(url)
@locks.job(name="key", ttl=6, join=True)
def run():
    say("runs")
    hear()
locks.model.peek("key")
say("calls")
say(run().reason)
""",
    "async": """
locks = AsyncJobLocks(url)
@locks.job(name="key", ttl=6, join=True)
async def run():
    say("runs")
    await asyncio.to_thread(hear)
async def main():
    await locks.model.peek("key")
    say("calls")
    say((await run()).reason)
asyncio.run(main())
""",
}


@pytest.fixture(params=["sync", "async"])
def kind(request: pytest.FixtureRequest) -> str:
    """Which of the two clients the processes have."""
    return request.param


def test_the_next_waiter_has_the_key_of_a_killed_holder_when_its_ttl_is_over(
    workers: Workers, spectator: Spectator
) -> None:
    holder = workers.start(held_for(6, "sync"))
    token = int(holder.hear())
    waiter = workers.start(WAITER["sync"])
    assert waiter.hear() == "waits"
    spectator.until_queued(1)
    (before,) = spectator.leases()
    holder.signal(signal.SIGKILL)
    second, _ = waiter.hear().split()
    (after,) = spectator.leases()
    assert int(second) > token
    assert after.acquired_at >= before.expires_at
    waiter.tell()
    assert waiter.ended() == 0
    assert spectator.leases() == ()


def test_a_killed_waiter_costs_the_next_one_little(workers: Workers, spectator: Spectator) -> None:
    holder = workers.start(held_for(60, "sync"))
    holder.hear()
    dead = workers.start(WAITER["sync"])
    dead.hear()
    spectator.until_queued(1)
    alive = workers.start(WAITER["sync"])
    alive.hear()
    spectator.until_queued(2)
    dead.signal(signal.SIGKILL)
    dead.ended()
    released = time.monotonic()
    holder.tell("release")
    assert holder.hear() == "True"
    alive.hear()
    assert time.monotonic() - released < PRESENCE_MS / 1000, "a claim, a check, no more"
    alive.tell()
    assert alive.ended() == 0


def test_a_holder_stopped_for_two_ttl_finds_at_once_that_its_lease_is_not_held(
    workers: Workers, spectator: Spectator, kind: str
) -> None:
    holder = workers.start(held_for(4, kind))
    holder.hear()
    waiter = workers.start(WAITER[kind])
    waiter.hear()
    spectator.until_queued(1)
    stopped(holder)
    token = int(waiter.hear().split()[0])
    time.sleep(4)  # another ttl: time is the subject
    holder.tell("held")
    holder.tell("check")
    holder.signal(signal.SIGCONT)
    assert holder.hear() == "False"
    assert holder.hear() in {"deadline", "refused"}
    holder.tell("release")
    assert holder.hear() == "False"
    (lease,) = spectator.leases()
    assert (lease.token, lease.state) == (token, "held")
    waiter.tell()
    assert waiter.ended() == 0


def test_a_waiter_stopped_for_long_is_passed_over_and_served_when_it_continues(
    workers: Workers, spectator: Spectator, kind: str
) -> None:
    holder = workers.start(held_for(60, kind))
    holder.hear()
    paused = workers.start(WAITER[kind])
    paused.hear()
    spectator.until_queued(1)
    stopped(paused)
    alive = workers.start(WAITER[kind])
    alive.hear()
    spectator.until_queued(2)
    holder.tell("release")
    holder.hear()
    alive.hear()
    paused.signal(signal.SIGCONT)
    alive.tell()
    assert alive.ended() == 0
    paused.hear()
    paused.tell()
    assert paused.ended() == 0
    assert spectator.leases() == ()


def test_exactly_one_of_those_who_joined_a_run_that_was_killed_runs_in_its_stead(
    workers: Workers, spectator: Spectator, kind: str
) -> None:
    killed = workers.start(RUN[kind])
    assert [killed.hear(), killed.hear()] == ["calls", "runs"]
    joining = [workers.start(RUN[kind]) for _ in range(3)]
    spectator.until_queued(3)
    killed.signal(signal.SIGKILL)
    for joiner in joining:
        joiner.tell()  # whoever runs need not be told again
        assert joiner.hear() == "calls"
    heard = sorted(joiner.hear() for joiner in joining)
    assert heard == ["joined", "joined", "runs"]
    assert [joiner.ended() for joiner in joining] == [0, 0, 0]
    assert spectator.leases() == ()


def held_for(ttl: int, kind: str) -> str:
    """The program of a holder with such a ttl."""
    return f"TTL = {ttl}\n{HOLDER[kind]}"


def stopped(worker: Worker) -> None:
    """Stop it, and wait until it is."""
    worker.signal(signal.SIGSTOP)

    def is_stopped() -> bool:
        stat = Path(f"/proc/{worker.pid}/stat").read_text(encoding="utf-8")
        return stat.rpartition(")")[2].split()[0] == "T"

    until(is_stopped, "it should have stopped")
