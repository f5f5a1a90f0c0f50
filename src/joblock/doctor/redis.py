"""How a Redis or Valkey is set up: eviction, persistence, replicas, and whether it is the primary.

A user may lack the right to INFO and CONFIG, and managed servers have no CONFIG at all: then INFO
has to do, and what it does not tell is reported as not checked.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, NamedTuple, cast

from joblock.doctor.report import Finding, Look, broken, good, note, risk, unchecked, untried
from joblock.stores.redis.sync import Connection
from joblock.stores.redis.wire import ConnectFailed, Disconnected, ServerError, TimedOut, pack
from joblock.values.errors import StoreUnavailable

if TYPE_CHECKING:
    from joblock.stores.redis.store import RedisStore
    from joblock.stores.redis.target import Place, Target

_FULL = 0.9
_SETTINGS = ("maxmemory", "maxmemory-policy", "appendonly", "appendfsync", "save")
_INFO_NAMES = {
    "maxmemory": "maxmemory",
    "maxmemory-policy": "maxmemory_policy",
    "appendonly": "aof_enabled",
}


class _Server(NamedTuple):
    """What one server says of itself; a setting that it does not tell is missing."""

    place: str
    info: Mapping[str, str]
    settings: Mapping[str, str]


def look(store: RedisStore) -> Look:
    """Ask each server that is in charge of keys; raises StoreUnavailable, StoreMisconfigured."""
    target: Target = store._target  # noqa: SLF001 # pyright: ignore[reportPrivateUsage]
    places = _places(store, target)
    findings = [_kind(target, places)]
    usable = True
    for place in places:
        server = _ask(target, place)
        found = [finding for check in _CHECKS for finding in check(server, target)]
        usable = usable and not any(one.check in {"role", "cluster"} for one in _broken(found))
        findings += found if len(places) == 1 else [_placed(one, server) for one in found]
    if not usable:
        return Look([*findings, untried()], None)
    return Look(findings, store, reached=True)


def _broken(findings: list[Finding]) -> list[Finding]:
    return [finding for finding in findings if finding.severity == "broken"]


def _placed(finding: Finding, server: _Server) -> Finding:
    return finding._replace(found=f"{server.place}: {finding.found}")


def _kind(target: Target, places: list[Place]) -> Finding:
    if target.kind == "cluster":
        return note(
            "servers",
            f"a cluster with {len(places)} servers in charge of keys",
            "several keys at once are taken one by one, unless they are in one slot",
        )
    if target.kind == "sentinel":
        return good("servers", f"sentinels name {places[0]} as the primary of {target.service}")
    return good("servers", f"one server, {places[0]}")


# Asking.


def _places(store: RedisStore, target: Target) -> list[Place]:
    driver = store.driver()
    try:
        return driver.run(driver.route.every())
    except (ConnectFailed, Disconnected, TimedOut) as error:
        raise StoreUnavailable(f"{target.shown}: {error}") from error


def _ask(target: Target, place: Place) -> _Server:
    # Of no role in particular: a replica is to be reported and not turned away from.
    login = target.login._replace(role="")
    try:
        connection = Connection(target.shown, place, login)
        try:
            info = _info(connection)
            return _Server(str(place), info, _settings(connection, info))
        finally:
            connection.close()
    except (ConnectFailed, Disconnected, TimedOut) as error:
        raise StoreUnavailable(f"{target.shown}: {place}: {error}") from error


def _info(connection: Connection) -> dict[str, str]:
    [reply] = connection.ask(pack("INFO"), 1)
    if isinstance(reply, ServerError):
        return {}
    lines = cast("bytes", reply).decode(errors="replace").splitlines()
    return {name: value for name, _, value in (line.partition(":") for line in lines) if value}


def _settings(connection: Connection, info: Mapping[str, str]) -> dict[str, str]:
    found: dict[str, str] = {}
    for name in _SETTINGS:
        [reply] = connection.ask(pack("CONFIG", "GET", name), 1)
        if isinstance(reply, list) and len(cast("list[bytes]", reply)) > 1:
            found[name] = cast("list[bytes]", reply)[1].decode(errors="replace")
        elif _INFO_NAMES.get(name) in info:
            found[name] = info[_INFO_NAMES[name]]
    if "appendonly" in found:
        found["appendonly"] = {"1": "yes", "0": "no"}.get(found["appendonly"], found["appendonly"])
    return found


# Judging.


def _version(server: _Server, target: Target) -> list[Finding]:
    del target  # that it is new enough was seen when it was greeted
    info = server.info
    version = info.get("valkey_version") or info.get("redis_version")
    if version is None:
        why = "this user may not use INFO, so replicas and memory in use cannot be seen"
        return [unchecked("info", why, "ACL SETUSER ... +info for the time of the examination")]
    name = "Valkey" if "valkey_version" in info else "Redis"
    return [good("version", f"{name} {version}")]


def _role(server: _Server, target: Target) -> list[Finding]:
    role = server.info.get("role")
    if role is None:
        return []
    if role != "master":
        primary = f"{server.info.get('master_host', '?')}:{server.info.get('master_port', '?')}"
        return [
            broken(
                "role",
                f"a read-only replica of {primary}",
                "no lease can be had here",
                "name the primary, or let redis+sentinel:// find it",
            )
        ]
    if server.info.get("redis_mode") == "cluster" and target.kind != "cluster":
        return [
            broken(
                "cluster",
                "a node of a cluster, and the URL means a single server",
                "keys in charge of other nodes cannot be locked",
                "use redis+cluster://",
            )
        ]
    return [good("role", "a primary")]


def _eviction(server: _Server, target: Target) -> list[Finding]:
    del target
    policy, most = server.settings.get("maxmemory-policy"), server.settings.get("maxmemory")
    if policy is None or most is None:
        found = "neither CONFIG GET nor INFO tells maxmemory and maxmemory-policy"
        return [unchecked("eviction", found, "see that maxmemory-policy is noeviction")]
    evicted = server.info.get("evicted_keys", "0")
    so_far = f"; {evicted} keys were evicted so far" if evicted != "0" else ""
    if policy != "noeviction":
        limited = most != "0"
        judge = broken if limited else risk
        when = "once memory is used up" if limited else "as soon as somebody sets maxmemory"
        return [
            judge(
                "eviction",
                f"maxmemory-policy is {policy}, maxmemory {most}{so_far}",
                f"{when} the server throws away leases that are held, and two run at a time",
                "CONFIG SET maxmemory-policy noeviction (and in redis.conf), or keep the leases in "
                "a server of their own",
            )
        ]
    return [*_room(server, int(most)), good("eviction", f"maxmemory-policy is noeviction{so_far}")]


def _room(server: _Server, most: int) -> list[Finding]:
    used = int(server.info.get("used_memory", "0"))
    if not most or used < most * _FULL:
        return []
    return [
        risk(
            "memory",
            f"{used:,} of {most:,} bytes (maxmemory) are used",
            "a server that is full grants no lease (those that are held are renewed)",
            "raise maxmemory, or make room",
        )
    ]


def _persistence(server: _Server, target: Target) -> list[Finding]:
    del target
    appended = server.settings.get("appendonly")
    if appended is None:
        found = "neither CONFIG GET nor INFO tells whether anything is written to disk"
        return [unchecked("persistence", found, "see that the append-only file is on")]
    if appended == "yes":
        return [_syncing(server.settings.get("appendfsync"))]
    saved = server.settings.get("save")
    if saved is None:
        found = "no append-only file; whether snapshots are saved is not told"
    elif saved:
        found = f"no append-only file, only snapshots (save {saved})"
    else:
        found = "nothing is written to disk (appendonly no, no save)"
    return [
        risk(
            "persistence",
            found,
            "when the server restarts, leases that are held are forgotten, and two run at a time "
            "until their holders learn of it",
            "CONFIG SET appendonly yes (and in redis.conf)",
        )
    ]


def _syncing(sync: str | None) -> Finding:
    if sync is None:
        return unchecked("persistence", "the append-only file is on; appendfsync is not told")
    if sync == "always":
        return good("persistence", "the append-only file is on, each write is synced")
    seconds = "second" if sync == "everysec" else "half minute or so"
    return (note if sync == "everysec" else _unsynced)(
        "persistence",
        f"the append-only file is on, with appendfsync {sync}",
        f"a machine that crashes forgets the leases granted in the last {seconds}",
    )


def _unsynced(check: str, found: str, what: str) -> Finding:
    return risk(check, found, what, "CONFIG SET appendfsync everysec, or always")


def _replicas(server: _Server, target: Target) -> list[Finding]:
    if server.info.get("role") != "master":
        return []
    # Among those connected may be some that are still being sent the data, and acknowledge nothing.
    about = (value for name, value in server.info.items() if re.fullmatch(r"slave\d+", name))
    replicas, wanted = sum("state=online" in value for value in about), target.min_replicas
    if wanted > replicas:
        return [
            broken(
                "replicas",
                f"min_replicas={wanted}, and {replicas} replicas are in step",
                "no grant is ever acknowledged by enough of them, so none counts",
                "connect more replicas, or lower min_replicas",
            )
        ]
    if wanted:
        found = f"{replicas} in step, and a grant counts once {wanted} have it"
        return [good("replicas", found)]
    if replicas:
        return [
            risk(
                "replicas",
                f"{replicas} in step, and no grant waits for them",
                "a failover forgets the grants that the replica had not received: two run at a "
                "time until the first learns of it",
                "add min_replicas=1 to the URL, which narrows it; fence what must not be harmed",
            )
        ]
    if target.kind == "single":
        return [good("replicas", "none, so there is no failover that could lose grants")]
    return [note("replicas", "none is connected", "there is nothing to fail over to")]


_CHECKS: tuple[Callable[[_Server, Target], list[Finding]], ...] = (
    _version,
    _role,
    _eviction,
    _persistence,
    _replicas,
)
