"""What a rollout does next: whatever makes the evidence unbelievable comes first, and what is unknown holds."""

from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from journeyman.core.rollout import EventKind
from journeyman.core.rollout_decision import (
    ArmEvidence,
    Mirrored,
    Observed,
    ObservedShadow,
    RatioFound,
    decide,
    decide_arms,
    decide_holdback,
    decide_shadow,
    decisive_differences,
)
from journeyman.core.rollout_plan import Metric, RolloutPlan

PLAN = RolloutPlan()
FAIR = RatioFound(e_value=1.2, canary=100, expected=101.0, sessions=1000)


def found(low: float = -0.2, high: float = 0.2, **more: Any) -> ArmEvidence:
    given = {"canary": 400, "production": 3000, "difference": (low + high) / 2, "high_doubt": high, **more}
    return ArmEvidence(low=low, high=high, **given)


def seen(**more: Any) -> Observed:
    """All is known, and nothing is shown yet; the step is not over."""
    metrics = {each.name: found() for each in (PLAN.primary, *PLAN.guardrails)}
    metrics |= more.pop("metrics", {})
    return Observed(**{"step": 1, "sessions": 10, "hours": 0.1, "days": 1.0, "metrics": metrics, "ratio": FAIR, **more})


HARM = {"success": found(-0.4, -0.05, e_harm=88.0)}
FINE = {"success": found(-0.04, 0.1)}
BETTER = {"success": found(0.0, 0.1)}
FEWER_LABELS = {"labelled": found(-0.4, -0.05)}
MORE_LABELS = {"labelled": found(0.01, 0.4)}


def test_nothing_shown_goes_on_and_says_what_is_missing() -> None:
    verdict = decide(PLAN, seen())
    assert verdict.event is None
    assert "10 of 200 sessions" in verdict.reason
    assert "a promotion wants -5" in verdict.reason


def test_harm_is_rolled_back_with_its_numbers() -> None:
    verdict = decide(PLAN, seen(metrics=HARM))
    assert (verdict.event, verdict.metric) == (EventKind.ROLLBACK, "success")
    assert "success is worse" in verdict.reason
    assert "below -5" in verdict.reason
    assert "e-value 88" in verdict.reason


def test_a_plan_that_holds_on_harm_holds() -> None:
    verdict = decide(replace(PLAN, on_harm="hold"), seen(metrics=HARM))
    assert verdict.event is EventKind.HOLD


@pytest.mark.parametrize("labels", [FEWER_LABELS, MORE_LABELS])
def test_missing_labels_hold_before_harm_that_they_may_have_made(labels: dict[str, ArmEvidence]) -> None:
    verdict = decide(PLAN, seen(metrics={**HARM, **labels}))
    assert (verdict.event, verdict.metric) == (EventKind.HOLD, "labelled")


def test_missing_labels_do_not_hide_harm_that_needs_none() -> None:
    failing = {"failed_requests": found(-0.4, -0.05)}
    verdict = decide(PLAN, seen(metrics={**failing, **FEWER_LABELS}))
    assert (verdict.event, verdict.metric) == (EventKind.ROLLBACK, "failed_requests")


def test_sessions_that_do_not_fall_as_drawn_hold_before_any_harm() -> None:
    ratio = RatioFound(e_value=1000.0, canary=80, expected=100.0, sessions=1000)
    verdict = decide(PLAN, seen(metrics=HARM, ratio=ratio))
    assert verdict.event is EventKind.HOLD
    assert "80 of 1,000" in verdict.reason
    assert "100 are expected" in verdict.reason


def test_production_that_is_ill_itself_is_not_blamed_on_the_canary() -> None:
    verdict = decide(PLAN, seen(metrics=HARM, brakes=("one",), ill="31 % of its sessions fail"))
    assert verdict.event is EventKind.HOLD
    assert "production itself is ill: 31 %" in verdict.reason


