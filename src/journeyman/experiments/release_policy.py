"""How far what was learned is released, and how it begins."""

from dataclasses import dataclass
from typing import NamedTuple

from journeyman.core.candidate import Candidate
from journeyman.core.release import Release, Stage
from journeyman.experiments.run import Run

_OUT = {Stage.ROLLED_BACK: "rolled back", Stage.RETIRED: "retired"}
"""Where a release has ended: no training brings it from there."""


class ReleaseDecision(NamedTuple):
    stage: Stage
    """How far it may go."""
    forced: bool
    """Whether it is a person who brought it there."""
    reason: str
    """One sentence."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ReleasePolicy:
    """The one rule of stage and force, for whatever was learned."""

    target: Stage = Stage.SHADOW
    """Where it goes if it passes."""
    force: bool = False
    """Go there even if it does not pass. What would stay in shadow needs no force, and is not said to be forced."""

    def decide(self, candidate: Candidate, run: Run, *, passed: bool, reason: str) -> ReleaseDecision:
        """How far it goes by the gate's word and a person's; what was rolled back or retired does not come back so."""
        forced = self.force and not passed and self.target is not Stage.SHADOW
        stage = self.target if passed or forced else Stage.SHADOW
        known = run.store.release(candidate.id)
        if stage is not Stage.SHADOW and known is not None and known.stage in _OUT:
            ended = known.moves[-1]
            why = f"{reason}; the same was {_OUT[ended.stage]} on {ended.at:%Y-%m-%d} ({ended.reason}), and stays so"
            return ReleaseDecision(Stage.SHADOW, False, why)
        return ReleaseDecision(stage, forced, reason)

    def begin(self, candidate: Candidate, run: Run, decision: ReleaseDecision, *, passed: bool) -> Release | None:
        """Release what passed or was forced; `None` where it was neither. Once more changes nothing, and what stands in shadow
        since an earlier run goes on where this one lets it."""
        stage, forced, reason = decision
        if not passed and not forced:
            return None
        run.store.add_candidate(candidate)
        known, why, at = run.store.release(candidate.id), f"{reason} ({run.id})", run.clock()
        if known is None:
            release = Release.begin(candidate.id, stage, why, at, forced=forced)
        else:
            release = known.on(stage, at, why, forced=forced)
        run.store.add_release(release)
        return release
