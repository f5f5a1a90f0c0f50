"""From what a caller passes to the store; and what is never shown."""

from __future__ import annotations

from importlib.metadata import EntryPoint
from pathlib import Path

import pytest

from joblock import StoreMisconfigured
from joblock.store.ops import Acquire, Busy
from joblock.stores import registry
from joblock.stores.memory import MemoryStore
from joblock.stores.registry import open_store, safe_url

VARIABLES = (
    "JOBLOCK_URL",
    "JOBLOCK_URL_FILE",
    "JOBLOCK_REQUIRE_SHARED",
    "KUBERNETES_SERVICE_HOST",
)


@pytest.fixture(autouse=True)
def environment(monkeypatch):
    """Nothing is set but what a test sets."""
    for name in VARIABLES:
        monkeypatch.delenv(name, raising=False)
    return monkeypatch


def test_a_url_names_a_store():
    store = open_store("memory://registry")
    assert isinstance(store, MemoryStore)
    assert store.url == "memory://registry"


def test_a_url_of_the_same_name_shares_its_leases():
    one, other = open_store("memory://registry shares"), open_store("memory://registry shares")
    one.driver().call(Acquire("key", "A", 1_000))
    assert isinstance(other.driver().call(Acquire("key", "B", 1_000)), Busy)


@pytest.mark.parametrize("url", ["memory:", "memory://"])
def test_a_memory_url_without_a_name_is_private(url):
    one, other = open_store(url), open_store(url)
    one.driver().call(Acquire("key", "A", 1_000))
    assert not isinstance(other.driver().call(Acquire("key", "B", 1_000)), Busy)


def test_a_store_is_taken_as_it_is():
    store = MemoryStore()
    assert open_store(store) is store


def test_a_function_is_asked_for_a_store_or_a_url():
    store = MemoryStore()
    assert open_store(lambda: store) is store
    assert open_store(lambda: "memory://by function").url == "memory://by function"
    assert open_store(lambda: lambda: store) is store


def test_a_class_of_stores_is_asked_for_one():
    assert isinstance(open_store(MemoryStore), MemoryStore)


def test_a_function_that_returns_nothing_is_refused():
    """A setting that is missing must not become a lock of this machine alone."""
    with pytest.raises(TypeError, match="returned None"):
        open_store(lambda: None)


@pytest.mark.parametrize("given", [5, b"memory://", ["memory://"], object()])
def test_what_is_no_store_is_refused_and_named_by_its_type(given):
    with pytest.raises(TypeError, match="a store is a URL") as refusal:
        open_store(given)
    assert type(given).__qualname__ in str(refusal.value)


def test_an_unknown_scheme_is_refused_with_those_that_exist():
    with pytest.raises(ValueError, match="'oracle'") as refusal:
        open_store("oracle://app:hunter2@db/app")
    message = str(refusal.value)
    assert "memory" in message
    assert "sqlite" in message
    assert "hunter2" not in message


def test_schemes_are_open_to_other_packages(monkeypatch):
    entry = EntryPoint("faraway", "joblock.stores.memory:MemoryStore", registry.GROUP)
    monkeypatch.setattr(registry, "_entry_points", lambda: [entry])
    assert open_store("faraway://x").url == "memory://faraway://x"
    with pytest.raises(ValueError, match="faraway"):
        open_store("unknown://x")


@pytest.mark.parametrize("text", ["", "locks.db", "/var/lib/locks.db", ":6379", "a b:c", "@:x"])
def test_text_without_a_scheme_is_refused_with_an_example(text):
    with pytest.raises(ValueError, match="begins with a scheme, such as sqlite:///PATH"):
        open_store(text)


@pytest.mark.parametrize(
    ("path", "url"),
    [
        ("/tmp/x.db", "sqlite:////tmp/x.db"),  # noqa: S108 - nothing is made there
        ("/srv/a b?.db", "sqlite:////srv/a%20b%3F.db"),
        ("locks.db", f"sqlite:///{Path.cwd()}/locks.db"),
    ],
)
def test_the_refusal_of_a_path_has_its_url(path, url):
    with pytest.raises(ValueError, match="scheme") as refusal:
        open_store(path)
    assert f"is {url})" in str(refusal.value)


def test_the_case_of_a_scheme_does_not_matter():
    assert open_store("SQLITE:////srv/x.db").url == "sqlite:////srv/x.db"
    assert open_store("Memory://x").url == "memory://x"


@pytest.mark.parametrize("port", ["99999999", "65536", "0"])
def test_a_port_that_cannot_be_is_refused(port):
    with pytest.raises(ValueError, match=f"port {port} "):
        open_store(f"redis://h:{port}")


@pytest.mark.parametrize(
    "text",
    [
        "hunter2@db",
        ":hunter2@db:5432",
        "app:hunter2@db/app",
        "hunter2@db:5432/app",
        "host=db password=hunter2 dbname=app",
        "host=db password = hunter2",
        "oracle://app:hunter2@db",
        "oracle://db?password=hunter2",
    ],
)
def test_no_refusal_shows_a_password(text):
    with pytest.raises(ValueError, match="scheme") as refusal:
        open_store(text)
    assert "hunter2" not in str(refusal.value)


