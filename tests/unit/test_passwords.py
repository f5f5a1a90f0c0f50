"""A password is never shown, however wrong the URL: in no error, in no repr, in no log."""

from __future__ import annotations

import traceback

import pytest

from joblock import JobLocks

SECRETS = [
    "s3cretpw",
    "s3c/retpw",
    "s3c@retpw",
    "s3c:retpw",
    "s3c%zzretpw",
    "s3c?retpw",
    "s3c#retpw",
]
SHAPES = [
    "{scheme}:u:{pw}@127.0.0.1:1/0",
    "{scheme}:/u:{pw}@127.0.0.1:1/0",
    "{scheme}://u:{pw}@127.0.0.1:1/0",
    "{scheme}:///u:{pw}@127.0.0.1:1/0",
    "{scheme}://u:{pw}@127.0.0.1:port/0",
    "{scheme}://u:{pw}@[::1/0",
    "{scheme}://:{pw}@127.0.0.1:1/0",
    "{scheme}://u:{pw}@127.0.0.1:1/0?nonsense=1",
    "{scheme}://127.0.0.1:1/0?password={pw}&nonsense=1",
    "{scheme} ://u:{pw}@127.0.0.1:1/0",
    "{scheme}s3://u:{pw}@127.0.0.1:1/0",
    "u:{pw}@127.0.0.1:1/0",
]
SCHEMES = [
    "postgresql",
    "postgres",
    "redis",
    "redis+cluster",
    "redis+sentinel",
    "valkeys",
    "sqlite",
    "mysql",
]


def told_by(url: str, caplog: pytest.LogCaptureFixture) -> str:
    """Everything that is said about a client of that URL, the causes of errors included."""
    said: list[str] = []
    try:
        with JobLocks(url) as locks:
            said += [repr(locks), locks.store.url]
            locks.model.peek("key")
    except Exception as error:  # noqa: BLE001 - that is what is looked at
        said += traceback.format_exception(error)
    return "\n".join([*said, caplog.text])


# What follows sqlite:/// is the name of a file, whatever it looks like.
URLS = [
    (scheme, shape)
    for shape in SHAPES
    for scheme in SCHEMES
    if scheme != "sqlite" or ":///" not in shape
]


@pytest.mark.parametrize(("scheme", "shape"), URLS)
def test_no_password_is_shown_however_wrong_the_url(scheme, shape, caplog, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    for secret in SECRETS:
        said = told_by(shape.format(scheme=scheme, pw=secret), caplog)
        assert "s3c" not in said.replace("s3://", ""), (secret, said)
        assert "retpw" not in said, (secret, said)


@pytest.mark.parametrize("coded", [True, False])
def test_no_password_of_a_url_inside_a_url_is_shown(coded, caplog):
    inner = "postgresql%3A%2F%2Fu%3As3cretpw%40h%2Fd" if coded else "postgresql://u:s3cretpw@h/d"
    said = told_by(f"postgresql://a@127.0.0.1:1/d?listen_url={inner}", caplog)
    assert "s3cret" not in said
