"""The whole loop on the embedded model: it helps where it should, and the gate stops what does not help."""

import asyncio
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import pytest

from journeyman.core.gate import BetterOnHeldOut
from journeyman.core.playbook import Bullet, Playbook
from journeyman.core.release import Stage
from journeyman.core.task import Split
from journeyman.experiments import wiring
from journeyman.experiments.agents import AgentEvaluation
from journeyman.experiments.compare import EvaluationReport
from journeyman.experiments.evaluator import HeldOutEvaluator
from journeyman.experiments.playbook.config import TrainingConfig
from journeyman.experiments.playbook.training import OfflineTrainer, TrainingResult
from journeyman.models import embedders, load
from journeyman.stores import open_store
from journeyman.tasks import desk
from journeyman.tasks.desk.world import SHOPS, rules

pytest.importorskip("torch", reason="needs the extra: pip install 'journeyman[embedded]'")
pytestmark = [pytest.mark.service, pytest.mark.training]

HELD_OUT = 80


@pytest.fixture(scope="module")
def learned(tmp_path_factory: pytest.TempPathFactory) -> TrainingResult:
    folder = tmp_path_factory.mktemp("oslo")
    config = TrainingConfig(
        dataset_name="desk",
        domain="oslo",
        num_examples=60,
        held_out=HELD_OUT,
        target_stage=Stage.PRODUCTION,
        output_playbook_path=str(folder / "oslo.json"),
        output_metrics_path=str(folder / "metrics.json"),
        project=str(folder / ".journeyman"),
        store=str(folder / "journeyman.db"),
    )
    return OfflineTrainer(config).train()


def examine(playbook: Playbook, against: Playbook | None = None, *, shop: str = "oslo") -> EvaluationReport:
    evaluation = AgentEvaluation(
        evaluator=HeldOutEvaluator(store=open_store("memory:")),
        model=load("embedded"),
        dataset=desk.load(shop, sizes={Split.HELD_OUT: HELD_OUT}),
        embedder=embedders.load("hashing"),
        gate=BetterOnHeldOut(),
    )
    return asyncio.run(evaluation.evaluate(playbook, against or Playbook(), id="test"))


def told(shop: str, domain: str, *, places: Sequence[str] = (), locked: bool = False) -> tuple[Bullet, ...]:
    """A shop's true conventions as bullets of a domain."""
    return tuple(
        Bullet(id=f"b-{shop}-{number}", content=rule, domain=domain, about=rule.partition(":")[0], locked=locked)
        for number, rule in enumerate(rules(SHOPS[shop]))
        if not places or rule.partition(":")[0] in places
    )


def test_what_it_learned_helps_on_tasks_that_it_has_never_seen(learned: TrainingResult) -> None:
    report = learned.evaluation
    assert report is not None
    assert report.passed
    assert report.baseline is not None
    assert report.candidate is not None
    assert report.baseline <= 0.4
    assert report.candidate >= 0.85
    assert learned.stage is Stage.PRODUCTION
    assert all(bullet.stage is Stage.PRODUCTION for bullet in learned.playbook.active)


def test_it_learned_the_shops_own_conventions_and_no_wrong_one_is_shown(learned: TrainingResult) -> None:
    from journeyman.optimizers.playbook.curator import usable

    shown = {bullet.content for bullet in usable(learned.playbook, "oslo")}
    assert shown <= set(rules(SHOPS["oslo"]))
    assert len(shown) >= 4


def test_every_attempt_is_kept_with_the_bullets_it_was_shown(learned: TrainingResult) -> None:
    from journeyman.stores import open_store

    with open_store(Path(learned.playbook_path).parent / "journeyman.db") as store:
        kept = list(store.attempts(run_id=learned.run_id))
    assert len([attempt for attempt in kept if attempt.split is Split.TRAIN]) == 60
    assert len([attempt for attempt in kept if attempt.split is Split.HELD_OUT]) == 2 * HELD_OUT
    ids = {bullet.id for bullet in learned.playbook.bullets}
    assert any(attempt.trace.shown for attempt in kept)
    assert all(attempt.trace.shown <= ids for attempt in kept)


def test_a_playbook_of_another_shop_is_not_even_shown(learned: TrainingResult) -> None:
    report = examine(learned.playbook, shop="lima")
    assert not report.passed
    assert report.gain == 0


def test_a_placebo_does_not_pass() -> None:
    report = examine(Playbook(bullets=told("quito", "oslo")))
    assert not report.passed


def test_an_empty_playbook_against_itself_does_not_pass() -> None:
    report = examine(Playbook())
    assert not report.passed
    assert report.gain == 0


def test_planted_harmful_bullets_fail_and_the_tasks_they_broke_are_named(learned: TrainingResult) -> None:
    planted = told("lima", "oslo", places=("dates", "amounts"), locked=True)
    spoiled = replace(learned.playbook, bullets=(*learned.playbook.bullets, *planted))
    report = examine(spoiled, learned.playbook)
    assert not report.passed
    assert report["broken"]
    assert report["broken"][0] in report.reason
    assert set(report["broken"]) <= {task.id for task in desk.load("oslo", sizes={Split.HELD_OUT: HELD_OUT}).tasks}


def test_a_run_on_the_embedded_model_is_stamped_with_a_time_that_does_not_change(learned: TrainingResult) -> None:
    assert learned.playbook.created_at == wiring.REPEATABLE
