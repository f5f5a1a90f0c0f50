"""One of the processes of `test_thousand_joiners`: many tasks that join one run.

Started with the store's URL and the number of tasks. It says "queued" once the store has queued
them all, hears a line, and says how the calls ended and what was sent to the store after that line.
"""

from __future__ import annotations

import asyncio
import collections
import json
import sys

from joblock import AsyncJobLocks
from joblock.store.ops import Acquire
from joblock.stores.registry import open_store
from joblock.testing.faults import FaultyStore


def say(line: str) -> None:
    sys.stdout.write(f"{line}\n")
    sys.stdout.flush()


async def main(url: str, number: int) -> None:
    store = FaultyStore(open_store(url))
    locks = AsyncJobLocks(store)

    @locks.job(name="warm", join=True)
    async def warm() -> None:
        raise AssertionError("the run it joined has ended well")

    calls = [asyncio.create_task(warm()) for _ in range(number)]
    while sum(type(op) is Acquire for op in store.faults.done) < number:  # noqa: ASYNC110
        await asyncio.sleep(0.01)  # a store has no event for what it has done
    say("queued")
    await asyncio.to_thread(sys.stdin.readline)
    before = len(store.faults.requests)
    say("ready")
    outcomes = await asyncio.gather(*calls)
    sent = collections.Counter(type(op).__name__ for op in store.faults.requests[before:])
    say(json.dumps([collections.Counter(each.reason for each in outcomes), sent]))
    await locks.close()


asyncio.run(main(sys.argv[1], int(sys.argv[2])))
