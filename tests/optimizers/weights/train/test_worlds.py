"""A model in training acts in a world with tools, and what the world answers is read and not learned."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("trl", reason="needs the extra: pip install 'journeyman[weights]'")

import torch
from trl.chat_template_utils import qwen3_template

from journeyman.core.errors import InputError
from journeyman.core.task import Task
from journeyman.core.trace import Trace
from journeyman.optimizers.weights.train.online import grpo
from tests.support.grpo import Judge, work

pytestmark = [pytest.mark.training, pytest.mark.filterwarnings("ignore:You are using 'environment_factory':UserWarning")]
TASKS = tuple(Task(id=item, question=f"price of {item} please", answer=price) for item, price in (("mug", "7"), ("lamp", "9")))
CALL = '<tool_call>\n{"name": "price", "arguments": {"item": "%s"}}\n</tool_call><|im_end|>'


class Shop:
    """The world of these tasks: a list of prices, which must be asked for."""

    made = 0

    def __init__(self) -> None:
        Shop.made += 1
        self.task: Task | None = None
        self.asked: list[str] = []

    def reset(self, task: Task) -> str | None:
        self.task, self.asked = task, []
        return " today"

    def price(self, item: str) -> str:
        """What a thing costs.

        Args:
            item: Its name.
        """
        self.asked.append(item)
        assert self.task is not None
        if item != self.task.id:
            raise ValueError(f"no {item} here")
        return self.task.answer


def put(task: Task) -> Any:
    return ({"role": "user", "content": task.question},)


def in_world(folder: Path, judge: Judge, **settings: Any) -> Any:
    made = work(folder, judge, tasks=TASKS, environment=Shop, max_completion_tokens=200, **settings)
    made.tokenizer.chat_template = Path("tests/data/chat_templates/chatml.jinja").read_text().replace("\n{%", "{%").strip()
    made.tokenizer.response_template = qwen3_template
    object.__setattr__(made, "put", put)
    return made


def says(trainer: Any, writes: Callable[[int, str], str]) -> None:
    """Let a script write in the place of the model: the number of the completion, and what stands before it."""
    tokenizer = trainer.processing_class

    def turn(prompts: list[list[int]], *_: Any, **__: Any) -> tuple[list[list[int]], None]:
        said = [writes(number, tokenizer.decode(ids)) for number, ids in enumerate(prompts)]
        return [tokenizer(text)["input_ids"] for text in said], None

    trainer._generate_single_turn = turn


def solved(trace: Trace) -> float | None:
    return float(trace.reply == {task.id: task.answer for task in TASKS}[trace.task_id])


def clerk(number: int, before: str) -> str:
    """Three of four ask the price and say it; the last one guesses."""
    if "<tool_response>" in before:
        return before.rsplit("<tool_response>\n", 1)[1].split("\n", 1)[0] + "<|im_end|>"
    item = "mug" if "price of mug" in before else "lamp"
    return "1<|im_end|>" if number % 4 == 3 else CALL % item


def test_the_model_calls_tools_and_the_judge_sees_what_happened(tmp_path: Path) -> None:
    judge = Judge(solved)
    trainer: Any = grpo(in_world(tmp_path, judge, max_steps=1, curriculum=False))
    says(trainer, clerk)
    made: list[Any] = []
    inner = trainer._generate_and_score_completions

    def watched(rows: Any) -> Any:
        made.append(inner(rows))
        return made[-1]

    trainer._generate_and_score_completions = watched
    trainer.train()
    (traces,) = judge.asked
    assert [len(trace.tool_calls) for trace in traces] == [1, 1, 1, 0] * 2
    assert [solved(trace) for trace in traces] == [1.0, 1.0, 1.0, 0.0] * 2
    first = traces[0]
    (call,) = first.tool_calls
    assert (call.tool, call.arguments, call.result, call.ok) == ("price", f'{{"item": "{first.task_id}"}}', first.reply, True)
    asked, told = first.calls
    assert call.parent == told.continues == asked.id
    # What the model wrote is learned, what the shop answered is not.
    tokenizer = trainer.processing_class
    for ids, own, mask in zip(*(made[0][name] for name in ("completion_ids", "tool_mask", "completion_mask")), strict=True):
        learned = tokenizer.decode(ids[(own * mask).bool()])
        assert "tool_response" not in learned
        if "tool_call" in learned:
            assert "<tool_response>" in tokenizer.decode(ids[mask.bool()])
            assert learned.endswith("<|im_end|>")
    assert all(
        "today" in tokenizer.decode(ids) and "What a thing costs." in tokenizer.decode(ids) for ids in made[0]["prompt_ids"]
    )
    advantages = made[0]["advantages"].view(2, 4)
    assert torch.equal(advantages.sign(), torch.tensor([[1.0, 1.0, 1.0, -1.0]] * 2))


def test_a_tool_that_fails_is_an_answer(tmp_path: Path) -> None:
    judge = Judge(solved)
    trainer: Any = grpo(in_world(tmp_path, judge, max_steps=1))
    says(trainer, lambda number, before: "sorry<|im_end|>" if "<tool_response>" in before else CALL % f"sofa {number}")
    trainer.train()
    calls = [call for trace in judge.asked[0] for call in trace.tool_calls]
    assert len(calls) == 8
    assert not any(call.ok for call in calls)
    assert all("no sofa" in call.result for call in calls)
    assert all(trace.reply == "sorry" for trace in judge.asked[0])


def test_worlds_are_made_once_and_used_again(tmp_path: Path) -> None:
    Shop.made = 0
    judge = Judge(solved)
    trainer: Any = grpo(in_world(tmp_path, judge, max_steps=3))
    says(trainer, clerk)
    trainer.train()
    assert Shop.made == 8
    # A world begins anew with each batch: prompts without spread are not replaced within one.
    assert [len(asked) for asked in judge.asked] == [8, 8, 8]


def test_a_template_without_tools_is_refused(tmp_path: Path) -> None:
    plain = work(tmp_path, Judge(solved), tasks=TASKS, environment=Shop)
    with pytest.raises(InputError, match="has no tools"):
        grpo(plain)


def test_a_template_whose_calls_are_not_known_is_refused(tmp_path: Path) -> None:
    made = in_world(tmp_path, Judge(solved))
    made.tokenizer.response_template = None
    with pytest.raises(InputError, match="how embedded:small writes tool calls is not known"):
        grpo(made)
