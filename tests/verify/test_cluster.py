"""Redis Cluster keeps the promises while its nodes die, are replaced, and hand slots on.

One short run; docs/faults.md tells of long ones.
"""

from __future__ import annotations

import pytest
from shaken_cluster import ShakenCluster
from test_stores import passed

from joblock.verify import Plan

SECONDS = 20.0
SEED = 1222
"""It draws every fault of the cluster within the first eight seconds."""


@pytest.fixture
def shaken(tmp_path):
    shaken = ShakenCluster(tmp_path, SEED)
    yield shaken
    shaken.stop()


def test_a_cluster_keeps_its_promises_while_nodes_die_are_replaced_and_hand_slots_on(shaken):
    report = passed(
        Plan(
            shaken.url,
            seconds=SECONDS,
            workers=3,
            seed=SEED,
            faults=("pause", "kill"),
            server_faults=shaken.faults,
        )
    )
    assert set(report.faults) & set(shaken.faults)
    assert [name for name in shaken.names() if "verify" in name] == []
