"""The Lua scripts, one per operation: their texts, their hashes, and the keys they are given.

A line ``--include NAME`` in a script stands for the file of that name. Constants that both sides
must agree on are put before each script.
"""

from __future__ import annotations

import hashlib
import re
from functools import lru_cache
from importlib.resources import files

from joblock.store.contract import ELSEWHERE
from joblock.store.machine import PARKED_LIMIT
from joblock.store.ops import CLAIM_MS, LINGER_MS, PRESENCE_MS
from joblock.stores.redis.wire import pack_bulk
from joblock.values.imports import importing

SPACE = "joblock:"
CHANNEL = SPACE + "to:"
"""What a client's name is put behind to name its channel."""

FLOOR_MS = 60_000
"""How long a free key's last token is kept, counted from when the clock has passed it."""

_CONSTANTS = (
    "local CLAIM, PRESENCE, PARKED_LIMIT, LINGER, FLOOR, CHANNEL, TAG_AT, ELSEWHERE = "
    f"{CLAIM_MS}, {PRESENCE_MS}, {PARKED_LIMIT}, {LINGER_MS}, {FLOOR_MS}, '{CHANNEL}', "
    f"{len(SPACE) + 1}, '{ELSEWHERE}'\n"
)
KEPT_HEADS = 100
_PARTS = ("", "leases:", "queue:", "waiters:", "joiners:", "present:")


class Script:
    """A script by its text, and packed both ways of calling it."""

    __slots__ = ("_by_hash", "_by_text", "_heads", "text")

    def __init__(self, text: str) -> None:
        source = text.encode()
        self.text = text
        self._heads: dict[tuple[int, int], bytes] = {}
        # Redis names scripts by their SHA-1; nothing here depends on its strength.
        sha = hashlib.sha1(source, usedforsecurity=False).hexdigest()
        self._by_hash = pack_bulk(b"EVALSHA") + pack_bulk(sha.encode())
        self._by_text = pack_bulk(b"EVAL") + pack_bulk(source)

    def head(self, keys: int, arguments: int) -> bytes:
        """The command up to the first key, with the script's hash."""
        head = self._heads.get((keys, arguments))
        if head is None:
            head = self._head(self._by_hash, keys, arguments)
            if len(self._heads) < KEPT_HEADS:
                self._heads[keys, arguments] = head
        return head

    def head_with_text(self, keys: int, arguments: int) -> bytes:
        """The same with the script's text, for a server that does not know it (any more)."""
        return self._head(self._by_text, keys, arguments)

    def command_behind(self, error: str) -> str:
        """The command that an error inside the script is about, or the empty text."""
        place = re.search(r"user_script:(\d+)", error)
        if place is None:
            return ""
        # A command may begin a few lines above the one that is named.
        lines = self.text.splitlines()[: int(place[1])]
        calls = re.findall(r"call\(\s*'([A-Z]+)'", "\n".join(lines))
        return calls[-1] if calls else ""

    def _head(self, script: bytes, keys: int, arguments: int) -> bytes:
        return b"*%d\r\n%b%b" % (3 + keys + arguments, script, pack_bulk(b"%d" % keys))


@lru_cache(maxsize=32)
def script(name: str) -> Script:
    """The script of that name."""
    return Script(_CONSTANTS + script_text(name))


def script_text(name: str) -> str:
    """A script, and what it includes, as one text."""
    with importing():  # as files does, in some versions
        text = (files("joblock.stores.redis") / "lua" / f"{name}.lua").read_text(encoding="utf-8")
    return re.sub(r"(?m)^--include (\w+)$", lambda found: script_text(found[1]), text)


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


def shard_channel(key: str, client: str) -> bytes:
    """Where a client hears of one key at the node of that key in a cluster."""
    return f"{CHANNEL}{tagged(key)}{client}".encode()


def packed_part(key: str, *parts: str) -> bytes:
    """Some of the names that belong to a key."""
    tag = tagged(key)
    return b"".join(pack_bulk(f"{SPACE}{part}{tag}".encode()) for part in parts)
