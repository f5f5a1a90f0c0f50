"""A fence in Redis: check and writes are one script, refused or done as a whole."""

from __future__ import annotations

import pytest
import redis
import redis.asyncio
from redis.crc import key_slot

from joblock import JobLocks, StaleToken, fencing
from joblock.fencing.in_redis import MOST_PARTS, fence_key

TOKEN = 1_790_000_000_000_000


@pytest.fixture(params=[False, True], ids=["bytes", "text"])
def client(request, redis_server):
    with redis.Redis.from_url(redis_server.url, decode_responses=request.param) as client:
        yield client


def text(value):
    return value.decode() if isinstance(value, bytes) else value


def test_the_commands_are_done_in_order_and_their_replies_come_back(client, key):
    replies = fencing.redis_write(
        client,
        key,
        TOKEN,
        ("SET", key, "12"),
        ("INCRBY", key, 30),
        ("GET", f"{key} missing"),
        ["GET", key],
        (b"HSET", f"{key} h", "a", b"\x00\xff".hex(), "b", 2.5),
        ("HGETALL", f"{key} h"),
    )
    status, number, missing, value, added, pairs = replies
    assert (text(status), number, missing, text(value), added) == ("OK", 42, None, "42", 2)
    assert [text(part) for part in pairs] == ["a", "00ff", "b", "2.5"]


def test_equal_and_newer_tokens_pass_and_an_older_one_does_nothing(client, key):
    for token in (TOKEN, TOKEN, TOKEN + 1):
        fencing.redis_write(client, key, token, ("SET", key, token))
    with pytest.raises(StaleToken) as refused:
        fencing.redis_write(client, key, TOKEN, ("SET", key, "old"), ("SET", f"{key} 2", "old"))
    error = refused.value
    assert (error.resource, error.token, error.newest) == (key, TOKEN, TOKEN + 1)
    assert int(client.get(key)) == TOKEN + 1
    assert client.get(f"{key} 2") is None


def test_neighbouring_tokens_are_told_apart_up_to_the_largest(client, key):
    fencing.redis_write(client, key, 2**53 - 1, ("SET", key, "new"))
    with pytest.raises(StaleToken) as refused:
        fencing.redis_write(client, key, 2**53 - 2, ("SET", key, "old"))
    assert refused.value.newest == 2**53 - 1


def test_a_lease_may_stand_for_its_token_and_a_permit_is_refused(client, redis_server, key):
    with JobLocks(redis_server.url) as locks:
        with locks.lock(key) as lease:
            fencing.redis_write(client, key, lease, ("SET", key, "1"))
        with locks.lock(key) as newer:
            fencing.redis_write(client, key, newer, ("SET", key, "2"))
        with pytest.raises(StaleToken):
            fencing.redis_write(client, key, lease, ("SET", key, "3"))
        with locks.lock(key, limit=2) as permit, pytest.raises(ValueError, match="exclusive"):
            fencing.redis_write(client, key, permit, ("SET", key, "4"))


def test_fences_of_different_resources_are_different_keys(client):
    names = ["a", "{a}", "{{a}}", "a}", "{}a", "{a", "x{a}", "a:{b}:c", "}{a}", "fence:a", "A"]
    assert len({fence_key(name) for name in names}) == len(names)
    assert not {fence_key(name) for name in names} & set(names)


@pytest.mark.parametrize("name", ["stock:7", "stock:{7}:count", "{7}", "ключ 🔒", "a{b"])
def test_the_fence_is_in_the_slot_of_a_key_named_like_the_resource(name):
    assert key_slot(fence_key(name).encode()) == key_slot(name.encode())


def test_a_command_that_fails_is_the_servers_own_error(client, key):
    with pytest.raises(redis.ResponseError):
        fencing.redis_write(client, key, TOKEN, ("SET", key, "x"), ("INCR", key))
    with pytest.raises(redis.ResponseError):
        fencing.redis_write(client, key, TOKEN, ("NOSUCH", key))


@pytest.mark.parametrize(
    ("commands", "error"),
    [
        ((), ValueError),
        ((("SET",),), ValueError),
        (((),), ValueError),
        ((["RPUSH", "list", *"x" * MOST_PARTS],), ValueError),
        (("SET key value",), TypeError),
        ((b"SET",), TypeError),
        ((None,), TypeError),
        (({"SET": "key"},), TypeError),
    ],
)
def test_what_is_no_command_is_refused_before_anything_is_sent(client, key, commands, error):
    with pytest.raises(error):
        fencing.redis_write(client, key, TOKEN, *commands)
    assert client.exists(fence_key(key)) == 0


