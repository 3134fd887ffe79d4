"""Learning: did the bullets that were shown help?

    learning = ½ · (1 + passed - passed without a playbook) · (1 - invented / cited)      where it was tried without one
    learning = passed · (1 - invented / cited)                                            else

A citation is the model's own word, so it can only cost: ids that were cited and never shown are invented. That a bullet was
shown is recorded by the platform. In the first form ½ is a playbook that changed nothing.
"""

from dataclasses import dataclass

from journeyman.rewards.base import RewardResult
from journeyman.rewards.development.work import Work, unknown


@dataclass(frozen=True, slots=True)
class Learning:
    """What the bullets that were shown were worth to this attempt."""

    name: str = "learning"

    def compute(self, work: Work) -> RewardResult:
        """Unknown when no bullet was shown, or when the outcome is unknown."""
        shown, cited = work.trace.shown, work.trace.cited
        if not shown:
            return unknown("no bullet was shown")
        if work.passed is None:
            return unknown("whether the bullets helped is unknown: the checks gave no verdict")
        invented = cited - shown
        honest = 1 - len(invented) / len(cited) if cited else 1.0
        gain = None if work.unaided is None else work.passed - work.unaided
        worth = work.passed if gain is None else (1 + gain) / 2
        against = "" if work.unaided is None else f", {work.unaided:.0%} without them"
        told = (
            f"{len(shown)} bullets shown, {work.passed:.0%} of the checks passed{against}; {len(invented)} citations invented"
        )
        used = sorted(cited & shown)
        return RewardResult(
            score=worth * honest, details={"evidence": told, "gain": gain, "cited": used, "invented": sorted(invented)}
        )
