"""Fresh completions are judged once each, what cannot be judged moves nothing, and a run that goes on goes on as it was."""

import json
from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("trl", reason="needs the extra: pip install 'journeyman[weights]'")

import torch

from journeyman.core.errors import InputError
from journeyman.core.reward import verified_first
from journeyman.core.score import Reward, Score
from journeyman.core.task import Task
from journeyman.core.trace import Trace
from journeyman.optimizers.weights import metrics
from journeyman.optimizers.weights.job import Ended
from journeyman.optimizers.weights.train import drop_zero_advantages
from journeyman.optimizers.weights.train.online import OnlineGRPOTrainer, grpo
from journeyman.optimizers.weights.train.run import train
from journeyman.optimizers.weights.train.sampling import merged
from tests.support.grpo import TASKS, Judge, by_length
from tests.support.grpo import work as small_work

pytestmark = pytest.mark.training


def work(folder: Path, judge: Judge | None = None, **settings: Any) -> Any:
    """At a temperature at which the few first words differ."""
    return small_work(folder, judge, **{"temperature": 4.0, **settings})


def adapter(trainer: OnlineGRPOTrainer) -> dict[str, torch.Tensor]:
    return {name: weight.detach().clone() for name, weight in trainer.model.named_parameters() if "lora_" in name}


def watch(trainer: Any) -> list[tuple[Any, list[dict[str, Any]]]]:
    """Each batch that is trained on, with the rows of its completions."""
    made: list[tuple[Any, list[dict[str, Any]]]] = []
    inner = trainer._generate_and_score_completions

    def watched(rows: Any) -> Any:
        made.append((inner(rows), list(trainer._rows)))
        return made[-1][0]

    trainer._generate_and_score_completions = watched
    return made


def logs(trainer: OnlineGRPOTrainer) -> list[dict[str, Any]]:
    return [entry for entry in trainer.state.log_history if "reward" in entry]


def written(judge: Judge) -> list[str]:
    return [trace.reply for asked in judge.asked for trace in asked]


def test_the_judge_is_asked_about_every_completion_once(tmp_path: Path) -> None:
    judge = Judge(by_length)
    trainer = grpo(work(tmp_path, judge, curriculum=False))
    before = adapter(trainer)
    trainer.train()
    assert [len(asked) for asked in judge.asked] == [8, 8]
    traces = [trace for asked in judge.asked for trace in asked]
    assert len({trace.id for trace in traces}) == 16
    # TRL's own order: each task once in a round, four completions each.
    assert set(Counter(trace.task_id for trace in traces).values()) == {4}
    known = {task.id: task.question for task in TASKS}
    assert all(trace.query == known[trace.task_id] for trace in traces)
    assert any(not torch.equal(weight, before[name]) for name, weight in adapter(trainer).items())
    assert trainer.curriculum is None


def test_rewards_are_what_the_judge_said_for_that_completion(tmp_path: Path) -> None:
    judge = Judge(by_length)
    trainer = grpo(work(tmp_path, judge, max_steps=1, curriculum=False))
    made = watch(trainer)
    trainer.train()
    replies = trainer.processing_class.batch_decode(made[0][0]["completion_ids"], skip_special_tokens=True)
    assert replies == written(judge)
    rewards = torch.tensor([by_length(trace) for trace in judge.asked[0]]).view(-1, 4)
    wanted = (rewards - rewards.mean(1, keepdim=True)) / (rewards.std(1, keepdim=True) + 1e-4)
    torch.testing.assert_close(made[0][0]["advantages"], wanted.flatten(), atol=1e-5, rtol=1e-4)


def test_an_unknown_reward_is_no_zero(tmp_path: Path) -> None:
    numbers: Counter[str] = Counter()

    def worth(trace: Trace) -> float | None:
        numbers[trace.task_id] += 1
        return {0: 0.8, 1: 0.6}.get(numbers[trace.task_id] % 4)

    trainer = grpo(work(tmp_path, Judge(worth), max_steps=1, curriculum=False))
    made = watch(trainer)
    trainer.train()
    advantages = made[0][0]["advantages"].view(-1, 4)
    # Of each four the first and the last are known: the better one above their mean, the other below it, the rest at 0.
    assert torch.equal(advantages.sign(), torch.tensor([[-1.0, 0.0, 0.0, 1.0]]).expand(2, 4))
    assert logs(trainer)[0]["reward"] == pytest.approx(0.7)
    assert logs(trainer)[0]["unknown"] == 0.5


def test_when_nothing_can_be_judged_nothing_is_learned(tmp_path: Path) -> None:
    trainer = grpo(work(tmp_path, Judge(lambda trace: None)))
    before = adapter(trainer)
    trainer.train()
    assert all(torch.equal(weight, before[name]) for name, weight in adapter(trainer).items())
    assert trainer.curriculum is not None
    assert trainer.curriculum.pass_rate is None


