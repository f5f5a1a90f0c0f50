"""How a worker does what it drew: a thread of the sync client, or a task of the asyncio client."""

from __future__ import annotations

import asyncio
import time
import traceback
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from joblock import LockLost, LockNotAcquired, StaleToken, StoreError, current, worker_id
from joblock.verify.data import count
from joblock.verify.history import Recorder, now
from joblock.verify.operations import PAIR, Task

if TYPE_CHECKING:
    import random

    from joblock import AsyncJobLocks, JobLocks

LOOK_EVERY = 0.03
"""Seconds between two looks of a holder at its lease."""

BREATH = 0.05
"""Seconds after an outage before the next thing is tried."""


class Failed(Exception):
    """What a job raises that is meant to fail."""


ANNOUNCED = (LockLost, LockNotAcquired, StoreError, StaleToken, Failed)


class Lane:
    """What both kinds have in common: where they note what they see, and when they stop."""

    def __init__(
        self,
        locks: Any,
        recorder: Recorder,
        rng: random.Random,
        data: str,
        stop: Callable[[], bool],
    ) -> None:
        self.locks = locks
        self.recorder = recorder
        self.rng = rng
        self.data = data
        self.stop = stop
        self.count = 0

    def look(self, lease: Any) -> bool:
        """Note it if the lease counts as held; whether it does."""
        members = getattr(lease, "members", None) or (lease,)
        for member in members:
            at = now()
            if not member.held:
                return False
            hold = member.hold
            self.recorder.put("view", at, key=hold.key, holder=hold.holder, token=hold.token)
        return True

    def options(self, task: Task) -> dict[str, Any]:
        """The arguments of ``lock`` that the task means."""
        options: dict[str, Any] = {"ttl": task.ttl, "wait": task.wait}
        if task.shared:
            options["shared"] = True
        elif task.key == "book":
            options |= {"limit": 1_000_000_000, "weight": 1_000_000_000}
        elif task.limit > 1:
            options |= {"limit": task.limit, "weight": task.weight}
        if task.max_duration is not None:
            options["max_duration"] = task.max_duration
        return options

    def job_options(self, task: Task) -> dict[str, Any]:
        """The arguments of ``job`` that the task means."""
        options = {
            "name": task.key,
            "ttl": task.ttl,
            "wait": task.wait,
            "join": task.join,
            "at_least": task.at_least,
        }
        if task.grace is not None:
            options |= {"grace_period": task.grace, "grace_on": "always"}
        return options

    def raw_holder(self) -> str:
        """One that nobody else has."""
        self.count += 1
        return f"{worker_id()}:raw:{id(self)}:{self.count}"

    def trouble(self) -> None:
        """An exception that nobody announced."""
        self.recorder.put("crash", text=traceback.format_exc(limit=-6).strip())


class ThreadLane(Lane):
    """One thread of the sync client."""

    locks: JobLocks

    def run(self, draw: Callable[[random.Random], Task]) -> None:
        """Do one thing after the other until it is time to stop."""
        while not self.stop():
            task = draw(self.rng)
            try:
                getattr(self, f"_{task.kind}")(task)
            except StoreError:
                time.sleep(BREATH)
            except ANNOUNCED:
                continue
            except Exception:  # noqa: BLE001 - it is told, and the others go on
                self.trouble()
                time.sleep(BREATH)

    def _hold(self, lease: Any, seconds: float) -> None:
        end = now() + seconds
        while self.look(lease) and (left := end - now()) > 0 and not self.stop():
            time.sleep(min(left, LOOK_EVERY))

    def _lock(self, task: Task) -> None:
        with self.locks.lock(task.key, **self.options(task)) as lease:
            self._hold(lease, task.hold)

    def _several(self, task: Task) -> None:
        with self.locks.lock(list(PAIR), ttl=task.ttl, wait=task.wait) as lease:
            self._hold(lease, task.hold)

    def _job(self, task: Task) -> None:
        @self.locks.job(**self.job_options(task))
        def job() -> None:
            self._work(task)

        job()

    def _run(self, task: Task) -> None:
        self.locks.run_with_lock(task.key, task.ttl, lambda: self._work(task))

    def _work(self, task: Task) -> None:
        self._hold(current(), task.hold)
        if task.fails:
            raise Failed

    def _raw(self, task: Task) -> None:
        holder, model = self.raw_holder(), self.locks.model
        if model.acquire(task.key, task.ttl, holder):
            time.sleep(task.hold)
            model.refresh(task.key, task.ttl, holder)
            model.acquire(task.key, task.ttl, holder)
            model.release(task.key, holder)
            model.release(task.key, holder)

    def _look(self, task: Task) -> None:
        self.locks.model.holders(task.key)
        self.locks.model.waiters(task.key)

    def _fenced(self, task: Task) -> None:
        with self.locks.lock(task.key, ttl=task.ttl, wait=task.wait) as lease:
            count(self.data, self.recorder, lease, task.key, task.hold)

    _unfenced = _fenced


class TaskLane(Lane):
    """One task of the asyncio client."""

    locks: AsyncJobLocks

    async def run(self, draw: Callable[[random.Random], Task]) -> None:
        """Do one thing after the other until it is time to stop."""
        while not self.stop():
            task = draw(self.rng)
            try:
                await self._do(task)
            except StoreError:
                await asyncio.sleep(BREATH)
            except ANNOUNCED:
                await asyncio.sleep(0)
            except Exception:  # noqa: BLE001 - it is told, and the others go on
                self.trouble()
                await asyncio.sleep(BREATH)

    async def _do(self, task: Task) -> None:
        if not task.cancel:
            await getattr(self, f"_{task.kind}")(task)
            return
        try:
            async with asyncio.timeout(task.cancel):
                await getattr(self, f"_{task.kind}")(task)
        except TimeoutError:
            return

    async def _hold(self, lease: Any, seconds: float) -> None:
        end = now() + seconds
        while self.look(lease) and (left := end - now()) > 0 and not self.stop():  # noqa: ASYNC110
            await asyncio.sleep(min(left, LOOK_EVERY))

    async def _lock(self, task: Task) -> None:
        async with self.locks.lock(task.key, **self.options(task)) as lease:
            await self._hold(lease, task.hold)

    async def _several(self, task: Task) -> None:
        async with self.locks.lock(list(PAIR), ttl=task.ttl, wait=task.wait) as lease:
            await self._hold(lease, task.hold)

    async def _job(self, task: Task) -> None:
        @self.locks.job(**self.job_options(task))
        async def job() -> None:
            await self._work(task)

        await job()

    async def _run(self, task: Task) -> None:
        await self.locks.run_with_lock(task.key, task.ttl, lambda: self._work(task))

    async def _work(self, task: Task) -> None:
        await self._hold(current(), task.hold)
        if task.fails:
            raise Failed

    async def _raw(self, task: Task) -> None:
        holder, model = self.raw_holder(), self.locks.model
        if await model.acquire(task.key, task.ttl, holder):
            await asyncio.sleep(task.hold)
            await model.refresh(task.key, task.ttl, holder)
            await model.acquire(task.key, task.ttl, holder)
            await model.release(task.key, holder)
            await model.release(task.key, holder)

    async def _look(self, task: Task) -> None:
        await self.locks.model.holders(task.key)
        await self.locks.model.waiters(task.key)

    async def _fenced(self, task: Task) -> None:
        async with self.locks.lock(task.key, ttl=task.ttl, wait=task.wait) as lease:
            await asyncio.to_thread(count, self.data, self.recorder, lease, task.key, task.hold)

    _unfenced = _fenced
