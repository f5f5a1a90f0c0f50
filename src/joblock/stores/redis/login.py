"""The first exchange on each connection, and what the server's errors mean for a user."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, cast

from joblock.stores.redis.wire import ServerError, pack
from joblock.values.errors import StoreError, StoreMisconfigured, StoreUnavailable
from joblock.values.imports import importing

if TYPE_CHECKING:
    import ssl

    from joblock.stores.redis.target import Login

OLDEST = (6, 2)

_WHY_UNAVAILABLE = {
    "LOADING": "the server is starting and still loads its data",
    "BUSY": "a script of somebody else keeps the server busy",
    "OOM": "the server's memory is full (maxmemory)",
    "MISCONF": "the server refuses writes because it cannot save them to disk",
    "MASTERDOWN": "the server is a replica that lost its primary",
    "READONLY": "the server has become a read-only replica (a failover is likely under way)",
    "CLUSTERDOWN": "the cluster does not serve this key now",
    "TRYAGAIN": "the key's slot is just being moved",
    "NOREPLICAS": "too few replicas are connected (min-replicas-to-write)",
}


def greeting(login: Login) -> tuple[bytes, int]:
    """What to send first, and how many replies it has."""
    secrets = login.secrets()
    commands = [pack("AUTH", *secrets)] if secrets else []
    commands.append(pack("HELLO"))
    if login.db:
        commands.append(pack("SELECT", login.db))
    if login.role != "sentinel":
        commands.append(pack("CLIENT", "SETNAME", "joblock"))
    return b"".join(commands), len(commands)


def check_greeting(shown: str, login: Login, replies: list[Any]) -> None:
    """Raise StoreError unless the server has let us in and is what we need."""
    facts: dict[bytes, Any] = {}
    # The name comes last: a convenience for CLIENT LIST, for which a user may lack the right.
    for reply in replies if login.role == "sentinel" else replies[:-1]:
        if isinstance(reply, ServerError):
            raise _first_refusal(shown, reply)
        if type(reply) is list:
            hello = cast("list[Any]", reply)
            facts = dict(zip(hello[::2], hello[1::2], strict=False))
    _check_version(shown, facts[b"version"].decode())
    _check_mode(shown, login, facts.get(b"mode", b"").decode())
    if login.role == "master" and facts.get(b"role") != b"master":
        raise StoreUnavailable(
            f"{shown}: the server is a read-only replica: name the primary, or let "
            "redis+sentinel:// find it"
        )


def _first_refusal(shown: str, error: ServerError) -> StoreError:
    if error.text.startswith("ERR unknown command"):
        return StoreMisconfigured(f"{shown}: the server is too old: Redis 6.2 or later is needed")
    return refusal(shown, error)


def _check_version(shown: str, version: str) -> None:
    numbers = tuple(int(part) for part in version.split(".")[:2] if part.isdigit())
    if numbers and numbers < OLDEST:
        raise StoreMisconfigured(
            f"{shown}: the server is version {version}: Redis 6.2 or later is needed"
        )


def _check_mode(shown: str, login: Login, mode: str) -> None:
    if login.role == "master" and mode == "cluster":
        raise StoreMisconfigured(f"{shown}: this is a node of a cluster: use redis+cluster://")
    if (mode == "sentinel") != (login.role == "sentinel"):
        what = "is a sentinel" if mode == "sentinel" else "is no sentinel"
        raise StoreMisconfigured(
            f"{shown}: the server {what}: sentinels, and only they, go into redis+sentinel:// URLs"
        )


def refusal(shown: str, error: ServerError, command: str = "") -> StoreError:
    """What an error reply means; ``command`` is the one in a script that it is about."""
    code, text = error.code, error.text
    if code in ("WRONGPASS", "NOAUTH") or text.startswith(("ERR AUTH", "ERR invalid password")):
        return StoreMisconfigured(
            f"{shown}: the server does not accept this user name and password ({text})"
        )
    if code == "NOPERM" or "ACL failure" in text or "The user executing the script" in text:
        doing = f", doing {command}" if command else ""
        return StoreMisconfigured(
            f"{shown}: this user lacks a right that joblock needs ({text}{doing}); the keys are "
            "~joblock:*, the channels &joblock:to:*, the commands as in joblock's docs on Redis"
        )
    for known, why in _WHY_UNAVAILABLE.items():
        # Inside a script Redis 6.2 puts its own words before the code.
        if code == known or f"-{known} " in text:
            return StoreUnavailable(f"{shown}: {why} ({text})")
    return StoreMisconfigured(f"{shown}: the server refused a command of joblock: {text}")


def tls_context(login: Login) -> ssl.SSLContext:
    """The TLS settings of a login, with the defaults of redis-py."""
    with importing():
        import ssl

    options = dict(login.tls or ())
    context = ssl.create_default_context(
        cafile=options.get("ssl_ca_certs"),
        capath=options.get("ssl_ca_path"),
        cadata=options.get("ssl_ca_data"),
    )
    checks = {"none": ssl.CERT_NONE, "optional": ssl.CERT_OPTIONAL, "required": ssl.CERT_REQUIRED}
    wanted = options.get("ssl_cert_reqs", "required")
    mode = checks[wanted.lower()] if isinstance(wanted, str) else ssl.VerifyMode(wanted)
    named = str(options.get("ssl_check_hostname", True)).lower() not in ("false", "0", "no")
    context.check_hostname = named and mode != ssl.CERT_NONE
    context.verify_mode = mode
    if options.get("ssl_certfile"):
        context.load_cert_chain(
            options["ssl_certfile"], options.get("ssl_keyfile"), options.get("ssl_password")
        )
    if options.get("ssl_ciphers"):
        context.set_ciphers(options["ssl_ciphers"])
    if options.get("ssl_min_version"):
        version = options["ssl_min_version"]
        context.minimum_version = (
            ssl.TLSVersion[version] if isinstance(version, str) else ssl.TLSVersion(version)
        )
    return context
