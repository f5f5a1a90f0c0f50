"""Every contender that is installed here does what it is measured by.

Peers are measured in environments of their own, which the tests do not make: those that were made
are tried.
"""

from __future__ import annotations

import pytest
from benchmarks import contenders
from benchmarks.fleet import Failed, Host

INSTALLED = [name for name in contenders.names() if contenders.python(name) is not None]


@pytest.mark.parametrize("name", contenders.names())
def test_a_contender_says_what_it_is(name):
    contender = contenders.load(name)
    assert contender.KIND in {"floor", "ours", "peer"}
    assert contender.STORE in {"redis", "postgres", "files", "memory", "any"}
    assert contender.NAME
    assert contender.GIVES
    assert contender.__doc__.startswith(contender.KIND.capitalize())
    assert hasattr(contender, "make") or hasattr(contender, "make_async")


@pytest.mark.parametrize("name", INSTALLED)
def test_an_installed_contender_does_a_cycle_in_each_form_it_has(name, urls):
    contender = contenders.load(name)
    # A key of its own: some leave behind what others take for a lock.
    with Host(name, urls[contender.STORE], f"cycle-{name}") as host:
        for form, mode in ("make", "cycle"), ("make_async", "tasks"):
            if hasattr(contender, form):
                assert host.do(mode, 2, patience=60) > 0


def test_ours_and_the_floors_need_no_environment_of_their_own():
    kinds = {name: contenders.load(name).KIND for name in contenders.names()}
    assert {name for name, kind in kinds.items() if kind != "peer"} <= set(INSTALLED)


def test_a_host_says_what_went_wrong(urls):
    with Host("joblock_client", urls["any"], "cycle") as host:
        with pytest.raises(Failed, match="ValueError"):
            host.do("cycle", "many")
        assert host.do("cycle", 1) > 0
