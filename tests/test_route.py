"""The router at work: who is chosen and why, what is explored, what is logged, and that nothing unproven chooses."""

import json
import threading
from collections import Counter
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
import pytest

from journeyman.core.errors import InputError
from journeyman.core.policy import Card, Ending, Outcome
from journeyman.core.release import Stage
from journeyman.experiments.router import training
from journeyman.experiments.router.config import RouterConfig
from journeyman.experiments.router.training import Places, TrainedRouter
from journeyman.models import embedders
from journeyman.optimizers.router import artifact, decisions, outcomes
from journeyman.optimizers.router.decisions import DecisionLog
from journeyman.optimizers.router.objective import Objective, parse
from journeyman.serving.router import Router, RoutingSession
from journeyman.stores import open_store
from journeyman.stores.artifacts import Artifacts
from journeyman.stores.base import Store
from tests.support import routing

pytestmark = pytest.mark.training

SUM = "How many are 12 apples plus 30 coins? Compute the sum."
VERSE = "Write verse number 7 about stars that dream of ships, with a rhyme."
CARDS = {name: Card(name=name, input_price=1.0, output_price=1.0) for name in routing.RIGHT}
CHEAP = parse("quality - 20*cost")


@dataclass(frozen=True)
class World:
    folder: Path
    store: Store
    artifacts: Artifacts
    trained: TrainedRouter


def trained_in(folder: Path, config: RouterConfig, count: int = 600) -> World:
    rows = outcomes.rows_of_files([routing.write(folder / "outcomes.jsonl", count)])
    store, artifacts = open_store("memory:"), Artifacts(folder / "artifacts")
    places = Places(folder=folder / "router", store=store, artifacts=artifacts)
    return World(
        folder / "router", store, artifacts, training.train(outcomes.table(rows, CARDS), embedders.load(), config, places)
    )


@pytest.fixture(scope="module")
def world(tmp_path_factory: pytest.TempPathFactory) -> World:
    return trained_in(tmp_path_factory.mktemp("world"), RouterConfig(objective=CHEAP, target_stage=Stage.PRODUCTION))


@pytest.fixture
def router(world: World) -> Router:
    return Router.load(world.folder)


def test_what_is_better_than_the_best_single_worker_is_released(world: World) -> None:
    trained = world.trained
    assert trained.passed, trained.reason
    assert trained.proof is not None
    low, _ = trained.proof.interval
    assert low is not None
    assert low > 0
    release = world.store.release(trained.policy.id)
    assert release is not None
    assert release.stage is Stage.PRODUCTION
    (evaluation,) = world.store.evaluations(candidate_id=trained.policy.id)
    assert evaluation.passed
    assert [run.state for run in world.store.runs("train router")] == ["finished"]


def test_a_request_goes_to_the_cheap_worker_that_gets_it_right(router: Router) -> None:
    assert router.route(SUM).worker == "counter"
    assert router.route(VERSE).worker == "poet"
    choice = router.route(SUM)
    assert choice.propensity == 1.0
    assert "counter" in choice.reason
    assert {each.worker for each in choice.forecasts} == set(routing.RIGHT)


def test_another_objective_needs_no_training(router: Router) -> None:
    assert router.route(VERSE, objective=Objective(allow=("counter", "sage"))).worker == "sage"
    assert router.route(VERSE, objective=Objective(allow=("counter",))).worker == "counter"
    with pytest.raises(InputError, match="nobody may be asked"):
        router.route(VERSE, objective=Objective(allow=("stranger",)))


def test_a_policy_comes_back_from_the_store_by_its_id(world: World) -> None:
    policy, verdict = artifact.restore(world.trained.policy.id[:8], world.store, world.artifacts)
    assert policy.id == world.trained.policy.id
    assert verdict.serves
    assert Router(policy).route(SUM) == Router.load(world.folder).route(SUM)
    with pytest.raises(InputError, match="no router 'feed' is in the store"):
        artifact.restore("feed", world.store, world.artifacts)


