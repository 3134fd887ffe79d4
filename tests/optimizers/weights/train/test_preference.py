"""KTO, DPO and rejection-sampling fine-tuning: what their batches hold, and what they refuse."""

from collections.abc import Sequence
from dataclasses import replace
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("trl", reason="needs the extra: pip install 'journeyman[weights]'")

import torch
from transformers import PrinterCallback

from journeyman.core.errors import InputError, MissingExtra, SettingError
from journeyman.optimizers.weights.config import TrainingConfig
from journeyman.optimizers.weights.job import TrainingJob
from journeyman.optimizers.weights.rows import CompletionGroup, LabelledCompletion, Row, TextOrMessages
from journeyman.optimizers.weights.train import TrainingSetup
from journeyman.optimizers.weights.train.preference import IGNORED, dpo, kto, rft, with_kl_completions
from journeyman.optimizers.weights.train.run import load, trackers

pytestmark = pytest.mark.training

CHATML = Path("tests/data/chat_templates/chatml.jinja")
PROMPT = ({"role": "user", "content": "WWW"},)
END = "<|im_end|>"


def answer(text: str) -> TextOrMessages:
    return ({"role": "assistant", "content": text},)


def with_a_tool(text: str) -> TextOrMessages:
    """A call, its answer in digits, and the text."""
    function = {"name": "look", "arguments": {"at": "abc"}}
    call = {"role": "assistant", "content": "", "tool_calls": [{"id": "1", "type": "function", "function": function}]}
    return (call, {"role": "tool", "tool_call_id": "1", "content": "4711"}, {"role": "assistant", "content": text})


def labels(*said: tuple[TextOrMessages, bool]) -> list[Row]:
    return [LabelledCompletion(prompt=PROMPT, completion=completion, label=good) for completion, good in said]


def group(better: TextOrMessages, worse: TextOrMessages) -> CompletionGroup:
    return CompletionGroup(prompt=PROMPT, completions=(worse, better), rewards=(-1.0, 1.0), scores=(0.0, 1.0))


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> TrainingSetup:
    config = TrainingConfig(
        base_model="embedded:small",
        per_device_batch_size=2,
        gradient_accumulation_steps=1,
        learning_rate=1e-3,
        beta=0.1,
        num_epochs=1,
        max_prompt_tokens=64,
        max_completion_tokens=256,
        use_bf16=False,
        gradient_checkpointing=False,
        threads=1,
    )
    loaded = load(config)
    loaded.tokenizer.chat_template = CHATML.read_text()
    return TrainingSetup(
        config=config,
        job=TrainingJob(tmp_path_factory.mktemp("job")),
        model=loaded.model,
        tokenizer=loaded.tokenizer,
        tasks=(),
        rows=(),
        put=lambda task: task.question,
        judge=None,
        callbacks=(),
    )


def with_rows(made: TrainingSetup, rows: Sequence[Row], **settings: Any) -> TrainingSetup:
    return replace(made, rows=rows, config=replace(made.config, **settings))


def batch(trainer: Any) -> dict[str, Any]:
    trainer.remove_callback(PrinterCallback)
    found: dict[str, Any] = next(iter(trainer.get_train_dataloader()))
    return found


def marked(made: TrainingSetup, ids: Any, mask: Any) -> list[str]:
    return [made.tokenizer.decode(row[own.bool()]) for row, own in zip(ids, mask, strict=True)]


CALL = '<tool_call>\n{"name": "look", "arguments": {"at": "abc"}}\n</tool_call>' + END


def test_kto_learns_from_what_the_agent_said_between_tools(made: TrainingSetup) -> None:
    found = batch(kto(with_rows(made, labels((with_a_tool("good"), True), (answer("bad"), False)))))
    assert sorted(marked(made, found["input_ids"], found["completion_mask"])) == sorted([CALL + "good" + END, "bad" + END])
    # Read with the other's prompt, for how far the policy has moved.
    assert sorted(marked(made, found["KL_input_ids"], found["KL_completion_mask"])) == sorted(
        [CALL + "good" + END, "bad" + END]
    )
    assert all("4711" in made.tokenizer.decode(row) for row in found["input_ids"][found["label"]])


def test_dpo_learns_from_what_the_agent_said_between_tools(made: TrainingSetup) -> None:
    rows = [group(with_a_tool("good"), answer("bad")), group(answer("fine"), with_a_tool("worse"))]
    found = batch(dpo(with_rows(made, rows)))
    said = marked(made, found["input_ids"], found["completion_mask"])
    assert sorted(said[:2]) == sorted([CALL + "good" + END, "fine" + END])
    assert sorted(said[2:]) == sorted(["bad" + END, CALL + "worse" + END])


def test_rft_learns_each_right_completion_once_and_no_wrong_one(made: TrainingSetup) -> None:
    rows = labels((with_a_tool("good"), True), (with_a_tool("good"), True), (answer("bad"), False), (answer("fine"), True))
    trainer = rft(with_rows(made, rows))
    found = batch(trainer)
    said = marked(made, found["input_ids"], found["labels"] != IGNORED)
    assert sorted(said) == sorted([CALL + "good" + END, "fine" + END])
    assert len(trainer.train_dataset) == 2


def test_kto_takes_groups_and_dpo_takes_labels(made: TrainingSetup) -> None:
    assert sorted(kto(with_rows(made, [group(answer("good"), answer("bad"))])).train_dataset["label"]) == [False, True]
    assert len(dpo(with_rows(made, labels((answer("good"), True), (answer("bad"), False)))).train_dataset) == 1


