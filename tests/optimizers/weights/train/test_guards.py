"""Guards on recorded runs: some went well, some fell apart. How they were made stands in curves/README.md."""

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import pytest

from journeyman.core.score import Reward, Score
from journeyman.optimizers.weights import metrics
from journeyman.optimizers.weights.config import TrainingConfig
from journeyman.optimizers.weights.metrics import UpdateMetrics

pytestmark = pytest.mark.training

CURVES = Path(__file__).parent / "curves"
HEALTHY = sorted(path.stem for path in CURVES.glob("*-healthy.jsonl"))
COLLAPSED = sorted(path.stem for path in CURVES.glob("*-collapsed.jsonl"))


def curve(name: str) -> list[UpdateMetrics]:
    return metrics.read(CURVES / f"{name}.jsonl")


def config(name: str) -> TrainingConfig:
    method = "grpo-offline" if name.startswith("grpo-offline") else name.partition("-")[0]
    beta = 0.0 if method == "rft" else 0.1
    return TrainingConfig(method=method, beta=beta, learning_rate=0.01, max_completion_tokens=64)


def blind(updates: list[UpdateMetrics]) -> list[UpdateMetrics]:
    """The same run without a look at validation tasks."""
    return [replace(each, validation=None, solved=None) for each in updates]


def stopped(updates: list[UpdateMetrics], told: TrainingConfig) -> tuple[int, metrics.StopDecision] | None:
    """At which update the run would have been stopped, and why."""
    for at in range(1, len(updates) + 1):
        if stop := metrics.verdict(updates[:at], told):
            return updates[at - 1].step, stop
    return None


def test_there_are_recorded_runs() -> None:
    assert len(HEALTHY) >= 4
    assert len(COLLAPSED) >= 2


@pytest.mark.parametrize("name", HEALTHY)
def test_a_run_that_went_well_is_never_stopped(name: str) -> None:
    assert stopped(curve(name), config(name)) is None
    assert stopped(blind(curve(name)), config(name)) is None


@pytest.mark.parametrize("name", COLLAPSED)
def test_a_run_that_fell_apart_is_stopped_and_its_best_checkpoint_was_good(name: str) -> None:
    updates = curve(name)
    found = stopped(updates, config(name))
    assert found is not None
    best = metrics.best(updates[: found[0] + 1])
    assert best is not None
    assert best.step <= found[0] - metrics.SOON
    assert best.validation == max(each.validation or 0.0 for each in updates)
    assert len(found[1].reason) < 200
    assert found[1].reason.count(". ") == 0


@pytest.mark.parametrize("name", COLLAPSED)
def test_a_run_that_fell_apart_is_stopped_without_looks_too(name: str) -> None:
    found = stopped(blind(curve(name)), config(name))
    assert found is not None
    assert found[1].good_until <= found[0] - metrics.WINDOW or found[1].good_until == 0


def run(count: int, method: str = "grpo", **values: float) -> list[UpdateMetrics]:
    """A run that goes well and in which nothing happens."""
    named = {name: value for name, value in values.items() if name in UpdateMetrics.__dataclass_fields__}
    more = {name.replace("__", "/"): value for name, value in values.items() if name not in named}
    start = UpdateMetrics(step=0, of=100, reward=0.5, entropy=0.5, kl=0.01, ess=0.8, completion_tokens=20.0)
    return [replace(start, step=step, **named, more=more) for step in range(1, count + 1)]  # type: ignore[arg-type]


def after(first: list[UpdateMetrics], then: list[UpdateMetrics]) -> list[UpdateMetrics]:
    return [replace(each, step=step) for step, each in enumerate((*first, *then), start=1)]


def test_a_gradient_that_is_no_number_stops_at_once_and_the_update_before_was_good() -> None:
    updates = after(run(3), [replace(each, broken=("grad_norm",)) for each in run(1)])
    assert metrics.verdict(updates[:3], config("grpo")) is None
    stop = metrics.verdict(updates, config("grpo"))
    assert stop == metrics.StopDecision("the gradient was no number at update 4: the learning rate 0.01 is too high", 3)


def test_an_entropy_near_nothing_stops_only_where_nothing_was_won_by_it() -> None:
    lost = after(run(20, reward=0.5), run(20, reward=0.4, entropy=0.005))
    won = after(run(20, reward=0.5), run(20, reward=0.9, entropy=0.005))
    assert "entropy fell" in stopped(lost, config("grpo"))[1].reason  # type: ignore[index]
    assert stopped(won, config("grpo")) is None


def test_a_policy_far_from_its_start_is_stopped() -> None:
    assert "nats a token from where it started" in stopped(after(run(10), run(5, kl=3.0)), config("grpo"))[1].reason  # type: ignore[index]
    # KTO estimates the divergence of whole completions.
    assert stopped(after(run(10), run(20, kl=30.0)), config("kto")) is None


def test_long_completions_may_become_less_likely_by_many_nats_and_short_ones_not() -> None:
    long = after(run(10), run(20, logps__chosen=-350.0, rewards__chosen=-5.0))
    short = after(run(10), run(20, logps__chosen=-60.0, rewards__chosen=-5.0))
    assert stopped(long, config("dpo")) is None
    assert "less likely by 50 nats" in stopped(short, config("dpo"))[1].reason  # type: ignore[index]