def test_prompts_without_spread_are_replaced_by_others(tmp_path: Path) -> None:
    dull = {task.id for task in TASKS[:5]}
    judge = Judge(lambda trace: 0.0 if trace.task_id in dull else by_length(trace))
    trainer = grpo(work(tmp_path, judge, max_steps=4))
    made = watch(trainer)
    trainer.train()
    trained = [[row["task"] for row in rows] for _, rows in made]
    first = [trace.task_id for asked in judge.asked for trace in asked]
    assert len(judge.asked) > 4
    assert len(first) > 4 * 8
    used = Counter(task in dull for tasks in trained for task in tasks)
    drawn = Counter(task in dull for task in first)
    assert used[True] / used.total() < drawn[True] / drawn.total()
    assert all(Counter(tasks)[task] % 4 == 0 for tasks in trained for task in tasks)
    assert max(entry["curriculum/dull"] for entry in logs(trainer)) > 0


def test_replaced_completions_come_with_their_own_rewards(tmp_path: Path) -> None:
    dull = {task.id for task in TASKS[:5]}
    judge = Judge(lambda trace: 0.0 if trace.task_id in dull else by_length(trace))
    trainer = grpo(work(tmp_path, judge, max_steps=3))
    made = watch(trainer)
    trainer.train()
    asked = {(trace.task_id, trace.reply) for group in judge.asked for trace in group}
    for batch, rows in made:
        replies = trainer.processing_class.batch_decode(batch["completion_ids"], skip_special_tokens=True)
        prompts = trainer.processing_class.batch_decode(batch["prompt_ids"], skip_special_tokens=True)
        assert all((row["task"], reply) in asked for row, reply in zip(rows, replies, strict=True))
        assert all(row["prompt"][-1]["content"] in prompt for row, prompt in zip(rows, prompts, strict=True))
        for at in range(0, 8, 4):
            worth = [0.0 if rows[at]["task"] in dull else (len(reply) % 7) / 6 for reply in replies[at : at + 4]]
            mean = sum(worth) / 4
            assert [value > 1e-6 for value in batch["advantages"][at : at + 4].tolist()] == [
                each > mean + 1e-6 for each in worth
            ]


def test_the_same_seed_gives_the_same_adapter(tmp_path: Path) -> None:
    found = []
    for name in ("a", "b"):
        trainer = grpo(work(tmp_path / name, Judge(by_length)))
        trainer.train()
        found.append(adapter(trainer))
    assert all(torch.equal(weight, found[1][name]) for name, weight in found[0].items())


def test_a_resumed_run_draws_and_learns_the_same(tmp_path: Path) -> None:
    whole, judge = Judge(by_length), Judge(by_length)
    trainer: Any = grpo(work(tmp_path / "whole", whole, max_steps=4))
    trainer.args.save_strategy, trainer.args.save_steps = "steps", 2
    states: dict[int, str] = {}
    inner = trainer._save_checkpoint

    def kept(*told: Any) -> None:
        states[trainer.state.global_step] = json.dumps(trainer.curriculum.state_dict())
        inner(*told)

    trainer._save_checkpoint = kept
    trainer.train()
    resumed: Any = grpo(work(tmp_path / "resumed", judge, max_steps=4))
    resumed.curriculum.load_state_dict(json.loads(states[2]))
    resumed.train(resume_from_checkpoint=str(tmp_path / "whole" / "checkpoints" / "checkpoint-2"))
    assert written(judge) == written(whole)[-len(written(judge)) :]
    assert 0 < len(written(judge)) < len(written(whole))
    assert all(torch.equal(weight, adapter(resumed)[name]) for name, weight in adapter(trainer).items())


def test_a_batch_without_what_teaches_nothing_has_the_same_loss_and_gradient(tmp_path: Path) -> None:
    trainer = grpo(work(tmp_path, Judge(by_length), max_steps=1))
    pad, words = trainer.processing_class.pad_token_id, torch.arange(3, 27).view(4, 6)
    batch = {
        "prompt_ids": torch.where(torch.arange(6) < torch.tensor([[4], [2], [0], [3]]), pad, words),
        "prompt_mask": (torch.arange(6) >= torch.tensor([[4], [2], [0], [3]])).long(),
        "completion_ids": torch.where(torch.arange(6) < torch.tensor([[2], [4], [6], [3]]), words + 30, pad),
        "completion_mask": (torch.arange(6) < torch.tensor([[2], [4], [6], [3]])).long(),
        "advantages": torch.tensor([1.0, -0.5, 0.0, 0.0]),
        "num_items_in_batch": torch.tensor(15),
    }
    less = drop_zero_advantages(batch)
    assert {name: tuple(value.shape) for name, value in less.items()} == {
        "prompt_ids": (2, 4),
        "prompt_mask": (2, 4),
        "completion_ids": (2, 4),
        "completion_mask": (2, 4),
        "advantages": (2,),
        "num_items_in_batch": (),
    }
    found = []
    trainer.current_gradient_accumulation_steps = 1
    for each in (batch, less):
        trainer.model.zero_grad()
        loss = super(OnlineGRPOTrainer, trainer)._compute_loss(trainer.model, each)
        loss.backward()
        found.append(
            (
                loss.detach(),
                {name: weight.grad.clone() for name, weight in trainer.model.named_parameters() if weight.grad is not None},
            )
        )
    torch.testing.assert_close(found[0][0], found[1][0], atol=1e-6, rtol=1e-5)
    for name, gradient in found[0][1].items():
        torch.testing.assert_close(found[1][1][name], gradient, atol=1e-5, rtol=1e-4)


