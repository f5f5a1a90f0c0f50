"""`joblock.doctor` on Redis: real servers, set up badly."""

from __future__ import annotations

import pytest
from redis_servers import Cluster, Server, binary, wait_until
from report_reading import only, severities

from joblock import JobLocks
from joblock.doctor import examine
from joblock.stores.redis import RedisStore
from joblock.values.errors import StoreUnavailable

SMALLEST = [
    *("+eval", "+evalsha", "+get", "+set", "+del", "+time", "+pexpire", "+pttl", "+scan", "+ping"),
    *("+hget", "+hset", "+hdel", "+hgetall", "+hlen", "+hvals", "+publish", "+subscribe"),
    *("+zadd", "+zrem", "+zcount", "+zrangebyscore", "+zrevrange"),
]


def append(server):
    """Have it write what it does to a file; until it has begun to, it would not even stop."""
    server.ask("CONFIG", "SET", "appendonly", "yes")
    wait_until(
        lambda: b"aof_rewrite_in_progress:0" in server.ask("INFO", "persistence"),
        "the append-only file is begun",
    )


def test_a_server_that_is_set_up_well_has_nothing_amiss_and_is_left_as_it_was(redis_server):
    append(redis_server)
    redis_server.ask("CONFIG", "SET", "appendfsync", "always")
    report = examine(redis_server.url)
    assert report.holds
    assert set(severities(report).values()) == {"good"}
    assert set(severities(report)) == {
        *("servers", "version", "role", "eviction", "persistence", "replicas"),
        *("prefix", "leases", "round trip", "clock", "notices"),
    }
    assert report.store == redis_server.url
    left = [name for name in redis_server.keys() if "present" not in name]  # noqa: SIM118
    assert all(redis_server.ask("PTTL", name) > 0 for name in left)


@pytest.mark.parametrize("policy", ["allkeys-lru", "volatile-ttl"])
def test_a_policy_that_evicts_is_broken_once_memory_is_limited(redis_server, policy):
    redis_server.ask("CONFIG", "SET", "maxmemory-policy", policy)
    report = examine(redis_server.url)
    assert (only(report, "eviction").severity, report.holds) == ("risk", True)
    redis_server.ask("CONFIG", "SET", "maxmemory", "100mb")
    report = examine(redis_server.url)
    finding = only(report, "eviction")
    assert (finding.severity, report.holds) == ("broken", False)
    assert policy in finding.found
    assert "throws away leases that are held" in finding.risk
    assert "maxmemory-policy noeviction" in finding.change


def test_a_server_without_persistence_is_a_risk(redis_server):
    finding = only(examine(redis_server.url), "persistence")
    assert finding.severity == "risk"
    assert "nothing is written to disk" in finding.found
    redis_server.ask("CONFIG", "SET", "save", "3600 1")
    assert "only snapshots" in only(examine(redis_server.url), "persistence").found
    append(redis_server)
    for sync, severity in (("everysec", "note"), ("no", "risk"), ("always", "good")):
        redis_server.ask("CONFIG", "SET", "appendfsync", sync)
        assert only(examine(redis_server.url), "persistence").severity == severity


def test_a_full_server_is_told_of_and_cannot_keep_a_lease(redis_server):
    redis_server.ask("CONFIG", "SET", "maxmemory", "1000kb")
    report = examine(redis_server.url)
    assert not report.holds
    assert only(report, "memory").severity == "risk"
    assert "memory is full" in only(report, "leases").found


def test_a_user_who_may_see_nothing_gets_what_was_not_checked(redis_server):
    rights = ("resetkeys", "~joblock:*", "resetchannels", "&joblock:to:*", "-@all", *SMALLEST)
    redis_server.ask("ACL", "SETUSER", "small", "on", ">hunter2", *rights)
    url = redis_server.url.replace("//", "//small:hunter2@")
    report = examine(url)
    assert report.holds
    assert {one.check for one in report.of("unchecked")} == {"info", "eviction", "persistence"}
    assert only(report, "leases").severity == "good"
    assert "hunter2" not in str(report)


