"""Histories told by hand: who did what, from when to when, and what came of it."""

from __future__ import annotations

import json

from joblock.verify import read_history
from joblock.verify.history import Act


class Tale:
    """Writes a history file as workers do. All on one key, unless said."""

    def __init__(self, path) -> None:
        self.path = path
        self.lines: list[tuple[float, dict]] = []
        self.count = 0

    def request(self, who, op, fields, begin, end, kind=None, reply=None, error=None):
        self.count += 1
        common = {"w": who, "n": self.count}
        self._add(begin, {**common, "e": "call", "op": op, "a": fields})
        if error:
            self._add(end, {**common, "e": "failed", "what": error})
        elif kind:
            self._add(end, {**common, "e": "reply", "kind": kind, "a": reply})

    def acquire(
        self, who, begin, end, token=0, *, holder=None, ttl=10_000, weight=1, limit=1, at_least=0,
        queue=None, busy=None, error=None, reentered=False, key="k", extend=True,
    ):  # fmt: skip
        """Granted with ``token``, or refused as ``busy`` says (a Busy's fields), or no answer."""
        holder = holder or who
        fields = [key, holder, ttl, weight, limit, at_least, extend, "", queue]
        if busy:
            self.request(who, "Acquire", fields, begin, end, "Busy", busy)
        elif token:
            reply = [token, 0, 0, reentered, False, ""]
            self.request(who, "Acquire", fields, begin, end, "Granted", reply)
        else:
            self.request(who, "Acquire", fields, begin, end, error=error)

    def queue(self, who, begin, end, arrival, *, by="", epoch=1, join=None, **more):
        """Refused and queued, behind the lease with token 1."""
        busy = [by, 1000, "held", 1, arrival, epoch]
        queue = [f"client-{who}", 0, False, False, join]
        self.acquire(who, begin, end, queue=queue, busy=busy, **more)

    def refresh(self, who, begin, end, token, *, done, holder=None, ttl=10_000, key="k"):
        renewals = [[key, holder or who, token, ttl]]
        self.request(who, "Refresh", [renewals, True], begin, end, "Refreshed", [[done], []])

    def release(self, who, begin, end, token, *, done=True, holder=None, grace=0, key="k"):
        fields = [key, holder or who, token, grace, False, False]
        self.request(who, "Release", fields, begin, end, "Released", [done])

    def leave(self, who, begin, end, *, done=True, holder=None, key="k"):
        self.request(who, "Leave", [key, holder or who], begin, end, "Released", [done])

    def check(self, who, begin, end, epoch, *, key="k", ok_token=0):
        state = [epoch, 0, [], ok_token, False]
        self.request(who, "Check", [f"client-{who}", [key], True], begin, end, "Checked", [[state]])

    def look(self, who, begin, end, *seen, key="k"):
        """The leases as a reader saw them: holder, token, state."""
        self.request(who, "Holders", [key], begin, end, "tuple", [list(one) for one in seen])

    def line(self, who, begin, end, *seen, key="k"):
        """The queue as a reader saw it: holder, arrival, live."""
        self.request(who, "Waiters", [key], begin, end, "tuple", [list(one) for one in seen])

    def view(self, who, at, token, *, holder=None, key="k"):
        self._add(at, {"w": who, "e": "view", "key": key, "holder": holder or who, "token": token})

    def fault(self, kind, begin, end, on="", **more):
        self._add(begin, {"w": "nemesis", "e": "fault", "kind": kind, "on": on, "end": end, **more})

    def mark(self, at):
        """Nothing but that time went on."""
        self._add(at, {"w": "nemesis", "e": "mark"})

    def history(self):
        self.lines.sort(key=lambda pair: pair[0])
        text = "".join(f"{json.dumps(line)}\n" for _, line in self.lines)
        self.path.write_text(text, encoding="utf-8")
        return read_history(self.path)

    def _add(self, at, event):
        self.lines.append((at, {"t": at, **event}))


def acts_of(violation):
    """The requests among its pieces, by who did what."""
    return {
        (piece.worker, type(piece.op).__name__)
        for piece in violation.pieces
        if isinstance(piece, Act)
    }
