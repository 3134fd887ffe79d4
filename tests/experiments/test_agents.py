"""An examination: every look is counted, everything is kept, and a refusal is no verdict."""

import asyncio
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from journeyman.core.errors import ModelBusy, ModelError, ModelRefused, StoreError
from journeyman.core.gate import BetterOnHeldOut
from journeyman.core.playbook import Batch, Bullet, MoveTo, Playbook, Vote
from journeyman.core.release import Stage
from journeyman.core.task import Split
from journeyman.experiments.agents import AgentEvaluation, candidate_of
from journeyman.experiments.compare import EvaluationReport
from journeyman.experiments.evaluator import HeldOutEvaluator, held_out_id
from journeyman.experiments.run import Run
from journeyman.models.embedders import load as embedder
from journeyman.stores import Store, open_store
from journeyman.tasks.answers import Exact
from journeyman.tasks.base import Dataset
from tests.support.pupil import RULE, Pupil, sums

TAUGHT = Playbook(bullets=(Bullet(id="b-1", content=RULE, domain="fruit"),))
BLANK = Playbook(bullets=(Bullet(id="b-2", content="Be brief.", domain="fruit"),))
DATA = Dataset(name="sums", tasks=(*sums(5), *sums(40, start=100, split=Split.HELD_OUT)), verifier=Exact())


def examination(pupil: Pupil, store: Store, **more: Any) -> AgentEvaluation:
    tools: dict[str, Any] = {"dataset": DATA, "embedder": embedder("hashing"), "gate": BetterOnHeldOut()}
    return AgentEvaluation(model=pupil, evaluator=HeldOutEvaluator(store=store), **{**tools, **more})


def sat(
    playbook: Playbook, against: Playbook, pupil: Pupil | None = None, store: Store | None = None, **more: Any
) -> EvaluationReport:
    exam = examination(pupil or Pupil(), store or open_store("memory:"), **more)
    return asyncio.run(exam.evaluate(playbook, against, id="run-1"))


def test_only_held_out_tasks_are_examined() -> None:
    pupil = Pupil()
    report = sat(TAUGHT, Playbook(), pupil)
    assert (report.tasks, report.gain, report.passed) == (40, 1.0, True)
    assert {task_id.partition("-")[0] for task_id in pupil.attempted} == {"held_out"}


def test_both_sides_are_told_apart_in_the_store() -> None:
    store = open_store("memory:")
    sat(TAUGHT, BLANK, store=store)
    (found,) = store.evaluations()
    new, old = candidate_of(TAUGHT), candidate_of(BLANK)
    assert new is not None
    assert old is not None
    assert (found.candidate_id, found.baseline_id, found.held_out_id) == (
        new.id,
        old.id,
        held_out_id(DATA.split(Split.HELD_OUT)),
    )
    assert found.passed
    assert store.candidate(new.id) == new


def test_a_look_is_counted_also_when_nothing_comes_of_it() -> None:
    store = open_store("memory:")
    sat(TAUGHT, Playbook(), store=store)
    assert sat(TAUGHT, Playbook(), store=store).evaluation.looks == 0, "the same candidate has looked before"
    with pytest.raises(ModelRefused):
        sat(BLANK, Playbook(), Pupil(lambda _: ModelRefused("no")), store)
    other = Playbook(bullets=(*TAUGHT.bullets, *BLANK.bullets))
    assert sat(other, Playbook(), store=store).evaluation.looks == 2


def test_leaving_out_some_tasks_is_no_way_to_look_anew() -> None:
    store = open_store("memory:")
    sat(TAUGHT, Playbook(), store=store)
    fewer = replace(DATA, tasks=DATA.split(Split.HELD_OUT)[3:])
    assert sat(BLANK, Playbook(), store=store, dataset=fewer).evaluation.looks == 1
    fresh = replace(DATA, tasks=tuple(sums(40, start=500, split=Split.HELD_OUT)))
    assert sat(BLANK, Playbook(), store=store, dataset=fresh).evaluation.looks == 0


def test_another_baseline_is_another_chance_and_counts() -> None:
    store = open_store("memory:")
    assert [sat(TAUGHT, against, store=store).evaluation.looks for against in (Playbook(), BLANK, Playbook())] == [0, 1, 0]


def test_another_file_of_the_same_name_is_another_model(tmp_path: Path) -> None:
    store, looks = open_store("memory:"), []
    for text in ("one", "two", "one"):
        (tmp_path / "said.jsonl").write_text(text)
        looks.append(sat(TAUGHT, Playbook(), Pupil(name=f"recorded:{tmp_path}/said.jsonl"), store).evaluation.looks)
    assert looks == [0, 1, 0]