def test_a_command_may_have_as_many_parts_as_it_says(client, key):
    parts = ["RPUSH", key, *(["x"] * (MOST_PARTS - 2))]
    assert fencing.redis_write(client, key, TOKEN, parts) == [MOST_PARTS - 2]


def test_bad_tokens_and_resources_are_refused(client, key):
    for token in (0, 2**53):
        with pytest.raises(ValueError, match=r"lease\.token"):
            fencing.redis_write(client, key, token, ("SET", key, "x"))
    with pytest.raises(TypeError, match=r"lease\.token"):
        fencing.redis_write(client, key, "1", ("SET", key, "x"))
    with pytest.raises(ValueError, match="resource"):
        fencing.redis_write(client, "", TOKEN, ("SET", key, "x"))


async def test_what_is_no_client_of_that_kind_is_refused(client, redis_server, key):
    write = ("SET", key, "x")
    with pytest.raises(TypeError, match="redis client"):
        fencing.redis_write(redis_server.url, key, TOKEN, write)
    with client.pipeline() as pipeline, pytest.raises(TypeError, match="pipeline"):
        fencing.redis_write(pipeline, key, TOKEN, write)
    with pytest.raises(TypeError, match=r"redis\.asyncio"):
        await fencing.aredis_write(client, key, TOKEN, write)
    async with redis.asyncio.Redis.from_url(redis_server.url) as tasks:
        with pytest.raises(TypeError, match="aredis_write"):
            fencing.redis_write(tasks, key, TOKEN, write)
    assert client.get(key) is None


@pytest.mark.parametrize("decode", [False, True])
async def test_the_asyncio_twin_does_the_same(redis_server, key, decode):
    url = redis_server.url
    async with redis.asyncio.Redis.from_url(url, decode_responses=decode) as client:
        replies = await fencing.aredis_write(client, key, TOKEN + 1, ("INCR", key), ("GET", key))
        assert [text(reply) for reply in replies] == [1, "1"]
        with pytest.raises(StaleToken) as refused:
            await fencing.aredis_write(client, key, TOKEN, ("INCR", key))
        assert refused.value.newest == TOKEN + 1
        assert text(await client.get(key)) == "1"


def test_on_a_cluster_resource_and_keys_share_a_slot_or_nothing_is_done(cluster, key):
    port = cluster.nodes[0].port
    with redis.RedisCluster(host="127.0.0.1", port=port) as client:
        assert fencing.redis_write(client, key, TOKEN + 1, ("INCR", key)) == [1]
        tagged = f"stock:{{{key}}}"
        fencing.redis_write(client, tagged, TOKEN, ("SET", f"{tagged}:a", 1), ("INCR", key))
        with pytest.raises(StaleToken):
            fencing.redis_write(client, key, TOKEN, ("INCR", key))
        with pytest.raises(redis.exceptions.RedisClusterException, match="same key slot"):
            fencing.redis_write(client, key, TOKEN + 2, ("INCR", key), ("INCR", f"{key} other"))
        assert client.get(key) == b"2"
        assert client.get(fence_key(key)) == str(TOKEN + 1).encode()


async def test_on_a_cluster_the_asyncio_twin_does_the_same(cluster, key):
    port = cluster.nodes[0].port
    async with redis.asyncio.RedisCluster(host="127.0.0.1", port=port) as client:
        assert await fencing.aredis_write(client, key, TOKEN + 1, ("INCR", key)) == [1]
        with pytest.raises(StaleToken):
            await fencing.aredis_write(client, key, TOKEN, ("INCR", key))


def test_it_works_on_valkey(tmp_path, key):
    from redis_servers import Server, valkey_binary

    server = Server(valkey_binary(), tmp_path / "valkey")
    try:
        with redis.Redis.from_url(server.url) as client:
            fencing.redis_write(client, key, TOKEN + 1, ("SET", key, "new"))
            with pytest.raises(StaleToken):
                fencing.redis_write(client, key, TOKEN, ("SET", key, "old"))
            assert client.get(key) == b"new"
    finally:
        server.stop()
