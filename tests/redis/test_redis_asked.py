"""What a task goes through that awaits a reply: an answer, a failure, a cancellation."""

from __future__ import annotations

import asyncio
import gc
import socket
import weakref
from typing import TYPE_CHECKING, Any

import pytest

from joblock.stores.redis.aio import AsyncConnection
from joblock.stores.redis.asked import Asked
from joblock.stores.redis.handing import Hand
from joblock.stores.redis.wire import Disconnected

if TYPE_CHECKING:
    from collections.abc import Coroutine


async def begun(work: Coroutine[Any, Any, Any]) -> asyncio.Task[Any]:
    """A task that has come to its first await."""
    task = asyncio.create_task(work)
    await asyncio.sleep(0)
    return task


def asked() -> Asked:
    return Asked(asyncio.get_running_loop(), 0, "holder")


async def reply_to(request: Asked) -> Any:
    return await request


def from_the_loop(call: Any) -> asyncio.Future[None]:
    """Call that as the event loop calls whoever reads a socket: under no task."""
    loop = asyncio.get_running_loop()
    over = loop.create_future()

    def calling() -> None:
        call()
        over.set_result(None)

    loop.call_soon(calling)
    return over


async def test_the_task_has_gone_on_when_answering_returns():
    seen: list[Any] = []
    request = asked()

    async def work() -> None:
        seen.append(await request)

    task = await begun(work())

    def answer() -> None:
        request.answer(b"reply")
        seen.append("answered")

    await from_the_loop(answer)
    assert seen == [b"reply", "answered"]
    await task


async def test_an_answer_is_there_for_whoever_awaits_it_later():
    request = asked()
    await from_the_loop(lambda: request.answer(b"reply"))
    assert await request == b"reply"


async def test_a_task_goes_on_in_its_own_context_and_is_the_current_one():
    request, seen = asked(), []

    async def work() -> None:
        await request
        seen.append(asyncio.current_task())

    task = await begun(work())
    await from_the_loop(lambda: request.answer(b"reply"))
    assert seen == [task]
    await task


async def test_a_failure_is_raised_in_the_task_and_an_answer_after_it_is_dropped():
    request = asked()
    task = await begun(reply_to(request))
    assert request.fail(Disconnected("gone"))
    assert not request.fail(Disconnected("again"))
    await from_the_loop(lambda: request.answer(b"reply"))
    with pytest.raises(Disconnected, match="gone"):
        await task


async def test_what_has_failed_before_it_was_awaited_raises():
    request = asked()
    request.fail(Disconnected("closed"))
    with pytest.raises(Disconnected, match="closed"):
        await request


async def test_a_cancelled_task_ends_and_its_request_stays_known_as_cancelled():
    request = asked()
    task = await begun(reply_to(request))
    task.cancel("enough")
    task.cancel("enough, really")
    with pytest.raises(asyncio.CancelledError):
        await task
    assert task.cancelled()
    assert request.cancelled
    await from_the_loop(lambda: request.answer(b"too late"))


async def test_a_request_that_was_answered_is_not_cancelled_any_more():
    request = asked()
    await from_the_loop(lambda: request.answer(b"reply"))
    assert not request.cancel()
    assert not request.cancelled
    assert await request == b"reply"


async def test_a_request_with_a_time_limit_times_out():
    with pytest.raises(TimeoutError):
        async with asyncio.timeout(0.01):
            await asked()


@pytest.mark.parametrize("cancelled", [False, True])
async def test_what_the_task_had_in_hand_is_gone_with_it(cancelled: bool):
    class Lease:
        """Something whose end is noticed."""

    async def work() -> None:
        lease = Lease()
        ends.append(weakref.ref(lease))
        await request

    ends: list[weakref.ref[Lease]] = []
    request = asked()
    gc.disable()
    try:
        task = await begun(work())
        if cancelled:
            task.cancel()
        else:
            request.fail(Disconnected("gone"))
        await asyncio.wait([task])
        assert cancelled or isinstance(task.exception(), Disconnected)
        del task
        assert ends[0]() is None
    finally:
        gc.enable()


async def connected(end: socket.socket) -> AsyncConnection:
    """Ours, on that end of a pair of sockets."""
    end.setblocking(False)
    loop = asyncio.get_running_loop()
    made = loop.create_connection(lambda: AsyncConnection(loop, Hand()), sock=end)
    return (await made)[1]


async def test_those_who_are_answered_together_ask_again_in_their_order():
    here, there = socket.socketpair()
    there.setblocking(False)
    connection = await connected(here)

    async def ask_twice(name: bytes) -> list[Any]:
        return [await connection.ask(name, 0, ""), await connection.ask(name.upper(), 0, "")]

    with there:
        tasks = [await begun(ask_twice(name)) for name in (b"a", b"b", b"c")]
        there.sendall(b":1\r\n$1\r\nx\r\n:3\r\n")
        sent = b""
        while len(sent) < len(b"abcABC"):
            sent += await asyncio.get_running_loop().sock_recv(there, 100)
        assert sent == b"abcABC"
        there.sendall(b":4\r\n:5\r\n:6\r\n")
        assert await asyncio.gather(*tasks) == [[1, 4], [b"x", 5], [3, 6]]
        connection.close()


def test_an_exception_that_ends_the_loop_costs_the_others_no_answer():
    """Three requests are answered in one piece, and the first task ends the program."""

    async def end_all() -> None:
        await connection.ask(b"?", 0, "")
        raise SystemExit(7)

    async def ask() -> Any:
        return await connection.ask(b"?", 0, "")

    async def close() -> None:
        connection.close()
        await asyncio.sleep(0)

    here, there = socket.socketpair()
    with there, asyncio.Runner() as runner:
        loop = runner.get_loop()
        connection = runner.run(connected(here))
        first, *others = [loop.create_task(work()) for work in (end_all, ask, ask)]
        runner.run(asyncio.sleep(0))  # so that all have asked
        there.sendall(b":1\r\n:2\r\n:3\r\n")
        with pytest.raises(SystemExit):
            loop.run_until_complete(asyncio.wait(others))
        assert isinstance(first.exception(), SystemExit)
        assert loop.run_until_complete(asyncio.gather(*others)) == [2, 3]
        runner.run(close())
