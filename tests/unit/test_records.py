"""What a reader is told of workers and moments."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest

from joblock.values.records import Worker, moment


@pytest.mark.parametrize(
    ("text", "worker"),
    [
        ("", ("", 0, "")),
        ("host", ("host", 0, "")),
        ("host\x1f7\x1flabel", ("host", 7, "label")),
        ("host\x1fnone\x1flabel", ("host", 0, "label")),
        ("host\x1f٣\x1f", ("host", 0, "")),
        ("host\x1f-1\x1f", ("host", 0, "")),
    ],
)
def test_whatever_a_store_kept_of_a_worker_can_be_read(text, worker):
    assert Worker.parse(text) == worker


def test_a_moment_is_exact_to_the_millisecond_and_knows_its_zone():
    assert moment(0) == datetime(1970, 1, 1, tzinfo=UTC)
    assert moment(1_750_000_000_123) == datetime(2025, 6, 15, 15, 6, 40, 123_000, tzinfo=UTC)
    assert moment(1_750_000_000_123).utcoffset() == timedelta(0)


@pytest.mark.parametrize("wrong", [None, b"host", 7])
def test_a_worker_is_read_from_text_only(wrong):
    with pytest.raises(TypeError, match=f"text that a store keeps; got {wrong!r}"):
        Worker.parse(wrong)