def test_a_brake_rolls_back_whatever_is_not_known() -> None:
    verdict = decide(PLAN, seen(metrics={"success": None}, ratio=None, stale="old", held="old", brakes=("one", "two")))
    assert verdict.event is EventKind.ROLLBACK
    assert "one, two" in verdict.reason
    assert "20%" in verdict.reason


@pytest.mark.parametrize(
    "unknown",
    [
        {"ratio": None},
        {"stale": "the newest evidence is 40 min old"},
        {"metrics": {"cost": None}},
        {"metrics": {"success": found(0.1, 0.05)}},
        {"metrics": {"success": found(difference=float("nan"))}},
        {"held": "by a person"},
    ],
)
def test_what_is_unknown_holds_and_is_never_promoted_or_ramped(unknown: dict[str, Any]) -> None:
    given = {**unknown, "metrics": {**FINE, **unknown.get("metrics", {})}}
    verdict = decide(PLAN, seen(sessions=10_000, hours=1000, **given))
    assert verdict.event is EventKind.HOLD


def test_harm_is_rolled_back_from_a_hold_and_where_something_else_is_unknown() -> None:
    assert decide(PLAN, seen(metrics={**HARM, "cost": None}, held="by a person", stale="old")).event is EventKind.ROLLBACK


def test_not_worse_is_promoted_with_enough_sessions_of_each_arm() -> None:
    verdict = decide(PLAN, seen(metrics=FINE))
    assert verdict.event is EventKind.PROMOTE
    assert "not worse than production by 5 points" in verdict.reason
    assert "from -4 to +10" in verdict.reason
    few = {"success": found(-0.04, 0.1, canary=299)}
    assert decide(PLAN, seen(metrics=few)).event is None
    assert "300 sessions of each arm" in decide(PLAN, seen(metrics=few)).reason


def test_a_checked_candidate_is_promoted_only_as_better() -> None:
    assert decide(PLAN, seen(metrics=FINE, checked=True)).event is None
    verdict = decide(PLAN, seen(metrics=BETTER, checked=True))
    assert verdict.event is EventKind.PROMOTE
    assert "better than production" in verdict.reason


def test_a_plan_that_wants_better_gets_better() -> None:
    plan = replace(PLAN, primary=Metric(name="success", require="better"))
    assert decide(plan, seen(metrics=FINE)).event is None
    assert decide(plan, seen(metrics=BETTER)).event is EventKind.PROMOTE


def test_a_plan_that_asks_is_held_when_it_could_be_promoted() -> None:
    verdict = decide(replace(PLAN, promote="ask"), seen(metrics=FINE))
    assert verdict.event is EventKind.HOLD
    assert "asks a person" in verdict.reason


def test_a_guardrail_in_doubt_stops_promotion_and_ramp() -> None:
    doubtful = {**FINE, "latency": found(-0.2, 0.01, high_doubt=-0.03)}
    verdict = decide(PLAN, seen(metrics=doubtful, sessions=10_000, hours=1000))
    assert verdict.event is None
    assert "latency may be worse" in verdict.reason


def test_a_step_ramps_when_sessions_hours_and_the_worst_are_there() -> None:
    ready = {"step": 1, "sessions": 200, "hours": 6.0, "metrics": {"success": found(-0.3, 0.1)}}
    verdict = decide(PLAN, seen(**ready))
    assert (verdict.event, verdict.share) == (EventKind.RAMP, 0.10)
    for less in ({"sessions": 199}, {"hours": 5.9}, {"metrics": {"success": found(-0.4, 0.1)}}, {"step": 4}):
        assert decide(PLAN, seen(**{**ready, **less})).event is None


def test_the_end_of_the_time_is_held_and_asks_and_never_promotes() -> None:
    verdict = decide(PLAN, seen(days=28.0))
    assert verdict.event is EventKind.HOLD
    assert "28 days are over" in verdict.reason
    assert "promote it, roll it back, or close it" in verdict.reason
    assert decide(replace(PLAN, on_end="rollback"), seen(days=28.0)).event is EventKind.ROLLBACK
    assert decide(PLAN, seen(days=28.0, metrics=FINE)).event is EventKind.PROMOTE


