"""A router that learns while serving follows outcomes where its forecasts are wrong, and says with which probability."""

from collections import Counter
from dataclasses import replace
from pathlib import Path

import pytest

from journeyman.core.errors import InputError
from journeyman.core.policy import Card, Ending, Outcome
from journeyman.core.release import Stage
from journeyman.experiments.router import training
from journeyman.experiments.router.config import RouterConfig
from journeyman.experiments.router.training import Places
from journeyman.models import embedders
from journeyman.optimizers.router import artifact, decisions, outcomes
from journeyman.optimizers.router.decisions import DecisionLog
from journeyman.optimizers.router.objective import parse
from journeyman.serving.router import Router
from journeyman.stores import open_store
from journeyman.stores.artifacts import Artifacts
from tests.support import routing

pytestmark = pytest.mark.training

VERSE = "Write verse number 7 about stars that dream of ships, with a rhyme."


@pytest.fixture(scope="module")
def trained(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("online")
    rows = outcomes.rows_of_files([routing.write(folder / "outcomes.jsonl", 600)])
    places = Places(folder=folder / "router", store=open_store("memory:"), artifacts=Artifacts(folder / "artifacts"))
    cards = {name: Card(name=name) for name in routing.RIGHT}
    config = RouterConfig(objective=parse("quality - 20*cost"), target_stage=Stage.PRODUCTION)
    training.train(outcomes.table(rows, cards), embedders.load(), config, places)
    return folder / "router"


@pytest.fixture
def router(trained: Path, tmp_path: Path) -> Router:
    (trained / artifact.ONLINE).unlink(missing_ok=True)
    return Router.load(trained, online=True, seed=1, log=DecisionLog(tmp_path / "decisions.jsonl"))


def serve(router: Router, count: int, right: dict[str, float]) -> Counter[str]:
    """Whom it chose, where these are right so often as said, by turns."""
    chosen: Counter[str] = Counter()
    for _ in range(count):
        choice = router.route(VERSE, type="verse")
        chosen[choice.worker] += 1
        success = float(
            int(chosen[choice.worker] * right[choice.worker]) > int((chosen[choice.worker] - 1) * right[choice.worker])
        )
        ending = Ending.RIGHT if success else Ending.WRONG
        router.became(choice.extra["decision"], Outcome(ending=ending, success=success, cost=routing.COST[choice.worker]))
    return chosen


def test_before_any_outcome_the_forecasts_decide(trained: Path, router: Router, tmp_path: Path) -> None:
    offline = Router.load(trained).route(VERSE, type="verse").worker
    chosen = Counter(router.route(VERSE, type="verse").worker for _ in range(50))
    assert chosen.most_common(1)[0][0] == offline


def test_where_forecasts_are_wrong_the_outcomes_are_followed_also_after_a_restart(
    trained: Path, router: Router, tmp_path: Path
) -> None:
    best = router.route(VERSE, type="verse").worker
    assert best == "poet"
    serve(router, 150, {"poet": 0.3, "sage": 1.0, "counter": 0.2})
    again = Router.load(trained, online=True, seed=2, log=DecisionLog(tmp_path / "more.jsonl"))
    after = Counter(again.route(VERSE, type="verse").worker for _ in range(50))
    assert after.most_common(1)[0][0] == "sage"


def test_the_same_seed_and_outcomes_give_the_same_choices(trained: Path, tmp_path: Path) -> None:
    found = []
    for at in range(2):
        (trained / artifact.ONLINE).unlink(missing_ok=True)
        log = DecisionLog(tmp_path / f"{at}.jsonl")
        found.append(serve(Router.load(trained, online=True, seed=5, log=log), 40, {"poet": 0.8, "sage": 0.9, "counter": 0.2}))
    assert found[0] == found[1]
    one, other = (decisions.read(tmp_path / f"{at}.jsonl") for at in range(2))
    assert [each.choice.propensity for each in one] == [each.choice.propensity for each in other]


def test_the_log_holds_propensities_above_0_of_workers_that_no_other_beats(router: Router, tmp_path: Path) -> None:
    serve(router, 30, {"poet": 0.8, "sage": 0.9, "counter": 0.2})
    for each in decisions.read(tmp_path / "decisions.jsonl"):
        assert 0 < each.choice.propensity < 1
        assert each.choice.worker in each.choice.candidates
        assert len(each.choice.candidates) > 1


def test_limits_are_kept(router: Router) -> None:
    wanted = replace(parse("quality - 20*cost"), deny=("sage",))
    assert {router.route(VERSE, objective=wanted).worker for _ in range(30)} <= {"poet", "counter"}


def test_what_nobody_judged_teaches_nothing(trained: Path, router: Router) -> None:
    choice = router.route(VERSE)
    router.became(choice.extra["decision"], Outcome(cost=1.0))
    assert not (trained / artifact.ONLINE).exists()


def test_a_state_of_another_router_is_refused(trained: Path, router: Router, tmp_path: Path) -> None:
    serve(router, 1, {"poet": 1, "sage": 1, "counter": 1})
    state = trained / artifact.ONLINE
    state.write_text(state.read_text().replace(router.policy.id, "0" * 64))
    with pytest.raises(InputError, match="learned by another router"):
        Router.load(trained, online=True, log=DecisionLog(tmp_path / "decisions.jsonl"))


@pytest.mark.parametrize(("given", "said"), [({}, "needs a log"), ({"explore": 0.1}, "explores by itself")])
def test_what_cannot_be_learned_online_is_said(trained: Path, given: dict[str, float], said: str) -> None:
    with pytest.raises(InputError, match=said):
        Router.load(trained, online=True, **given)  # type: ignore[arg-type]
