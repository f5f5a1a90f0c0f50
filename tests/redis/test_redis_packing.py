"""What is sent to Redis and what comes back, as bytes."""

from __future__ import annotations

import pytest

from joblock.store.ops import Acquire, Done, Queueing, Release
from joblock.stores.redis import commands
from joblock.stores.redis.wire import Parser, only_short, pack

QUEUE = Queueing("client", listening=True)
ACQUIRES = [
    Acquire("k", "h", 30_000),
    Acquire("k", "h", 30_000, 2, 4, 500, True, "host\x1f7\x1f$1", QUEUE),
    Acquire("k", "h", 30_000, queue=QUEUE._replace(skip_grace=True, join=0)),
    Acquire("k", "h", 30_000, queue=QUEUE._replace(arrival=17)),
    Acquire("k", "h", 30_000, queue=QUEUE, occurrence=3),
    Acquire("} $1\r\n\u05d0\U0001f512", "a holder\r\n$1\r\n\u00e9", 1),
]
RELEASES = [
    Release("k", "h", 0),
    Release("k", "h", 1_790_000_000_000_000, 5_000, ok=True, contended=True),
    Release("k", "h", 7, done=Done(3, 60_000)),
    Release("} $1\r\n\u05d0\U0001f512", "a holder\r\n$1\r\n\u00e9", 10),
]


@pytest.mark.parametrize("op", ACQUIRES)
@pytest.mark.parametrize("holder", ["h", "another, longer \U0001f512"])
def test_what_is_kept_of_a_request_for_a_key_gives_the_same_bytes(op, holder):
    op = op._replace(holder=holder)
    assert commands.packed_acquire(op) == commands.acquire(op, clustered=False).packed()


@pytest.mark.parametrize("op", RELEASES)
@pytest.mark.parametrize(("holder", "token"), [("h", 0), ("another, longer \U0001f512", 1 << 52)])
def test_what_is_kept_of_a_release_of_a_key_gives_the_same_bytes(op, holder, token):
    op = op._replace(holder=holder, token=token)
    assert commands.packed_release(op) == commands.release(op).packed()


def test_a_request_is_one_command_of_the_protocol():
    op = ACQUIRES[1]
    _, _, names, *rest = Parser().feed(commands.packed_acquire(op))[0]
    assert names == b"6"
    assert rest[6:9] == [b"h", b"30000", b"2"]


@pytest.mark.parametrize(
    ("data", "reply"),
    [
        (b"$2\r\nab\r\n", b"ab"),
        (b"$0\r\n\r\n", b""),
        (b"$4\r\na\r\nb\r\n", b"a\r\nb"),
        (b":1\r\n", 1),
        (b":0\r\n", None),
        (b"$2\r\nab\r\n:1\r\n", None),
        (b"$2\r\nab", None),
        (b"$-1\r\n", None),
        (b":1\r", None),
        (b"", None),
        (pack("a"), None),
    ],
)
def test_only_a_whole_short_reply_is_read_at_once(data, reply):
    assert only_short(data) == reply
