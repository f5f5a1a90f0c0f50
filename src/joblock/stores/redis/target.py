"""Which server or servers a store means, and how to log in there: from a URL or a client object."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple
from urllib.parse import parse_qsl, unquote

from joblock.stores.registry import safe_url

DEFAULT_PORT = 6379
LAST_PORT = 65_535
SENTINEL_PORT = 26379

TLS_OPTIONS = (
    "ssl_ca_certs",
    "ssl_ca_data",
    "ssl_ca_path",
    "ssl_cert_reqs",
    "ssl_certfile",
    "ssl_check_hostname",
    "ssl_ciphers",
    "ssl_keyfile",
    "ssl_min_version",
    "ssl_password",
)
_OPTIONS = {
    "db",
    "min_replicas",
    "password",
    "sentinel_password",
    "sentinel_username",
    "ssl",
    "username",
    *TLS_OPTIONS,
}
# What an application's URL may say to its own client, and is nothing to connections of our own.
_FOR_OTHERS = {
    "client_name",
    "decode_responses",
    "encoding",
    "encoding_errors",
    "health_check_interval",
    "max_connections",
    "protocol",
    "retry_on_timeout",
    "socket_connect_timeout",
    "socket_keepalive",
    "socket_timeout",
    "timeout",
}
_EXAMPLE = "such as redis://:password@host:6379/0"


class Place(NamedTuple):
    """A server's address; with port 0, ``host`` is the path of a Unix socket."""

    host: str
    port: int

    def __str__(self) -> str:
        return f"{self.host}:{self.port}" if self.port else self.host


class Login(NamedTuple):
    """How to open a connection: who we are, which database, over TLS (its options) or not.

    ``role`` is what the server must be: ``"master"``, ``"sentinel"``, or ``""`` for a cluster node,
    which says by itself what it is in charge of.
    """

    username: str | None = None
    password: str | None = None
    credentials: Any = None
    db: int = 0
    tls: tuple[tuple[str, Any], ...] | None = None
    role: str = "master"

    def secrets(self) -> tuple[str, ...]:
        """The arguments of AUTH, none if there are none."""
        if self.credentials is not None:
            return tuple(map(str, self.credentials.get_credentials()))
        if self.password is None:
            return ()
        return (self.username, self.password) if self.username else (self.password,)


class Target(NamedTuple):
    """All there is to know of a store before anything is sent.

    ``kind``: ``"single"``, ``"cluster"`` or ``"sentinel"``; ``places`` are the server, some of the
    nodes, or the sentinels, which then tell where ``service`` is.
    """

    shown: str
    kind: str
    places: tuple[Place, ...]
    login: Login
    service: str = ""
    sentinel_login: Login = Login(role="sentinel")
    min_replicas: int = 0


# From a URL.


def from_url(url: str, min_replicas: int | None = None) -> Target:
    """Read a store URL; raises ValueError that says what is wrong with it."""
    scheme, _, rest = url.partition("://")
    rest, _, query = rest.partition("?")
    options = _options(url, query)
    base, _, kind = scheme.partition("+")
    login, rest = _login(rest, options, tls=base in ("rediss", "valkeys"))
    build: Callable[..., Target] = {
        "": _single_url,
        "unix": _unix_url,
        "cluster": _cluster_url,
        "sentinel": _sentinel_url,
    }[kind]
    target = build(url, rest, login, options)
    wanted = options.get("min_replicas", "0") if min_replicas is None else min_replicas
    return target._replace(min_replicas=_whole(url, "min_replicas", wanted))


def _options(url: str, query: str) -> dict[str, str]:
    options = dict(parse_qsl(query, keep_blank_values=True))
    unknown = sorted(set(options) - _OPTIONS - _FOR_OTHERS)
    if unknown:
        raise ValueError(
            f"unknown option {unknown[0]!r} in {safe_url(url)!r}; "
            f"there are: {', '.join(sorted(_OPTIONS))}"
        )
    return options


def _login(rest: str, options: dict[str, str], *, tls: bool) -> tuple[Login, str]:
    user, at, rest = rest.rpartition("@")
    name, _, secret = user.partition(":")
    username = unquote(name) if at and name else options.get("username")
    password = unquote(secret) if at and secret else options.get("password")
    tls = tls or options.get("ssl", "").lower() in ("1", "true", "yes")
    wanted = tuple((name, options[name]) for name in TLS_OPTIONS if name in options)
    return Login(username, password, tls=wanted if tls else None), rest


def _single_url(url: str, rest: str, login: Login, options: dict[str, str]) -> Target:
    hosts, _, path = rest.partition("/")
    places = _places(url, hosts or "localhost", DEFAULT_PORT)
    if len(places) > 1:
        raise ValueError(
            f"{safe_url(url)!r} names several servers: redis+cluster:// and redis+sentinel:// do so"
        )
    db = _whole(url, "database", options.get("db") or path or "0")
    return Target(safe_url(url), "single", places, login._replace(db=db))


def _unix_url(url: str, rest: str, login: Login, options: dict[str, str]) -> Target:
    if not rest.startswith("/"):
        raise ValueError(
            f"the path of the socket must be absolute, such as redis+unix:///run/redis.sock; "
            f"got {safe_url(url)!r}"
        )
    db = _whole(url, "database", options.get("db", "0"))
    return Target(safe_url(url), "single", (Place(unquote(rest), 0),), login._replace(db=db))


def _cluster_url(url: str, rest: str, login: Login, options: dict[str, str]) -> Target:
    hosts, _, path = rest.partition("/")
    if path.strip("0") or options.get("db", "0").strip("0"):
        raise ValueError(f"a cluster has database 0 only; got {safe_url(url)!r}")
    places = _places(url, hosts or "localhost", DEFAULT_PORT)
    return Target(safe_url(url), "cluster", places, login._replace(role=""))