def test_a_holdback_goes_back_on_harm_and_is_concluded_when_its_time_is_over() -> None:
    assert decide_holdback(PLAN, seen(metrics=HARM)).event is EventKind.ROLLBACK
    assert decide_holdback(PLAN, seen(days=6.9)).event is None
    assert decide_holdback(PLAN, seen(days=7.0)).event is EventKind.CONCLUDE
    assert decide_holdback(PLAN, seen(days=7.0, metrics={"success": None})).event is None


bounds = st.sampled_from([-1.0, -0.3, -0.1, -0.05, -0.03, -0.01, 0.0, 0.02, 0.1, 1.0])


@given(st.lists(st.tuples(bounds, bounds, bounds), min_size=5, max_size=5), st.booleans(), st.booleans(), st.integers(0, 4))
def test_no_verdict_contradicts_the_bounds_that_it_stands_on(
    drawn: list[tuple[float, float, float]], checked: bool, asks: bool, step: int
) -> None:
    plan = replace(PLAN, promote="ask" if asks else "automatic")
    metrics = (plan.primary, *plan.guardrails)
    told = {
        each.name: found(low, high, high_doubt=min(high, doubt))
        for each, (low, high, doubt) in zip(metrics, drawn, strict=True)
    }
    verdict = decide(plan, seen(metrics=told, checked=checked, step=step, sessions=5000, hours=100))
    if verdict.event is EventKind.ROLLBACK:
        by = next(each for each in metrics if each.name == verdict.metric)
        assert told[verdict.metric].high <= -by.tolerance
    else:
        harmed = [each for each in metrics if each.action == "rollback" and told[each.name].high <= -each.tolerance]
        assert not harmed or verdict.metric == "labelled"
    if verdict.event in (EventKind.PROMOTE, EventKind.RAMP):
        success = told["success"]
        least = 0.0 if checked else -0.05
        assert success.low >= (least if verdict.event is EventKind.PROMOTE else -plan.step_worst[step])
        assert all(told[each.name].high_doubt > -each.tolerance for each in metrics if each.action == "rollback")
        assert all(each.low <= each.high for each in told.values())
    assert verdict.reason
    assert "\n" not in verdict.reason


def test_what_a_plan_asks_about_is_bet_against_exactly() -> None:
    assert set(decisive_differences(PLAN, PLAN.primary)) == {-0.3, -0.15, -0.1, -0.07, -0.05, 0.0}
    assert decisive_differences(PLAN, PLAN.guardrails[-1]) == (-0.005, 0.005)


# Several candidates.

WORSE, UNSHOWN = {"success": found(-0.4, -0.05)}, {"success": found(-0.2, 0.3)}
LEADING = {"success": found(-0.06, 0.4)}


def test_one_candidate_alone_is_judged_as_ever() -> None:
    for metrics in (HARM, FINE, BETTER, FEWER_LABELS, UNSHOWN):
        assert decide_arms(PLAN, {"canary": seen(metrics=metrics)}) == decide(PLAN, seen(metrics=metrics))


def test_a_candidate_that_harms_is_taken_out_and_all_that_harm_are_rolled_back() -> None:
    verdict = decide_arms(PLAN, {"canary-1": seen(metrics=FINE), "canary-2": seen(metrics=WORSE)})
    assert (verdict.event, verdict.arm) == (EventKind.DROP, "canary-2")
    assert verdict.reason.startswith("canary-2: success is worse on the canary")
    both = decide_arms(PLAN, {"canary-1": seen(metrics=WORSE), "canary-2": seen(metrics=WORSE)})
    assert both.event is EventKind.ROLLBACK
    assert both.reason.count("success is worse") == 2


