"""The trainer: what it learns does not depend on chance, and what goes wrong is counted, or stops it in time."""

import asyncio
from collections.abc import Sequence
from datetime import UTC, datetime
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from journeyman.core.errors import ModelBusy, ModelError, ModelRefused, TaskError
from journeyman.core.playbook import Playbook
from journeyman.core.task import Split, Task
from journeyman.models.base import Model, ModelRequest
from journeyman.models.embedders import load as embedder
from journeyman.optimizers.playbook import files
from journeyman.optimizers.playbook.config import LearnConfig
from journeyman.optimizers.playbook.curator import Curator
from journeyman.optimizers.playbook.run import PlaybookRun
from journeyman.optimizers.playbook.trainer import Learned, TrainerTools, batches, learn
from journeyman.tasks.answers import Exact
from tests.support.pupil import RULE, Line, Pupil, reflecting, restless, sums


def tools(generator: Model, reflector: Model | None = None) -> TrainerTools:
    hashing = embedder("hashing")
    return TrainerTools(
        generator=generator,
        reflector=reflector or generator,
        verifier=Exact(),
        curator=Curator(hashing),
        embedder=hashing,
        clock=lambda: datetime(2026, 1, 1, tzinfo=UTC),
        stamp=lambda: "2026-01-01T00:00:00+00:00",
        name="test",
    )


def opened(folder: Path) -> PlaybookRun:
    return PlaybookRun(folder) if (folder / "config.json").exists() else PlaybookRun.begin(folder, {"name": "test"}, Playbook())


def trained(
    folder: Path, generator: Model, tasks: Sequence[Task], *, reflector: Model | None = None, **config: object
) -> Learned:
    made = LearnConfig(**{"batch_size": 5, **config})  # type: ignore[arg-type]
    return asyncio.run(learn(tasks, opened(folder), tools(generator, reflector), made))


def test_the_order_in_which_answers_arrive_does_not_matter(tmp_path: Path) -> None:
    tasks = sums(20)
    runs = [trained(tmp_path / str(seed), Pupil(latency=restless(seed)), tasks, attempts=2, epochs=2) for seed in range(4)]
    assert len({files.dumps(run.playbook) for run in runs}) == 1
    assert len({(tmp_path / str(seed) / "journal.jsonl").read_bytes() for seed in range(4)}) == 1
    assert RULE in [bullet.content for bullet in runs[0].playbook.active]


def test_what_is_learned_is_used_from_the_next_batch_on(tmp_path: Path) -> None:
    run = trained(tmp_path, Pupil(), sums(20))
    assert run.progress.attempts.correct == 15
    assert run.progress.by_epoch["1"].wrong == 5
    rule = next(bullet for bullet in run.playbook.active if bullet.content == RULE)
    assert (rule.shown, rule.helpful, rule.harmful) == (15, 15, 0)
    assert rule.provenance.run == "test"


def test_a_held_out_task_is_refused_before_a_model_is_asked(tmp_path: Path) -> None:
    pupil = Pupil()
    with pytest.raises(TaskError, match="held_out-007 is held out: nobody may learn from it"):
        trained(tmp_path, pupil, [*sums(7), *sums(1, start=7, split=Split.HELD_OUT)])
    assert pupil.requests == []


class Killed(BaseException):
    """As a kill, but noticed."""


@pytest.mark.parametrize("after", range(4))
def test_a_run_that_breaks_off_goes_on_where_it_was_and_ends_the_same(tmp_path: Path, after: int) -> None:
    whole = trained(tmp_path / "whole", Pupil(), sums(20), epochs=2, batch_size=10)

    broken = Pupil(lambda _: Killed() if len(broken.attempted) > 10 * after + 3 else None, latency=restless(after))
    with pytest.raises(Killed):
        trained(tmp_path / "broken", broken, sums(20), epochs=2, batch_size=10)
    assert PlaybookRun(tmp_path / "broken").batches == after

    again = Pupil(latency=restless(after + 9))
    ended = trained(tmp_path / "broken", again, sums(20), epochs=2, batch_size=10)
    assert files.dumps(ended.playbook) == files.dumps(whole.playbook)
    assert ended.progress == whole.progress
    assert len(again.attempted) == 40 - 10 * after


def test_a_finished_run_asks_nothing_more(tmp_path: Path) -> None:
    trained(tmp_path, Pupil(), sums(10))
    again = Pupil()
    assert trained(tmp_path, again, sums(10)).finished
    assert again.requests == []


