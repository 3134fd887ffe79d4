"""The gate's controls: what is no better does not pass, what is better does."""

from dataclasses import dataclass, replace

import numpy as np
import pytest

from journeyman.core.evaluation import Decision, Evaluation, Pair, Result, pair
from journeyman.core.gate import All, BetterAtAnyTime, BetterOnHeldOut, Gate, Guardrail

Scores = np.ndarray[tuple[int], np.dtype[np.float64]]


def evaluation(
    baseline: Scores | list[float], candidate: Scores | list[float], *, unknown: int = 0, looks: int = 0
) -> Evaluation:
    pairs = zip(baseline, candidate, strict=True)
    named = (Pair(task_id=f"t{n}", baseline=float(b), candidate=float(c)) for n, (b, c) in enumerate(pairs))
    return Evaluation(pairs=tuple(named), unknown=unknown, looks=looks)


def passed(chance: np.random.Generator, tasks: int, right: float) -> Scores:
    return (chance.random(tasks) < right).astype(np.float64)


@dataclass(frozen=True)
class Always:
    decision: Decision

    def decide(self, evaluation: Evaluation) -> Decision:
        return self.decision


def test_gates_compose_and_the_first_refusal_is_the_answer() -> None:
    yes, no, never = (Always(Decision(ok, why)) for ok, why in ((True, "yes"), (False, "no"), (False, "never")))
    nothing = evaluation([], [])
    assert All((yes, no, never)).decide(nothing).reason == "no"
    assert All((yes, yes)).decide(nothing).passed
    assert not All(()).decide(nothing).passed


@pytest.mark.parametrize("gate", [BetterOnHeldOut(), BetterAtAnyTime()])
def test_a_thing_compared_with_itself_does_not_pass(gate: Gate) -> None:
    same = passed(np.random.default_rng(0), 300, 0.5)
    decision = gate.decide(evaluation(same, same))
    assert not decision.passed
    assert "gain +0.000 on 300 tasks" in decision.reason


@pytest.mark.parametrize("gate", [BetterOnHeldOut(), BetterAtAnyTime()])
def test_planted_harm_does_not_pass_and_the_broken_tasks_are_named(gate: Gate) -> None:
    before = [1.0] * 150 + [0.0] * 50
    after = [0.0] * 20 + [1.0] * 130 + [0.0] * 50
    decision = gate.decide(evaluation(before, after))
    assert not decision.passed
    assert decision.reason.endswith("it broke t0, t1, t10, t11, t12 and 15 more")


def test_too_few_tasks_do_not_pass_however_good_they_are() -> None:
    assert BetterOnHeldOut().decide(evaluation([0.0] * 29, [1.0] * 29)).reason == (
        "29 held-out tasks were compared, and 30 are needed"
    )
    assert BetterOnHeldOut().decide(evaluation([0.0] * 30, [1.0] * 30)).passed


def test_breaking_the_verifier_is_no_way_to_win() -> None:
    before, after = [0.0] * 90, [1.0] * 90
    assert not BetterOnHeldOut().decide(evaluation(before, after, unknown=10)).passed
    assert BetterOnHeldOut().decide(evaluation(before, after, unknown=4)).passed


def five_attempts(missing: int) -> Evaluation:
    """60 tasks, the candidate right at 50 of them, the baseline at 40; of so many one attempt of five has no verdict."""

    def side(right: int) -> list[Result]:
        return [
            Result(task_id=f"t{task}", trial=str(trial), score=None if trial == 0 and task < missing else float(task < right))
            for task in range(60)
            for trial in range(5)
        ]

    return pair(side(40), side(50))


@pytest.mark.parametrize("gate", [BetterOnHeldOut(), BetterAtAnyTime(alpha=0.2)])
def test_a_missing_verdict_refuses_only_where_the_answer_hangs_on_it(gate: Gate) -> None:
    none, few, many = (gate.decide(five_attempts(missing)) for missing in (0, 6, 60))
    assert none.passed
    assert few.passed
    assert (few.low or 0) < (none.low or 0), "what was not seen costs"
    assert "with 12 attempts without a verdict at 0 and at 1" in few.reason
    assert not many.passed
    assert "it hangs on the attempts without a verdict" in many.reason


