"""Fences in Redis and Valkey: one script checks the fence, advances it and does the writes."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache
from importlib.resources import files
from typing import Any, TypeAlias, cast

from joblock.fencing.token import Token, token_of
from joblock.values.errors import StaleToken
from joblock.values.names import checked_resource
from joblock.values.shown import shown

Command: TypeAlias = Sequence[Any]

MOST_PARTS = 5_000
"""Lua cannot hand on many more arguments than that in one call."""


def redis_write(client: Any, resource: str, token: Token, *commands: Command) -> list[Any]:
    """Do the commands if no newer holder has written to ``resource``; their replies.

    ``client`` is a redis or valkey client, also one of a cluster. Each command is a sequence: its
    name, the key it writes, and what else there is. Raises StaleToken, having done none of them.
    """
    if _is_async(client):
        raise TypeError("fencing.redis_write got an asyncio client: await fencing.aredis_write")
    return _read(_eval(client, resource, token, commands), resource, token)


async def aredis_write(client: Any, resource: str, token: Token, *commands: Command) -> list[Any]:
    """As `redis_write`, for a client of redis.asyncio."""
    if not _is_async(client):
        raise TypeError(
            f"fencing.aredis_write takes a client of redis.asyncio; got {shown(client)}"
        )
    return _read(await _eval(client, resource, token, commands), resource, token)


def fence_key(resource: str) -> str:
    """Where the fence is: in the cluster's slot of a key that is named like the resource.

    But a name that has a ``}`` and no hash tag has its fence anywhere; that matters on a cluster.
    """
    begin = resource.find("{")
    if begin >= 0 and resource.find("}", begin) > begin + 1:
        return f"joblock:fence:{resource}"
    return f"joblock:fence.{{{resource}}}"


def _eval(client: Any, resource: str, token: Token, commands: tuple[Command, ...]) -> Any:
    keys, arguments = [fence_key(checked_resource(resource))], [token_of(token)]
    if not commands:
        raise ValueError(
            'fencing.redis_write needs the commands to do, such as ("SET", "stock:7", "12")'
        )
    for command in commands:
        parts = _checked(command)
        keys.append(parts[1])
        arguments += [len(parts), *parts]
    if hasattr(client, "command_stack"):
        raise TypeError(
            "fencing.redis_write takes a client, not a pipeline: it is one script already"
        )
    if not hasattr(client, "eval"):
        raise TypeError(f"fencing.redis_write takes a redis client; got {shown(client)}")
    return client.eval(_script(), len(keys), *keys, *arguments)


def _checked(command: Any) -> list[Any]:
    if isinstance(command, str | bytes) or not isinstance(command, Sequence):
        raise TypeError(
            f'a command is a sequence, such as ("SET", "stock:7", "12"); got {shown(command)}'
        )
    parts = list(cast("Command", command))
    if not 1 < len(parts) <= MOST_PARTS:
        raise ValueError(
            f"a command has a name, the key that it writes, and at most {MOST_PARTS} parts; "
            f"got {len(parts)}: {shown(parts[:3])}"
        )
    return parts


def _read(reply: list[Any], resource: str, token: Token) -> list[Any]:
    done, *rest = reply
    if done:
        return rest
    raise StaleToken(resource, token_of(token), int(rest[0]))


def _is_async(client: Any) -> bool:
    return any(".asyncio" in one.__module__ for one in type(client).__mro__)


@cache
def _script() -> str:
    return files("joblock.fencing").joinpath("write.lua").read_text(encoding="utf-8")
