"""What routers, planners and adapters were trained on is known with them, and never counts as held-out."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from journeyman.core.candidate import Candidate, Kind
from journeyman.core.errors import InputError
from journeyman.core.gate import BetterOnHeldOut
from journeyman.core.release import Stage
from journeyman.core.task import Split, Task, fingerprint
from journeyman.experiments import wiring
from journeyman.experiments.evaluator import HeldOutEvaluator
from journeyman.experiments.planner import workers as planners
from journeyman.experiments.planner.config import ReinforceConfig
from journeyman.experiments.planner.environment import Replay
from journeyman.experiments.planner.training import Contender, PlanExamination, Reinforcement
from journeyman.experiments.router import training
from journeyman.experiments.router.config import RouterConfig
from journeyman.experiments.router.training import Places
from journeyman.experiments.weights.config import RunSettings
from journeyman.experiments.weights.settings import learnable
from journeyman.experiments.weights.training import AdapterEvaluation
from journeyman.models.embedders import HashingEmbedder
from journeyman.models.scripted import Scripted
from journeyman.optimizers.outcome_table import Table, parts
from journeyman.optimizers.router import artifact, outcomes
from journeyman.optimizers.weights.adapters import read_trained_on, write_trained_on
from journeyman.optimizers.weights.rows import LabelledCompletion
from journeyman.stores import Store, open_store
from journeyman.stores.artifacts import Artifacts
from journeyman.tasks.answers import Exact
from journeyman.tasks.base import Dataset
from tests.support.planners import bakery, opened, written
from tests.support.planners import outcomes as letters
from tests.support.routing import write

pytestmark = pytest.mark.training

EMBEDDER = HashingEmbedder(32)


def routed(folder: Path, **settings: Any) -> tuple[training.TrainedRouter, Table, Store]:
    table = outcomes.table(outcomes.rows_of_files([write(folder / "rows.jsonl", 120)]))
    store = open_store("memory:")
    places = Places(folder=folder / "router", store=store, artifacts=Artifacts(folder / "artifacts"))
    return training.train(table, EMBEDDER, RouterConfig(**settings), places), table, store


def test_a_router_says_what_it_learned_from_and_is_not_examined_on_it(tmp_path: Path) -> None:
    trained, table, store = routed(tmp_path)
    split = parts(table, held_out=0.2, validation=0.15, least=30)
    known = {fingerprint(table.requests[row]) for row in (*split.train, *split.validation)}
    policy, _ = artifact.read(tmp_path / "router")
    assert policy.trained_on == trained.policy.trained_on == known
    assert policy.id == trained.policy.id

    def examined(some: Table) -> Any:
        vectors = EMBEDDER.embed(some.requests)
        return training.examine(policy, (some, vectors), BetterOnHeldOut(), HeldOutEvaluator(store=store), "again")

    proof = examined(table)
    assert proof.requests == len(split.held_out) == 30
    assert len(proof.report.evaluation.contaminated) == len(split.train) + len(split.validation)
    with pytest.raises(InputError, match="held-out tasks were trained on"):
        examined(table.take(split.train))


def test_no_seed_moves_a_request_to_another_side(tmp_path: Path) -> None:
    plain, table, _ = routed(tmp_path)
    other, _, _ = routed(tmp_path, seed=7)
    assert plain.policy.trained_on == other.policy.trained_on
    assert plain.sizes["held_out"] == 30, "a fifth of 120 requests would be too few for the gate"
    few = parts(table.take(range(50)), held_out=0.2, least=30)
    assert len(few.held_out) < 25, "where half are too few, nothing is gained by more"


def test_the_same_outcomes_are_one_look_and_other_outcomes_another(tmp_path: Path) -> None:
    trained, table, store = routed(tmp_path)
    rows = list(parts(table, held_out=0.2, validation=0.15, least=30).held_out)
    some = table.take(rows)
    looks = []
    for success in (some.success, some.success, 1 - some.success, some.success):
        seen = replace(some, success=success)
        vectors, evaluator = EMBEDDER.embed(some.requests), HeldOutEvaluator(store=store)
        gate = BetterOnHeldOut(alpha=0.049)
        looks.append(training.examine(trained.policy, (seen, vectors), gate, evaluator, "e").report.evaluation.looks)
    first = looks[0]
    assert looks == [first, first, first + 1, first]


def test_a_planner_says_what_it_learned_from_in_both_phases(tmp_path: Path) -> None:
    start, store = written(tmp_path), open_store("memory:")
    environment = Replay.of(opened(start), letters())
    config = ReinforceConfig(target_stage=Stage.PRODUCTION)
    config = replace(config, ppo=replace(config.ppo, episodes=64))
    phase = Reinforcement(start=start, environment=environment, folder=tmp_path, config=config)
    made = phase.run(store, lambda path: planners.keep_planner(path, Artifacts(tmp_path / "artifacts")))
    kept = planners.find_planner(str(made.path))
    first = {fingerprint(example.plan.instruction) for example in bakery().examples}
    assert kept.trained_on == first | {fingerprint(text) for text in environment.train.requests}
    assert not kept.trained_on & {fingerprint(task.question) for task in environment.held_out}

    known = replace(phase, environment=replace(environment, examined=environment.train), folder=tmp_path / "again")
    with pytest.raises(InputError, match="held-out tasks were trained on"):
        known.run(store, lambda path: planners.keep_planner(path, Artifacts(tmp_path / "artifacts")))
    assert not (tmp_path / "again").exists(), "it is said before anything is learned"


def test_plans_of_the_data_are_looks_too_and_those_that_are_remembered_do_not_count(tmp_path: Path) -> None:
    kept, store = planners.find_planner(str(written(tmp_path))), open_store("memory:")
    fresh = [replace(each, plan=replace(each.plan, instruction=f"new {n}")) for n, each in enumerate(bakery(40).examples)]
    one = Contender(id=kept.id, make=kept.planner.plan, trained_on=kept.trained_on)
    nearest = Contender(id="nearest plan", make=kept.learned.nearest)

    def looks(**gate: Any) -> int:
        examination = PlanExamination(examples=[*bakery().examples, *fresh], gate=BetterOnHeldOut(**gate))
        found = examination.evaluate(one, nearest, HeldOutEvaluator(store=store), id="e").report
        assert (found.tasks, len(found.evaluation.contaminated)) == (40, 24)
        return found.evaluation.looks

    assert [looks(), looks(min_gain=0.1), looks(), looks(min_gain=0.2)] == [0, 1, 0, 2]


def test_an_adapter_says_what_it_was_trained_on_wherever_it_is_taken(tmp_path: Path) -> None:
    known = frozenset({fingerprint("one"), fingerprint("two")})
    adapter = tmp_path / "run" / "adapter"
    adapter.mkdir(parents=True)
    assert read_trained_on(adapter) == frozenset()
    write_trained_on(tmp_path / "run", known)
    assert read_trained_on(adapter) == known
    write_trained_on(adapter, known)
    taken = adapter.rename(tmp_path / "elsewhere")
    assert read_trained_on(taken) == known


async def test_an_adapter_is_not_examined_on_what_it_was_trained_on_whoever_examines_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(wiring, "connect", lambda name: Scripted(lambda _: "4"))
    task = Task(id="t1", question="What is 2 + 2?", answer="4", split=Split.HELD_OUT)
    write_trained_on(tmp_path, frozenset({fingerprint(task.question)}))
    examination = AdapterEvaluation(
        base_model="embedded:base",
        adapter=str(tmp_path),
        candidate=Candidate(kind=Kind.ADAPTER, body="digest"),
        settings=RunSettings(),
    )
    with pytest.raises(InputError, match="all 1 held-out tasks were trained on"):
        await examination.examine(Dataset(name="d", tasks=(task,), verifier=Exact()), open_store("memory:"), id="run")


def test_a_row_that_asks_a_held_out_question_under_another_id_is_refused() -> None:
    question = "How many pieces of fruit are in the crate?"
    dataset = Dataset(name="d", tasks=(Task(id="t1", question=question, split=Split.HELD_OUT),), verifier=Exact())
    asks = ({"role": "user", "content": f"Answer this.\n{question.upper()}"},)
    row = LabelledCompletion(prompt=asks, completion="four", label=True, source={"task": "other"})
    with pytest.raises(InputError, match="row 1 asks what the task t1 asks, which is held out"):
        learnable([row], dataset)
    other = replace(row, prompt="How many boxes?")
    assert learnable([other], dataset) == [other]


def test_chance_has_no_part_in_a_table() -> None:
    one, other = letters(), letters()
    assert one.digest == other.digest
    other.success[0, 0] = np.nan
    assert one.digest != other.digest
