"""The whole loop on one screen: learn, evaluate, decide, release."""

import logging
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from datetime import datetime

from journeyman.candidate import Candidate
from journeyman.examination import Report
from journeyman.release import Move, Release, Stage

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True, kw_only=True)
class Turn:
    """All of what happened: a refusal teaches as much as a release."""

    reason: str
    candidate: Candidate | None = None
    report: Report | None = None
    """The evaluation, and what the gate made of it."""
    release: Release | None = None


async def turn(
    baseline: Candidate | None,
    *,
    learn: Callable[[Candidate | None], Awaitable[Candidate | None]],
    evaluate: Callable[[Candidate, Candidate | None], Awaitable[Report]],
    clock: Callable[[], datetime],
) -> Turn:
    """Go round once. What passes the gate is released into shadow; everything after that is a `Release`'s own table."""
    candidate = await learn(baseline)
    if candidate is None or (baseline is not None and candidate.id == baseline.id):
        return Turn(reason="nothing was learned")

    report = await evaluate(candidate, baseline)
    log.info("%s %s: %s", candidate.kind, candidate.id, report.reason)
    if not report.passed:
        return Turn(reason=report.reason, candidate=candidate, report=report)

    shadow = Move(Stage.SHADOW, report.reason, clock())
    release = Release(candidate_id=candidate.id, moves=(shadow,))
    return Turn(reason=report.reason, candidate=candidate, report=report, release=release)
