"""The contract suite: what every store promises, as tests that any store's author can run.

A test module of the store names how to make one, and inherits every test::

    class MyHarness(ManualHarness):
        def make_store(self):
            return MyStore(self.path, clock=self.clock)

    class TestMyStore(StoreContract):
        @pytest.fixture
        def harness(self, tmp_path):
            return MyHarness(tmp_path)

A store on a server derives from `StoreHarness`, whose time passes by sleeping. Each test runs
through both drivers of the store, as ``[sync]`` and ``[async]``. What a store cannot do, by its
`joblock.store.contract.Abilities`, is skipped and says so.

`joblock.testing.model` goes on from here: it holds a store against the meaning of the operations,
with operations drawn at random. It needs Hypothesis.
"""

from __future__ import annotations

import pkgutil

import pytest

# Before they are imported, so that a failed assertion shows its values as in any test module.
pytest.register_assert_rewrite(
    *(f"{__name__}.{part.name}" for part in pkgutil.iter_modules(__path__))
)

from joblock.testing.contract.bench import Bench, Contract, Ear, Key  # noqa: E402
from joblock.testing.contract.busy import BusyReplies  # noqa: E402
from joblock.testing.contract.capacity import Capacity  # noqa: E402
from joblock.testing.contract.checks import Checks  # noqa: E402
from joblock.testing.contract.claims import Claims  # noqa: E402
from joblock.testing.contract.drivers import Drivers  # noqa: E402
from joblock.testing.contract.grace import Grace  # noqa: E402
from joblock.testing.contract.harness import ManualHarness, StoreHarness  # noqa: E402
from joblock.testing.contract.holding import Holding  # noqa: E402
from joblock.testing.contract.joining import Joining  # noqa: E402
from joblock.testing.contract.names import Names  # noqa: E402
from joblock.testing.contract.notices import Notices  # noqa: E402
from joblock.testing.contract.occurrences import Occurrences  # noqa: E402
from joblock.testing.contract.queueing import Queue  # noqa: E402
from joblock.testing.contract.reading import Reading  # noqa: E402
from joblock.testing.contract.table import Table  # noqa: E402
from joblock.testing.contract.threads import Threads  # noqa: E402
from joblock.testing.contract.tokens import Tokens  # noqa: E402

__all__ = ["Bench", "Contract", "Ear", "Key", "ManualHarness", "StoreContract", "StoreHarness"]


class StoreContract(
    Table,
    Holding,
    Tokens,
    Capacity,
    BusyReplies,
    Grace,
    Queue,
    Claims,
    Checks,
    Joining,
    Occurrences,
    Notices,
    Reading,
    Names,
    Drivers,
    Threads,
):
    """Everything a store promises; see the module."""
