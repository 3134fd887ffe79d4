"""How far what was learned is released, and how it begins."""

from dataclasses import dataclass

from journeyman.core.candidate import Candidate
from journeyman.core.release import Release, Stage
from journeyman.experiments.run import Run


@dataclass(frozen=True, slots=True, kw_only=True)
class ReleasePolicy:
    """The one rule of stage and force, for whatever was learned."""

    target: Stage = Stage.SHADOW
    """Where it goes if it passes."""
    force: bool = False
    """Go there even if it does not pass. What would stay in shadow needs no force, and is not said to be forced."""

    def decide(self, *, passed: bool) -> tuple[Stage, bool]:
        """The stage that it comes to, and whether it is a person who brought it there."""
        forced = self.force and not passed and self.target is not Stage.SHADOW
        return (self.target if passed or forced else Stage.SHADOW), forced

    def begin(self, candidate: Candidate, run: Run, *, passed: bool, reason: str) -> Release | None:
        """Release what passed or was forced; `None` where it was neither. Once more changes nothing, and what stands in shadow
        since an earlier run goes on where this one lets it."""
        stage, forced = self.decide(passed=passed)
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
