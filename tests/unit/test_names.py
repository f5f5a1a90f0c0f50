"""Keys, prefixes and holders, checked at the door."""

from __future__ import annotations

import pytest

from joblock.values.names import checked_holder, checked_prefix, full_key


def test_a_prefix_is_put_before_the_key():
    assert full_key("shop:", "nightly") == "shop:nightly"
    assert full_key("", "nightly") == "nightly"


@pytest.mark.parametrize(
    "text",
    ["a", " ", "k" * 500, "🔒" * 500, "it's", "a\nb", "\x01", "עברית", "cafe\u0301", "\U0010ffff"],
)
def test_any_text_of_at_most_five_hundred_characters_is_a_key_and_a_holder(text):
    assert full_key("", text) == text
    assert checked_holder(text) == text
    assert checked_prefix(text) == text


def test_text_is_kept_as_it_is():
    assert full_key("", "Key ") == "Key "
    assert full_key("", "cafe\u0301") != full_key("", "caf\u00e9")


@pytest.mark.parametrize("check", [lambda key: full_key("", key), checked_holder])
def test_the_empty_text_is_neither_a_key_nor_a_holder(check):
    with pytest.raises(ValueError, match="at least one character"):
        check("")


def test_a_prefix_alone_is_no_key():
    with pytest.raises(ValueError, match="at least one character"):
        full_key("shop:", "")


def test_no_prefix_is_a_prefix():
    assert checked_prefix("") == ""


@pytest.mark.parametrize("check", [lambda key: full_key("", key), checked_holder, checked_prefix])
def test_more_than_five_hundred_characters_are_refused(check):
    with pytest.raises(ValueError, match=r"at most 500 characters.*got 501"):
        check("x" * 501)


def test_the_prefix_counts():
    assert len(full_key("p" * 250, "k" * 250)) == 500
    with pytest.raises(ValueError, match="at most 500 characters, its prefix included"):
        full_key("p" * 250, "k" * 251)


def test_a_refusal_shows_only_the_beginning_of_a_long_key():
    with pytest.raises(ValueError, match="at most") as refusal:
        full_key("", "x" * 100_000)
    assert len(str(refusal.value)) < 300


@pytest.mark.parametrize("check", [lambda key: full_key("", key), checked_holder, checked_prefix])
def test_nul_is_refused(check):
    with pytest.raises(ValueError, match="NUL"):
        check("a\0b")


@pytest.mark.parametrize("check", [lambda key: full_key("", key), checked_holder, checked_prefix])
@pytest.mark.parametrize("half", [chr(0xD800), chr(0xDFFF), f"a{chr(0xDC00)}b"])
def test_half_a_character_is_refused(check, half):
    with pytest.raises(ValueError, match="surrogate"):
        check(half)


@pytest.mark.parametrize("check", [lambda key: full_key("", key), checked_holder, checked_prefix])
@pytest.mark.parametrize("value", [None, 5, b"bytes", ["a"], True])
def test_what_is_no_text_is_refused_with_an_example(check, value):
    with pytest.raises(TypeError, match="is text, such as") as refusal:
        check(value)
    assert repr(value) in str(refusal.value)


def test_a_refused_key_is_refused_again():
    for _ in range(2):
        with pytest.raises(ValueError, match="NUL"):
            full_key("", "again\0")
