"""What several of the unit tests need."""

from __future__ import annotations

import pytest

from joblock.values.log import logger


@pytest.fixture(scope="module")
def quiet():
    """Whoever tries thousands of faults would write as many lines of the log."""
    log = logger("lease").parent
    before = log.level
    log.setLevel("CRITICAL")
    yield
    log.setLevel(before)