def test_the_limit_on_cost_stops_at_the_end_of_a_batch_and_a_higher_one_goes_on(tmp_path: Path) -> None:
    stopped = trained(tmp_path / "a", Pupil(cost=0.01), sums(20), max_cost=0.15)
    assert (stopped.finished, stopped.progress.attempts.attempts) == (False, 10)
    assert stopped.progress.cost == pytest.approx(0.2)
    ended = trained(tmp_path / "a", Pupil(cost=0.01), sums(20), max_cost=10)
    whole = trained(tmp_path / "b", Pupil(cost=0.01), sums(20))
    assert ended.finished
    assert files.dumps(ended.playbook) == files.dumps(whole.playbook)


def test_a_limit_stops_the_run_once_it_is_not_known_what_a_call_cost(tmp_path: Path) -> None:
    stopped = trained(tmp_path, Pupil(cost=None), sums(20), max_cost=100)
    assert (stopped.finished, stopped.progress.attempts.attempts, stopped.progress.unknown_costs) == (False, 5, 10)
    again = Pupil()
    assert not trained(tmp_path, again, sums(20), max_cost=100).finished
    assert again.requests == []
    assert trained(tmp_path, Pupil(), sums(20)).finished
    last = trained(tmp_path / "last", Pupil(cost=None), sums(5), max_cost=100)
    assert not last.finished, "whatever comes after the last batch costs too"


def test_reflections_that_cannot_be_used_are_counted_and_stop_nothing(tmp_path: Path) -> None:
    def line(request: ModelRequest) -> Line | None:
        return "I would rather not." if reflecting(request) and "holds 3 " in request.text else None

    run = trained(tmp_path, Pupil(line), sums(20))
    assert run.progress.unusable == 1
    assert run.progress.reflector.calls == 21, "one repair was tried"
    assert RULE in [bullet.content for bullet in run.playbook.active]


def test_a_run_of_unusable_reflections_alone_comes_to_its_end(tmp_path: Path) -> None:
    run = trained(tmp_path, Pupil(lambda request: "{" if reflecting(request) else None), sums(20))
    assert run.finished
    assert (run.progress.unusable, run.progress.extracted, run.playbook.bullets) == (20, 0, ())


@pytest.mark.parametrize("failure", [ModelBusy("busy"), ModelError("no completion"), ModelRefused("too long")])
def test_an_attempt_that_breaks_off_is_unknown_and_not_wrong(tmp_path: Path, failure: ModelError) -> None:
    def line(request: ModelRequest) -> Line | None:
        return failure if not reflecting(request) and request.task_id == "train-002" else None

    run = trained(tmp_path, Pupil(line), sums(20))
    tally = run.progress.attempts
    assert (tally.attempts, tally.correct, tally.wrong, tally.unknown) == (20, 15, 4, 1)
    assert run.progress.reflector.calls == 19, "nothing is drawn from it"


@pytest.mark.parametrize("failure", [ModelBusy("x could not be reached: is the server running?"), ModelError("no completion")])
@pytest.mark.parametrize("role", ["generator", "reflector"])
def test_a_server_that_answers_nothing_stops_the_run_and_it_can_go_on(tmp_path: Path, failure: ModelError, role: str) -> None:
    dead = Pupil(
        lambda request: failure if request.task_id > "train-004" and reflecting(request) == (role == "reflector") else None
    )
    with pytest.raises(ModelError, match=r"(running\?|completion\.) The run stopped, as a whole batch met with this; mend it"):
        trained(tmp_path / "a", dead, sums(20))
    assert PlaybookRun(tmp_path / "a").batches == 1, "nothing of that batch is merged"
    ended = trained(tmp_path / "a", Pupil(), sums(20))
    whole = trained(tmp_path / "b", Pupil(), sums(20))
    assert files.dumps(ended.playbook) == files.dumps(whole.playbook)


def test_a_server_that_is_down_is_no_matter_of_one_task(tmp_path: Path) -> None:
    down = Pupil(lambda request: ModelBusy("down") if request.task_id > "train-000" else None)
    with pytest.raises(ModelError, match=r"^down\. The run stopped"):
        trained(tmp_path, down, sums(3), batch_size=1)


@pytest.mark.parametrize("batch_size", [1, 5])
def test_a_refused_key_stops_the_run_at_once_and_it_can_go_on(tmp_path: Path, batch_size: int) -> None:
    wrong = Pupil(lambda _: ModelRefused("openai:x refused the key (401)"))
    with pytest.raises(
        ModelRefused, match=r"refused the key \(401\). The run stopped, as a whole batch met with this; mend it"
    ):
        trained(tmp_path / "a", wrong, sums(10), batch_size=batch_size)
    assert len(wrong.requests) == batch_size
    ended = trained(tmp_path / "a", Pupil(), sums(10), batch_size=batch_size)
    whole = trained(tmp_path / "b", Pupil(), sums(10), batch_size=batch_size)
    assert files.dumps(ended.playbook) == files.dumps(whole.playbook)


