"""Importing joblock loads no driver, no asyncio and no logging: what is not used costs nothing."""

from __future__ import annotations

import subprocess
import sys

import pytest

HEAVY = ["asyncio", "logging", "psycopg", "redis", "sqlalchemy", "sqlite3"]


@pytest.mark.parametrize("line", ["import joblock", "from joblock import JobLocks"])
def test_an_import_loads_nothing_heavy(line: str) -> None:
    program = f"import sys; {line}; print(*sorted(set({HEAVY!r}) & set(sys.modules)))"
    shown = subprocess.run(
        [sys.executable, "-c", program], check=True, capture_output=True, text=True
    )
    assert shown.stdout.strip() == ""
