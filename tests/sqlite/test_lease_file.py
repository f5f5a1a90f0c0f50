"""Where the lease file may be, how it is made, and what is refused without being touched."""

from __future__ import annotations

import hashlib
import logging
import os
import sqlite3
import stat
import subprocess
import tempfile
from pathlib import Path

import pytest
from child_process import run

from joblock.store.ops import Acquire, Count, Granted, Holders, Release
from joblock.stores.registry import open_store as open_by_url
from joblock.stores.sqlite import SqliteStore, file, mounts, place
from joblock.values.errors import StoreMisconfigured, StoreUnavailable
from joblock.values.records import JOB_LOCKS_TABLE


def use(path):
    """Open the store and do something, then close it."""
    store = SqliteStore(path)
    try:
        return store.driver().call(Acquire("key", "A", 60_000))
    finally:
        store.close()


def content(path):
    return hashlib.sha256(path.read_bytes()).hexdigest()


def mode(path):
    return stat.S_IMODE(path.stat().st_mode)


# Names.


def test_a_url_with_four_slashes_is_an_absolute_path(tmp_path):
    assert SqliteStore.from_url(f"sqlite:///{tmp_path}/a.db").url == f"sqlite:///{tmp_path}/a.db"


def test_a_url_with_three_slashes_is_below_the_working_directory_of_that_moment(
    tmp_path, monkeypatch
):
    monkeypatch.chdir(tmp_path)
    store = SqliteStore.from_url("sqlite:///locks.db")
    monkeypatch.chdir("/")
    store.driver().call(Count())
    store.close()
    assert (tmp_path / "locks.db").exists()


def test_a_url_is_percent_decoded(tmp_path):
    store = SqliteStore.from_url(f"sqlite:///{tmp_path}/a%20b%25c%3Fd%23e.db")
    store.driver().call(Count())
    store.close()
    assert (tmp_path / "a b%c?d#e.db").exists()


@pytest.mark.parametrize("url", ["sqlite:///", "sqlite:///:memory:", "sqlite:///file:x"])
def test_a_url_without_a_file_is_refused_and_points_at_the_memory_store(url):
    with pytest.raises(ValueError, match="memory://"):
        SqliteStore.from_url(url)


@pytest.mark.parametrize(
    "url", ["sqlite://locks.db", "sqlite:locks.db", "sqlite:///a.db?timeout=5", "sqlite:///a%00b"]
)
def test_a_url_that_means_something_else_is_refused_with_what_was_got(url):
    with pytest.raises(ValueError, match="got"):
        SqliteStore.from_url(url)


def test_the_registry_opens_it_by_its_url(tmp_path):
    store = open_by_url(f"sqlite:///{tmp_path}/a.db")
    assert isinstance(store, SqliteStore)


def test_constructing_a_store_touches_no_file(tmp_path):
    SqliteStore(tmp_path / "leases.db")
    assert list(tmp_path.iterdir()) == []


def test_the_default_file_is_private_and_is_announced_once(tmp_path, monkeypatch, caplog):
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state" / "of" / "mine"))
    with caplog.at_level(logging.WARNING, "joblock.store"):
        stores = [SqliteStore.default() for _ in range(2)]
        assert caplog.records == []
        for store in stores:
            for _ in range(2):
                store.driver().call(Count())
                store.close()
    path = tmp_path / "state" / "of" / "mine" / "joblock" / "leases.db"
    assert mode(path) == 0o600
    assert mode(path.parent) == 0o700
    [record] = caplog.records
    assert str(path) in record.getMessage()
    assert "processes of this user on this machine" in record.getMessage()


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can become a user without a home")
def test_without_a_home_there_is_no_default_file(path):
    program = """
import platformdirs
for name in ("HOME", "XDG_STATE_HOME"): os.environ.pop(name, None)
os.setuid(54321)
try: SqliteStore.default()
except StoreMisconfigured as error: say(error)
"""
    said = run(path, program)
    assert "uid 54321 has no home directory" in said
    assert "JOBLOCK_URL" in said


# Making it.


def test_the_file_and_what_sqlite_keeps_beside_it_are_private(path):
    before = os.umask(0)
    try:
        store = SqliteStore(path)
        store.driver().call(Acquire("key", "A", 60_000))
        assert {name.name: mode(name) for name in path.parent.iterdir()} == {
            "leases.db": 0o600,
            "leases.db-wal": 0o600,
            "leases.db-shm": 0o600,
        }
        store.close()
    finally:
        os.umask(before)


def test_a_missing_directory_is_made_private_if_the_one_above_is_there(tmp_path):
    use(tmp_path / "new" / "leases.db")
    assert mode(tmp_path / "new") == 0o700