def test_the_best_is_promoted_and_one_that_is_shown_waits_for_one_that_looks_better() -> None:
    verdict = decide_arms(PLAN, {"canary-1": seen(metrics=FINE), "canary-2": seen(metrics=BETTER)})
    assert (verdict.event, verdict.arm) == (EventKind.PROMOTE, "canary-2")
    waits = decide_arms(PLAN, {"canary-1": seen(metrics=FINE), "canary-2": seen(metrics=LEADING)})
    assert waits.event is None
    assert waits.reason.startswith("canary-2 looks best and is not shown yet; canary-1: success is not worse")
    asked = decide_arms(replace(PLAN, promote="ask"), {"canary-1": seen(metrics=FINE), "canary-2": seen(metrics=BETTER)})
    assert (asked.event, asked.arm) == (EventKind.HOLD, "canary-2")
    assert "asks a person" in asked.reason


def test_what_holds_one_holds_all_and_a_step_is_gone_up_together() -> None:
    labels = {"canary-1": seen(metrics=FINE), "canary-2": seen(metrics=FEWER_LABELS)}
    assert decide_arms(PLAN, labels).event is EventKind.HOLD
    ill = decide_arms(PLAN, {"canary-1": seen(ill="it is down"), "canary-2": seen(ill="it is down")})
    assert ill.reason == "production itself is ill: it is down"
    over = {"sessions": 1000, "hours": 100.0}
    ready = seen(**over)
    assert decide_arms(PLAN, {"canary-1": ready, "canary-2": ready}).event is EventKind.RAMP
    doubtful = seen(metrics={"success": found(-0.4, 0.1)}, **over)
    assert decide_arms(PLAN, {"canary-1": ready, "canary-2": doubtful}).event is None


# Before anybody is served: requests that are mirrored.

MIRRORING = RolloutPlan(shadow_share=0.1, shadow_pairs=50, shadow_budget=1.0)


def shadow(*, pairs: int = 10, spent: float = 0.1, unpriced: int = 0, **more: Any) -> ObservedShadow:
    mirrored = Mirrored(pairs=pairs, spent=spent, unpriced=unpriced)
    return ObservedShadow(mirrored=mirrored, **{"failed": 0, "brake": False, **more})


@pytest.mark.parametrize(
    ("known", "event", "said"),
    [
        (shadow(), None, "10 of 50 mirrored sessions"),
        (shadow(pairs=50), EventKind.RAMP, "the first step, after 50 of 50 mirrored sessions showed no harm"),
        # Harm comes before enough, and before what is spent.
        (shadow(pairs=50, brake=True, failed=30), EventKind.ROLLBACK, "the brake"),
        (shadow(pairs=50, spent=2.0, worse="it is worse"), EventKind.ROLLBACK, "it is worse"),
        # Enough pairs are enough, whatever they cost; too few of them are a person's to judge.
        (shadow(pairs=50, spent=2.0), EventKind.RAMP, "the first step"),
        (shadow(pairs=49, spent=1.0), EventKind.HOLD, "the budget of $1 is spent"),
        (shadow(pairs=49, unpriced=1), EventKind.HOLD, "cost is not known, so no budget can be kept"),
        (shadow(days=28.0), EventKind.HOLD, "28 days are over"),
    ],
)
def test_a_candidate_whose_answers_nobody_is_given_ramps_holds_or_ends(
    known: ObservedShadow, event: EventKind | None, said: str
) -> None:
    verdict = decide_shadow(MIRRORING, known)
    assert verdict.event is event
    assert said in verdict.reason
    assert verdict.share == (MIRRORING.steps[0] if event is EventKind.RAMP else verdict.share)


def test_mirroring_goes_on_without_prices_only_where_the_plan_says_so() -> None:
    plan = replace(MIRRORING, shadow_unpriced="go_on")
    assert decide_shadow(plan, shadow(unpriced=9)).event is None
