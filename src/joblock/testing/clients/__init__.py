"""What both clients promise, on any store, as tests that any store's author can run.

A test module of the store names its harness, as for `joblock.testing.contract`, and inherits::

    class TestMyStoreWithClients(ClientContract):
        @pytest.fixture
        def harness(self, tmp_path):
            return MyHarness(tmp_path)

Each scenario is written once and runs with `joblock.JobLocks` and threads, as ``[sync]``, and with
`joblock.AsyncJobLocks` and tasks, as ``[async]``. Where a store is to fail, it is the real one
behind `joblock.testing.faults`.
"""

from __future__ import annotations

import pkgutil

import pytest

# Before they are imported, so that a failed assertion shows its values as in any test module.
pytest.register_assert_rewrite(
    *(f"{__name__}.{part.name}" for part in pkgutil.iter_modules(__path__))
)

from joblock.testing.clients.asking import Asking  # noqa: E402
from joblock.testing.clients.closing import Closing  # noqa: E402
from joblock.testing.clients.holding import Holding  # noqa: E402
from joblock.testing.clients.locking import Locking  # noqa: E402
from joblock.testing.clients.losing import Losing  # noqa: E402
from joblock.testing.clients.reading import Reading  # noqa: E402
from joblock.testing.clients.running import Running  # noqa: E402
from joblock.testing.clients.stage import ClientScenarios, Stage  # noqa: E402
from joblock.testing.clients.tasks import Tasks  # noqa: E402
from joblock.testing.clients.threads import Threads  # noqa: E402
from joblock.testing.clients.waiting import Waiting  # noqa: E402

__all__ = ["ClientContract", "ClientScenarios", "Stage"]


class ClientContract(
    Running, Locking, Holding, Losing, Waiting, Closing, Asking, Reading, Tasks, Threads
):
    """Everything that both clients promise; see the module."""
