"""Recorded completions are weighed by how likely they are now, against how likely they were."""

import logging
import math
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("trl", reason="needs the extra: pip install 'journeyman[weights]'")

import torch
from hypothesis import given
from hypothesis import strategies as st

from journeyman.core.errors import InputError
from journeyman.optimizers.weights.rows import CompletionGroup, LabelledCompletion, normalised
from journeyman.optimizers.weights.train.masks import RowEncoder
from journeyman.optimizers.weights.train.offline import WINDOW, OfflineGRPOTrainer, ess, grpo_offline
from journeyman.optimizers.weights.train.sampling import groups
from tests.support import grpo

pytestmark = pytest.mark.training


def row(number: int = 0, **parts: Any) -> CompletionGroup:
    task = grpo.TASKS[number]
    said = tuple(({"role": "assistant", "content": text},) for text in (task.answer, '{"name": "order"}', "no"))
    scores = parts.get("scores", (1.0, 0.4, 0.3))
    return CompletionGroup(
        prompt=grpo.put(task), completions=said, **{"rewards": normalised(scores or (0.0,)), "scores": scores, **parts}
    )


def made(folder: Path, rows: Any, **settings: Any) -> OfflineGRPOTrainer:
    settings = {"method": "grpo-offline", "max_completion_tokens": 64, **settings}
    return grpo_offline(grpo.work(folder, rows=rows, **settings))


def reference(model: Any, rows: list[CompletionGroup], tokenizer: Any, temperature: float) -> Any:
    """The objective of the docstring, token by token, without batches, padding or anybody's library for it."""
    total, count = torch.tensor(0.0), 0
    for group in rows:
        mean = sum(group.scores) / len(group.scores)
        spread = math.sqrt(sum((score - mean) ** 2 for score in group.scores) / len(group.scores))
        for said, score, recorded in zip(group.completions, group.scores, group.logprobs, strict=True):
            tokens = RowEncoder(tokenizer).encode(group.prompt, said)
            assert tokens is not None
            assert recorded is not None
            ids = torch.tensor([[*tokens.prompt, *tokens.completion]])
            logits = model(ids).logits[0, len(tokens.prompt) - 1 : -1] / temperature
            likely = [logits[at].log_softmax(-1)[token] for at, token in enumerate(tokens.completion)]
            ratio = math.exp(sum(float(now.detach()) - before for now, before in zip(likely, recorded, strict=True)))
            weight = 1.0 if score > mean else min(ratio, 1.0)
            total = total - weight * (score - mean) / spread * sum(likely)
            count += len(likely)
    return total / count


def recorded(folder: Path, shift: float = 0.0) -> list[CompletionGroup]:
    """Two groups, with the log-probabilities of the starting model, of one completion moved up and of the next one down."""
    trainer = made(folder, [row(0), row(1)])
    found = [tuple(value + shift * (-1) ** at for value in each.logprobs or ()) for at, each in enumerate(trainer._rows)]
    return [row(0, logprobs=tuple(found[:3])), row(1, logprobs=tuple(found[3:]))]


@pytest.fixture(scope="module")
def moved(tmp_path_factory: pytest.TempPathFactory) -> list[CompletionGroup]:
    return recorded(tmp_path_factory.mktemp("recorded"), 0.4)


def inputs(trainer: OfflineGRPOTrainer, rows: int = 6) -> dict[str, Any]:
    trainer.current_gradient_accumulation_steps = 1
    trainer.args.steps_per_generation = 1
    return trainer._generate_and_score_completions([{"row": number} for number in range(rows)])


def gradients(model: Any) -> dict[str, torch.Tensor]:
    return {name: weight.grad.clone() for name, weight in model.named_parameters() if weight.grad is not None}


@pytest.mark.parametrize("temperature", [1.0, 1.3])
def test_loss_and_gradient_are_those_of_the_formula(tmp_path: Path, moved: list[CompletionGroup], temperature: float) -> None:
    trainer = made(tmp_path, moved, temperature=temperature)
    # A fresh adapter has a zero in it that hides half of the gradient.
    for name, weight in trainer.model.named_parameters():
        if "lora_B" in name:
            torch.nn.init.normal_(weight, std=0.02)
    batch = inputs(trainer)
    trainer.model.zero_grad()
    loss = trainer._compute_loss(trainer.model, batch)
    loss.backward()
    found = gradients(trainer.model)
    trainer.model.zero_grad()
    wanted = reference(trainer.model, moved, trainer.processing_class, temperature)
    wanted.backward()
    assert float(loss.detach()) == pytest.approx(float(wanted.detach()), rel=1e-5)
    for name, gradient in gradients(trainer.model).items():
        torch.testing.assert_close(found[name], gradient, atol=1e-5, rtol=1e-3)
    assert any(gradient.abs().max() > 1e-4 for gradient in found.values())


