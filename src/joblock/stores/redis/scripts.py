"""The Lua scripts, one per operation: their texts, their hashes, and the keys they are given.

A line ``--include NAME`` in a script stands for the file of that name. Constants that both sides
must agree on are put before each script.
"""

from __future__ import annotations

import hashlib
import re
from functools import lru_cache
from importlib.resources import files

from joblock.store.machine import PARKED_LIMIT
from joblock.store.ops import CLAIM_MS, PRESENCE_MS
from joblock.stores.redis.wire import pack_bulk

SPACE = "joblock:"
CHANNEL = SPACE + "to:"
"""What a client's name is put behind to name its channel."""

LINGER_MS = 600_000
"""How long the store remembers what is over: an expired lease, a parked waiter."""

FLOOR_MS = 60_000
"""How long a free key's last token is kept, counted from when the clock has passed it."""

CLOCK = "redis.call('TIME')"
"""What the scripts read the time with, in these very words (or ``call`` for ``redis.call``)."""

_CONSTANTS = (
    "local CLAIM, PRESENCE, PARKED_LIMIT, LINGER, FLOOR, CHANNEL = "
    f"{CLAIM_MS}, {PRESENCE_MS}, {PARKED_LIMIT}, {LINGER_MS}, {FLOOR_MS}, '{CHANNEL}'\n"
)
_PARTS = ("", "leases:", "queue:", "waiters:", "joiners:", "present:")


class Script:
    """A script by its text, and packed both ways of calling it."""

    __slots__ = ("_by_hash", "_by_text", "text")

    def __init__(self, text: str) -> None:
        source = text.encode()
        self.text = text
        # Redis names scripts by their SHA-1; nothing here depends on its strength.
        sha = hashlib.sha1(source, usedforsecurity=False).hexdigest()
        self._by_hash = pack_bulk(b"EVALSHA") + pack_bulk(sha.encode())
        self._by_text = pack_bulk(b"EVAL") + pack_bulk(source)

    def head(self, keys: int, arguments: int, *, by_text: bool = False) -> bytes:
        """The command up to the first key."""
        script = self._by_text if by_text else self._by_hash
        return b"*%d\r\n%b%b" % (3 + keys + arguments, script, pack_bulk(b"%d" % keys))


@lru_cache(maxsize=32)
def script(name: str) -> Script:
    """The script of that name."""
    return Script(_CONSTANTS + _read(name))


def _read(name: str) -> str:
    text = (files(__package__) / "lua" / f"{name}.lua").read_text(encoding="utf-8")
    return re.sub(r"(?m)^--include (\w+)$", lambda found: _read(found[1]), text)


def tagged(key: str) -> str:
    """A key inside a hash tag, so that all that belongs to it is in one slot of a cluster.

    The point before it makes the tag of a key that begins with ``}`` one that counts.
    """
    return "{." + key + "}"


def row_name(key: str) -> str:
    """The name of a key's row."""
    return SPACE + tagged(key)


def key_behind(row: str) -> str:
    """The key whose row that is."""
    return row[len(SPACE) + 2 : -1]


@lru_cache(maxsize=10_000)
def packed_row(key: str) -> bytes:
    """A key's row as an argument."""
    return pack_bulk(row_name(key).encode())


@lru_cache(maxsize=10_000)
def packed_keys(key: str) -> bytes:
    """All names that belong to a key, as arguments in the order the scripts expect."""
    tag = tagged(key)
    return b"".join(pack_bulk(f"{SPACE}{part}{tag}".encode()) for part in _PARTS)


def packed_part(key: str, *parts: str) -> bytes:
    """Some of the names that belong to a key."""
    tag = tagged(key)
    return b"".join(pack_bulk(f"{SPACE}{part}{tag}".encode()) for part in parts)
