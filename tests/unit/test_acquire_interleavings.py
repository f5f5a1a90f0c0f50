"""Several acquisitions at once, with every step, fault and lapse of time a choice of Hypothesis.

Then the faults stop, and everybody is run to the end.
"""

from __future__ import annotations

from typing import ClassVar

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from interleaving import MOVES, Actor, World

from joblock.protocol.acquire import acquire
from joblock.protocol.request import make_request
from joblock.protocol.run import run_with_lock

pytestmark = pytest.mark.usefixtures("quiet")

BOUNDS = settings(max_examples=300, deadline=None, derandomize=True, database=None)


class Acquisitions(World):
    limits: ClassVar = {"mutex": 1, "permits": 2}

    def start(self, number):
        if len(self.actors) < 12:
            client = self.clients[number % 2]
            kind = ("acquire", "acquire", "run")[number % 3]
            key = ("mutex", "mutex", "permits")[number // 6 % 3]
            wait = 0 if kind == "run" else (None, None, 3, 0)[number // 18 % 4]
            holder = f"given-{client.number}" if key == "mutex" and number % 5 == 0 else None
            self.actors.append(self.caller(client, kind, key, wait, holder))

    def caller(self, client, kind, key, wait, holder):
        request = make_request(
            "",
            key,
            ttl=6,
            wait=True if wait is None else wait,
            holder=holder,
            limit=self.limits[key],
            weight=1,
            on_lost="warn",
        )
        if kind == "run":
            flow = run_with_lock(client, request, lambda: None, "raise")
        else:
            flow = acquire(client, request)
        return Actor(self, client, key, wait, flow)


DO = {"start": Acquisitions.start, **MOVES}
OFTEN = ("start",) * 4 + ("well",) * 12 + ("turn", "turn", "notice", "notice lost", "advance")
STEPS = st.lists(
    st.tuples(st.sampled_from([*DO, *OFTEN]), st.integers(0, 71)), min_size=30, max_size=70
)


@BOUNDS
@given(STEPS)
def test_whatever_happens_nothing_is_held_twice_leaked_or_forgotten(steps):
    Acquisitions().play(DO, steps)


def test_a_cancelled_request_that_arrives_after_a_release_under_its_holder_leaks_nothing():
    it = Acquisitions()
    try:
        first = it.caller(it.clients[0], "acquire", "mutex", 0, "given")
        second = it.caller(it.clients[0], "acquire", "mutex", 0, "given")
        it.actors += [first, second]
        first.reply(it.ask(first))
        it.answer(second, "cancel")
        first.release()
        it.move(0, "well")  # a release that is sent is done before the request arrives
        it.calm()
        assert first.state == second.state == "ended"
    finally:
        it.forget()
