from dataclasses import dataclass

import pytest
from hypothesis import given
from hypothesis import strategies as st

from journeyman.core.errors import InputError
from journeyman.rewards.base import RewardResult
from journeyman.rewards.development import WEIGHTS, Development, DevelopmentReward, DevelopmentWork, WorkCheckResult
from journeyman.rewards.development.code_measures import Architecture, ComplianceProfile
from tests.support.traces import done, used

WORK = DevelopmentWork(trace=done())
SHARES = st.one_of(st.none(), st.floats(0, 1))


@dataclass(frozen=True)
class Fixed:
    """A component whose verdict is known."""

    name: str
    score: float | None
    critical: tuple[str, ...] = ()

    def compute(self, work: DevelopmentWork) -> RewardResult:
        return RewardResult(score=self.score, details={"evidence": self.name, "critical": list(self.critical)})


def combined(scores: dict[str, float | None], *critical: str, **settings: float) -> RewardResult:
    parts = tuple(Fixed(name, score, critical if name == "functionality" else ()) for name, score in scores.items())
    return Development(components=parts, weights={name: WEIGHTS[name] for name in scores}, **settings).compute(WORK)


def test_the_documented_weights_add_up_to_one_without_innovation() -> None:
    assert sum(WEIGHTS.values()) == pytest.approx(1.05)
    assert sum(Development().weights.values()) == pytest.approx(1.0)


def test_with_innovation_they_are_made_to() -> None:
    result = combined(dict.fromkeys(WEIGHTS, 0.5))
    assert sum(result.details["weights"].values()) == pytest.approx(1.0)
    assert result.details["weights"]["code_quality"] == pytest.approx(0.25 / 1.05)


def test_what_cannot_be_told_is_left_out_and_named() -> None:
    result = combined({"code_quality": 0.5, "functionality": 0.7, "learning": None})
    assert result.score == pytest.approx((0.25 * 0.5 + 0.2 * 0.7) / 0.45)
    assert result.details["unknown"] == ["learning"]


def test_without_a_verdict_on_what_it_does_there_is_none_on_the_whole() -> None:
    assert combined({"code_quality": 1.0, "functionality": None, "autonomy": 1.0}).score is None


def test_compliance_multiplies_the_reward_for_functionality() -> None:
    result = combined({"functionality": 0.5, "architecture": 0.8})
    assert result.score == pytest.approx(0.5 * 0.5 + 0.5 * (0.5 * 0.8))
    assert combined({"functionality": 0.0, "architecture": 1.0}).score == 0.0


def test_a_critical_fault_multiplies_by_the_penalty_once() -> None:
    assert combined({"functionality": 0.6}, "one").score == pytest.approx(0.3)
    assert combined({"functionality": 0.6}, "one", "two").score == pytest.approx(0.3)
    assert combined({"functionality": 1.0}, "one", penalty_multiplier=0.2).score == pytest.approx(0.2)


def test_the_bonus_begins_at_its_threshold_and_closes_the_gap() -> None:
    assert combined({"functionality": 0.79}).score == pytest.approx(0.79)
    assert combined({"functionality": 0.8}).score == pytest.approx(0.8)
    assert combined({"functionality": 0.9}).score == pytest.approx(0.9 + 0.1 * 0.5)
    assert combined({"functionality": 1.0}).score == 1.0
    assert combined({"functionality": 0.9}, bonus_threshold=1.0).score == pytest.approx(0.9)


@given(st.floats(0, 1), st.floats(0, 1), st.floats(0, 1))
def test_the_bonus_never_changes_the_order(one: float, other: float, threshold: float) -> None:
    low, high = sorted((one, other))
    first = combined({"functionality": low}, bonus_threshold=threshold).score
    second = combined({"functionality": high}, bonus_threshold=threshold).score
    assert first is not None
    assert second is not None
    assert first <= second + 1e-9
    assert 0 <= first <= 1


@given(st.fixed_dictionaries({name: SHARES for name in WEIGHTS}), st.booleans())
def test_the_whole_is_between_0_and_1_or_unknown(scores: dict[str, float | None], penalised: bool) -> None:
    result = combined(scores, *(("fault",) if penalised else ()))
    assert result.score is None or 0 <= result.score <= 1
    assert set(result.details["components"]) == set(scores)


def test_settings_that_cannot_be_are_refused() -> None:
    for settings in ({"weights": {"beauty": 1.0}}, {"weights": {"learning": -1.0}}, {"weights": {"learning": 0.0}}):
        with pytest.raises(InputError):
            Development(**settings)  # type: ignore[arg-type]
    with pytest.raises(InputError, match="between 0 and 1"):
        Development(bonus_threshold=1.5)


def test_another_profile_is_another_version() -> None:
    strict = Development(components=(Architecture(ComplianceProfile(function_lines=5)),), weights={"architecture": 1.0})
    loose = Development(components=(Architecture(),), weights={"architecture": 1.0})
    assert DevelopmentReward(strict).version != DevelopmentReward(loose).version
    assert DevelopmentReward().version == DevelopmentReward().version


def test_real_work_is_judged_by_all_that_is_known() -> None:
    work = DevelopmentWork(
        trace=done(used("write_file")),
        after={"shop.py": "def price(amount: int) -> int:\n    return amount * 2\n"},
        checks=(WorkCheckResult(name="doubles", passed=True), WorkCheckResult(name="zero", passed=True, edge=True)),
    )
    result = Development().compute(work)
    assert result.score == pytest.approx(1.0)
    assert result.details["unknown"] == ["learning"]
    worse = Development().compute(
        DevelopmentWork(trace=work.trace, after={"shop.py": "def price(amount:\n"}, checks=work.checks)
    )
    assert worse.score is not None
    assert worse.score < 0.5
    assert "shop.py is not Python" in str(worse.details["components"]["code_quality"]["evidence"])
