"""Keys and durations in words: nothing hides, and nothing looks like something else."""

from __future__ import annotations

import unicodedata
from datetime import timedelta

import pytest

from joblock.cli.text import span, visible


@pytest.mark.parametrize(
    "text",
    [
        "",
        "nightly-prune",
        "file:/data/a b.csv",
        "naïve",
        "注文",
        "заказ",
        "הזמנה",
        "🙂",
        "a[b]{c}%_*'\"",
    ],
)
def test_what_can_be_seen_is_left_as_it_is(text):
    assert visible(text) == text


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("\x1b[2J", r"\x1b[2J"),
        ("a\r\nb\tc\x00\x7f", r"a\x0d\x0ab\x09c\x00\x7f"),
        ("\x9b31m", r"\x9b31m"),
        ("a\u202eb\u2066c\u200f", r"a\u202eb\u2066c\u200f"),
        ("a\u200bb\u200dc\ufeff", r"a\u200bb\u200dc\ufeff"),
        ("a\u2028b\u2029", r"a\u2028b\u2029"),
        ("a\u00a0b\u3000c", r"a\xa0b\u3000c"),
        ("\u3164\u2800\ufe0f", r"\u3164\u2800\ufe0f"),
        ("\U000e0041\U000e0100", r"\U000e0041\U000e0100"),
        ("\udc80", r"\udc80"),
        ("a\\x1b", r"a\\x1b"),
        (" a b  ", r"\x20a b\x20\x20"),
        ("  ", r"\x20\x20"),
    ],
)
def test_what_cannot_be_seen_is_written_out(text, shown):
    assert visible(text) == shown


def test_nothing_that_controls_a_terminal_or_the_direction_of_writing_gets_through():
    for code in range(0x110000):
        character = chr(code)
        if unicodedata.category(character) in {"Cc", "Cf", "Zl", "Zp", "Cs"}:
            shown = visible(character)
            assert shown.startswith("\\")
            assert shown.isascii()


@pytest.mark.parametrize(
    ("seconds", "shown"),
    [
        (-5, "0s"),
        (0, "0s"),
        (0.9, "0s"),
        (59, "59s"),
        (60, "1m 0s"),
        (182, "3m 2s"),
        (3600, "1h 0m"),
        (90_061, "1d 1h"),
    ],
)
def test_a_duration_is_shown_in_its_two_largest_units(seconds, shown):
    assert span(timedelta(seconds=seconds)) == shown
