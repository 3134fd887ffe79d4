"""The model writes completions, remembers how likely it thought each token, and what nobody could judge is left out."""

from collections import Counter
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("trl", reason="needs the extra: pip install 'journeyman[weights]'")

import torch

from journeyman.core.errors import InputError
from journeyman.optimizers.weights.data import read, write
from journeyman.optimizers.weights.rows import CompletionGroup
from journeyman.optimizers.weights.train import TrainingSetup, run
from journeyman.optimizers.weights.train.masks import RowEncoder
from journeyman.optimizers.weights.train.sampling import Completion, Sampling, attempt, groups, labelled, sample
from tests.support.grpo import TASKS, Judge, by_length, put, work

pytestmark = pytest.mark.training

HOW = Sampling(generations=3, temperature=1.5, max_tokens=12, seed=5)


@pytest.fixture(scope="module")
def ready(tmp_path_factory: pytest.TempPathFactory) -> TrainingSetup:
    return work(tmp_path_factory.mktemp("job"))


def drawn(ready: TrainingSetup, how: Sampling = HOW, tasks: Any = TASKS[:4]) -> list[tuple[Completion, ...]]:
    return sample(ready.model, ready.tokenizer, [put(task) for task in tasks], how)


def test_the_same_seed_draws_the_same_and_disturbs_nobody(ready: TrainingSetup) -> None:
    torch.manual_seed(1)
    wanted = torch.rand(3)
    torch.manual_seed(1)
    first = drawn(ready)
    assert torch.equal(torch.rand(3), wanted)
    assert drawn(ready) == first
    assert ready.model.training
    other = Sampling(generations=3, temperature=1.5, max_tokens=12, seed=6)
    assert drawn(ready, other) != first


def test_each_prompt_has_its_completions_in_its_place(ready: TrainingSetup) -> None:
    # Nearly greedy, so that the first words follow from the prompt alone.
    how = Sampling(generations=2, temperature=0.01, max_tokens=40, seed=0)
    together = drawn(ready, how, TASKS)
    alone = [drawn(ready, how, [task])[0] for task in TASKS[:2]]
    assert [each[0].text for each in together[:2]] == [each[0].text for each in alone]
    assert all(len(each) == 2 for each in together)


def test_logprobs_are_those_of_the_policy_that_drew(ready: TrainingSetup) -> None:
    encode = RowEncoder(ready.tokenizer).prompt
    for task, completions in zip(TASKS, drawn(ready), strict=False):
        prompt = encode(put(task))
        for completion in completions:
            with torch.no_grad():
                logits = ready.model(torch.tensor([[*prompt, *completion.ids]])).logits[0, len(prompt) - 1 : -1]
            wanted = (logits / HOW.temperature).log_softmax(-1).gather(1, torch.tensor(completion.ids)[:, None])[:, 0]
            assert completion.logprobs == pytest.approx(wanted.tolist(), abs=1e-3)
            assert len(completion.ids) <= HOW.max_tokens
            assert completion.finished == (completion.ids[-1] == ready.tokenizer.eos_token_id)


def test_tokens_are_drawn_as_often_as_they_are_likely(ready: TrainingSetup) -> None:
    how = Sampling(generations=512, temperature=1.5, max_tokens=1, seed=0)
    (completions,) = sample(ready.model, ready.tokenizer, ["Send"], how)
    counts = Counter(completion.ids[0] for completion in completions)
    with torch.no_grad():
        logits = ready.model(torch.tensor([ready.tokenizer("Send")["input_ids"]])).logits[0, -1]
    shares, tokens = (logits / how.temperature).softmax(-1).topk(4)
    assert float(shares[1]) > 0.01
    for share, token in zip(shares.tolist(), tokens.tolist(), strict=True):
        # Four standard deviations of a share of 512.
        assert abs(counts[token] / 512 - share) < 4 * (share * (1 - share) / 512) ** 0.5


def test_groups_are_judged_normalised_and_name_their_task(tmp_path: Path) -> None:
    judge = Judge(by_length)
    ready = work(tmp_path, judge, temperature=2.0, max_completion_tokens=20)
    found = groups(ready, TASKS[:3])
    assert len(judge.asked) == 1
    assert len(judge.asked[0]) == 12
    for task, group in zip(TASKS, found, strict=False):
        assert group.source["task"] == task.id
        assert group.prompt == put(task)
        assert len(group.completions) == len(group.scores) == len(group.rewards) == len(group.logprobs) == 4
        assert sum(group.rewards) == pytest.approx(0.0, abs=1e-6)
    write(tmp_path / "rows.jsonl", found)
    again = [row for row in read(tmp_path / "rows.jsonl") if isinstance(row, CompletionGroup)]
    assert [row.scores for row in again] == [group.scores for group in found]
    assert [row.logprobs for row in again] == [group.logprobs for group in found]


