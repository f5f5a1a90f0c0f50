"""A primary and its replica under the eyes of sentinels, and what can be done to them in use."""

from __future__ import annotations

from contextlib import suppress

from redis_servers import CutOff, Guarded, wait_until

from joblock.stores.redis.wire import ServerError
from joblock.verify.nemesis import ServerFault

PATIENCE = 90.0
"""Seconds for a failover, and for sentinels to make a replica of who comes back."""


class ShakenSentinels:
    """Each fault is over when the two servers are a primary and its replica again.

    If they are ``cautious``, a primary without a replica refuses to write.
    """

    def __init__(self, folder, *, cautious=False):
        self.cautious = cautious
        self.guarded = Guarded(folder, *(("--min-replicas-to-write", "1") if cautious else ()))
        self.url = f"{self.guarded.url}{'?min_replicas=1' if cautious else ''}"

    @property
    def faults(self):
        faults = {
            "connections": ServerFault(self.cut),
            "replaced": ServerFault(self.fail_over, voids=True),
        }
        if self.cautious:
            faults["switched"] = ServerFault(self.switch, voids=True)
        return faults

    def cut(self):
        """Every connection to both servers; sentinels come back at once."""
        for server in (self.guarded.primary, self.guarded.replica):
            for kind in ("normal", "pubsub"):
                server.ask("CLIENT", "KILL", "TYPE", kind)

    def fail_over(self):
        """The primary dies, its replica takes over, and the dead one comes back as a replica.

        For some seconds it takes itself for a primary, empty as it is.
        """
        old = self.guarded.primary
        old.kill()
        self._await_switch(old)
        old.start()
        self._await_whole()

    def switch(self):
        """The sentinels are told to make the replica the primary.

        For ten seconds after that the old one is a primary, too, for whoever is connected to it.
        """
        old, sentinel = self.guarded.primary, self.guarded.sentinels[0]

        def begun():
            if self._named_by(sentinel) == old.port:
                with suppress(ServerError):  # so soon after the last one it does not
                    sentinel.ask("SENTINEL", "FAILOVER", "mymaster")
                return False
            return True

        wait_until(begun, "a sentinel has made the replica the primary", PATIENCE)
        self._await_switch(old)
        self._await_whole()

    def names(self):
        return self.guarded.primary.keys()

    def stop(self):
        self.guarded.stop()

    def _await_switch(self, old):
        guarded = self.guarded
        wait_until(
            lambda: old.port not in map(self._named_by, guarded.sentinels),
            "every sentinel names the other one",
            PATIENCE,
        )
        guarded.primary, guarded.replica = guarded.replica, guarded.primary

    def _await_whole(self):
        wait_until(self._whole, "they are a primary and its replica again", PATIENCE)

    def _named_by(self, sentinel):
        _, port = sentinel.ask("SENTINEL", "GET-MASTER-ADDR-BY-NAME", "mymaster")
        return int(port)

    def _whole(self):
        primary, replica = self.guarded.primary, self.guarded.replica
        try:
            told, known = primary.ask("ROLE"), replica.ask("ROLE")
        except (OSError, CutOff, ServerError):
            return False
        return (
            told[0] == b"master"
            and len(told[2]) == 1
            and (known[0], int(known[2]), known[3]) == (b"slave", primary.port, b"connected")
            and self.guarded.ready()
        )
