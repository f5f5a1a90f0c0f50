"""The memory store: nothing can be set up wrongly, and little is promised."""

from __future__ import annotations

from typing import TYPE_CHECKING

from joblock.doctor.report import Look, broken

if TYPE_CHECKING:
    from joblock.store.contract import Store


def look(store: Store) -> Look:
    """Say how far it reaches."""
    finding = broken(
        "reach",
        "the leases are in the memory of one process, and keep apart only its threads",
        "another process has leases of its own: the same job runs in both at a time",
        "use it for tests, and for jobs a file (sqlite:////var/lib/app/locks.db) or a shared store",
    )
    return Look([finding], store, reached=True)
