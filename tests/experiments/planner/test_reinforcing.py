"""Phase 2 on recorded outcomes: it learns what pays, ships only what the gate passes, and pays for nothing twice."""

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from journeyman.core.errors import InputError
from journeyman.core.release import Stage
from journeyman.experiments.planner import workers
from journeyman.experiments.planner.config import ReinforceConfig
from journeyman.experiments.planner.environment import Replay
from journeyman.experiments.planner.training import Reinforced, Reinforcement
from journeyman.optimizers.outcome_table import Table
from journeyman.optimizers.planner.config import PPOConfig
from journeyman.optimizers.planner.policy import LearnedPlanner, ModelSelector
from journeyman.optimizers.planner.ppo import Choose, Episode, PPOUpdate, train
from journeyman.rewards.utility import WeightedSumReward
from journeyman.stores import Store, open_store
from journeyman.stores.artifacts import Artifacts
from journeyman.stores.registry import in_production
from tests.support.planners import bakery, opened, outcomes, shake, written

pytestmark = pytest.mark.training

QUICK = PPOConfig.measured(episodes=448, learning_rate=3e-2, target_kl=0.2)
SHORT = PPOConfig.measured(episodes=64)


def reinforce(
    folder: Path,
    table: Table,
    store: Store | None = None,
    heard: list[PPOUpdate] | None = None,
    examined: list[str] | None = None,
    **given: Any,
) -> Reinforced:
    start = folder / "phase1_best.safetensors"
    start = start if start.exists() else written(folder)
    artifacts = Artifacts(folder / "artifacts")
    config = ReinforceConfig(**{"ppo": SHORT, **given})
    phase = Reinforcement(start=start, environment=Replay.of(opened(start), table), folder=folder, config=config)
    hear = (lambda _: None) if heard is None else heard.append
    see = (lambda _: None) if examined is None else examined.append
    store = store or open_store("memory:")
    return phase.run(store, lambda path: workers.keep_planner(path, artifacts), heard=hear, examined=see)


def test_who_learned_what_pays_beats_phase_1_and_each_model_alone_and_is_released(tmp_path: Path) -> None:
    store = open_store("memory:")
    made = reinforce(tmp_path, outcomes(), store, ppo=QUICK, dollars_per_success=1.0, target_stage=Stage.PRODUCTION)
    assert made.passed, made.reason
    assert set(made.reports) == {"supervised", *({"small", "large"} & set(made.reports))}
    assert len(made.reports) == 2
    assert made.sides["reinforced"].success == 1.0
    assert made.sides["reinforced"].utility > max(made.sides[name].utility for name in ("supervised", "small", "large"))
    assert in_production(store, workers.FORMAT) == made.candidate.id
    assert [run.state.value for run in store.runs()] == ["finished"]


def test_what_is_dearer_than_a_rival_by_more_than_is_allowed_is_not_released(tmp_path: Path) -> None:
    """Half of the letters are hard, and the large model, which writes them, costs forty times as much."""
    learned: dict[str, Any] = {"ppo": QUICK, "dollars_per_success": 1.0}
    free = reinforce(tmp_path / "free", outcomes(), **learned)
    assert free.passed, free.reason
    held = reinforce(tmp_path / "held", outcomes(), guardrails=("cost:10%",), **learned)
    costs = {name: side.cost or 0.0 for name, side in held.sides.items()}
    dearer = {rival for rival in held.reports if costs["reinforced"] > 1.1 * costs[rival]}
    assert dearer, costs
    assert not held.passed
    for rival, report in held.reports.items():
        (cost,) = report.decision.guarded
        assert (cost.baseline, cost.candidate) == pytest.approx((costs[rival], costs["reinforced"]))
        assert (cost.unknown, cost.passed) == (0, rival not in dearer)
    assert "where +10.0 % is allowed" in held.reason
    again = reinforce(tmp_path / "held", outcomes(), guardrails=("cost:10%",), **learned)
    assert {rival: report.reason for rival, report in again.reports.items()} == {
        rival: report.reason for rival, report in held.reports.items()
    }
    tokens = reinforce(tmp_path / "tokens", outcomes(), guardrails=("tokens:10%",), ppo=SHORT)
    assert "tokens is not known of 80 tasks" in tokens.reason


