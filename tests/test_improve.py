"""One turn of the loop: learn, evaluate, decide, release."""

from datetime import UTC, datetime

from journeyman.candidate import Candidate, Kind
from journeyman.evaluation import Result
from journeyman.examination import Report, compare
from journeyman.improve import Turn, turn
from journeyman.release import Stage

NOW = datetime(2026, 1, 1, tzinfo=UTC)
OLD, NEW = (Candidate(kind=Kind.PLAYBOOK, body=body) for body in ("old", "new"))


def verdict(gain: int) -> Report:
    baseline = [Result(task_id=f"t{n}", score=0.0) for n in range(40)]
    return compare(baseline, [Result(task_id=f"t{n}", score=float(n < gain)) for n in range(40)])


async def gone_round(baseline: Candidate | None, learned: Candidate | None, gain: int) -> tuple[Turn, list[str]]:
    done: list[str] = []

    async def learn(_: Candidate | None) -> Candidate | None:
        done.append("learn")
        return learned

    async def evaluate(candidate: Candidate, against: Candidate | None) -> Report:
        done.append(f"evaluate {candidate.body} against {against.body if against else 'nothing'}")
        return verdict(gain)

    return await turn(baseline, learn=learn, evaluate=evaluate, clock=lambda: NOW), done


async def test_what_passes_is_released_into_shadow() -> None:
    found, done = await gone_round(OLD, NEW, 40)
    assert done == ["learn", "evaluate new against old"]
    assert found.release is not None
    assert (found.release.stage, found.release.candidate_id) == (Stage.SHADOW, NEW.id)
    assert found.reason == found.release.moves[0].reason
    assert "gain +1.000" in found.reason


async def test_what_fails_is_not_released_and_says_why() -> None:
    found, _ = await gone_round(None, NEW, 1)
    assert (found.release, found.candidate) == (None, NEW)
    assert "whose low end is not above" in found.reason


async def test_nothing_learned_is_not_evaluated() -> None:
    for baseline, learned in ((None, None), (OLD, None), (OLD, OLD)):
        found, done = await gone_round(baseline, learned, 40)
        assert done == ["learn"]
        assert (found.reason, found.candidate, found.report, found.release) == ("nothing was learned", None, None, None)