def test_a_path_with_more_missing_is_refused_and_nothing_is_made(tmp_path):
    with pytest.raises(StoreMisconfigured, match="does not exist"):
        use(tmp_path / "misspelt" / "new" / "leases.db")
    assert list(tmp_path.iterdir()) == []


def test_an_empty_file_that_was_made_beforehand_is_used_with_its_permissions(path):
    path.touch(0o640)
    path.chmod(0o640)
    use(path)
    assert mode(path) == 0o640


def test_a_symlink_to_a_file_that_is_not_there_yet_makes_that_file(tmp_path):
    link = tmp_path / "link.db"
    link.symlink_to(tmp_path / "real.db")
    use(link)
    assert (tmp_path / "real.db").exists()
    assert link.is_symlink()


def test_the_table_has_the_name_that_is_public(path, call):
    call(Acquire("key", "A", 60_000))
    con = sqlite3.connect(path)
    names = con.execute("SELECT name FROM sqlite_master WHERE type = 'table'").fetchall()
    held = con.execute("SELECT key, holder FROM job_locks").fetchall()
    con.close()
    assert (JOB_LOCKS_TABLE,) in names
    assert held == [("key", "A")]


def test_twenty_processes_that_make_the_file_at_once_agree_on_one_holder(path, start):
    program = """
hear()
say(type(call(Acquire("key", sys.argv[2], 60_000))).__name__)
"""
    children = [start(program, number) for number in range(20)]
    for child in children:
        child.tell()
    said = [child.next() for child in children]
    assert [child.end() for child in children] == [0] * 20
    assert sorted(said) == ["Busy"] * 19 + ["Granted"]


# Refusing what cannot be a lease file, without touching it.


def refused(path, match):
    before = content(path) if path.is_file() else None
    with pytest.raises(StoreMisconfigured, match=match) as caught:
        use(path)
    assert str(path) in str(caught.value)
    assert (content(path) if path.is_file() else None) == before
    assert [name.name for name in path.parent.iterdir()] == [path.name]


def test_a_file_that_is_no_database_is_refused(path):
    path.write_text("These are somebody's notes.\n" * 200)
    refused(path, "no SQLite database")


def test_another_programs_database_is_refused_by_its_tables(path):
    with sqlite3.connect(path) as con:
        con.execute("CREATE TABLE customers (name)")
    con.close()
    refused(path, "another program")


def test_another_programs_database_is_refused_by_its_application_id(path):
    with sqlite3.connect(path) as con:
        con.execute("PRAGMA application_id = 42")
        con.execute("CREATE TABLE customers (name)")
        con.execute("DROP TABLE customers")
    con.close()
    refused(path, "another program")


def test_a_database_with_a_table_of_our_name_is_still_another_programs(path):
    with sqlite3.connect(path) as con:
        con.execute("CREATE TABLE job_locks (key)")
    con.close()
    refused(path, "another program")


def test_a_damaged_file_is_refused_and_left_as_it_is(path):
    use(path)
    whole = path.read_bytes()
    path.write_bytes(whole[: file.PAGE_SIZE] + b"\xff" * (len(whole) - file.PAGE_SIZE))
    refused(path, "damaged")


def test_a_directory_is_refused(tmp_path):
    (tmp_path / "folder").mkdir()
    refused(tmp_path / "folder", "is a directory")


@pytest.mark.parametrize(
    ("below", "reason"),
    [
        ("file/leases.db", "should be a directory of its path is a file"),
        ("loop", "lead in a circle"),
        ("loop/leases.db", "lead in a circle"),
        ("x" * 300, "too long"),
    ],
)
def test_a_path_where_no_file_can_be_is_told_by_what_is_wrong_with_it(tmp_path, below, reason):
    (tmp_path / "file").touch()
    (tmp_path / "loop").symlink_to("pool")
    (tmp_path / "pool").symlink_to("loop")
    with pytest.raises(StoreMisconfigured, match=reason) as caught:
        use(tmp_path / below)
    assert "let uid" not in str(caught.value)


def test_what_is_no_regular_file_is_refused(path):
    os.mkfifo(path)
    refused(path, "no regular file")


def test_a_file_of_a_newer_major_format_is_refused(path):
    use(path)
    with sqlite3.connect(path) as con:
        con.execute(f"PRAGMA user_version = {1000 * (file.MAJOR + 1)}")
    con.close()
    refused(path, r"format 2\.000.*works with 1\.x")


def test_a_file_of_a_newer_minor_format_is_used(path):
    use(path)
    with sqlite3.connect(path) as con:
        con.execute(f"PRAGMA user_version = {1000 * file.MAJOR + 7}")
        con.execute("ALTER TABLE job_locks ADD COLUMN mood TEXT")
    con.close()
    store = SqliteStore(path)
    assert store.driver().call(Release("key", "A")).freed
    assert isinstance(store.driver().call(Acquire("key", "B", 60_000)), Granted)
    store.close()