def test_on_a_model_that_varies_the_same_candidate_looks_again_each_time_and_each_is_kept() -> None:
    store, pupil = open_store("memory:"), Pupil()
    pupil.deterministic = False
    assert [sat(TAUGHT, Playbook(), pupil, store).evaluation.looks for _ in range(3)] == [0, 1, 2]
    assert len(list(store.evaluations())) == 3


def test_a_refusal_of_every_attempt_is_an_error_and_one_of_some_is_not() -> None:
    with pytest.raises(ModelRefused, match=r"the key is wrong\. Nothing could be examined: every attempt met with this"):
        sat(TAUGHT, Playbook(), Pupil(lambda _: ModelRefused("the key is wrong")))
    some = Pupil(lambda request: ModelRefused("no") if request.task_id < "held_out-110" else None)
    assert sat(TAUGHT, Playbook(), some).unknown == 10


def test_a_server_that_answers_nothing_is_an_error_and_no_verdict() -> None:
    store = open_store("memory:")
    with pytest.raises(ModelError, match="no attempt at the held-out tasks was answered: ModelBusy: it is down"):
        sat(TAUGHT, Playbook(), Pupil(lambda _: ModelBusy("it is down")), store)
    assert not list(store.evaluations())


def test_another_model_may_stand_on_the_other_side() -> None:
    store = open_store("memory:")
    report = sat(TAUGHT, TAUGHT, Pupil(name="new"), store, rival=Pupil(lambda _: "Answer: 1", name="old"))
    assert report.gain == 1.0
    (found,) = store.evaluations()
    assert found.candidate_id.endswith("@new")
    assert found.baseline_id.endswith("@old")


def test_several_trials_are_told_to_whoever_watches() -> None:
    seen: list[tuple[int, int]] = []
    exam = examination(Pupil(), open_store("memory:"), attempts_per_task=2)
    asyncio.run(exam.evaluate(TAUGHT, Playbook(), id="run-1", done=lambda done, of: seen.append((done, of))))
    assert seen == [(number, 160) for number in range(1, 161)]


def test_an_empty_playbook_is_no_candidate() -> None:
    assert candidate_of(Playbook()) is None
    retired = Playbook(bullets=(Bullet(id="b-1", content=RULE, retired="harmful"),))
    assert candidate_of(retired) is None


def test_a_playbook_stays_the_same_candidate_when_it_is_released() -> None:
    moved = MoveTo(bullet_id="b-1", stage=Stage.PRODUCTION, by_gate=True)
    released = TAUGHT.apply(Batch(id="run/gate.3", deltas=(moved,), at="2026-11-21T00:00:00+00:00"))
    assert candidate_of(replace(released, created_at="today", training_config={"dataset": "sums"})) == candidate_of(TAUGHT)
    voted = TAUGHT.apply(Batch(id="run/0", deltas=(Vote(bullet_id="b-1", helpful=1),)))
    assert candidate_of(voted) != candidate_of(TAUGHT), "votes decide what is shown"


def test_held_out_tasks_are_known_by_what_they_are() -> None:
    turned = Dataset(name="other", tasks=tuple(reversed(DATA.tasks)), verifier=Exact())
    assert held_out_id(turned.split(Split.HELD_OUT)) == held_out_id(DATA.split(Split.HELD_OUT))
    more = Dataset(name="sums", tasks=(*DATA.tasks, *sums(1, start=900, split=Split.HELD_OUT)), verifier=Exact())
    assert held_out_id(more.split(Split.HELD_OUT)) != held_out_id(DATA.split(Split.HELD_OUT))


def test_an_evaluation_is_kept_together_with_its_attempts_or_not_at_all() -> None:
    store = open_store("memory:")
    with Run(id="run-1", kind="evaluate", config={}, store=store).tracked() as run:
        sat(TAUGHT, Playbook(), store=store, run=run)
        assert len(list(store.attempts(run_id="run-1", split=Split.HELD_OUT))) == 80
    # No run of this id is there to keep attempts of, so the other half must not stay either.
    with pytest.raises(StoreError, match="ghost"):
        sat(BLANK, Playbook(), store=store, run=Run(id="ghost", kind="evaluate", config={}, store=store))
    blank = candidate_of(BLANK)
    assert blank is not None
    assert not list(store.evaluations(candidate_id=blank.id))


def test_attempts_are_kept_once() -> None:
    store = open_store("memory:")
    report = sat(TAUGHT, Playbook())
    with Run(id="run-1", kind="evaluate", config={}, store=store).tracked() as run:
        for _ in range(2):
            run.keep((*report.baseline_attempts, *report.candidate_attempts))
    assert len(list(store.attempts(run_id="run-1", split=Split.HELD_OUT))) == 80
