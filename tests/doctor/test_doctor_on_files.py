"""`joblock.doctor` on lease files and in memory, and what it says of all stores."""

from __future__ import annotations

import os
import sqlite3

import pytest
from report_reading import only, severities

from joblock import JobLocks
from joblock.doctor import examine
from joblock.doctor import sqlite as sqlite_checks
from joblock.stores.memory import MemoryStore
from joblock.stores.sqlite import SqliteStore
from joblock.values.errors import StoreUnavailable


@pytest.fixture
def file(tmp_path):
    """A lease file that was used."""
    path = tmp_path / "private" / "locks.db"
    with JobLocks(f"sqlite:///{path}") as locks, locks.lock("k"):
        pass
    return path


def url(path):
    return f"sqlite:///{path}"


def test_a_file_that_is_kept_well_has_nothing_amiss_and_is_left_as_it_was(file):
    before = sorted(each.name for each in file.parent.iterdir() if each.is_file())
    report = examine(url(file))
    assert report.holds
    assert not [one for one in report.findings if one.severity in {"broken", "unchecked"}]
    assert severities(report).keys() >= {
        *("reach", "file system", "disk", "permissions", "format", "journal", "sockets"),
        *("prefix", "leases", "round trip", "clock", "notices"),
    }
    assert only(report, "journal").found == "write-ahead log"
    assert sorted(each.name for each in file.parent.iterdir() if each.is_file()) == before
    with JobLocks(url(file)) as locks:
        assert list(locks.model.all()) == []


def test_a_file_that_is_not_there_is_not_made(tmp_path):
    report = examine(url(tmp_path / "locks.db"))
    assert report.holds
    assert "not there yet" in only(report, "file").found
    assert only(report, "leases").severity == "good"
    assert only(report, "notices").severity == "good"
    assert list(tmp_path.iterdir()) == []


def test_a_file_whose_folder_is_not_there_is_told_of_and_nothing_is_made(tmp_path):
    report = examine(url(tmp_path / "new" / "locks.db"))
    assert (only(report, "file").severity, report.holds) == ("note", True)
    report = examine(url(tmp_path / "new" / "newer" / "locks.db"))
    assert (only(report, "file").severity, report.holds) == ("broken", False)
    assert only(report, "leases").severity == "unchecked"
    assert list(tmp_path.iterdir()) == []


def test_a_file_of_another_format_or_program_is_broken(file, tmp_path):
    with sqlite3.connect(file) as con:
        con.execute("PRAGMA user_version = 9000")
    con.close()
    report = examine(url(file))
    assert "has format 9.000" in only(report, "leases").found
    assert not report.holds
    other = tmp_path / "other.db"
    con = sqlite3.connect(other)
    con.execute("CREATE TABLE theirs (id INTEGER)")
    con.close()
    report = examine(url(other))
    assert "the database of another program" in only(report, "leases").found
    assert not report.holds


def test_permissions_that_let_everybody_in_are_a_risk(file):
    file.chmod(0o666)
    finding = only(examine(url(file)), "permissions")
    assert finding.severity == "risk"
    assert finding.change == f"chmod o-w {file} {file.parent}"


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can give a file away")
def test_a_file_of_another_user_is_told_of(file):
    os.chown(file, 12345, -1)
    finding = only(examine(url(file)), "owner")
    assert (finding.severity, "12345" in finding.found) == ("note", True)


def test_a_full_disk_is_a_risk(file, monkeypatch):
    monkeypatch.setattr(sqlite_checks, "LITTLE", 1 << 70)
    finding = only(examine(url(file)), "disk")
    assert (finding.severity, finding.found.endswith(" MiB are free")) == ("risk", True)


@pytest.mark.parametrize(
    ("kind", "severity"),
    [("nfs4", "broken"), ("overlay", "risk"), ("tmpfs", "note"), ("xfs", "good")],
)
def test_each_file_system_is_told_for_what_it_is(file, tmp_path, monkeypatch, kind, severity):
    mounts = tmp_path / "mountinfo"
    mounts.write_text(f"1 1 0:1 / {file.parent} rw - {kind} source rw\n")
    monkeypatch.setattr(sqlite_checks, "MOUNTS", str(mounts))
    finding = only(examine(url(file)), "file system")
    assert (finding.severity, kind in finding.found) == (severity, True)
    monkeypatch.setattr(sqlite_checks, "MOUNTS", str(tmp_path / "nowhere"))
    assert only(examine(url(file)), "file system").severity == "unchecked"


def test_waiters_that_cannot_be_woken_are_a_risk(file):
    folder = file.with_name("locks.db.sockets")
    if folder.exists():
        folder.rmdir()
    folder.write_text("in the way")
    report = examine(url(file))
    assert only(report, "sockets").severity == "risk"
    assert only(report, "notices").severity == "risk"
    assert report.holds


def test_a_file_that_is_kept_locked_is_unavailable(file):
    con = sqlite3.connect(file, isolation_level=None)
    con.execute("BEGIN EXCLUSIVE")
    try:
        with pytest.raises(StoreUnavailable):
            examine(url(file))
    finally:
        con.close()


def test_a_store_that_nobody_named_is_a_risk(tmp_path, monkeypatch):
    monkeypatch.delenv("JOBLOCK_URL", raising=False)
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))
    finding = only(examine(), "reach")
    assert finding.severity == "risk"
    assert "JOBLOCK_URL" in finding.change


def test_a_relative_path_is_a_risk(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    finding = only(examine("sqlite:///locks.db"), "reach")
    assert (finding.severity, finding.change) == ("risk", f"write sqlite:///{tmp_path}/locks.db")


def test_memory_is_broken_since_it_is_for_one_process():
    report = examine("memory://")
    assert (only(report, "reach").severity, report.holds) == ("broken", False)
    assert only(report, "notices").severity == "good"


def test_the_prefix_is_told_of_and_one_that_cannot_be_is_broken(file):
    assert only(examine(url(file), prefix="shop:"), "prefix").severity == "note"
    report = examine(url(file), prefix="x" * 501)
    assert only(report, "prefix").severity == "broken"
    assert not report.holds


def test_a_store_of_another_package_is_tried_out_and_its_settings_are_unchecked():
    class Theirs(MemoryStore):
        pass

    store = Theirs("theirs")
    report = examine(store)
    store.close()
    assert only(report, "settings").severity == "unchecked"
    assert only(report, "leases").severity == "good"


def test_a_store_can_be_given_as_such(file):
    store = SqliteStore(file)
    assert examine(store).holds
    store.close()
