"""Renewing ten thousand leases in one go, beside the bare statement on the same rows."""

from __future__ import annotations

import sqlite3
from collections.abc import Callable

from benchmarks import servers
from benchmarks.contenders.shape import POSTGRES_TABLE
from benchmarks.measure import Candidate, compare
from benchmarks.processor import pinned
from benchmarks.result import Result, Table, at_most, number
from benchmarks.subjects import Bench
from joblock import JobLocks
from joblock.protocol.renew import batch, confirm
from joblock.store.ops import Refreshed

_SCRIPT = """
local renewed = 0
for i, key in ipairs(KEYS) do
  if redis.call('get', key) == ARGV[i + 1] then
    renewed = renewed + redis.call('pexpire', key, ARGV[1])
  end
end
return renewed
"""

_UPDATE = """
update bench_leases set expires_at = now() + interval '30 seconds'
from unnest(%s::text[], %s::text[], %s::bigint[]) as mine (key, holder, token)
where bench_leases.key = mine.key and bench_leases.holder = mine.holder
and bench_leases.token = mine.token
"""


def run(bench: Bench) -> Result:
    """One round of the keeper's: build the batch, send it, take the reply in."""
    result = Result("renewal")
    leases = bench.many(10_000)
    with pinned():
        _memory(result, leases)
        with servers.sqlite() as store:
            _beside(result, "SQLite", store.url, "one transaction", _floor_sqlite, leases)
        with servers.redis(pinned=True) as store:
            _beside(result, "Redis", store.url, "one script", _floor_redis, leases)
        with servers.postgres(fsync=True, pinned=True) as store:
            _beside(result, "PostgreSQL", store.url, "one UPDATE", _floor_postgres, leases)
    return result


def _memory(result: Result, leases: int) -> None:
    locks, ours = _ours("memory://", leases)
    found = compare({"joblock": ours}, turns=1)
    result.tables.append(_table("memory", leases, found.figures, found.failures))
    locks.close()


def _beside(
    result: Result,
    name: str,
    url: str,
    bare: str,
    floor: Callable[[str, int], tuple[Callable[[], None], Candidate]],
    leases: int,
) -> None:
    close, statement = floor(url, leases)
    locks, ours = _ours(url, leases)
    found = compare({bare: statement, "joblock": ours}, turns=1)
    close()
    locks.close()
    result.tables.append(_table(name, leases, found.figures, found.failures))
    result.goals.append(
        at_most(
            f"renewing {leases:,} leases once, {name}",
            f"at most twice {bare}",
            found.ratio("joblock", bare),
            2,
            " times",
        )
    )


def _table(name: str, leases: int, figures, failures) -> Table:
    rows = [
        [
            f"**{figure.name}**" if figure.name == "joblock" else figure.name,
            number(figure.median / 1000),
            f"{number(figure.low / 1000)} to {number(figure.high / 1000)}",
            number(figure.ratio),
        ]
        for figure in figures.values()
    ]
    columns = ["who", "median, ms", "rounds, ms", "to the floor"]
    return Table(f"{name}: renewing {leases:,} leases once", columns, rows, None, failures)


def _named(leases: int) -> tuple[list[str], list[str], list[int]]:
    numbers = list(range(1, leases + 1))
    return [f"key-{n:05}" for n in numbers], [f"holder-{n}" for n in numbers], numbers


def _floor_sqlite(url: str, leases: int) -> tuple[Callable[[], None], Candidate]:
    connection = sqlite3.connect(f"{url.removeprefix('sqlite:///')}-bare", isolation_level=None)
    connection.execute("pragma journal_mode = wal")
    connection.execute("pragma synchronous = normal")
    connection.execute(
        "create table leases (key text primary key, holder text, token integer, "
        "expires_at integer) without rowid"
    )
    rows = list(zip(*_named(leases), [1] * leases, strict=True))
    connection.execute("begin")
    connection.executemany("insert into leases values (?, ?, ?, ?)", rows)
    connection.execute("commit")

    def renew(turns: int) -> None:
        for _ in range(turns):
            connection.execute("begin immediate")
            connection.executemany(
                "update leases set expires_at = ?4 where key = ?1 and holder = ?2 and token = ?3",
                rows,
            )
            connection.execute("commit")

    return connection.close, renew


def _floor_redis(url: str, leases: int) -> tuple[Callable[[], None], Candidate]:
    from redis import Redis

    client = Redis.from_url(url)
    keys, holders, _ = _named(leases)
    with client.pipeline(transaction=False) as pipeline:
        for key, holder in zip(keys, holders, strict=True):
            pipeline.set(key, holder, px=3_600_000)
        pipeline.execute()
    sha = client.script_load(_SCRIPT)

    def renew(turns: int) -> None:
        for _ in range(turns):
            assert client.evalsha(sha, leases, *keys, 3_600_000, *holders) == leases

    return client.close, renew


def _floor_postgres(url: str, leases: int) -> tuple[Callable[[], None], Candidate]:
    import psycopg

    connection = psycopg.connect(url, autocommit=True, prepare_threshold=0)
    connection.execute(POSTGRES_TABLE)
    named = _named(leases)
    connection.execute(
        "insert into bench_leases select *, now() "
        "from unnest(%s::text[], %s::text[], %s::bigint[])",
        named,
    )

    def renew(turns: int) -> None:
        for _ in range(turns):
            assert connection.execute(_UPDATE, named).rowcount == leases

    return connection.close, renew


def _ours(url: str, count: int) -> tuple[JobLocks, Candidate]:
    locks = JobLocks(url)
    leases = [locks.acquire(f"key-{number:05}", "1h") for number in range(count)]
    hub = locks._hub  # noqa: SLF001 - what the keeper does, without waiting for its turn

    def renew(turns: int) -> None:
        for _ in range(turns):
            holds = hub.kept()
            now = hub.clock.monotonic()
            reply: Refreshed = hub.call(batch(holds, now))
            if confirm(holds, reply, now) or len(holds) != len(leases):
                raise AssertionError("a lease was lost")

    return locks, renew