def test_to_look_for_a_router_by_its_id_makes_no_store(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("JOURNEYMAN_STORE", raising=False)
    with pytest.raises(InputError, match="no router 'feed' is in the store"):
        Router.load("feed")
    assert list(tmp_path.iterdir()) == []


def test_a_router_that_was_not_proven_answers_with_the_best_single_worker(world: World) -> None:
    policy = world.trained.policy
    shadow = Router(policy, verdict=artifact.Approval(serves=False, reason="no gate was asked"))
    choices = [shadow.route(request) for request in (SUM, VERSE)]
    assert {choice.worker for choice in choices} == {policy.best}
    assert all("not proven" in choice.fallback for choice in choices)


def test_an_unfamiliar_request_goes_to_the_safe_worker_and_says_so(router: Router) -> None:
    choice = router.route("Übersetze bitte den Vertrag über Windkraft ins Finnische; §4 zuerst!")
    assert choice.fallback
    assert choice.worker == router.policy.best
    assert choice.fallback in choice.reason


def test_exploration_has_the_propensity_that_it_says(world: World) -> None:
    router = Router.load(world.folder, explore=0.4, seed=3)
    choices = [router.route(VERSE) for _ in range(1000)]
    arms = set(choices[0].candidates)
    drawn = Counter(choice.worker for choice in choices)
    said = {choice.worker: choice.propensity for choice in choices}
    assert set(drawn) == arms
    assert len(arms) > 1
    assert sum(said.values()) == pytest.approx(1)
    for worker, count in drawn.items():
        assert count / 1000 == pytest.approx(said[worker], abs=0.05)


def test_exploration_never_leaves_the_limits(world: World) -> None:
    objective = replace(CHEAP, deny=("sage",), min_quality=0.5)
    router = Router.load(world.folder, explore=1.0)
    for request in (SUM, VERSE):
        choices = [router.route(request, objective=objective) for _ in range(50)]
        able = {each.worker for each in choices[0].forecasts if each.success >= 0.5} - {"sage"}
        assert {choice.worker for choice in choices} <= able


def test_the_same_seed_gives_the_same_choices(world: World) -> None:
    routers = [Router.load(world.folder, explore=0.5, seed=seed) for seed in (1, 1, 2)]
    one, same, other = ([router.route(request) for request in (SUM, VERSE) * 20] for router in routers)
    assert one == same
    assert one != other


def test_decisions_are_logged_with_their_outcomes(world: World, tmp_path: Path) -> None:
    log = DecisionLog(tmp_path / "log.jsonl")
    router = Router.load(world.folder, explore=0.2, log=log)
    choice = router.route(SUM, type="sum")
    router.became(choice.extra["decision"], Outcome(ending=Ending.RIGHT, success=1.0))
    (found,) = decisions.read(log.path)
    assert (found.choice.worker, found.choice.propensity, found.type) == (choice.worker, choice.propensity, "sum")
    assert found.choice.policy == router.policy.id
    assert found.outcome is not None


def test_answers_that_are_worse_than_forecast_end_the_trust_in_forecasts(world: World) -> None:
    router = Router.load(world.folder, log=None)
    silent = Router(router.policy, log=DecisionLog(world.folder.parent / "drift.jsonl"))
    for _ in range(300):
        choice = silent.route(SUM)
        silent.became(choice.extra["decision"], Outcome(ending=Ending.WRONG, success=0.0))
    assert "less often than forecast" in silent.route(SUM).fallback


def test_a_long_session_stays_with_the_worker_that_has_read_it(router: Router) -> None:
    session = RoutingSession(tokens=200_000, worker="sage", share=0.0)
    assert router.route(SUM, session=session).worker == "sage"
    assert router.route(SUM, session=RoutingSession(tokens=0)).worker == "counter"


def test_a_budget_is_kept_over_many_requests(router: Router) -> None:
    objective = parse("quality where cost <= 0.004")
    choices = [router.route(request, objective=objective) for request in (SUM, VERSE) * 200]
    cost = [next(each.cost or 0 for each in choice.forecasts if each.worker == choice.worker) for choice in choices]
    assert np.mean(cost) <= 0.004 * (1 + 21 / 400)


def test_threads_share_a_router(world: World) -> None:
    router = Router.load(world.folder, explore=0.1)
    found: list[str] = []
    threads = [threading.Thread(target=lambda: found.extend(router.route(SUM).worker for _ in range(50))) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(found) == 200


def test_a_share_that_is_none_and_another_embedder_are_refused(world: World) -> None:
    with pytest.raises(InputError, match="between 0 and 1"):
        Router(world.trained.policy, explore=1.5)
    with pytest.raises(InputError, match="was fitted with"):
        Router(world.trained.policy, embedders.load("hashing:64"))


@pytest.mark.parametrize("name", [artifact.POLICY, artifact.PREDICTOR, artifact.VERDICT])
def test_files_that_were_changed_are_refused(world: World, tmp_path: Path, name: str) -> None:
    for each in (artifact.POLICY, artifact.PREDICTOR, artifact.VERDICT):
        (tmp_path / each).write_bytes((world.folder / each).read_bytes())
    assert Router.load(tmp_path).route(SUM).worker == "counter"
    if name == artifact.PREDICTOR:
        (tmp_path / name).write_bytes((tmp_path / name).read_bytes()[:-1])
    else:
        told = json.loads((tmp_path / name).read_text())
        (tmp_path / name).write_text(json.dumps({**told, "policy": "other", "format": "other"}))
    with pytest.raises(InputError, match=r"policy\.json|verdict\.json|predictor\.safetensors"):
        Router.load(tmp_path)


def test_nothing_to_gain_does_not_pass_and_forcing_it_is_recorded(tmp_path: Path) -> None:
    only = Objective(allow=("sage",))
    refused = trained_in(tmp_path, RouterConfig(objective=only), 200)
    assert not refused.trained.passed
    assert refused.store.release(refused.trained.policy.id) is None
    assert Router.load(refused.folder).route(SUM).worker == "sage"
    assert "not proven" in Router.load(refused.folder).route(SUM).reason
    forced = trained_in(tmp_path, RouterConfig(objective=only, force=True, target_stage=Stage.PRODUCTION), 200)
    release = forced.store.release(forced.trained.policy.id)
    assert release is not None
    assert release.moves[-1].forced
    assert not Router.load(forced.folder).route(SUM).fallback


def test_a_log_of_decisions_can_be_learned_from_but_alone_it_proves_nothing(world: World, tmp_path: Path) -> None:
    router = Router.load(world.folder, explore=0.5, log=DecisionLog(tmp_path / "log.jsonl"))
    for line in routing.lines(300, seed=5):
        choice = router.route(line["request"])
        told = line["outcomes"][choice.worker]
        router.became(
            choice.extra["decision"],
            Outcome(ending=Ending.RIGHT if told["success"] else Ending.WRONG, success=told["success"], cost=told["cost"]),
        )
    table = outcomes.table(outcomes.rows_of_files([tmp_path / "log.jsonl"]), CARDS)
    places = Places(folder=tmp_path / "router", store=open_store("memory:"), artifacts=Artifacts(tmp_path / "artifacts"))
    trained = training.train(table, embedders.load(), RouterConfig(objective=CHEAP), places)
    assert not trained.passed
    assert "could not be compared" in trained.reason
    assert Router.load(places.folder).route(VERSE).worker == trained.policy.best


def test_too_little_to_learn_from_is_said(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="bring more"):
        trained_in(tmp_path, RouterConfig(), 2)


def test_a_worker_that_never_answered_leaves_the_others_to_choose_from(tmp_path: Path) -> None:
    path = tmp_path / "outcomes.jsonl"
    down = {"aa-down": {"ending": "error"}}
    path.write_text(
        "".join(f"{json.dumps({**line, 'outcomes': {**down, **line['outcomes']}})}\n" for line in routing.lines(300))
    )
    table = outcomes.table(outcomes.rows_of_files([path]), CARDS)
    places = Places(folder=tmp_path / "router", store=open_store("memory:"), artifacts=Artifacts(tmp_path / "artifacts"))
    trained = training.train(table, embedders.load(), RouterConfig(objective=CHEAP), places)
    assert trained.policy.fitted.workers == ("counter", "poet", "sage")
    assert trained.proof is not None
    assert set(trained.proof.sides["router"].shares) == {"counter", "poet"}
