"""From what a caller passes for a store (a URL, a store, a function) to the store.

URL schemes are open to other packages: an entry point of the group ``joblock.stores`` names a
scheme and a function that takes the URL and returns a store.
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, cast

from joblock.values.errors import StoreMisconfigured
from joblock.values.imports import importing
from joblock.values.shown import shortened, shown

if TYPE_CHECKING:
    from joblock.store.contract import Store

GROUP = "joblock.stores"


def _memory(url: str) -> Store:
    from joblock.stores.memory import MemoryStore

    name = url.removeprefix("memory:").removeprefix("//")
    if "?" in name or "#" in name:
        raise ValueError(
            f"a memory URL is memory://NAME, without options, ? and #; got {safe_url(url)!r}"
        )
    return MemoryStore(name)


def _sqlite(url: str) -> Store:
    from joblock.stores.sqlite import SqliteStore

    return SqliteStore.from_url(url)


def _redis(url: str) -> Store:
    from joblock.stores.redis import RedisStore

    return RedisStore.from_url(url)


def _redis_client(client: Any) -> Store:
    from joblock.stores.redis import RedisStore

    return RedisStore(client)


def _postgres(url: str) -> Store:
    from joblock.stores.postgres import PostgresStore

    return PostgresStore.from_url(url)


def _psycopg_pool(pool: Any) -> Store:
    from joblock.stores.postgres import PostgresStore

    return PostgresStore.from_pool(pool)


def _asyncpg_pool(pool: Any) -> Store:
    if all(base.__name__ != "Pool" for base in type(pool).__mro__):
        raise TypeError(
            "of asyncpg's objects a Pool is a store (asyncpg.create_pool); got "
            f"{type(pool).__module__}.{type(pool).__qualname__}"
        )
    from joblock.stores.postgres import PostgresStore

    return PostgresStore.from_asyncpg(pool)


def _sqlalchemy_engine(engine: Any) -> Store:
    name = getattr(getattr(engine, "dialect", None), "name", "")
    if name == "postgresql":
        from joblock.stores.postgres import PostgresStore

        return PostgresStore.from_engine(engine)
    raise TypeError(
        "of SQLAlchemy's objects an Engine or AsyncEngine of the dialect postgresql is a store; "
        f"got {type(engine).__qualname__} {name}".rstrip()
    )


_SCHEMES: dict[str, Callable[[str], Any]] = {
    "memory": _memory,
    "sqlite": _sqlite,
    "postgresql": _postgres,
    "postgres": _postgres,
    "redis": _redis,
    "rediss": _redis,
    "redis+unix": _redis,
    "redis+cluster": _redis,
    "redis+sentinel": _redis,
    "rediss+cluster": _redis,
    "rediss+sentinel": _redis,
    "valkey": _redis,
    "valkeys": _redis,
    "valkey+unix": _redis,
    "valkey+cluster": _redis,
    "valkey+sentinel": _redis,
    "valkeys+cluster": _redis,
    "valkeys+sentinel": _redis,
}

# Objects of other libraries that mean a store, told by the package of their class or of one it
# derives from, so that no library has to be imported to ask.
_OBJECTS: list[tuple[str, Callable[[Any], Any]]] = [
    ("psycopg_pool", _psycopg_pool),
    ("asyncpg", _asyncpg_pool),
    ("sqlalchemy", _sqlalchemy_engine),
    ("redis", _redis_client),
    ("valkey", _redis_client),
]


def open_store(given: Any = None) -> Store:
    """The store that ``given`` stands for; does no I/O.

    ``None`` reads ``JOBLOCK_URL`` or the file that ``JOBLOCK_URL_FILE`` names, else it is the
    embedded SQLite file of this user on this machine. Raises ValueError for a URL that cannot be
    read, TypeError for an object that is no store, StoreMisconfigured where a shared store is
    required and none is named.
    """
    if given is None:
        return _from_environment()
    if isinstance(given, str):
        return _from_url(given)
    if _is_store(given):
        return cast("Store", given)
    opener = _opener_of(given)
    if opener is not None:
        with importing():
            return opener(given)
    if callable(given):
        made = given()
        if made is None:
            # None would mean the embedded store, and a setting that is missing must not.
            raise TypeError(f"{shown(given)} should return a store or a URL, and returned None")
        return open_store(made)
    raise TypeError(
        "a store is a URL such as 'sqlite:////var/lib/app/locks.db', a Store, or a function "
        f"that returns one; got {type(given).__module__}.{type(given).__qualname__}"
    )


def safe_url(url: str) -> str:
    """A URL as it may be shown: everything that could be a password is replaced by ``***``.

    Written for URLs that are wrong too: a password may hold ``/``, ``@`` or ``:`` unescaped.
    """
    scheme, separator, rest = url.partition("://")
    if not separator:
        # No URL at all: "app:password@db", or libpq's "host=db password=...".
        return "***" if "@" in url or "=" in url else url
    if scheme != "sqlite" or not rest.startswith("/"):
        # One slash too many is a slip; only in a file's path it means something.
        secrets, at, place = rest.rpartition("@")
        user, colon, secret = secrets.partition(":")
        if "=" in secret.partition("?")[2]:
            # What is before the sign may be an option, and what is behind it the rest of it.
            at = place = ""
        rest = f"{user}{colon}{'***' if colon else ''}{at}{place}"
    place, question, query = rest.partition("?")
    shown = "&".join(_without_secret(pair) for pair in query.split("&"))
    return f"{scheme}{separator}{place}{question}{shown}"


def masked(message: str, url: str) -> str:
    """What somebody else says about a URL, without what could be a part of a password in it."""
    from urllib.parse import unquote

    rest = url.partition(":")[2]
    before, _, _ = rest.rpartition("@")
    parts = [before.lstrip("/").partition(":")[2]]
    parts += [pair for pair in rest.partition("?")[2].split("&") if _without_secret(pair) != pair]
    secrets = {
        piece
        for part in parts
        for text in (part, unquote(part))
        for pieces in (_PIECE.findall(text), re.findall("[^%]{3,}", text))
        for piece in pieces
    }
    for secret in sorted(secrets, key=len, reverse=True):
        message = message.replace(secret, "***")
    return message


_PIECE = re.compile("[^/@:?#&=]{3,}+(?!=)")


def _without_secret(pair: str) -> str:
    name, equals, value = pair.partition("=")
    secret = any(word in name.lower() for word in ("pass", "pwd", "secret", "token"))
    url = "@" in value or "%40" in value
    return f"{name}{equals}***" if secret or url else pair


def _is_store(given: Any) -> bool:
    return not isinstance(given, type) and all(
        hasattr(given, name) for name in ("driver", "async_driver", "subscribe", "abilities")
    )


def _opener_of(given: Any) -> Callable[[Any], Any] | None:
    packages = {base.__module__.partition(".")[0] for base in type(given).__mro__}
    return next((opener for package, opener in _OBJECTS if package in packages), None)


def _from_environment() -> Store:
    url = os.environ.get("JOBLOCK_URL", "").strip()
    file = os.environ.get("JOBLOCK_URL_FILE", "").strip()
    if url:
        return _from_url(url)
    if file:
        return _from_url(_read(file))
    if os.environ.get("JOBLOCK_REQUIRE_SHARED", "") not in ("", "0"):
        raise StoreMisconfigured(
            "JOBLOCK_REQUIRE_SHARED is set and no store is named: set JOBLOCK_URL or pass a URL"
        )
    if "KUBERNETES_SERVICE_HOST" in os.environ:
        raise StoreMisconfigured(
            "this runs in Kubernetes and no store is named, so each pod would lock for itself "
            "alone: set JOBLOCK_URL, or pass sqlite:///PATH if one pod is all there is"
        )
    with importing():
        from joblock.stores.sqlite import SqliteStore

        return SqliteStore.default()


def _read(file: str) -> str:
    from pathlib import Path

    try:
        url = Path(file).read_text(encoding="utf-8").strip()
    except (OSError, UnicodeDecodeError) as error:
        raise StoreMisconfigured(
            f"JOBLOCK_URL_FILE={shown(file)} cannot be read: {error}"
        ) from error
    if not url:
        raise StoreMisconfigured(f"JOBLOCK_URL_FILE={shown(file)} is empty; it should hold the URL")
    return url


def _from_url(url: str) -> Store:
    scheme, separator, _ = url.partition(":")
    if not separator or not scheme.translate({ord(mark): None for mark in "+-."}).isalnum():
        raise ValueError(
            "a store URL begins with a scheme, such as sqlite:///PATH; got "
            f"{shown(safe_url(url))}{_url_of_path(url)}"
        )
    if scheme.lower() in _SCHEMES:
        scheme = scheme.lower()
        url = f"{scheme}{url[len(scheme) :]}"
    opener = _SCHEMES.get(scheme) or _installed(scheme)
    if opener is None:
        raise ValueError(_unknown(scheme))
    if "://" not in url and scheme != "memory":
        raise ValueError(f"the URL of a store begins with {scheme}://; got {shown(safe_url(url))}")
    try:
        with importing():
            return opener(url)
    except (TypeError, ValueError) as error:
        said = str(error)
        # In this order: of a password that was cut, the rest would not be known for one.
        told = shortened(masked(said, url), 1_000)
        if told == said:
            raise
        raise type(error)(told) from None


def _url_of_path(text: str) -> str:
    """For a text that looks like the path of a file: how that is written as a URL."""
    if not re.fullmatch(r"[^:@=]*(/[^:@=]+|\.(db|sqlite3?))", text):
        return ""
    from urllib.parse import quote

    return f" (the URL of that file is sqlite:///{quote(os.path.abspath(text))})"  # noqa: PTH100


def _entry_points() -> Any:
    with importing():
        from importlib.metadata import entry_points

        return entry_points(group=GROUP)


def _installed(scheme: str) -> Callable[[str], Any] | None:
    for entry in _entry_points():
        if entry.name == scheme:
            with importing():
                return entry.load()
    return None


def _unknown(scheme: str) -> str:
    base = scheme.partition("+")[0]
    hint = (
        f" (SQLAlchemy's {base}+DRIVER is no scheme here: pass {base}://, or the Engine)"
        if base in _SCHEMES
        else ""
    )
    return (
        f"no store for the URL scheme {shown(scheme)}{hint}; there are: {', '.join(_known())}. "
        "PostgreSQL needs pip install 'joblock[postgres]', Redis and Valkey 'joblock[redis]'; a "
        "store of another package is there once that is installed"
    )


def _known() -> list[str]:
    return sorted({*_SCHEMES, *(entry.name for entry in _entry_points())})
