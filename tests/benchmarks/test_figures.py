"""Figures are taken and written down as the page says."""

from __future__ import annotations

import time
from xml.etree import ElementTree as ET

import pytest
from benchmarks import page
from benchmarks.fleet import SETTLING, Crew, Failed, hand_off, read_turns
from benchmarks.measure import compare
from benchmarks.plot import svg
from benchmarks.result import Bar, Goal, Plot, Result, Table, at_most
from benchmarks.servers import Store
from benchmarks.subjects import SUBJECTS
from benchmarks.turns import Turn, Turns

MS = 1_000_000
START = int(SETTLING * 1e9)


def turns(*rows):
    """Turns in ms after the start has been left behind, which one turn marks."""
    after = [Turn(*(START + moment * MS for moment in row[:3]), *row[3:]) for row in rows]
    return [Turn(-10 * MS, 0, 1 * MS, 9), *after]


def test_a_gap_is_counted_between_different_holders_only():
    found = read_turns(turns((0, 10, 20, 1), (0, 23, 30, 2), (31, 32, 33, 2), (0, 40, 50, 3)))
    assert found.gaps == [3.0, 7.0]
    assert found.overlaps == 0


def test_turns_that_overlap_are_found():
    found = read_turns(turns((0, 10, 20, 1), (0, 15, 30, 2), (0, 31, 40, 1)))
    assert found.overlaps == 1
    assert found.gaps == [1.0]


def test_a_turn_before_one_that_asked_earlier_is_out_of_order():
    found = read_turns(turns((0, 10, 20, 1), (9, 21, 30, 2), (3, 31, 40, 1), (9, 41, 50, 2)))
    assert found.in_order == 0.75


def test_the_order_is_that_of_the_places_in_the_queue_where_they_are_told():
    asked_long_before_it_was_queued = (3, 41, 50, 1, 4)
    found = read_turns(
        turns(
            (0, 10, 20, 1, 1), (9, 21, 30, 2, 2), asked_long_before_it_was_queued, (9, 51, 60, 3, 3)
        )
    )
    assert found.in_order == 0.75


def test_one_who_has_all_the_turns_hands_nothing_on():
    with pytest.raises(Failed, match="one waiter had all"):
        read_turns(turns((0, 10, 20, 1), (21, 22, 30, 1), (31, 32, 40, 1)))


def test_a_round_has_as_many_turns_as_fit_however_long_the_first_one_took():
    asked: list[int] = []

    def connects_first(turns: int) -> float:
        asked.append(turns)
        return (5.0 if len(asked) == 1 else 0.0) + turns * 0.001

    found = compare({"floor": connects_first}, rounds=3, seconds=0.3)
    assert asked[-3:] == [300, 300, 300]
    assert found.figures["floor"].high == pytest.approx(1000)


def test_an_interruption_while_it_warms_up_makes_no_round_shorter():
    asked: list[int] = []

    def interrupted(turns: int) -> float:
        asked.append(turns)
        return (5.0 if len(asked) == 3 else 0.0) + turns * 0.001

    compare({"floor": interrupted}, rounds=1, seconds=0.3)
    assert asked[-1] == 300


def test_what_one_process_notes_another_reads(tmp_path):
    Turns.create(tmp_path / "turns")
    before = time.monotonic_ns()
    Turns(tmp_path / "turns").note(1, 2, 7, 3)
    (turn,) = Turns(tmp_path / "turns").read()
    assert turn[:2] == (1, 2)
    assert (turn.who, turn.arrival) == (7, 3)
    assert before <= turn.released <= time.monotonic_ns()


def test_tasks_of_one_process_hand_a_key_on():
    store = Store("memory://bench", "memory")
    found = hand_off("joblock_client", store, Crew(1, 3, "tasks"), 0.2)
    assert found.overlaps == 0
    assert found.gaps


def test_a_candidate_that_fails_is_left_out_and_the_others_go_on():
    def fails(turns):
        raise OSError("no server")

    candidates = {"floor": lambda _: 0.2, "broken": fails, "slow": lambda _: 0.4}
    found = compare(candidates, rounds=2, turns=10)
    assert found.failures == {"broken": "no server"}
    assert found.ratio("slow", "floor") == 2.0
    assert found.ratio("broken", "floor") is None


def test_a_goal_is_met_by_what_was_measured():
    assert at_most("x", "2", 2.0, 2).met is True
    assert at_most("x", "2", 2.1, 2).met is False
    assert at_most("x", "2", None, 2).met is None


def test_every_subject_has_its_place_on_the_page():
    text = page.PAGE.read_text(encoding="utf-8")
    for name in (*SUBJECTS, "goals"):
        assert f"<!-- measured: {name} -->" in text
        assert f"<!-- end: {name} -->" in text


def test_a_subject_measured_again_leaves_the_others_on_the_page(tmp_path, monkeypatch):
    known = page.PAGE.read_text(encoding="utf-8")
    monkeypatch.setattr(page, "PAGE", tmp_path / "speed.md")
    monkeypatch.setattr(page, "FOLDER", tmp_path / "speed")
    monkeypatch.setattr(page, "KEPT", tmp_path / "speed" / "results.json")
    page.PAGE.write_text(known, encoding="utf-8")
    plot = Plot("times", "us", [Bar("one", "ours", 1.0, 0.9, 1.1)])
    table = Table("times", ["who", "us"], [["one", "1.00"]], plot)
    for subject, measured in ("memory", "7"), ("redis", "8"), ("memory", "9"):
        page.keep(Result(subject, [table], [Goal("g", "1", measured, False)]), quick=True)
    text = page.PAGE.read_text(encoding="utf-8")
    assert "| g | 1 | 9 | **missed** |\n| g | 1 | 8 | **missed** |" in text
    assert text.count("not to be relied on") == 2
    assert sorted(file.name for file in page.FOLDER.glob("*.svg")) == [
        "memory-1.svg",
        "redis-1.svg",
    ]


@pytest.mark.parametrize(
    "plot",
    [
        Plot("a < b", "us", [Bar("x & y", "ours", 1, 1, 1), Bar("z", "peer", 3, 2, 4)]),
        Plot("wide", "ms", [Bar("x", "floor", 0.3, 0.2, 0.5), Bar("z", "peer", 300, 2, 400)]),
        Plot("grows", "us", lines={"x": [(1, 2.0), (100, 3.0)], "y": [(10, 40.0)]}, across="n"),
        Plot("one size", "us", lines={"x": [(10, 2.0)]}, across="n"),
    ],
    ids=lambda plot: plot.title,
)
def test_a_plot_is_well_formed_and_stays_on_its_card(plot):
    root = ET.fromstring(svg(plot))  # noqa: S314 - it was written here
    width, height = float(root.get("width")), float(root.get("height"))
    for mark in root.iter("{http://www.w3.org/2000/svg}circle"):
        assert 0 < float(mark.get("cx")) < width
        assert 0 < float(mark.get("cy")) < height
