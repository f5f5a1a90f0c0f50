"""What a run has found, for a person and for a program."""

from __future__ import annotations

from collections import Counter
from typing import Any, NamedTuple

from joblock.store.ops import Acquire, Busy, Granted
from joblock.verify.checker import PROMISES, explain
from joblock.verify.history import History
from joblock.verify.nemesis import FAULTS
from joblock.verify.rules import Violation


class Updates(NamedTuple):
    """The lost-update test of one counter: how many updates were confirmed, and how many lasted."""

    confirmed: int
    value: int

    @property
    def lost(self) -> int:
        """Confirmed updates that the counter lacks; a killed worker may have told of fewer."""
        return max(0, self.confirmed - self.value)


class Report:
    """The outcome of one run."""

    def __init__(
        self,
        store: str,
        seed: int,
        seconds: float,
        history: History,
        violations: list[Violation],
        updates: dict[str, Updates],
        left_out: dict[str, str],
    ) -> None:
        self.store = store
        self.seed = seed
        self.seconds = seconds
        self.history = history
        self.violations = violations
        self.updates = updates
        self.left_out = left_out
        self.operations = len(history.acts)
        self.acquisitions = sum(isinstance(act.result, Granted) for act in history.acts)
        self.unknown = sum(act.result is None for act in history.acts)
        self.faults = Counter(fault.kind for fault in history.faults)
        self.handovers = _handovers(history)
        self.unexercised = {**self._promises_untried(), **self._faults_unmet()}

    @property
    def kept(self) -> bool:
        """Whether no promise was seen broken."""
        return not self.violations

    def _promises_untried(self) -> dict[str, str]:
        """The promises that nothing in this run could have broken, and why."""
        fenced = self.updates.get("fenced")
        reasons = {
            "no lease was acquired": (
                ("exclusion", "tokens", "ownership", "held", "lifetime") * (not self.acquisitions)
            ),
            "nobody was handed a key after a wait": ("order", "liveness") * (not self.handovers),
            "no update was made": ("fence",) * (fenced is None or not fenced.confirmed),
        }
        return {name: why for why, names in reasons.items() for name in names}

    def _faults_unmet(self) -> dict[str, str]:
        """The faults that did not come, those apart that could not."""
        left = [kind for kind in FAULTS if kind not in {*self.faults, *self.left_out}]
        return dict.fromkeys(left, "it did not come to one")

    def to_json(self) -> dict[str, Any]:
        """All of it as plain values."""
        return {
            "store": self.store,
            "seed": self.seed,
            "seconds": round(self.seconds, 1),
            "operations": self.operations,
            "acquisitions": self.acquisitions,
            "handovers": self.handovers,
            "unanswered": self.unknown,
            "faults": dict(sorted(self.faults.items())),
            "faults_left_out": self.left_out,
            "unexercised": self.unexercised,
            "updates": {
                name: {"confirmed": one.confirmed, "lost": one.lost}
                for name, one in self.updates.items()
            },
            "violations": [
                {
                    "promise": violation.promise,
                    "key": violation.key,
                    "what": violation.what,
                    "history": explain(violation, self.history).splitlines()[2:],
                }
                for violation in self.violations
            ],
        }

    def to_text(self) -> str:
        """All of it for a person."""
        faults = ", ".join(f"{kind} {count}" for kind, count in sorted(self.faults.items()))
        lines = [
            f"{self.store}: {self.seconds:.0f} s, seed {self.seed}",
            f"  operations    {self.operations:,} ({self.unknown:,} without an answer)",
            f"  acquisitions  {self.acquisitions:,}, {self.handovers:,} of them after a wait",
            f"  faults        {faults or 'none'}",
        ]
        lines += [f"    without     {kind}: {why}" for kind, why in self.left_out.items()]
        for name, one in sorted(self.updates.items()):
            lines.append(f"  {name:<14}{one.confirmed:,} updates, {one.lost:,} lost")
        if self.kept:
            lines += ["no violation of"]
            lines += [
                f"  {what}" for name, what in PROMISES.items() if name not in self.unexercised
            ]
            lines += self._untried_lines()
        else:
            lines.append(f"{len(self.violations)} VIOLATIONS")
            for violation in self.violations:
                lines += ["", explain(violation, self.history)]
        return "\n".join(lines)

    def _untried_lines(self) -> list[str]:
        promises = [name for name in self.unexercised if name in PROMISES]
        faults = [name for name in self.unexercised if name not in PROMISES]
        lines = [f"  {PROMISES[name]}: {self.unexercised[name]}" for name in promises]
        if faults:
            lines.append(f"  no {', no '.join(faults)}")
        return ["not exercised", *lines] if lines else []


def _handovers(history: History) -> int:
    """Grants to somebody who had been queued."""
    queued: set[str] = set()
    count = 0
    for act in history.acts:
        if isinstance(act.op, Acquire):
            if isinstance(act.result, Busy) and act.result.arrival:
                queued.add(act.op.holder)
            elif isinstance(act.result, Granted) and act.op.holder in queued:
                queued.discard(act.op.holder)
                count += 1
    return count