def test_a_refused_reflector_stops_the_run_too(tmp_path: Path) -> None:
    with pytest.raises(ModelRefused, match="is not there"):
        trained(tmp_path, Pupil(), sums(10), reflector=Pupil(lambda _: ModelRefused("openai:y is not there (404)")))
    assert PlaybookRun(tmp_path).batches == 0


def test_different_refusals_and_one_alone_are_attempts_like_others(tmp_path: Path) -> None:
    long = Pupil(lambda r: ModelRefused(f"{r.task_id} is too long") if r.task_id > "train-004" else None)
    each = trained(tmp_path / "a", long, sums(10))
    assert (each.finished, each.progress.attempts.unknown) == (True, 5)
    with pytest.raises(ModelRefused, match=r"train-000 is too long\. The run stopped"):
        trained(tmp_path / "c", Pupil(lambda r: ModelRefused(f"{r.task_id} is too long")), sums(10))
    last = Pupil(lambda request: ModelRefused("too long") if request.task_id == "train-010" else None)
    alone = trained(tmp_path / "b", last, sums(11))
    assert (alone.finished, alone.progress.attempts.unknown) == (True, 1)


def test_a_second_attempt_is_sampled_and_reflected_on_together_with_the_first(tmp_path: Path) -> None:
    pupil = Pupil()
    run = trained(tmp_path, pupil, sums(5), attempts=2, temperature=0.9, seed=7)
    assert run.progress.attempts.attempts == 10
    asked = [(request.temperature, request.seed) for request in pupil.requests if not reflecting(request)]
    assert sorted(asked, key=str) == [(0.9, 8)] * 5 + [(None, None)] * 5
    reflections = [request.text for request in pupil.requests if reflecting(request)]
    assert len(reflections) == 5
    assert all("ATTEMPT 2 (wrong)" in text for text in reflections)


def test_successes_are_reflected_on_only_where_that_is_wanted(tmp_path: Path) -> None:
    assert trained(tmp_path / "all", Pupil(), sums(20)).progress.reflector.calls == 20
    assert trained(tmp_path / "failures", Pupil(), sums(20), reflect_on="failures").progress.reflector.calls == 5


def test_what_was_refused_once_is_not_considered_again(tmp_path: Path) -> None:
    copied = '{"insights": [{"verdict": "helpful", "content": "%s", "about": ""}], "shown": []}'
    run = trained(tmp_path, Pupil(lambda r: copied % sums(1)[0].question if reflecting(r) else None), sums(1), epochs=3)
    assert run.playbook.bullets == ()
    assert sum(run.progress.refused.values()) == 3
    assert len(run.progress.refused) == 2, "refused as a copy, then as refused before"


@given(count=st.integers(1, 40), batch_size=st.integers(1, 15), epochs=st.integers(1, 3), seed=st.integers(0, 5))
def test_every_epoch_goes_through_all_tasks_once_and_always_in_the_same_order(
    count: int, batch_size: int, epochs: int, seed: int
) -> None:
    tasks, config = sums(count), LearnConfig(batch_size=batch_size, epochs=epochs, seed=seed)
    found = list(batches(tasks, config))
    assert found == list(batches(tasks, config))
    for epoch in range(1, epochs + 1):
        gone = [task for number, group in found if number == epoch for task in group]
        assert sorted(gone, key=lambda task: task.id) == tasks
        assert epoch > 1 or gone == tasks
    assert all(len(group) <= batch_size for _, group in found)


def test_later_epochs_are_shuffled_each_in_its_own_way() -> None:
    orders = [[task.id for task in group] for _, group in batches(sums(20), LearnConfig(batch_size=20, epochs=3))]
    assert len({tuple(order) for order in orders}) == 3
    assert orders[0] == sorted(orders[0])


def test_with_min_support_no_single_attempt_makes_a_rule(tmp_path: Path) -> None:
    once = trained(tmp_path / "once", Pupil(), sums(20))
    twice = trained(tmp_path / "twice", Pupil(), sums(20), min_support=2)
    noise = [bullet for bullet in once.playbook.active if len(bullet.provenance.tasks) < 2 and not bullet.helpful]
    assert all(len(bullet.provenance.tasks) >= 2 or bullet.helpful for bullet in twice.playbook.active)
    assert RULE in [bullet.content for bullet in twice.playbook.active]
    lone = trained(tmp_path / "lone", Pupil(), sums(1), min_support=2)
    assert lone.playbook.bullets
    assert not lone.playbook.active, "one task is one attempt, whatever it says"
    assert "fewer than 2 tasks" in lone.playbook.bullets[0].retired
    assert len(twice.playbook.active) <= len(once.playbook.active) - len(noise)
