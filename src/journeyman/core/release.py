"""The life of a release: shadow, canary, production, and the two ways out."""

from dataclasses import dataclass, replace
from datetime import datetime
from enum import StrEnum

from journeyman.core.errors import ReleaseError


class Stage(StrEnum):
    """How far a release has come. A bullet's stage is its playbook's."""

    SHADOW = "shadow"
    CANARY = "canary"
    PRODUCTION = "production"
    RETIRED = "retired"
    ROLLED_BACK = "rolled_back"


NEXT: dict[Stage, frozenset[Stage]] = {
    Stage.SHADOW: frozenset({Stage.CANARY, Stage.ROLLED_BACK}),
    Stage.CANARY: frozenset({Stage.PRODUCTION, Stage.ROLLED_BACK}),
    Stage.PRODUCTION: frozenset({Stage.RETIRED, Stage.ROLLED_BACK}),
    Stage.RETIRED: frozenset({Stage.CANARY, Stage.PRODUCTION}),
    Stage.ROLLED_BACK: frozenset({Stage.CANARY}),
}
"""The whole life of a release. What is not here cannot happen.

To roll one back is also to bring its retired predecessor back to production. What was taken back is tried again as a canary,
in a rollout of its own: a false alarm is no end.
"""


@dataclass(frozen=True, slots=True)
class Move:
    stage: Stage
    reason: str
    at: datetime
    forced: bool = False
    """By a person, although the gate had refused."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Release:
    candidate_id: str
    moves: tuple[Move, ...]
    """Oldest first, never empty: a release is born in shadow."""

    @classmethod
    def begin(cls, candidate_id: str, stage: Stage, reason: str, at: datetime, *, forced: bool = False) -> "Release":
        """A release that goes at once as far as its gate, or a person, let it: to shadow, or through canary to production."""
        return cls(candidate_id=candidate_id, moves=(Move(Stage.SHADOW, reason, at, forced),)).on(stage, at, forced=forced)

    def on(self, stage: Stage, at: datetime, reason: str = "", *, forced: bool = False) -> "Release":
        """What stands in shadow and may go to production goes there, through canary; else it is as it was.

        Args:
            reason: Why it may, where it was not told at its beginning.
        """
        if stage is not Stage.PRODUCTION or self.stage is not Stage.SHADOW:
            return self
        instead = "held-out tasks stand in for live traffic"
        release = self.to(Stage.CANARY, f"{reason}; {instead}" if reason else instead, at, forced=forced)
        return release.to(Stage.PRODUCTION, "asked for, and nothing stands against it", at, forced=forced)

    @property
    def stage(self) -> Stage:
        return self.moves[-1].stage

    def to(self, stage: Stage, reason: str, at: datetime, *, forced: bool = False) -> "Release":
        if stage not in NEXT[self.stage]:
            raise ReleaseError(f"{self.candidate_id}: {self.stage} cannot become {stage}")
        return replace(self, moves=(*self.moves, Move(stage, reason, at, forced)))