def test_the_reference_is_the_model_as_it_was_before_the_first_update(made: TrainingSetup) -> None:
    trainer = kto(with_rows(made, labels((answer("good"), True), (with_a_tool("bad"), False))))
    found = batch(trainer)
    with torch.no_grad():
        trainer.compute_loss(trainer.model, found)
    logged = {name: values[-1] for name, values in trainer._metrics["train"].items()}
    assert logged["rewards/chosen"] == pytest.approx(0, abs=1e-4)
    assert logged["rewards/rejected"] == pytest.approx(0, abs=1e-4)
    assert logged["kl"] == pytest.approx(0, abs=1e-3)
    assert logged["logps/chosen"] < 0


def test_dpo_imitates_the_better_completion_as_much_as_it_is_told(made: TrainingSetup) -> None:
    rows = [group(answer("good"), answer("bad")), group(answer("fine"), answer("worse"))]
    losses = {}
    for weight in (0.0, 0.5):
        trainer = dpo(with_rows(made, rows, method="dpo", imitation=weight))
        found = batch(trainer)
        with torch.no_grad():
            losses[weight] = float(trainer.compute_loss(trainer.model, found))
    half = len(rows)
    ids, own = found["input_ids"][:half], found["completion_mask"][:half, 1:].bool()
    with torch.no_grad():
        scores = trainer.model(input_ids=ids, attention_mask=found["attention_mask"][:half]).logits[:, :-1].log_softmax(-1)
    likely = scores.gather(2, ids[:, 1:, None]).squeeze(2)[own].mean()
    # Before the first update the comparison is a coin's.
    assert losses[0.0] == pytest.approx(0.6931, abs=1e-3)
    assert losses[0.5] - losses[0.0] == pytest.approx(-0.5 * float(likely), rel=1e-3)


def test_the_weights_of_kto_follow_from_the_labels(made: TrainingSetup) -> None:
    rows = labels((answer("good"), True), *((answer("bad" * n), False) for n in range(1, 4)))
    trainer = kto(with_rows(made, rows))
    assert (trainer.desirable_weight, trainer.undesirable_weight) == (3.0, 1.0)
    trainer = kto(with_rows(made, rows, method="kto", undesirable_weight=0.5))
    assert (trainer.desirable_weight, trainer.undesirable_weight) == (1.5, 0.5)


@pytest.mark.parametrize(("rows", "size"), [(1, 2), (2, 2), (3, 2), (5, 2), (7, 3), (8, 4)])
def test_a_completion_is_compared_with_anothers(rows: int, size: int) -> None:
    made = [{"completion_ids": [n], "completion_own": [1]} for n in range(rows)]
    other = [row["KL_completion_ids"][0] for row in with_kl_completions(made, size)]
    assert all(other[n] != n for n in range(rows)) or rows == 1
    whole = rows - rows % size
    for start in range(0, whole, size):
        assert sorted(other[start : start + size]) == list(range(start, start + size))


def test_no_more_rows_are_prepared_than_the_updates_will_see(made: TrainingSetup) -> None:
    rows = labels(*((answer("good" * n), n % 2 == 0) for n in range(1, 20)))
    assert len(kto(with_rows(made, rows, max_steps=3)).train_dataset) == 6


def test_a_completion_that_is_too_long_is_left_out_and_said_so(made: TrainingSetup, caplog: pytest.LogCaptureFixture) -> None:
    rows = labels((answer("good"), True), (answer("fine"), True), (answer("bad"), False), (answer("bad " * 50), False))
    assert len(kto(with_rows(made, rows, max_completion_tokens=20)).train_dataset) == 3
    assert "1 of 4 rows are left out: they do not fit into 20 tokens of completion" in caplog.text


@pytest.mark.parametrize(
    ("make", "rows", "settings", "says"),
    [
        (kto, labels((answer("good"), True), (answer("fine"), True)), {}, "none of 2 rows is labelled bad"),
        (
            kto,
            labels((answer("a"), True), (answer("b"), False)),
            {"max_completion_tokens": 1},
            "none of 2 rows fits into 1 tok",
        ),
        (
            dpo,
            [CompletionGroup(prompt="a", completions=("b", "c"), rewards=(0.0, 0.0))],
            {},
            "no prompt has two completions of which one",
        ),
        (rft, labels((answer("a"), False)), {}, "none of 1 rows is right"),
    ],
)
def test_rows_that_teach_nothing_are_one_sentence(
    made: TrainingSetup, make: Any, rows: list[Row], settings: dict[str, Any], says: str
) -> None:
    with pytest.raises(InputError, match=says):
        make(with_rows(made, rows, **settings))


def test_kto_needs_something_to_compare_with(made: TrainingSetup) -> None:
    with pytest.raises(SettingError, match="per_device_batch_size is 1"):
        kto(with_rows(made, labels((answer("a"), True), (answer("b"), False)), per_device_batch_size=1))


def test_curves_go_into_the_folder_of_the_run(made: TrainingSetup) -> None:
    work = with_rows(made, labels((answer("a"), True), (answer("b"), False)))
    trainer = kto(replace(work, callbacks=trackers(work.config, work.job)))
    trainer.remove_callback(PrinterCallback)
    trainer.train()
    assert list((work.job.folder / "tensorboard").glob("events.out.tfevents.*"))
    assert trackers(replace(work.config, tracker="none"), work.job) == []


@pytest.mark.skipif(find_spec("wandb") is not None, reason="W&B is installed here")
def test_a_tracker_that_is_not_installed_is_one_sentence(made: TrainingSetup) -> None:
    with pytest.raises(MissingExtra, match="wandb is missing: pip install wandb"):
        trackers(replace(made.config, tracker="wandb"), made.job)