def test_a_file_that_lost_its_tables_is_refused_with_what_is_missing(path):
    use(path)
    with sqlite3.connect(path) as con:
        con.execute("DROP TABLE job_locks")
    con.close()
    store = SqliteStore(path)
    with pytest.raises(StoreMisconfigured, match=r"not as joblock made it \(no such table: job_lo"):
        store.driver().call(Holders("key"))
    store.close()


AS_NOBODY = """
os.setgid(65534); os.setuid(65534)
try:
    say(call(Acquire("key", "A", 60_000)))
except StoreMisconfigured as error:
    say("refused:", error)
"""


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can become another user")
class TestForAnotherUser:
    @pytest.fixture
    def public(self):
        """A directory that everybody can reach, as pytest's own is not."""
        with tempfile.TemporaryDirectory(dir="/var/tmp") as name:
            folder = Path(name)
            folder.chmod(0o711)
            yield folder

    def test_a_read_only_file_is_refused(self, public):
        use(public / "leases.db")
        (public / "leases.db").chmod(0o644)
        said = run(public / "leases.db", AS_NOBODY)
        assert said.startswith("refused:")
        assert "let uid 65534 write the file and its directory" in said

    def test_a_read_only_directory_is_refused(self, public):
        use(public / "leases.db")
        (public / "leases.db").chmod(0o666)
        said = run(public / "leases.db", AS_NOBODY)
        assert said.startswith("refused:")
        assert "let uid 65534 write the file and its directory" in said

    def test_a_directory_where_nothing_can_be_made_is_refused(self, public):
        said = run(public / "leases.db", AS_NOBODY)
        assert said.startswith("refused:")
        assert str(public / "leases.db") in said


# While it is in use.


def test_a_file_that_was_deleted_is_made_anew_and_its_leases_are_lost(
    path, clock, open_store, caplog
):
    store = open_store()
    call = store.driver().call
    old = call(Acquire("key", "A", 60_000))
    for name in path.parent.glob("leases.db*"):
        name.unlink()
    clock.advance(2)
    assert not call(Release("key", "A")).freed
    assert "deleted" in caplog.text
    new = call(Acquire("key", "B", 60_000))
    assert new.token > old.token
    assert use_count(path) == 1


def test_an_error_of_a_file_that_was_deleted_says_so_at_once(path, open_store, caplog):
    store = open_store()
    call = store.driver().call
    call(Acquire("key", "A", 60_000))
    path.unlink()
    said = store.file.failed(sqlite3.OperationalError("disk I/O error"))
    assert isinstance(said, StoreUnavailable)
    assert "deleted or replaced while in use" in str(said)
    assert "deleted" in caplog.text
    assert isinstance(call(Acquire("key", "B", 60_000)), Granted)


def test_a_file_that_another_process_has_open_and_that_was_deleted_is_told_as_such(path, start):
    other = start('call(Acquire("key", "A", 60_000)); say("held"); hear()')
    assert other.next() == "held"
    path.unlink()
    with pytest.raises(StoreUnavailable, match="deleted or truncated while processes had it open"):
        use(path)
    other.kill()
    use(path)


def test_a_file_that_was_truncated_in_use_is_told_as_such(path, open_store, monkeypatch):
    open_store().driver().call(Acquire("key", "A", 60_000))
    os.truncate(path, 0)
    monkeypatch.setattr("joblock.stores.sqlite.driver.PATIENCE", 0.1)
    with pytest.raises(StoreUnavailable, match="deleted or truncated while processes had it open"):
        use(path)


def use_count(path):
    with sqlite3.connect(path) as con:
        [(count,)] = con.execute("SELECT count(*) FROM job_locks WHERE holder IS NOT NULL")
    con.close()
    return count


def test_stores_meet_in_the_file_that_replaced_another(path, clock, open_store):
    one = open_store().driver().call
    one(Acquire("key", "A", 60_000))
    for name in path.parent.glob("leases.db*"):
        name.unlink()
    other = open_store().driver().call
    assert isinstance(other(Acquire("key", "B", 60_000)), Granted)
    clock.advance(2)
    assert one(Acquire("key", "C", 60_000)).holder == "B"
    assert other(Acquire("key", "C", 60_000)).holder == "B"


def test_a_file_that_is_overwritten_by_another_program_is_not_written_to(path, clock, open_store):
    call = open_store().driver().call
    call(Acquire("key", "A", 60_000))
    (path.parent / "notes").write_text("These are somebody's notes.\n" * 200)
    (path.parent / "notes").replace(path)
    clock.advance(2)
    before = content(path)
    for _ in range(3):
        with pytest.raises(StoreMisconfigured, match="no SQLite database"):
            call(Acquire("key", "B", 60_000))
    assert content(path) == before