def test_a_reward_that_falls_to_little_of_what_it_was_is_stopped_unless_it_was_recorded() -> None:
    fallen = after(run(20, reward=0.8), run(20, reward=0.05))
    assert "the reward fell from 0.800" in stopped(fallen, config("grpo"))[1].reason  # type: ignore[index]
    assert stopped(fallen, config("grpo-offline")) is None
    assert stopped(after(run(20, reward=0.8), run(20, reward=0.4)), config("grpo")) is None


def test_tasks_that_teach_nothing_are_told_apart_from_tasks_that_are_learned() -> None:
    dull = run(40, reward=0.0, frac_reward_zero_std=1.0)
    assert "nothing to learn" in stopped(dull, config("grpo"))[1].reason  # type: ignore[index]
    assert stopped(run(40, reward=1.0, frac_reward_zero_std=1.0), config("grpo")) is None


def test_completions_that_no_longer_end_are_stopped_unless_they_never_did() -> None:
    long = after(run(10, completions__clipped_ratio=0.1), run(20, completions__clipped_ratio=1.0))
    assert "unlearned to stop" in stopped(long, config("grpo"))[1].reason  # type: ignore[index]
    assert stopped(run(40, completions__clipped_ratio=1.0), config("grpo")) is None


def test_weights_that_vanish_are_stopped() -> None:
    few = after(run(10, ess=0.5), run(20, ess=0.01))
    assert "1.0% of a batch" in stopped(few, config("grpo-offline"))[1].reason  # type: ignore[index]
    assert stopped(few, config("grpo")) is None


def test_a_look_that_is_the_best_so_far_outweighs_what_only_hints_at_a_collapse() -> None:
    updates = after(run(10), run(10, kl=3.0))
    looked = [replace(each, validation=each.step / 20) for each in updates]
    assert stopped(updates, config("grpo")) is not None
    assert stopped(looked, config("grpo")) is None


def test_without_looks_a_checkpoint_that_a_guard_would_call_good_is_kept() -> None:
    updates = run(40)
    kept = metrics.worth_keeping(updates, [0, 10, 20, 30, 40])
    assert kept == {30, 40}
    assert metrics.worth_keeping(updates[:34], [0, 10, 20, 30]) == {20, 30}
    looked = [*updates[:9], replace(updates[9], validation=0.4), *updates[10:]]
    assert metrics.worth_keeping(looked, [0, 10, 20, 30, 40]) == {10}


def drifting(correlations: Sequence[float | None]) -> list[UpdateMetrics]:
    """A run in which nothing else is wrong."""
    return [
        UpdateMetrics(step=step, of=60, reward=0.5, more={} if each is None else {metrics.GUESSES_AGREE: each})
        for step, each in enumerate(correlations)
    ]


def test_a_training_that_pleases_a_learned_reward_and_not_the_verifier_is_stopped() -> None:
    found = stopped(drifting([0.6] * 10 + [0.5, 0.3, 0.1, 0.0] + [-0.1] * 10), config("grpo"))
    assert found is not None
    assert 14 <= found[0] <= 22
    assert "the correlation of learned rewards with what was verified fell from 0.60 to 0." in found[1].reason
    assert "teach them anew" in found[1].reason


def test_one_that_never_agreed_is_stopped_once_that_is_known() -> None:
    found = stopped(drifting([-0.1] * 30), config("grpo"))
    assert found is not None
    assert found[0] == 2 * metrics.WINDOW - 1
    assert "fell to -0.10, and was -0.10 at first" in found[1].reason


@pytest.mark.parametrize(
    "correlations", [[0.5] * 40, [0.5, 0.3] * 20, [0.2] * 10 + [0.6] * 30, [None] * 40, [0.4] * 6 + [None] * 34]
)
def test_a_learned_reward_that_goes_on_agreeing_or_of_which_nothing_is_known_stops_nothing(
    correlations: Sequence[float | None],
) -> None:
    assert stopped(drifting(correlations), config("grpo")) is None


def score(verified: float | None, guessed: float | None) -> Score:
    told = Reward(name="answer", value=verified), Reward(name="learned", value=guessed)
    return Score(trace_id="t", rewards=told)


def test_agreement_is_the_correlation_over_attempts_of_which_both_is_known() -> None:
    scores = [score(1.0, 0.9), score(0.0, 0.2), score(1.0, 0.7), score(0.0, 0.1), score(None, 1.0), score(1.0, None)]
    found = metrics.agreement_of_guesses(scores)
    assert found == pytest.approx(0.65 / 0.4475**0.5)
    assert metrics.agreement_of_guesses([score(1.0, 0.9), score(1.0, 0.2)]) is None, "all is right"
    assert metrics.agreement_of_guesses([score(1.0, 0.5), score(0.0, 0.5)]) is None, "the guess says one thing"
    assert metrics.agreement_of_guesses([]) is None