def test_the_ratio_is_one_at_the_start(tmp_path: Path) -> None:
    rows = recorded(tmp_path / "first")
    trainer = made(tmp_path / "second", rows)
    trainer._compute_loss(trainer.model, inputs(trainer))
    logs = trainer._metrics["train"]
    assert logs["ess"] == [pytest.approx(1.0, abs=1e-4)]
    assert logs["ess/completions"] == [pytest.approx(1.0, abs=1e-3)]


def test_what_is_bad_counts_by_how_likely_it_still_is_and_what_is_good_always(tmp_path: Path) -> None:
    trainer = made(tmp_path, recorded(tmp_path / "first"))

    def loss(completion: int, was_likelier_by: float) -> float:
        batch = inputs(trainer)
        batch["recorded_logps"][completion, 0] += was_likelier_by
        return float(trainer._compute_loss(trainer.model, batch).detach())

    batch = inputs(trainer)
    good, bad = 0, 2
    assert batch["advantages"][good] > 0 > batch["advantages"][bad]
    plain = loss(bad, 0.0)
    assert loss(good, 3.0) == loss(good, -3.0) == pytest.approx(plain, abs=1e-5)
    # Now likelier than it was: it counts once, and not more.
    assert loss(bad, -3.0) == pytest.approx(plain, abs=1e-5)
    whole = float(batch["advantages"][bad] * batch["recorded_logps"][bad].sum() / batch["num_items_in_batch"])
    assert loss(bad, 1.0) - plain == pytest.approx((1 - math.exp(-1)) * whole, rel=1e-3, abs=1e-6)
    assert loss(bad, 30.0) - plain == pytest.approx(whole, rel=1e-3, abs=1e-6)


def test_without_importance_every_token_weighs_the_same(tmp_path: Path, moved: list[CompletionGroup]) -> None:
    right, wrong = made(tmp_path / "a", moved), made(tmp_path / "b", moved, importance=False)
    losses = [float(trainer._compute_loss(trainer.model, inputs(trainer)).detach()) for trainer in (right, wrong)]
    batch = inputs(wrong)
    now = torch.nn.utils.rnn.pad_sequence(
        [torch.tensor(found) for found in wrong._starting_logprobs(wrong._rows)], batch_first=True
    )
    plain = -float((batch["advantages"][:, None] * now * batch["tool_mask"]).sum() / batch["tool_mask"].sum())
    assert losses[1] == pytest.approx(plain, abs=1e-5)
    assert abs(losses[0] - losses[1]) > 0.01
    assert wrong._metrics["train"]["ess"] == right._metrics["train"]["ess"]
    assert right._metrics["train"]["ess"][0] < 0.9


def test_advantages_are_normalised_within_the_group_by_the_population(tmp_path: Path) -> None:
    found = inputs(made(tmp_path, [row(0), row(1, scores=(), rewards=(2.0, 0.0, -1.0))]))["advantages"]
    for group in found.split(3):
        assert float(group.mean()) == pytest.approx(0.0, abs=1e-6)
        assert float(group.std(unbiased=False)) == pytest.approx(1.0, abs=1e-6)


def test_attempts_at_a_task_that_had_other_prompts_are_compared_all_the_same(tmp_path: Path) -> None:
    alone = [replace(row(n), completions=row(n).completions[:1], scores=(score,), rewards=(2 * score - 1,))
             for n, score in enumerate((1.0, 0.0))]  # fmt: skip
    assert inputs(made(tmp_path, alone), rows=2)["advantages"].tolist() == [1.0, -1.0]


