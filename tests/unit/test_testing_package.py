"""What joblock.testing asks of whoever imports it."""

from __future__ import annotations

import subprocess
import sys

import pytest

import joblock.testing


def loaded_after(statement: str) -> set[str]:
    """The modules that a fresh interpreter has loaded after that statement."""
    code = f"import sys; {statement}; print(*sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    return set(done.stdout.split())


def test_the_manual_clock_needs_neither_pytest_nor_hypothesis():
    loaded = loaded_after("from joblock.testing import ManualClock")
    assert loaded.isdisjoint({"pytest", "_pytest", "hypothesis"})


def test_the_contract_suite_does_not_need_hypothesis():
    loaded = loaded_after("from joblock.testing import StoreContract")
    assert "pytest" in loaded
    assert "hypothesis" not in loaded


def test_what_the_package_names_it_has():
    for name in joblock.testing.__all__:
        assert getattr(joblock.testing, name).__name__ == name
    with pytest.raises(AttributeError, match="no attribute 'nothing'"):
        joblock.testing.nothing  # noqa: B018