def test_leaving_the_worst_verdicts_out_is_no_way_to_win() -> None:
    before = [Result(task_id=f"t{task}", trial=str(trial), score=0.5) for task in range(60) for trial in range(5)]
    after = [replace(each, score=1.0 if each.trial in "01" else None) for each in before]
    assert not BetterOnHeldOut().decide(pair(before, after)).passed


def families(effects: list[float], tasks: int = 20, **metrics: list[float]) -> Evaluation:
    """Of each family so many tasks, half of which the baseline has right; the candidate has a share more of them right."""
    pairs = [
        Pair(
            task_id=f"f{family:02d}-{n:02d}",
            baseline=float(n < tasks / 2),
            candidate=float(n < tasks * (0.5 + effect)),
            cluster=f"family {family}",
            metrics={name: [1.0, values[family]] for name, values in metrics.items()},
        )
        for family, effect in enumerate(effects)
        for n in range(tasks)
    ]
    return Evaluation(pairs=tuple(pairs))


UNEVEN = [0.4] * 10 + [-0.2] * 10


def test_a_gain_in_half_of_the_families_is_none_for_the_next_one() -> None:
    found = families(UNEVEN)
    alone = replace(found, pairs=tuple(replace(each, cluster="") for each in found.pairs))
    assert BetterOnHeldOut().decide(alone).passed
    decision = BetterOnHeldOut().decide(found)
    assert not decision.passed
    assert decision.reason.startswith("gain +0.100 on 400 tasks in 20 clusters, 95 % interval -0.080 to +0.270, whose low end")
    assert (decision.low or 0) < 0


def test_a_gain_in_all_families_passes() -> None:
    assert BetterOnHeldOut().decide(families([0.2, 0.25] * 10)).passed


def test_few_families_tell_nothing_however_many_tasks_they_have() -> None:
    decision = BetterOnHeldOut().decide(families([0.4] * 9, tasks=100))
    assert decision.reason == (
        "900 held-out tasks of 9 clusters were compared, and 10 clusters are needed: so few tell nothing of the next"
    )
    assert BetterOnHeldOut(min_clusters=9).decide(families([0.4] * 9, tasks=100)).passed


def test_the_any_time_gate_says_that_clusters_and_guardrails_are_not_for_it() -> None:
    assert "cannot judge tasks in clusters" in BetterAtAnyTime().decide(families([0.4] * 20)).reason
    gate = BetterAtAnyTime(guardrails=(Guardrail("cost", 0.1),))
    assert "cannot judge guardrails" in gate.decide(evaluation([0.0] * 60, [1.0] * 60)).reason


def test_the_shrunk_gain_knows_that_families_go_together() -> None:
    found = families(UNEVEN)
    alone = replace(found, pairs=tuple(replace(each, cluster="") for each in found.pairs))
    assert (replace(found, looks=3).gain_shrunk or 0) < (replace(alone, looks=3).gain_shrunk or 0)


@pytest.mark.slow
def test_of_candidates_that_help_half_of_the_families_few_pass_with_clusters_and_many_without() -> None:
    chance, gate, passes = np.random.default_rng(30), BetterOnHeldOut(), {True: 0, False: 0}
    for _ in range(300):
        which = np.repeat(np.arange(20), 20)
        before = chance.random(400) < 0.45
        after = chance.random(400) < 0.45 + chance.choice([-0.25, 0.25], 20)[which]
        for clusters in passes:
            pairs = zip(which.tolist(), before.tolist(), after.tolist(), strict=True)
            found = [
                Pair(task_id=f"t{n}", baseline=b, candidate=a, cluster=f"f{w}" if clusters else "")
                for n, (w, b, a) in enumerate(pairs)
            ]
            passes[clusters] += gate.decide(Evaluation(pairs=tuple(found))).passed
    assert passes[True] <= 300 * (0.025 + 2 * 0.009)
    assert passes[False] >= 300 * 0.06