def test_where_everybody_is_alike_nothing_passes_and_nothing_is_released(tmp_path: Path) -> None:
    store = open_store("memory:")
    made = reinforce(tmp_path, outcomes(same=True), store)
    assert not made.passed
    assert "against supervised" in made.reason
    assert list(store.releases(Stage.SHADOW)) == []
    assert store.candidate(made.candidate.id) == made.candidate, "it can be found all the same"


def test_force_releases_what_did_not_pass_and_says_so(tmp_path: Path) -> None:
    store = open_store("memory:")
    made = reinforce(tmp_path, outcomes(same=True), store, force=True, target_stage=Stage.PRODUCTION)
    assert (made.passed, made.forced) == (False, True)
    release = store.release(made.candidate.id)
    assert release is not None
    assert release.moves[-1].forced


def test_what_is_not_examined_is_kept_and_not_released(tmp_path: Path) -> None:
    store = open_store("memory:")
    made = reinforce(tmp_path, outcomes(), store, evaluate=False)
    assert (made.passed, made.reason) == (False, "not examined, so not proven")
    assert store.candidate(made.candidate.id) is not None
    assert store.release(made.candidate.id) is None


def test_a_planner_with_one_model_has_no_choice_to_learn(tmp_path: Path) -> None:
    written(tmp_path)
    with pytest.raises(InputError, match="knows 1 models, and there is a choice to learn from two on"):
        reinforce(tmp_path, outcomes().among(["large"]))


def test_a_run_that_goes_on_ends_in_the_same_bytes_and_does_no_episode_twice(tmp_path: Path) -> None:
    heard: list[PPOUpdate] = []
    longer = replace(SHORT, episodes=256, batch=64)
    whole = reinforce(tmp_path / "whole", outcomes(), heard=heard, ppo=longer)
    assert len(heard) == 4
    reinforce(tmp_path / "cut", outcomes(), ppo=replace(longer, episodes=128))
    more: list[PPOUpdate] = []
    again = reinforce(tmp_path / "cut", outcomes(), heard=more, ppo=longer)
    assert [update.update for update in more] == [3, 4]
    assert again.path.read_bytes() == whole.path.read_bytes()
    assert again.candidate.id == whole.candidate.id


def test_an_evaluation_that_is_kept_is_taken_again_and_neither_paid_nor_counted(tmp_path: Path) -> None:
    store, first, again = open_store("memory:"), list[str](), list[str]()
    made = reinforce(tmp_path, outcomes(), store, examined=first)
    assert first == ["reinforced", "supervised", "small", "large"]
    known = [each.id for each in store.evaluations()]
    resumed = reinforce(tmp_path, outcomes(), store, examined=again)
    assert again == []
    assert [each.id for each in store.evaluations()] == known
    assert resumed.json() == made.json()
    assert [run.id for run in store.runs()] == [known[0].partition("/")[0]]
    more = reinforce(tmp_path, outcomes(), store, examined=again, ppo=replace(SHORT, episodes=128))
    assert (more.candidate.id != made.candidate.id, again) == (True, first), "another policy is examined anew"


def test_held_out_requests_of_one_id_are_told_apart_where_one_was_trained_on(tmp_path: Path) -> None:
    table = outcomes()
    seen = "easy letter number 2, and bread for it"
    table = replace(table, ids=("same",) * len(table), requests=(*table.requests[:2], seen, *table.requests[3:]))
    made = reinforce(tmp_path, table)
    held_out = table.splits.count("held_out")
    for report in made.reports.values():
        assert (report.tasks, report.evaluation.contaminated) == (held_out - 1, ())
    assert {len(side.utilities) for side in made.sides.values()} == {held_out - 1}


def test_a_run_does_not_go_on_with_other_outcomes(tmp_path: Path) -> None:
    reinforce(tmp_path, outcomes(), evaluate=False)
    other = outcomes()
    other.success[:, 0] = 1 - other.success[:, 0]
    with pytest.raises(InputError, match="begun from another planner or on other outcomes"):
        reinforce(tmp_path, other, ppo=replace(SHORT, episodes=2 * SHORT.episodes))


