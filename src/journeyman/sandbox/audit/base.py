"""The words of the suite: an attack, the trap that proves it, and what came of it."""

import json
from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from typing import Any, Literal

from journeyman.sandbox.base import KIB, MIB, Level, Limits, RunOutcome

Category = Literal["resources", "network", "files", "processes", "privileges"]
State = Literal["stopped", "through", "unproven", "untried"]

SMALL = Limits(
    cpu_seconds=3,
    wall_seconds=20,
    memory=96 * MIB,
    processes=24,
    file_size=2 * MIB,
    disk=8 * MIB,
    inodes=512,
    open_files=64,
    output=16 * KIB,
)
"""What an attack is granted: little, so that the whole suite takes seconds. Time is not: a busy machine is no wall."""


class Untried(Exception):
    """This machine does not have what the attack needs. Says what that is."""


@dataclass(frozen=True, slots=True, kw_only=True)
class AttackEvidence:
    """What there is to judge by."""

    outcome: RunOutcome
    beside: RunOutcome | None = None
    """Of the run beside it, where there was one."""

    @property
    def words(self) -> list[dict[str, Any]]:
        """What the probe said, line by line."""
        lines = [line for line in self.outcome.stdout.splitlines() if line.startswith("{")]
        return [word for line in lines if isinstance(word := _parsed(line), dict)]

    def said(self, key: str) -> list[Any]:
        """Every value that the probe gave to a key."""
        return [word[key] for word in self.words if key in word]

    @property
    def reached(self) -> float:
        """How far a greedy probe came, in the unit of its limit."""
        return float(max(self.said("reached"), default=0) + sum(self.said("more")))


def _parsed(line: str) -> object:
    try:
        return json.loads(line)
    except ValueError:
        return None


@dataclass(frozen=True, slots=True)
class Trap:
    """What is set up on the host before the attack, and shows afterwards whether it succeeded."""

    bait: Mapping[str, Any]
    """What the probe is told; JSON."""
    sprung: Callable[[AttackEvidence], str | None]
    """What the attack did, or `None` when it did nothing. Looks at the host wherever the host can show it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Attack:
    """One way out, and how to know whether it is open."""

    name: str
    tried: str
    """What it does, as the end of a sentence that begins with "the code"."""
    category: Category
    probe: str
    """Of the file `probes/<category>.py`, unless it says `file.function`."""
    trap: Callable[[], AbstractContextManager[Trap]]
    limits: Limits = SMALL
    lifted: Limits | None = None
    """The control of an attack on a limit: with more granted, the same probe must get further. `None`: the control is the same
    probe without any walls."""
    privileged: bool = False
    """Without walls only root can do it, so where the control fails there is nothing to be stopped."""
    alone: bool = False
    """Nothing else runs meanwhile: it would be disturbed, or disturb."""
    collect: tuple[str, ...] = ()
    beside: str | None = None
    """The probe of a second run that is there at the same time."""


@dataclass(frozen=True, slots=True, kw_only=True)
class AttackVerdict:
    """What came of one attack."""

    attack: Attack
    state: State
    """`unproven`: the probe gets through nowhere, so that it did not here proves nothing. `untried`: this machine has no such
    thing, or not even root's own process may do it."""
    why: str = ""


@dataclass(frozen=True, slots=True)
class AuditReport:
    """What came of them all."""

    level: Level
    verdicts: tuple[AttackVerdict, ...] = field(default=())

    @property
    def stopped(self) -> int:
        return sum(verdict.state == "stopped" for verdict in self.verdicts)

    @property
    def total(self) -> int:
        """Of those that could be tried here."""
        return sum(verdict.state != "untried" for verdict in self.verdicts)

    @property
    def not_stopped(self) -> tuple[AttackVerdict, ...]:
        """Those that got through, and those that prove nothing."""
        return tuple(verdict for verdict in self.verdicts if verdict.state in ("through", "unproven"))

    @property
    def untried(self) -> tuple[AttackVerdict, ...]:
        return tuple(verdict for verdict in self.verdicts if verdict.state == "untried")

    def as_json(self) -> dict[str, Any]:
        return {
            "stopped": self.stopped,
            "total": self.total,
            "not_stopped": [
                {"name": verdict.attack.name, "tried": verdict.attack.tried, "why": verdict.why} for verdict in self.not_stopped
            ],
            "untried": [{"name": verdict.attack.name, "why": verdict.why} for verdict in self.untried],
            "level": {"name": self.level.name, "holds": list(self.level.holds), "lacks": list(self.level.lacks)},
        }
