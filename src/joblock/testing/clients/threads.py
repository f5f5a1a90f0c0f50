"""What only threads have: interrupts at any point of the way, and races of real threads."""

from __future__ import annotations

import contextlib
import contextvars
import functools
import linecache
import os
import signal
import sys
import threading
import warnings
from collections.abc import Callable, Generator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

import joblock
from joblock.client.current import current
from joblock.testing.clients.stage import (
    PATIENCE,
    Actor,
    Client,
    ClientScenarios,
    Stage,
    only,
    until,
)
from joblock.values.errors import LockLost

if TYPE_CHECKING:
    from types import FrameType

INSIDE = tuple(
    f"{Path(joblock.__file__).parent / floor}{os.sep}" for floor in ("client", "protocol", "values")
)
"""Where an interrupt falls: a store's driver answers for itself."""


@only("sync")
class Threads(ClientScenarios):
    """See the module."""

    # An interrupt at any line.

    def test_a_block_interrupted_at_any_line_leaves_nothing(
        self, stage: Stage, locks: Client
    ) -> None:
        def way() -> None:
            with locks.lock(stage.key, stage.ttl):
                pass

        self._interrupt_everywhere(stage, way)

    def test_a_lock_that_lives_on_can_be_released_after_any_interrupt(
        self, stage: Stage, locks: Client
    ) -> None:
        """Python offers no way to catch one between entering and the block."""
        lock = locks.lock(stage.key, stage.ttl)

        def way() -> None:
            with lock:
                pass

        def release_what_is_left() -> None:
            if lock.owned():
                lock.release()

        self._interrupt_everywhere(stage, way, lambda: release_what_is_left)

    def test_a_handle_interrupted_at_any_line_is_given_back(
        self, stage: Stage, locks: Client
    ) -> None:
        def way() -> None:
            lease = locks.acquire(stage.key, stage.ttl)
            lease.release()

        self._interrupt_everywhere(stage, way)

    def test_a_run_interrupted_at_any_line_leaves_nothing(
        self, stage: Stage, locks: Client
    ) -> None:
        def way() -> None:
            locks.run_with_lock(stage.key, stage.ttl, lambda: None)

        self._interrupt_everywhere(stage, way, keep=True)

    def test_a_job_interrupted_at_any_line_leaves_nothing(
        self, stage: Stage, locks: Client
    ) -> None:
        job = locks.job(name=stage.key, ttl=stage.ttl)(lambda: None)
        self._interrupt_everywhere(stage, job.run, keep=True)

    def test_a_wait_interrupted_at_any_line_leaves_nothing_and_passes_the_key_on(
        self, stage: Stage, locks: Client, others: Client, a: Actor
    ) -> None:
        def hold_until_somebody_waits(ready: threading.Event, over: threading.Event) -> None:
            lease = others.acquire(stage.key, stage.ttl)
            ready.set()
            while not stage.queue() and not over.is_set():
                over.wait(0.0005)
            lease.release()

        def way() -> None:
            with locks.lock(stage.key, stage.ttl):
                pass

        def before() -> Callable[[], None]:
            ready, over = threading.Event(), threading.Event()
            holding = a.start(hold_until_somebody_waits, ready, over)
            assert ready.wait(PATIENCE)

            def after() -> None:
                over.set()
                holding.result(PATIENCE)

            return after

        self._interrupt_everywhere(stage, way, before)

    def test_a_timed_wait_interrupted_at_any_line_of_its_end_leaves_nothing_queued(
        self, stage: Stage, locks: Client, others: Client, a: Actor
    ) -> None:
        clock = stage.manual
        held = a.do(others.acquire, stage.key, "100d", renew=False)

        def pass_time(over: threading.Event) -> None:
            while not over.is_set():
                if clock.sleepers():
                    clock.advance(0.5, settle=False)
                over.wait(0.0005)

        def way() -> None:
            assert locks.acquire(stage.key, stage.ttl, wait=0.5) is None

        def before() -> Callable[[], None]:
            over = threading.Event()
            passing = a.start(pass_time, over)

            def after() -> None:
                over.set()
                passing.result(PATIENCE)

            return after

        self._interrupt_everywhere(stage, way, before, held=held.holder)
        a.do(held.release)

    # Interrupted for real.

    def test_a_keyboard_interrupt_in_the_work_of_a_run_is_raised_unchanged(
        self, stage: Stage, locks: Client
    ) -> None:
        error = KeyboardInterrupt("of the user")

        def work() -> None:
            raise error

        with pytest.raises(KeyboardInterrupt) as caught:
            locks.run_with_lock(stage.key, stage.ttl, work)
        assert caught.value is error
        assert stage.holders() == []

    @pytest.mark.parametrize(
        "error", [StopIteration("a value"), GeneratorExit(), SystemExit(3), KeyboardInterrupt()]
    )
    def test_whatever_the_work_raises_is_raised_unchanged(
        self, stage: Stage, a: Actor, locks: Client, error: BaseException
    ) -> None:
        def work() -> None:
            raise error

        with pytest.raises(type(error)) as caught:
            a.do(locks.run_with_lock, stage.key, stage.ttl, work)
        assert caught.value is error
        assert stage.holders() == []

    def test_a_stop_iteration_leaves_a_block_unchanged(self, stage: Stage, locks: Client) -> None:
        error = StopIteration("a value")
        with pytest.raises(StopIteration) as caught, locks.lock(stage.key, stage.ttl):
            raise error
        assert caught.value is error
        assert stage.holders() == []

    def test_a_wait_ends_by_an_interrupt_from_outside(
        self, stage: Stage, locks: Client, others: Client, a: Actor
    ) -> None:
        with a.inside(others.lock(stage.key, stage.ttl)):
            main, over = threading.get_ident(), threading.Event()

            def interrupt() -> None:
                stage.until_queued(1)
                # A signal that comes just before the thread blocks is seen with the next one.
                while not over.is_set():
                    signal.pthread_kill(main, signal.SIGUSR1)
                    over.wait(0.05)

            def handle(number: int, frame: FrameType | None) -> None:
                del number, frame
                if not over.is_set():
                    over.set()
                    raise KeyboardInterrupt

            before = signal.signal(signal.SIGUSR1, handle)
            interrupting = threading.Thread(target=interrupt)
            interrupting.start()
            try:
                with pytest.raises(KeyboardInterrupt):
                    locks.acquire(stage.key, stage.ttl, wait=True)
                interrupting.join(PATIENCE)
            finally:
                signal.signal(signal.SIGUSR1, before)
            until(lambda: not stage.queue(), lambda: f"still queued: {stage.queue()}")

    def test_a_coroutine_function_is_no_work_for_threads(self, stage: Stage, locks: Client) -> None:
        async def work() -> None:
            pass

        def call(function: Callable[[], Any]) -> Any:
            return function()

        with pytest.raises(TypeError, match="AsyncJobLocks"):
            locks.run_with_lock(stage.key, stage.ttl, work)
        with pytest.raises(TypeError, match="AsyncJobLocks"):
            locks.run_with_lock(stage.key, stage.ttl, functools.partial(call, work))
        assert stage.holders() == []

    # Contexts.

    def test_a_thread_started_in_a_copy_of_the_context_runs_under_the_lease_until_it_ends(
        self, stage: Stage, locks: Client
    ) -> None:
        go = threading.Event()
        seen: list[Any] = []

        def look() -> None:
            seen.append(current())
            assert go.wait(PATIENCE)
            seen.append(current())

        with locks.lock(stage.key, stage.ttl) as lease:
            thread = threading.Thread(target=contextvars.copy_context().run, args=(look,))
            thread.start()
            until(lambda: len(seen) == 1, lambda: "it should have looked by now")
        go.set()
        thread.join(PATIENCE)
        assert seen == [lease, None]

    # Races.

    def test_every_lost_event_is_set_however_the_loss_and_the_asking_cross(
        self, stage: Stage, locks: Client
    ) -> None:
        with switching_often():
            for round_ in range(50):
                lease = locks.acquire(f"{stage.key}:{round_}", stage.ttl, on_lost="warn")
                events: list[threading.Event] = []
                barrier = threading.Barrier(5)

                def ask(
                    lease: Any = lease,
                    events: list[threading.Event] = events,
                    barrier: threading.Barrier = barrier,
                ) -> None:
                    barrier.wait(PATIENCE)
                    events.append(lease.lost)

                def lose(lease: Any = lease, barrier: threading.Barrier = barrier) -> None:
                    barrier.wait(PATIENCE)
                    stage.break_leases(lease.key)
                    with contextlib.suppress(LockLost):
                        lease.refresh(stage.ttl)

                threads = [threading.Thread(target=ask) for _ in range(4)]
                threads.append(threading.Thread(target=lose))
                for thread in threads:
                    thread.start()
                for thread in threads:
                    thread.join(PATIENCE)
                assert len(events) == 4
                until(lambda events=events: all(e.is_set() for e in events), lambda: "not all set")

    def test_every_callback_is_called_however_many_threads_register_at_once(
        self, stage: Stage, locks: Client
    ) -> None:
        lease = locks.acquire(stage.key, stage.ttl, on_lost="warn")
        called: list[int] = []
        barrier = threading.Barrier(4)

        def register(first: int) -> None:
            barrier.wait(PATIENCE)
            for number in range(first, first + 500):
                lease.hold.when_lost(lambda number=number: called.append(number))

        threads = [threading.Thread(target=register, args=(at * 500,)) for at in range(4)]
        with switching_often():
            for thread in threads:
                thread.start()
            for thread in threads:
                thread.join(PATIENCE)
        stage.break_leases(stage.key)
        with pytest.raises(LockLost):
            lease.refresh(stage.ttl)
        assert sorted(called) == list(range(2000))

    def test_two_threads_that_release_one_handle_release_it_once(
        self, stage: Stage, locks: Client
    ) -> None:
        with switching_often():
            for round_ in range(30):
                lease = locks.acquire(f"{stage.key}:{round_}", stage.ttl)
                barrier = threading.Barrier(3)

                def release(lease: Any = lease, barrier: threading.Barrier = barrier) -> None:
                    barrier.wait(PATIENCE)
                    lease.release()

                threads = [threading.Thread(target=release) for _ in range(3)]
                for thread in threads:
                    thread.start()
                for thread in threads:
                    thread.join(PATIENCE)
                assert stage.leases(f"{stage.key}:{round_}") == ()

    def test_threads_that_hammer_one_lock_never_meet_inside(
        self, stage: Stage, locks: Client, others: Client
    ) -> None:
        inside: list[int] = []
        meetings: list[list[int]] = []

        def hammer(client: Any, number: int) -> None:
            lock = client.lock(stage.key, stage.ttl)
            for _ in range(20):
                with lock:
                    inside.append(number)
                    if len(inside) > 1:
                        meetings.append(inside[:])
                    inside.remove(number)

        threads = [
            threading.Thread(target=hammer, args=((locks, others)[number % 2], number))
            for number in range(8)
        ]
        with switching_often():
            for thread in threads:
                thread.start()
            for thread in threads:
                thread.join(6 * PATIENCE)
        assert not any(thread.is_alive() for thread in threads)
        assert meetings == []
        assert stage.holders() == []

    # Helpers.

    def _interrupt_everywhere(
        self,
        stage: Stage,
        way: Callable[[], object],
        before: Callable[[], Callable[[], None]] = lambda: lambda: None,
        held: str = "",
        *,
        keep: bool = False,
    ) -> None:
        """Interrupt the way at its first line inside joblock, then at its second, and so on.

        ``keep``: with the traceback kept, as by whoever handles the interrupt, and all in it.
        """
        left = [held] if held else []
        interrupt = Interrupt(0)
        for line in range(1, 2_000):
            after = before()
            with quiet():
                interrupt = interrupt_at(line, way, keep=keep)
                after()
                assert interrupt.came_out is interrupt.reached, f"swallowed at {interrupt.where}"
                until(
                    lambda: stage.holders() == left and not stage.queue(),
                    lambda at=interrupt: f"{at.where}: {stage.leases()}, {stage.queue()}",
                )
                interrupt.error = None
            if not interrupt.reached:
                break
        assert not interrupt.reached, "the way should have ended by now"
        stage.elapse(180)
        until(
            lambda: len(stage.keepers()) == len(left),
            lambda: "the client still looks after something",
        )