def test_what_could_not_be_judged_is_left_out(tmp_path: Path) -> None:
    lost = TASKS[1].id
    numbers: Counter[str] = Counter()

    def worth(trace: Any) -> float | None:
        numbers[trace.task_id] += 1
        return None if trace.task_id == lost or numbers[trace.task_id] == 2 else float(numbers[trace.task_id] == 1)

    found = groups(work(tmp_path, Judge(worth)), TASKS[:3])
    assert [group.source["task"] for group in found] == [TASKS[0].id, TASKS[2].id]
    assert all(group.scores == (1.0, 0.0, 0.0) for group in found)
    assert [row.label for row in labelled(found)] == [True, False, False] * 2
    assert all(row.source["task"] != lost for row in labelled(found))


def test_labels_without_scores_are_read_from_the_rewards() -> None:
    told = CompletionGroup(prompt="a", completions=("b", "c"), rewards=(1.0, -1.0))
    alike = CompletionGroup(prompt="a", completions=("b", "c"), rewards=(0.0, 0.0))
    assert [(row.completion, row.label) for row in labelled([told, alike])] == [("b", True), ("c", False)]


def test_without_a_judge_nothing_is_sampled(ready: TrainingSetup) -> None:
    with pytest.raises(InputError, match="must be judged"):
        groups(ready, TASKS)


def test_offline_grpo_of_a_model_that_gets_nothing_right_by_itself_ends_after_a_few_tasks(tmp_path: Path) -> None:
    judge = Judge(lambda _: 0.5)
    ready = work(tmp_path, judge, method="grpo-offline", max_completion_tokens=4)
    ready = replace(ready, tasks=TASKS * 20)
    with pytest.raises(InputError, match=r"0 of 128 completions are right .*--method grpo, which goes on writing"):
        run._rows(ready)
    assert [len(asked) for asked in judge.asked] == [run.PROBED * 4]
    assert not ready.job.rows.exists()
    free = replace(ready, tasks=TASKS, config=replace(ready.config, guards=False))
    assert len(run._rows(free)) == len(TASKS)


def test_what_the_model_gets_right_by_itself_is_learned_from(tmp_path: Path) -> None:
    judge = Judge(lambda trace: float(trace.id.endswith("/0")))
    ready = replace(work(tmp_path, judge, method="grpo-offline", max_completion_tokens=4), tasks=TASKS[:2])
    assert len(run._rows(ready)) == 2
    assert ready.job.rows.is_file()


def test_an_attempt_tells_turns_and_tools_in_their_order() -> None:
    said = (
        {"role": "assistant", "content": "", "tool_calls": [{"function": {"name": "price", "arguments": {"item": "mug"}}}]},
        {"role": "tool", "name": "price", "content": "7"},
        {"role": "assistant", "content": "It is 7.", "tool_calls": [{"function": {"name": "buy", "arguments": "{}"}}]},
    )
    trace = attempt(TASKS[0], put(TASKS[0]), said, id="t", model="m")
    first, price, second, buy = trace.steps
    assert trace.query == TASKS[0].question
    assert trace.reply == "It is 7."
    assert (price.arguments, price.result, price.ok) == ('{"item": "mug"}', "7", True)  # type: ignore[union-attr]
    # The limit came before the shop could answer.
    assert (buy.result, buy.ok) == ("", False)  # type: ignore[union-attr]
    assert [message.text for message in trace.conversation(second)] == ["reply", TASKS[0].question, "", "7"]  # type: ignore[arg-type]
    assert first.parent is None


def test_of_a_prompt_that_is_too_long_the_end_is_read_as_in_training(ready: TrainingSetup) -> None:
    how = Sampling(generations=2, temperature=0.01, max_tokens=8, seed=0, max_prompt=2)
    whole = replace(how, max_prompt=None)
    prompts = ["three blue mugs to Oslo, please", "we need five red pens to Oslo, please"]
    one, other = (each[0].ids for each in sample(ready.model, ready.tokenizer, prompts, how))
    assert one == other
    one, other = (each[0].ids for each in sample(ready.model, ready.tokenizer, prompts, whole))
    assert one != other
