"""Durations and waits, as callers write them."""

from __future__ import annotations

import math
from datetime import timedelta

import pytest

from joblock.values.durations import to_ms, to_wait

DAY = 24 * 3_600_000


@pytest.mark.parametrize(
    ("value", "ms"),
    [
        (30, 30_000),
        (0.5, 500),
        (1.1, 1_100),
        (0.09, 90),
        (timedelta(minutes=2, milliseconds=3), 120_003),
        (timedelta(days=30), 30 * DAY),
        ("500ms", 500),
        ("30s", 30_000),
        ("1.5s", 1_500),
        ("5m", 300_000),
        ("1h30m", 5_400_000),
        ("1d", DAY),
        ("1w", 7 * DAY),
        ("1h 30m", 5_400_000),
        (" 30 s ", 30_000),
        ("1min", 60_000),
        ("1 minute", 60_000),
        ("2 minutes", 120_000),
        ("90secs", 90_000),
        ("3 weeks", 21 * DAY),
        ("1 hour 30 min", 5_400_000),
        ("1w2d3h4m5s6ms", 9 * DAY + 11_045_006),
        ((10, "minutes"), 600_000),
        ((1, "minute"), 60_000),
        ((0.5, "hours"), 1_800_000),
        ((2, "min"), 120_000),
        ((250, "ms"), 250),
        ((250, "milliseconds"), 250),
        ((1, "s"), 1_000),
        ((2, "weeks"), 14 * DAY),
    ],
)
def test_a_duration_is_whole_milliseconds(value, ms):
    assert to_ms(value) == ms
    assert type(to_ms(value)) is int


@pytest.mark.parametrize(
    ("value", "ms"),
    [
        (0.0001, 1),
        (1e-12, 1),
        (1.0001, 1_001),
        ("0.1ms", 1),
        ("30.0001s", 30_001),
        ((1.5, "ms"), 2),
        (timedelta(microseconds=1), 1),
        (timedelta(microseconds=1_001), 2),
    ],
)
def test_a_fraction_of_a_millisecond_rounds_up(value, ms):
    assert to_ms(value) == ms


@pytest.mark.parametrize("seconds", [0.1, 0.2, 0.3, 0.7, 1.1, 2.3, 4.35, 8.2, 16.4, 64.1])
def test_what_a_float_cannot_express_is_no_fraction(seconds):
    assert to_ms(seconds) == round(seconds * 1000)


@pytest.mark.parametrize(
    "value",
    [0, 0.0, -1, -0.5, "0s", (0, "s"), (-1, "minutes"), timedelta(0), timedelta(seconds=-1)],
)
def test_a_duration_that_is_not_positive_is_refused(value):
    with pytest.raises(ValueError, match="positive"):
        to_ms(value)


@pytest.mark.parametrize(
    "value", [math.nan, math.inf, -math.inf, (math.nan, "s"), (math.inf, "s"), "9" * 400 + "s"]
)
def test_a_duration_that_is_not_finite_is_refused(value):
    with pytest.raises(ValueError, match="finite"):
        to_ms(value)


@pytest.mark.parametrize("value", [101 * 365 * 24 * 3600, "6000w", (10**6, "days"), 10**300])
def test_a_duration_longer_than_a_century_is_refused(value):
    """Somebody meant milliseconds."""
    with pytest.raises(ValueError, match=r"hundred years|finite"):
        to_ms(value)


@pytest.mark.parametrize(
    "value",
    [
        "",
        " ",
        "10",
        "ten seconds",
        "-1s",
        "+1s",
        "1e3s",
        "5 apples",
        "1s1",
        "s",
        "1.s",
        "٣s",
        "1h-30m",
        "PT30S",
        "1h1h",
        "30m1h",
        "1m1min",
        "5mss",
        "2ss",
        "1 hour and 5 min",
        (10, "fortnights"),
        (10, ""),
        (10, "mss"),
        ("10", "minutes"),
        (True, "minutes"),
        (10,),
        (10, "minutes", 3),
        (),
    ],
)
def test_a_duration_that_cannot_be_read_is_refused(value):
    with pytest.raises(ValueError, match="cannot be read"):
        to_ms(value)


@pytest.mark.parametrize("value", [True, False, None, object(), [10, "minutes"], b"30s", {}])
def test_what_is_no_duration_is_refused(value):
    with pytest.raises(TypeError, match="must be a duration"):
        to_ms(value)


def test_one_that_is_equal_to_a_number_but_is_none_is_refused_after_that_number_too():
    assert to_ms(1) == 1_000
    with pytest.raises(TypeError):
        to_ms(True)
    assert to_ms(1.0) == 1_000


@pytest.mark.parametrize("value", ["ten", -3, (1, "eon"), True])
def test_a_refusal_names_the_argument_shows_the_value_and_gives_an_example(value):
    with pytest.raises((TypeError, ValueError)) as refusal:
        to_ms(value, "ttl")
    message = str(refusal.value)
    assert message.startswith("ttl ")
    assert repr(value) in message
    assert '"1h30m"' in message


def test_a_wait_without_limit_is_true():
    assert to_wait(True) is None


@pytest.mark.parametrize("value", [False, 0, 0.0])
def test_a_wait_of_nothing_tries_once(value):
    assert to_wait(value) == 0


@pytest.mark.parametrize(("value", "ms"), [(10, 10_000), ("90ms", 90), ((1, "minute"), 60_000)])
def test_a_wait_may_be_any_duration(value, ms):
    assert to_wait(value) == ms


@pytest.mark.parametrize("value", [1, 1.0])
def test_a_wait_of_one_second_is_not_taken_for_true(value):
    assert to_wait(value) == 1_000


def test_a_wait_of_none_is_refused_since_it_could_mean_either():
    with pytest.raises(TypeError, match=r"True .no limit., False .try once."):
        to_wait(None)


@pytest.mark.parametrize("value", [-1, math.nan, "forever"])
def test_a_wait_that_is_no_duration_is_refused(value):
    with pytest.raises(ValueError, match="wait "):
        to_wait(value)


@pytest.mark.parametrize("value", ["forever", math.inf])
def test_a_wait_for_ever_is_told_that_it_is_true(value):
    with pytest.raises(ValueError, match="wait=True"):
        to_wait(value)


@pytest.mark.parametrize("value", ["30m1h", "1h1h"])
def test_units_twice_or_out_of_order_are_refused_as_such(value):
    with pytest.raises(ValueError, match="each unit goes in it once, the largest first"):
        to_ms(value)