def test_a_full_disk_is_told_as_such_and_it_goes_on_when_there_is_room(tmp_path):
    program = """
import resource
resource.setrlimit(resource.RLIMIT_FSIZE, (150_000, resource.RLIM_INFINITY))
signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
said = None
for number in range(2_000):
    try:
        call(Acquire(f"{number:400}", "A", 60_000))
    except StoreUnavailable as error:
        said = str(error)
        break
say(number)
say(said)
resource.setrlimit(resource.RLIMIT_FSIZE, (resource.RLIM_INFINITY, resource.RLIM_INFINITY))
say(type(call(Acquire("another", "A", 60_000))).__name__)
say(call(Count()) == number + 1)
"""
    number, said, after, counted = run(tmp_path / "leases.db", program).splitlines()
    assert int(number) > 10
    assert str(tmp_path / "leases.db") in said
    assert after == "Granted"
    assert counted == "True"


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can mount a small file system")
def test_a_full_file_system_is_told_as_such(tmp_path):
    mounted = subprocess.run(
        ["mount", "-t", "tmpfs", "-o", "size=512k", "none", str(tmp_path)], check=False
    )
    if mounted.returncode:
        pytest.skip("this machine lets nobody mount a tmpfs")
    try:
        store = SqliteStore(tmp_path / "leases.db")
        call = store.driver().call
        with pytest.raises(StoreUnavailable, match=r"no room.*free some"):
            fill(call)
        subprocess.run(["mount", "-o", "remount,size=4m", str(tmp_path)], check=True)
        assert isinstance(call(Acquire("another", "A", 60_000)), Granted)
        store.close()
    finally:
        subprocess.run(["umount", str(tmp_path)], check=True)


def fill(call):
    for number in range(10_000):
        call(Acquire(f"{number:400}", "A", 60_000))


# Network file systems.

MOUNTS = """\
22 1 8:1 / / rw,relatime shared:1 - ext4 /dev/sda1 rw
23 22 0:21 / /proc rw - proc proc rw
30 22 0:40 / /srv rw,relatime shared:2 - nfs4 files:/srv rw,vers=4.2
31 30 8:2 / /srv/local rw master:1 - xfs /dev/sdb1 rw
32 22 0:41 / /mnt/with\\040blank rw - cifs //files/share rw
33 22 0:42 / /home/me/far rw - fuse.sshfs me@far: rw
34 22 0:43 / /covered rw - nfs files:/covered rw
35 34 0:44 / /covered rw - tmpfs tmpfs rw
36 22 0:45 / /mnt/c rw - 9p C:\\\\ rw
a line that nobody expected
"""


@pytest.mark.parametrize(
    ("where", "kind"),
    [
        ("/var/lib/leases.db", "ext4"),
        ("/srv/app/leases.db", "nfs4"),
        ("/srv", "nfs4"),
        ("/srvother/leases.db", "ext4"),
        ("/srv/local/leases.db", "xfs"),
        ("/mnt/with blank/leases.db", "cifs"),
        ("/home/me/far/leases.db", "fuse.sshfs"),
        ("/home/me/farther/leases.db", "ext4"),
        ("/covered/leases.db", "tmpfs"),
        ("/mnt/c/leases.db", "9p"),
    ],
)
def test_the_file_system_of_a_path_is_that_of_its_innermost_mount(where, kind):
    assert mounts.type_of(where, MOUNTS) == kind


@pytest.mark.parametrize("kind", ["nfs", "nfs4", "cifs", "smb3", "fuse.sshfs", "9p", "ceph"])
def test_network_file_systems_are_known(kind):
    assert kind in mounts.REMOTE


@pytest.mark.parametrize("kind", ["ext4", "xfs", "btrfs", "tmpfs", "overlay", "zfs", "apfs"])
def test_local_file_systems_are_none(kind):
    assert kind not in mounts.REMOTE


def test_a_lease_file_on_a_network_file_system_is_refused_and_not_made(tmp_path, monkeypatch):
    listed = tmp_path / "mountinfo"
    listed.write_text(
        f"22 1 8:1 / / rw - ext4 /dev/sda1 rw\n30 22 0:4 / {tmp_path} rw - nfs4 a:/ rw\n"
    )
    monkeypatch.setattr(place, "MOUNTS", str(listed))
    with pytest.raises(StoreMisconfigured, match=r"network file system \(nfs4\)") as caught:
        use(tmp_path / "leases.db")
    assert "two could hold the same lease" in str(caught.value)
    assert not (tmp_path / "leases.db").exists()