class Interrupt:
    """A KeyboardInterrupt at the n-th line that is come to inside joblock."""

    def __init__(self, line: int) -> None:
        self.where = "not reached"
        self.came_out = False
        self.error: KeyboardInterrupt | None = None
        self._left = line
        self._last: dict[FrameType, int] = {}

    @property
    def reached(self) -> bool:
        """Whether there were that many lines."""
        return self._left <= 0

    def trace(self, frame: FrameType, event: str, arg: Any) -> Any:
        """See `sys.settrace`."""
        del event, arg
        return self._line if frame.f_code.co_filename.startswith(INSIDE) else None

    def _line(self, frame: FrameType, event: str, arg: Any) -> Any:
        del arg
        if event == "line" and self._left > 0 and not self._is_spared(frame):
            self._left -= 1
            if not self._left:
                self.where = f"{frame.f_code.co_filename}:{frame.f_lineno}"
                raise KeyboardInterrupt
        self._last[frame] = frame.f_lineno
        return self._line

    def forget(self) -> None:
        """Keep no frame alive."""
        self._last.clear()

    def _is_spared(self, frame: FrameType) -> bool:
        """Whether a try is come to, or a with left: a signal cannot fall there, a tracer can."""
        line = frame.f_lineno
        text = linecache.getline(frame.f_code.co_filename, line).strip()
        return text == "try:" or (text.startswith("with ") and line < self._last.get(frame, 0))


def interrupt_at(line: int, way: Callable[[], object], *, keep: bool = False) -> Interrupt:
    """Go that way, interrupted at that line."""
    interrupt, before = Interrupt(line), sys.gettrace()
    sys.settrace(interrupt.trace)
    try:
        way()
    except KeyboardInterrupt as error:
        interrupt.came_out = True
        interrupt.error = error if keep else None
    finally:
        sys.settrace(before)
        interrupt.forget()
    return interrupt


@contextlib.contextmanager
def quiet() -> Generator[None]:
    """Without a word of handles that were collected, and of interrupts while they were."""
    hook = sys.unraisablehook
    sys.unraisablehook = lambda _: None
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", ResourceWarning)
            yield
    finally:
        sys.unraisablehook = hook


@contextlib.contextmanager
def switching_often() -> Generator[None]:
    """Let threads take turns as often as Python can."""
    before = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    try:
        yield
    finally:
        sys.setswitchinterval(before)