def test_what_was_not_recorded_is_asked_of_the_starting_model_and_said(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    with caplog.at_level(logging.WARNING):
        trainer = made(tmp_path, [row(0), row(1, logprobs=((-1.0,) * 3, None, None))])
    assert "6 of 6 completions have no recorded log-probabilities" in caplog.text
    assert trainer.model.training
    trainer._compute_loss(trainer.model, inputs(trainer))
    assert trainer._metrics["train"]["ess"] == [pytest.approx(1.0, abs=1e-4)]


def test_a_completion_that_the_limit_cut_is_not_taught_to_end(tmp_path: Path) -> None:
    whole = made(tmp_path / "a", [row()])._rows[0].tokens
    cut = (-0.5,) * (len(whole.completion) - 1)
    found = made(tmp_path / "b", [row(logprobs=(cut, None, None))])._rows[0]
    assert whole.own[-1]
    assert not found.tokens.own[-1]
    assert found.logprobs == (*cut, 0.0)


def test_beta_pulls_towards_the_start_without_a_second_adapter(tmp_path: Path, moved: list[CompletionGroup]) -> None:
    trainer = made(tmp_path, moved, beta=0.5)
    free = trainer._compute_loss(trainer.model, inputs(trainer))
    assert list(trainer.model.peft_config) == ["default"]
    assert trainer._metrics["train"]["kl"] == [pytest.approx(0.0, abs=1e-6)]
    for name, weight in trainer.model.named_parameters():
        if "lora_B" in name:
            torch.nn.init.normal_(weight, std=0.05)
    trainer._compute_loss(trainer.model, inputs(trainer))
    assert trainer._metrics["train"]["kl"][1] > 0.001
    assert free.requires_grad


def test_groups_stay_together_and_come_once_in_a_round(tmp_path: Path) -> None:
    rows = [row(number) for number in range(4)]
    trainer = made(tmp_path, rows, max_steps=3, per_device_batch_size=2, gradient_accumulation_steps=3)
    order = list(trainer._get_train_sampler())
    again = list(trainer._get_train_sampler())
    assert order == again
    assert len(order) == len(trainer._get_train_sampler()) == 3 * 6 * 3
    batches = [order[start : start + 6] for start in range(0, len(order), 18)]
    assert [order[start : start + 6] for start in range(0, len(order), 6)] == [batch for batch in batches for _ in range(3)]
    assert sorted([*batches[0], *batches[1]]) == list(range(12))
    assert all(batch[at + 1] == batch[at] + 1 for batch in batches for at in (0, 1, 3, 4))


def test_it_makes_likelier_what_was_better(tmp_path: Path) -> None:
    trainer = made(tmp_path, [row(number) for number in range(4)], max_steps=6, learning_rate=1e-3)
    before = [sum(found) for found in trainer._starting_logprobs(trainer._rows)]
    trainer.train()
    after = [sum(found) for found in trainer._starting_logprobs(trainer._rows)]
    assert sum(after[::3]) > sum(before[::3])
    logs = [entry for entry in trainer.state.log_history if "ess" in entry]
    assert len(logs) == 6
    assert 0 < logs[-1]["ess"] <= 1


def test_what_the_model_samples_itself_is_recorded_to_the_token(tmp_path: Path) -> None:
    work = grpo.work(tmp_path, grpo.Judge(grpo.by_length), temperature=1.2, max_completion_tokens=40)
    found = groups(work, work.tasks[:3])
    trainer = made(tmp_path / "offline", found, temperature=1.2, max_completion_tokens=40)
    assert all(row.logprobs for row in trainer._rows)
    for row, again in zip(trainer._rows, trainer._starting_logprobs(trainer._rows), strict=True):
        kept = [value for value, own in zip(row.logprobs or (), row.tokens.own, strict=True) if own]
        assert kept == pytest.approx([value for value, own in zip(again, row.tokens.own, strict=True) if own], abs=1e-3)


@given(logs=st.lists(st.floats(-20, 20), min_size=1, max_size=30))
def test_the_effective_sample_size_is_kishs(logs: list[float]) -> None:
    weights = [math.exp(each) for each in logs]
    kish = sum(weights) ** 2 / sum(weight * weight for weight in weights) / len(weights)
    found = ess(torch.tensor(logs, dtype=torch.float64), torch.ones(len(logs)))
    assert found == pytest.approx(kish, rel=1e-6)
    assert 1 / len(logs) - 1e-9 <= found <= 1 + 1e-9


def test_the_effective_sample_size_leaves_out_what_is_masked() -> None:
    weights = torch.tensor([[0.0, 0.0, 90.0], [0.0, -90.0, 0.0]])
    assert ess(weights, torch.tensor([[1, 1, 0], [1, 0, 1]])) == pytest.approx(1.0)
    assert ess(weights, torch.tensor([[1, 1, 1], [1, 0, 0]])) == pytest.approx(0.25)
    assert ess(weights, torch.zeros(2, 3)) == 1.0


def test_a_small_effective_sample_size_is_warned_of_once(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    # The first token of each is e^9 times as likely as it was: the others weigh nothing beside it.
    known = recorded(tmp_path / "a")
    wild = [replace(each, logprobs=tuple((said[0] - 9.0, *said[1:]) for said in each.logprobs if said)) for each in known]
    trainer = made(tmp_path / "b", wild)
    with caplog.at_level(logging.WARNING):
        batch = inputs(trainer)
        for _ in range(WINDOW - 1):
            trainer._compute_loss(trainer.model, batch)
        assert "effective" not in caplog.text
        for _ in range(2):
            trainer._compute_loss(trainer.model, batch)
    assert caplog.text.count("effective sample size fell to") == 1


@pytest.mark.parametrize(
    ("rows", "says"),
    [
        ([LabelledCompletion(prompt="a", completion="b", label=True)], "there are none"),
        ([row(scores=(0.5, 0.5, 0.5))], "all worth the same"),
    ],
)
def test_what_teaches_nothing_is_refused(tmp_path: Path, rows: Any, says: str) -> None:
    with pytest.raises(InputError, match=says):
        made(tmp_path, rows)
