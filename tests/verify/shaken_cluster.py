"""A Redis Cluster with a replica for each node, and what can be done to it while it is in use."""

from __future__ import annotations

import random
from contextlib import suppress
from itertools import chain

from redis_servers import Cluster, CutOff, Move, Server, binary, wait_until

from joblock.stores.redis.route import slot_of_name
from joblock.stores.redis.scripts import SPACE
from joblock.stores.redis.wire import ServerError
from joblock.verify.nemesis import ServerFault

PATIENCE = 60.0
"""Seconds in which a cluster must be well again on however busy a machine."""


class ShakenCluster:
    """Three primaries, three replicas. Each fault is over when the cluster is whole again."""

    def __init__(self, folder, seed):
        self.cluster = Cluster(binary("redis-server"), folder, replicas=1)
        self.rng = random.Random(f"{seed}/cluster")
        self.url = self.cluster.url
        self._recovered()

    @property
    def faults(self):
        """Those that lose nothing, and those that lose what a replica did not have yet, or all."""
        return {
            "connections": ServerFault(self.cut),
            "promoted": ServerFault(self.promote),
            "migrated": ServerFault(self.migrate),
            "replaced": ServerFault(self.fail_over, voids=True),
            "restarted": ServerFault(self.restart, voids=True),
        }

    def cut(self):
        """Every connection to every node: requests, answers and notices under way are lost."""
        for node in self.cluster.running():
            for kind in ("normal", "pubsub"):
                node.ask("CLIENT", "KILL", "TYPE", kind)

    def promote(self):
        """A replica takes over in an orderly way: its primary waits until it has all there is."""
        primary = self.cluster.node_of(self._slot_in_use())
        (replica,) = self.cluster.replicas_of(primary)

        def asked():
            with suppress(ServerError):  # it was just asked by itself to synchronise again
                replica.ask("CLUSTER", "FAILOVER")
            return _role(replica) == b"master"

        wait_until(asked, "the replica has taken over", PATIENCE)
        self._recovered()

    def migrate(self):
        """A slot in use goes over to another node, and for a while it is partly here, partly there.

        A name that was made here meanwhile has to be carried, too, before the slot can go.
        """
        move = Move(self.cluster, self._slot_in_use())
        move.begin()
        wait_until(lambda: self._carried(move), "all of the slot is there", PATIENCE)
        move.end()
        self._recovered()

    def fail_over(self):
        """A node dies and its replica takes over; the node comes back as a replica of that one."""
        slot = self._slot_in_use()
        node = self.cluster.node_of(slot)
        node.kill()
        wait_until(
            lambda: self.cluster.node_of(slot) is not node, "the replica has taken over", PATIENCE
        )
        node.start()
        self._recovered()

    def restart(self):
        """A node dies and comes back empty, before anybody could take over."""
        node = self.cluster.node_of(self._slot_in_use())
        node.kill()
        node.start()
        self._recovered()

    def names(self):
        """All that any primary keeps."""
        return list(chain.from_iterable(map(Server.keys, self.cluster.primaries())))

    def stop(self):
        self.cluster.stop()

    def _slot_in_use(self):
        slots = {slot_of_name(name.encode()) for name in self.names() if name.startswith(SPACE)}
        return self.rng.choice(sorted(slots) or [0])

    def _carried(self, move):
        with suppress(ServerError):  # one that is gone by now, or is just being written
            move.carry()
        return move.source.ask("CLUSTER", "COUNTKEYSINSLOT", move.slot) == 0

    def _recovered(self):
        try:
            wait_until(self._whole, "every node is up, and has the same primaries", PATIENCE)
        except AssertionError as error:
            for node in self.cluster.running():
                error.add_note(f"{node.port}: {node.ask('ROLE')}")
                error.add_note(node.ask("CLUSTER", "NODES").decode())
            raise

    def _whole(self):
        try:
            return len({self._view(node) for node in self.cluster.nodes}) == 1 and all(
                _synchronised(node) for node in self.cluster.nodes
            )
        except (OSError, CutOff, ServerError, NotYet):
            return False

    def _view(self, node: Server):
        """Who is in charge of what, and who replicates whom, as a node sees it."""
        if b"cluster_state:ok" not in node.ask("CLUSTER", "INFO"):
            raise NotYet
        parts = node.ask("CLUSTER", "SLOTS")
        if any(len(part) != 4 for part in parts):
            raise NotYet  # a part without a replica
        return frozenset((part[0], part[1], part[2][2], part[3][2]) for part in parts)


class NotYet(Exception):
    """Something is still missing."""


def _role(node):
    return node.ask("ROLE")[0]


def _synchronised(node):
    role = node.ask("ROLE")
    return role[3] == b"connected" if role[0] == b"slave" else len(role[2]) == 1