def test_without_config_info_has_to_do(redis_server):
    redis_server.ask("CONFIG", "SET", "maxmemory", "100mb")
    redis_server.ask("CONFIG", "SET", "maxmemory-policy", "allkeys-lru")
    append(redis_server)
    rights = ("~joblock:*", "&joblock:to:*", "-@all", "+info", *SMALLEST)
    redis_server.ask("ACL", "SETUSER", "small", "on", "nopass", "resetchannels", *rights)
    report = examine(redis_server.url.replace("//", "//small:any@"))
    assert only(report, "eviction").severity == "broken"
    assert "appendfsync is not told" in only(report, "persistence").found
    assert only(report, "persistence").severity == "unchecked"


def test_a_lacking_right_is_broken_and_named(redis_server):
    rights = ("~joblock:*", "&joblock:to:*", "-@all", "+info", *SMALLEST, "-hset")
    redis_server.ask("ACL", "SETUSER", "small", "on", "nopass", "resetchannels", *rights)
    finding = only(examine(redis_server.url.replace("//", "//small:any@")), "leases")
    assert finding.severity == "broken"
    assert "HSET" in finding.found


def test_a_replica_is_broken_and_a_primary_with_one_is_at_risk(redis_server, tmp_path):
    primary = f"127.0.0.1 {redis_server.port}"
    replica = Server(binary("redis-server"), tmp_path / "replica", "--replicaof", primary)
    try:
        wait_until(
            lambda: b"state=online" in redis_server.ask("INFO", "replication"),
            "the replica is in step",
        )
        report = examine(replica.url)
        assert only(report, "role").severity == "broken"
        assert f"127.0.0.1:{redis_server.port}" in only(report, "role").found
        assert only(report, "leases").severity == "unchecked"
        finding = only(examine(redis_server.url), "replicas")
        assert (finding.severity, "min_replicas=1" in finding.change) == ("risk", True)
        report = examine(f"{redis_server.url}?min_replicas=1")
        assert only(report, "replicas").severity == "good"
        assert only(report, "leases").severity == "good"
    finally:
        replica.stop()


def test_too_many_replicas_asked_for_are_broken(redis_server):
    store = RedisStore.from_url(redis_server.url, min_replicas=2)
    report = examine(store)
    store.close()
    assert only(report, "replicas").severity == "broken"
    assert "min_replicas=2" in only(report, "replicas").found
    assert only(report, "leases").severity == "broken"


def test_each_server_of_a_cluster_is_looked_at_and_one_alone_is_broken(tmp_path):
    cluster = Cluster(binary("redis-server"), tmp_path)
    try:
        cluster.nodes[1].ask("CONFIG", "SET", "maxmemory-policy", "allkeys-lru")
        cluster.nodes[1].ask("CONFIG", "SET", "maxmemory", "100mb")
        report = examine(cluster.url)
        [finding] = report.of("broken")
        assert finding.check == "eviction"
        assert finding.found.startswith(f"127.0.0.1:{cluster.nodes[1].port}: ")
        assert only(report, "servers").severity == "note"
        assert only(report, "notices").severity == "good"
        report = examine(cluster.nodes[0].url)
        assert only(report, "cluster").change == "use redis+cluster://"
        assert not report.holds
    finally:
        cluster.stop()


def test_a_store_with_a_notifier_is_looked_at_and_tried_out_with_it(redis_server, tmp_path):
    url = f"sqlite:///{tmp_path}/locks.db"
    with JobLocks(url, notifier=redis_server.url) as locks:
        assert locks.run_with_lock("k", "30s", lambda: None)
        report = examine(locks.store)
        assert only(report, "journal").severity == "good"
        assert only(report, "notices").severity == "good"
        redis_server.stop()
        assert only(examine(locks.store), "notices").severity == "risk"


def test_a_server_that_is_away_is_unavailable(redis_server):
    redis_server.stop()
    with pytest.raises(StoreUnavailable):
        examine(redis_server.url)


def test_a_wrong_password_is_broken(redis_server):
    redis_server.ask("CONFIG", "SET", "requirepass", "secret")
    url = redis_server.url.replace("//", "//:hunter2@")
    report = examine(url)
    assert "user name and password" in only(report, "set-up").found
    assert "hunter2" not in str(report)
