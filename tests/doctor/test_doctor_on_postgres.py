"""`joblock.doctor` on PostgreSQL: real servers, roles and tables, set up badly."""

from __future__ import annotations

import uuid

import psycopg
import pytest
from postgres_servers import Bouncer, Server
from report_reading import only, severities

from joblock import JobLocks
from joblock.doctor import examine
from joblock.values.errors import StoreUnavailable


class Database:
    """A database of the test's own."""

    def __init__(self, server: Server) -> None:
        self.name = f"d{uuid.uuid4().hex}"
        self._server = server
        server.run(f"create database {self.name}")

    def url(self, role: str = "postgres") -> str:
        return self._server.url_of(role, self.name)

    def run(self, *statements: str) -> None:
        with psycopg.connect(self.url(), autocommit=True) as connection:
            for statement in statements:
                connection.execute(statement.encode())

    def role(self, *settings: str) -> str:
        """A new role; its URL."""
        name = f"r{uuid.uuid4().hex}"
        self.run(f"create role {name} login", *(f"alter role {name} {one}" for one in settings))
        return self.url(name)

    def use(self) -> None:
        """Have the tables made, as the first lock does."""
        with JobLocks(self.url()) as locks, locks.lock("k"):
            pass


@pytest.fixture
def database(pg):
    return Database(pg)


def test_a_server_that_is_set_up_well_has_nothing_amiss(database):
    database.use()
    report = examine(database.url())
    assert set(severities(report).values()) == {"good"}, report
    assert set(severities(report)) == {
        *("version", "role", "durability", "standbys", "pooler", "tables", "grants"),
        *("prefix", "leases", "round trip", "clock", "notices"),
    }
    with JobLocks(database.url()) as locks:
        assert list(locks.model.all()) == []


def test_no_tables_are_made(database):
    report = examine(database.url())
    assert report.holds
    assert only(report, "tables").severity == "note"
    assert only(report, "leases").severity == "unchecked"
    with psycopg.connect(database.url()) as connection:
        query = b"select count(*) from pg_tables where schemaname = 'public'"
        assert connection.execute(query).fetchone() == (0,)


def test_a_role_that_may_not_make_the_missing_tables_is_broken(database):
    database.run("revoke create on schema public from public")
    report = examine(database.role())
    assert not report.holds
    finding = only(report, "tables")
    assert "may not make them" in finding.found
    assert "joblock schema postgresql" in finding.change


def test_a_role_that_may_only_read_lacks_what_is_named(database):
    database.use()
    url = database.role()
    name = url.split("//")[1].split("@")[0]
    database.run(f"grant select on all tables in schema public to {name}")
    report = examine(url)
    finding = only(report, "grants")
    assert finding.severity == "broken"
    assert "INSERT, UPDATE, DELETE on job_locks" in finding.found
    assert "SELECT" not in finding.found
    assert only(report, "leases").severity == "unchecked"
    database.run(*finding.change.split("; "))
    assert only(examine(url), "leases").severity == "good"


def test_a_role_that_reads_only_by_its_settings_is_broken(database):
    database.use()
    finding = only(
        examine(database.role("superuser", "set default_transaction_read_only = on")), "read only"
    )
    assert finding.severity == "broken"
    assert finding.change.endswith("SET default_transaction_read_only = off")


def test_commits_that_do_not_wait_for_the_disk_are_broken(database):
    database.use()
    report = examine(database.role("superuser", "set synchronous_commit = off"))
    assert only(report, "synchronous_commit").severity == "broken"
    assert only(report, "leases").severity == "good"
    assert not report.holds


def test_another_isolation_level_is_harmless(database):
    database.use()
    report = examine(database.role("superuser", "set default_transaction_isolation = serializable"))
    assert only(report, "isolation").severity == "note"
    assert only(report, "leases").severity == "good"
    assert report.holds


def test_tables_of_another_shape_or_format_are_broken(database):
    database.use()
    database.run(
        "alter table job_locks drop column ok_token cascade",
        "alter table job_lock_waiters alter column arrival type text",
        "update job_lock_meta set format = 7",
    )
    report = examine(database.url())
    found = only(report, "tables").found
    assert "job_locks.ok_token should be bigint and is missing" in found
    assert "job_lock_waiters.arrival should be bigint and is text" in found
    assert "of format 7" in only(report, "format").found
    assert only(report, "leases").severity == "unchecked"
    assert not report.holds


def test_missing_functions_are_named(database):
    database.use()
    database.run("drop function joblock_1_leave")
    finding = only(examine(database.url()), "functions")
    assert (finding.severity, finding.found) == ("broken", "joblock_1_leave is missing")


def test_the_schema_of_the_url_is_the_one_that_is_looked_at(database):
    database.use()
    report = examine(f"{database.url()}?schema=elsewhere")
    assert "in the schema elsewhere" in only(report, "tables").found
    assert only(report, "tables").severity == "note"


def test_behind_a_pooler_notices_do_not_arrive_unless_there_is_a_way_around(pg):
    with JobLocks(pg.url) as locks, locks.lock("k"):
        pass
    bouncer = Bouncer(pg)
    try:
        report = examine(bouncer.url)
        assert "PgBouncer" in only(report, "pooler").found
        assert only(report, "notices").severity == "risk"
        assert only(report, "leases").severity == "good"
        assert report.holds
        around = pg.url.replace(":", "%3A").replace("/", "%2F").replace("@", "%40")
        report = examine(f"{bouncer.url}?listen_url={around}")
        assert only(report, "notices").severity == "good"
    finally:
        bouncer.remove()


def test_a_server_that_does_not_sync_is_broken(tmp_path):
    server = Server(fsync=False, full_page_writes="off", autovacuum="off")
    try:
        report = examine(server.url)
        assert not report.holds
        assert only(report, "fsync").severity == "broken"
        assert only(report, "full_page_writes").severity == "risk"
        assert only(report, "autovacuum").severity == "risk"
        server.stop()
        (server.folder / "data" / "standby.signal").touch()
        server.start()
        report = examine(server.url)
        finding = only(report, "role")
        assert (finding.severity, finding.found) == ("broken", "a standby, which is read only")
        assert "target_session_attrs=read-write" in finding.change
        server.stop()
        with pytest.raises(StoreUnavailable):
            examine(server.url)
    finally:
        server.remove()


def test_a_database_that_does_not_exist_is_broken_and_no_password_is_shown(pg):
    report = examine(pg.url_of("postgres:hunter2", "nowhere"))
    assert 'database "nowhere" does not exist' in only(report, "set-up").found
    assert "hunter2" not in str(report)