def _sentinel_url(url: str, rest: str, login: Login, options: dict[str, str]) -> Target:
    hosts, _, path = rest.partition("/")
    service, _, database = path.partition("/")
    if not service:
        raise ValueError(
            "a sentinel URL names the service, such as redis+sentinel://host:26379/mymaster; "
            f"got {safe_url(url)!r}"
        )
    db = _whole(url, "database", options.get("db") or database or "0")
    return Target(
        safe_url(url),
        "sentinel",
        _places(url, hosts or "localhost", SENTINEL_PORT),
        login._replace(db=db),
        unquote(service),
        Login(
            options.get("sentinel_username"),
            options.get("sentinel_password"),
            tls=login.tls,
            role="sentinel",
        ),
    )


def _places(url: str, hosts: str, port: int) -> tuple[Place, ...]:
    return tuple(_place(url, host.strip(), port) for host in hosts.split(","))


def _place(url: str, text: str, port: int) -> Place:
    host, bracket, rest = text.removeprefix("[").partition("]")
    if bracket:
        colon, number = rest[:1], rest[1:]
    else:
        host, colon, number = text.partition(":")
    if not host or (colon and not (number.isascii() and number.isdigit())):
        raise ValueError(
            f"cannot read the server {text!r} in {safe_url(url)!r}; a URL is {_EXAMPLE}"
        )
    if colon and not 0 < int(number[:6]) <= LAST_PORT:
        raise ValueError(f"port {number} of {safe_url(url)!r} is not from 1 to {LAST_PORT}")
    return Place(unquote(host), int(number) if colon else port)


def _whole(url: str, what: str, value: Any) -> int:
    text = str(value)
    if isinstance(value, bool) or not (text.isascii() and text.isdigit()):
        raise ValueError(f"the {what} must be a whole number; got {value!r} for {safe_url(url)!r}")
    return int(text)


# From a client object of redis-py or valkey-py, sync or asyncio, told by its shape.


def from_client(client: Any, min_replicas: int = 0) -> Target:
    """Where a caller's client connects to, and as whom; the client itself is not used.

    Raises TypeError for a client whose way to connect cannot be repeated.
    """
    pool = getattr(client, "connection_pool", None)
    nodes = getattr(client, "nodes_manager", None)
    if nodes is not None:
        target = _cluster_client(client, nodes)
    elif hasattr(pool, "sentinel_manager"):
        target = _sentinel_client(pool)
    elif pool is not None:
        target = _single_client(pool)
    else:
        raise TypeError(
            f"a Redis store is made from a client such as redis.Redis; got {_name(client)}"
        )
    return target._replace(min_replicas=_whole(target.shown, "min_replicas", min_replicas))


def _single_client(pool: Any) -> Target:
    options: dict[str, Any] = pool.connection_kwargs
    names = _class_names(pool.connection_class)
    path = options.get("path")
    if path is not None and "UnixDomainSocketConnection" in names:
        place, scheme = Place(str(path), 0), "redis+unix"
    else:
        place = Place(str(options.get("host", "localhost")), int(options.get("port", DEFAULT_PORT)))
        scheme = "rediss" if "SSLConnection" in names else "redis"
    login = _login_of(options, tls=scheme == "rediss")
    return Target(f"{scheme}://{place}/{login.db}", "single", (place,), login)


def _sentinel_client(pool: Any) -> Target:
    manager = pool.sentinel_manager
    pools = [sentinel.connection_pool for sentinel in manager.sentinels]
    places = tuple(
        Place(str(each.connection_kwargs["host"]), int(each.connection_kwargs["port"]))
        for each in pools
    )
    names = _class_names(pool.connection_class)
    login = _login_of(pool.connection_kwargs, tls="SSLConnection" in names)
    asking = _login_of(
        pools[0].connection_kwargs,
        tls="SSLConnection" in _class_names(pools[0].connection_class),
    )
    hosts = ",".join(map(str, places))
    return Target(
        f"redis+sentinel://{hosts}/{pool.service_name}/{login.db}",
        "sentinel",
        places,
        login,
        str(pool.service_name),
        asking._replace(db=0, role="sentinel"),
    )


def _cluster_client(client: Any, nodes: Any) -> Target:
    options: dict[str, Any] = getattr(client, "connection_kwargs", None) or nodes.connection_kwargs
    connection_class = options.get("connection_class")
    tls = bool(options.get("ssl")) or (
        connection_class is not None and "SSLConnection" in _class_names(connection_class)
    )
    known = list(nodes.startup_nodes.values())
    places = tuple(Place(str(node.host), int(node.port)) for node in known)
    login = _login_of(options, tls=tls)._replace(db=0, role="")
    return Target(f"redis+cluster://{','.join(map(str, places))}", "cluster", places, login)


def _login_of(options: dict[str, Any], *, tls: bool) -> Login:
    wanted = tuple((name, options[name]) for name in TLS_OPTIONS if options.get(name) is not None)
    return Login(
        options.get("username"),
        options.get("password"),
        options.get("credential_provider"),
        int(options.get("db") or 0),
        wanted if tls else None,
    )


def _class_names(connection_class: type) -> set[str]:
    own = connection_class.__module__.partition(".")[0]
    if own not in ("redis", "valkey"):
        raise TypeError(
            "joblock opens connections of its own and cannot do so in the way of "
            f"{connection_class.__module__}.{connection_class.__qualname__}: pass a URL instead"
        )
    return {base.__name__ for base in connection_class.__mro__}


def _name(thing: Any) -> str:
    return f"{type(thing).__module__}.{type(thing).__qualname__}"