def test_a_batch_that_teaches_nothing_keeps_one_completion() -> None:
    ids = torch.ones(3, 2, dtype=torch.long)
    named = ("prompt_ids", "prompt_mask", "completion_ids", "completion_mask")
    assert len(drop_zero_advantages({**dict.fromkeys(named, ids), "advantages": torch.zeros(3)})["advantages"]) == 1


def test_merged_weights_compute_the_same_and_leave_no_trace(tmp_path: Path) -> None:
    model = work(tmp_path).model.eval()
    for name, weight in model.named_parameters():
        if "lora_B" in name:
            torch.nn.init.normal_(weight, std=0.05)
    before = {name: weight.clone() for name, weight in model.state_dict().items()}
    ids = torch.arange(3, 40).unsqueeze(0)
    with torch.no_grad():
        wanted = model(ids).logits
        with merged(model):
            layers = [layer for layer in model.modules() if getattr(layer, "merged", False)]
            assert layers
            torch.testing.assert_close(model(ids).logits, wanted, atol=1e-4, rtol=1e-4)
        assert torch.equal(model(ids).logits, wanted)
    assert all(torch.equal(weight, before[name]) for name, weight in model.state_dict().items())


def test_a_batch_that_holds_no_whole_group_is_written_with_the_next_ones(tmp_path: Path) -> None:
    judge = Judge(by_length)
    settings = {"per_device_batch_size": 2, "gradient_accumulation_steps": 2, "num_generations": 6, "max_steps": 3}
    trainer = grpo(work(tmp_path, judge, **settings, curriculum=False))
    trainer.train()
    # 4 completions to an update and groups of 6: 12 are written for 3 updates.
    assert [len(asked) for asked in judge.asked] == [12]
    assert trainer.state.global_step == 3


def test_an_epoch_is_every_task_once(tmp_path: Path) -> None:
    judge = Judge(by_length)
    trainer = grpo(work(tmp_path, judge, max_steps=None, num_epochs=1.0, curriculum=False, max_completion_tokens=2))
    assert trainer.args.max_steps == len(TASKS) * 4 // 8


def test_beta_measures_the_distance_without_a_second_adapter(tmp_path: Path) -> None:
    trainer = grpo(work(tmp_path, Judge(by_length), beta=0.1))
    trainer.train()
    assert list(trainer.model.peft_config) == ["default"]
    found = [entry["kl"] for entry in logs(trainer)]
    assert found[0] == pytest.approx(0.0, abs=1e-6)
    assert found[1] > 0


@pytest.mark.parametrize(
    ("settings", "says"),
    [
        ({"tasks": ()}, "no tasks"),
        ({"max_prompt_tokens": 2}, "no task has a prompt of at most 2 tokens"),
        ({"generation": "vllm"}, "vLLM writes completions on a GPU"),
    ],
)
def test_what_cannot_be_trained_is_said_in_a_sentence(tmp_path: Path, settings: dict[str, Any], says: str) -> None:
    if "generation" in settings and torch.cuda.is_available():
        pytest.skip("there is a GPU")
    with pytest.raises(InputError, match=says):
        grpo(work(tmp_path, Judge(by_length), **settings))


def test_without_a_judge_there_is_no_grpo(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="needs a judge"):
        grpo(work(tmp_path))


def test_tasks_whose_prompts_are_too_long_are_left_out_and_counted(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    trainer = grpo(work(tmp_path, Judge(by_length), max_prompt_tokens=36))
    assert len(set(trainer.train_dataset["task"])) == 5
    assert "3 of 8 tasks are left out: their prompts have more than 36 tokens" in caplog.text


class Contrary(Judge):
    """A verifier, and a learned reward that likes what the verifier does not."""

    def judge(self, attempts: Sequence[tuple[Task, Trace]]) -> list[Score]:
        judged = super().judge(attempts)
        guesses = [Reward(name="learned", value=1 - (each.total or 0.0)) for each in judged]
        return [
            replace(each, rewards=verified_first([*each.rewards, guess])) for each, guess in zip(judged, guesses, strict=True)
        ]


def test_a_training_whose_learned_reward_parts_from_the_verifier_is_stopped_with_a_sentence(tmp_path: Path) -> None:
    setup = work(tmp_path, Contrary(by_length), max_steps=40, checkpoint_interval=4)
    outcome = train(grpo(setup), setup)
    assert outcome is not None
    assert outcome.ended is Ended.GUARDED
    assert "the correlation of learned rewards with what was verified fell to -1.00" in outcome.reason
    updates = metrics.read(setup.job.metrics)
    assert updates[-1].step < 40
    # What the verifier calls better was rewarded all the same: a guess has a fifth of the weight.
    known = [each.more[metrics.GUESSES_AGREE] for each in updates if metrics.GUESSES_AGREE in each.more]
    assert known == pytest.approx([-1.0] * len(known))