def test_a_run_that_fails_is_on_record_as_stopped(tmp_path: Path) -> None:
    store = open_store("memory:")
    reinforce(tmp_path, outcomes(), evaluate=False)
    with pytest.raises(InputError, match="begun with another learning_rate"):
        reinforce(tmp_path, outcomes(), store, ppo=replace(SHORT, learning_rate=0.5))
    assert [run.state.value for run in store.runs()] == ["stopped"]


def test_it_may_learn_by_the_documented_reward_and_is_examined_by_the_utility(tmp_path: Path) -> None:
    made = reinforce(tmp_path, outcomes(), reward=WeightedSumReward())
    assert made.updates[-1].reward == pytest.approx(10 * 0.75 - 10, abs=4)
    low, high = made.utility.bounds
    assert all(low <= utility <= high for side in made.sides.values() for utility in side.utilities)


def test_a_request_of_a_kind_that_phase_1_does_not_know_is_refused_by_name(tmp_path: Path) -> None:
    table = replace(outcomes(), types=("poem",) * 160)
    with pytest.raises(InputError, match="of the kind 'poem', unknown to the planner"):
        reinforce(tmp_path, table)


def test_a_record_with_too_few_whole_rows_is_refused_with_the_counts(tmp_path: Path) -> None:
    table = outcomes()
    table.success[1:, 1] = np.nan
    with pytest.raises(InputError, match=r"of 160 requests 1 have an outcome with each worker, which leaves \d+ to practise"):
        reinforce(tmp_path, table)


def test_a_planner_that_never_saw_a_model_learns_who_from_the_record_alone(tmp_path: Path) -> None:
    written(tmp_path, bakery(workers=False))
    made = reinforce(tmp_path, outcomes(), ppo=QUICK, dollars_per_success=1.0)
    assert made.sides["reinforced"].success == 1.0
    found = workers.find_planner(str(made.path)).planner
    assert set(found.plan("easy letter number 4").workers) == {""}, "who is not named by the file is not known"


class ToolsAlone:
    """An environment of plans in which there is nobody to choose. Implements `Environment`."""

    workers = ("small", "large")

    def __len__(self) -> int:
        return 4

    def episodes(self, which: Sequence[int], choose: Choose) -> Sequence[Episode]:
        return [() for _ in which]


def test_plans_of_tools_alone_teach_nothing_and_stop_nothing() -> None:
    selector = ModelSelector(np.eye(2, dtype=np.float32), 3)
    before = {name: value.clone() for name, value in selector.state_dict().items()}
    updates = train(ToolsAlone(), selector, replace(SHORT, episodes=128))
    assert [(update.episodes, update.steps) for update in updates] == [(64, 0), (128, 0)]
    assert all(bool((value == before[name]).all()) for name, value in selector.state_dict().items())


def test_a_planner_whose_weights_are_wild_is_examined_all_the_same(tmp_path: Path) -> None:
    planner = opened(written(tmp_path))
    shake(planner.model, 50.0, 3)
    environment = Replay.of(LearnedPlanner(planner.model, hires=True), outcomes())
    phase = Reinforcement(
        start=tmp_path / "phase1_best", environment=environment, folder=tmp_path, config=ReinforceConfig(ppo=SHORT)
    )
    made = phase.run(open_store("memory:"), lambda path: workers.keep_planner(path, Artifacts(tmp_path / "artifacts")))
    assert np.isfinite([side.utility for side in made.sides.values()]).all()


def test_a_call_that_failed_counts_as_no_success(tmp_path: Path) -> None:
    table = outcomes()
    down = np.zeros_like(table.errors)
    down[::2, 0] = True
    flaky = replace(table, errors=down, success=np.where(down, np.nan, table.success))
    environment = Replay.of(opened(written(tmp_path)), flaky)
    assert len(environment.train) + len(environment.examined) == len(table)
    assert not environment.train.success[environment.train.errors].any()