def test_what_costs_more_than_allowed_does_not_pass_however_good_it_is() -> None:
    found = families([0.3] * 20, cost=[1.2, 1.3] * 10, seconds=[1.0, 1.02] * 10)
    assert BetterOnHeldOut().decide(found).passed
    seconds, loose, strict = Guardrail("seconds", 0.05), Guardrail("cost", 0.3), Guardrail("cost", 0.26)
    within = BetterOnHeldOut(guardrails=(loose, seconds)).decide(found)
    assert within.passed
    assert within.reason.endswith(
        "0 worse; cost +25.0 %, at most +27.4 %, where +30.0 % is allowed"
        "; seconds +1.0 %, at most +1.5 %, where +5.0 % is allowed"
    )
    beyond = BetterOnHeldOut(guardrails=(strict, seconds)).decide(found)
    assert not beyond.passed
    assert beyond.reason.endswith("0 worse; but cost +25.0 %, at most +27.4 %, where +26.0 % is allowed")
    assert [each.passed for each in beyond.guarded] == [False, True]


def test_a_guardrail_that_nobody_measured_does_not_hold() -> None:
    decision = BetterOnHeldOut(guardrails=(Guardrail("tokens", 0.1),)).decide(families([0.3] * 20))
    assert not decision.passed
    assert decision.reason.endswith("; but tokens is not known of 400 tasks, where +10.0 % is allowed")


@pytest.mark.parametrize(("looks", "level"), [(0, "95 %"), (1, "98.75 %"), (49, "99.998 %"), (199, "99.9999 %")])
def test_no_interval_is_certain_however_many_looks_it_pays_for(looks: int, level: str) -> None:
    assert f" {level} interval" in BetterOnHeldOut().decide(evaluation([0.0] * 60, [1.0] * 60, looks=looks)).reason


def test_the_gain_must_be_one_worth_having() -> None:
    before, after = [0.0] * 100, [1.0] * 30 + [0.0] * 70
    assert BetterOnHeldOut().decide(evaluation(before, after)).passed
    decision = BetterOnHeldOut(min_gain=0.25).decide(evaluation(before, after))
    assert not decision.passed
    assert "not above +0.250" in decision.reason


def test_each_further_look_at_the_same_tasks_asks_for_more() -> None:
    before, after = [0.0] * 100, [1.0] * 8 + [0.0] * 92
    assert BetterOnHeldOut().decide(evaluation(before, after)).passed
    later = BetterOnHeldOut().decide(evaluation(before, after, looks=9))
    assert not later.passed
    assert "99.95 % interval" in later.reason
    assert "at look number 10 at these tasks" in later.reason


def test_the_reason_is_a_sentence_with_its_numbers() -> None:
    before, after = [1.0] * 10 + [0.0] * 90, [0.0] * 2 + [1.0] * 58 + [0.0] * 40
    assert BetterOnHeldOut().decide(evaluation(before, after)).reason == (
        "gain +0.480 on 100 tasks, 95 % interval +0.370 to +0.580; 50 better, 2 worse"
    )


def test_of_200_candidates_that_are_no_better_at_most_5_percent_pass() -> None:
    chance, gate = np.random.default_rng(20), BetterOnHeldOut()
    found = [gate.decide(evaluation(passed(chance, 60, 0.5), passed(chance, 60, 0.5))) for _ in range(200)]
    assert sum(decision.passed for decision in found) <= 10


@pytest.mark.slow
def test_nor_when_each_is_looked_at_after_every_batch() -> None:
    chance, gate = np.random.default_rng(21), BetterAtAnyTime()
    lucky = 0
    for _ in range(200):
        before, after = passed(chance, 200, 0.5), passed(chance, 200, 0.5)
        lucky += any(gate.decide(evaluation(before[:n], after[:n])).passed for n in range(30, 201, 10))
    assert lucky <= 10


def test_nor_when_they_are_tried_one_after_the_other_on_the_same_tasks() -> None:
    """Twenty tries of nothing pass once where looks are not counted."""
    chance, gate = np.random.default_rng(22), BetterOnHeldOut()
    runs = 0
    for _ in range(20):
        before = passed(chance, 60, 0.5)
        runs += any(gate.decide(evaluation(before, passed(chance, 60, 0.5), looks=look)).passed for look in range(10))
    assert runs <= 3


def test_a_real_gain_is_found_in_most_trials() -> None:
    chance, gate = np.random.default_rng(23), BetterOnHeldOut()
    found = [gate.decide(evaluation(passed(chance, 200, 0.5), passed(chance, 200, 0.65))) for _ in range(50)]
    assert sum(decision.passed for decision in found) >= 35