@pytest.mark.parametrize(
    ("url", "shown"),
    [
        ("postgresql://app@db/app", "postgresql://app@db/app"),
        ("postgresql://db:5432/app", "postgresql://db:5432/app"),
        ("postgresql://app:hunter2@db/app", "postgresql://app:***@db/app"),
        ("postgresql://app:@db/app", "postgresql://app:***@db/app"),
        ("redis://:hunter2@db:6379/0", "redis://:***@db:6379/0"),
        ("redis://db:6379/0?db=3", "redis://db:6379/0?db=3"),
        ("redis://app:hunt@er2@db/0", "redis://app:***@db/0"),
        ("redis://app:hunt/er2@db/0", "redis://app:***@db/0"),
        ("redis://app:hunt:er2@db/0", "redis://app:***@db/0"),
        ("redis://app:hunt?er2@db/0", "redis://app:***@db/0"),
        ("redis://app:hunt#er2@db/0", "redis://app:***@db/0"),
        ("redis://app:hunt//er2@[::1]:6379/0", "redis://app:***@[::1]:6379/0"),
        ("redis+unix:///run/r.sock?password=hunter2", "redis+unix:///run/r.sock?password=***"),
        (
            "postgresql://db/app?user=app&password=hunter2&sslmode=require",
            "postgresql://db/app?user=app&password=***&sslmode=require",
        ),
        ("postgresql://db/app?sslPassword=hunter2", "postgresql://db/app?sslPassword=***"),
        ("mysql://db/app?passwd=hunter2", "mysql://db/app?passwd=***"),
        ("etcd://db?auth_token=hunter2", "etcd://db?auth_token=***"),
        ("redis://a:hunter2@h/0?password=hunter2", "redis://a:***@h/0?password=***"),
        ("sqlite:///home/me@host/it:s.db", "sqlite:///home/me@host/it:s.db"),
        ("memory://name", "memory://name"),
        ("app:hunter2@db", "***"),
        ("host=db password=hunter2", "***"),
    ],
)
def test_a_url_is_shown_without_its_password(url, shown):
    assert safe_url(url) == shown
    assert "hunt" not in safe_url(url)
    assert "er2" not in safe_url(url)


def test_without_an_argument_the_environment_names_the_store(environment):
    environment.setenv("JOBLOCK_URL", " memory://from environment\n")
    assert open_store().url == "memory://from environment"


def test_a_file_may_hold_the_url_so_that_no_password_is_in_the_environment(environment, tmp_path):
    file = tmp_path / "url"
    file.write_text("memory://from file\n")
    environment.setenv("JOBLOCK_URL_FILE", str(file))
    assert open_store().url == "memory://from file"


def test_the_url_comes_before_the_file(environment, tmp_path):
    environment.setenv("JOBLOCK_URL", "memory://from environment")
    environment.setenv("JOBLOCK_URL_FILE", str(tmp_path / "missing"))
    assert open_store().url == "memory://from environment"


def test_an_argument_comes_before_the_environment(environment):
    environment.setenv("JOBLOCK_URL", "oracle://nowhere")
    assert open_store("memory://argument").url == "memory://argument"


@pytest.mark.parametrize("content", [None, b"", b" \n", b"\xff\xfe"])
def test_a_file_that_is_missing_empty_or_unreadable_is_a_misconfiguration(
    environment, tmp_path, content
):
    """And never the embedded store."""
    file = tmp_path / "url"
    if content is not None:
        file.write_bytes(content)
    environment.setenv("JOBLOCK_URL_FILE", str(file))
    with pytest.raises(StoreMisconfigured, match="JOBLOCK_URL_FILE") as refusal:
        open_store()
    assert str(file) in str(refusal.value)


def test_a_password_in_a_file_is_not_shown_when_its_url_is_refused(environment, tmp_path):
    file = tmp_path / "url"
    file.write_text("oracle://app:hunter2@db")
    environment.setenv("JOBLOCK_URL_FILE", str(file))
    with pytest.raises(ValueError, match="oracle") as refusal:
        open_store()
    assert "hunter2" not in str(refusal.value)


def test_where_a_shared_store_is_required_none_named_is_a_misconfiguration(environment):
    environment.setenv("JOBLOCK_REQUIRE_SHARED", "1")
    with pytest.raises(StoreMisconfigured, match=r"JOBLOCK_REQUIRE_SHARED.*set JOBLOCK_URL"):
        open_store()


def test_in_kubernetes_no_store_named_is_a_misconfiguration(environment):
    environment.setenv("KUBERNETES_SERVICE_HOST", "10.0.0.1")
    with pytest.raises(StoreMisconfigured, match=r"Kubernetes.*JOBLOCK_URL"):
        open_store()


@pytest.mark.parametrize("name", ["JOBLOCK_REQUIRE_SHARED", "KUBERNETES_SERVICE_HOST"])
def test_a_store_that_is_named_is_used_there_too(environment, name):
    environment.setenv(name, "1")
    environment.setenv("JOBLOCK_URL", "memory://named")
    assert open_store().url == "memory://named"


@pytest.mark.parametrize("url", ["redis:///app:S3CRET@db", "sqlite://app:S3CRET@db/x"])
def test_a_password_in_a_url_with_a_slash_too_many_or_too_few_is_not_shown(url: str) -> None:
    assert "S3CRET" not in safe_url(url)
    with pytest.raises(ValueError, match="app") as refused:
        open_store("sqlite://app:S3CRET@db/x")
    assert "S3CRET" not in str(refused.value)


def test_an_unknown_scheme_is_told_which_there_are_and_what_to_install():
    with pytest.raises(ValueError, match="oracle") as refused:
        open_store("oracle://h/d")
    for word in ("memory", "postgresql", "redis+sentinel", "sqlite", "joblock[postgres]"):
        assert word in str(refused.value)
    with pytest.raises(ValueError, match="SQLAlchemy"):
        open_store("postgresql+asyncpg://app@db/app")
