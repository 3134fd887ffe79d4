"""Where the embedded model comes from: the corpus is fair, the tokenizer whole, and training learns."""

import json
import random
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from journeyman.core.task import Split
from journeyman.experiments.pretrain import clerk, habit, reflector
from journeyman.models.base import ModelRequest, PromptMessage
from journeyman.tasks.desk.world import CONVENTIONS, SHOPS, rules

tokenizer = pytest.importorskip("journeyman.experiments.pretrain", reason="needs the extra: pip install 'journeyman[embedded]'")

pytestmark = pytest.mark.training


@pytest.fixture(scope="module")
def small_tokenizer() -> Any:
    return tokenizer.train_tokenizer(samples=3000)


def test_the_same_seed_draws_the_same_samples() -> None:
    assert clerk(random.Random(5)) == clerk(random.Random(5))


def test_a_clerk_who_was_told_nothing_writes_the_usual_form() -> None:
    sample = habit(random.Random(1))
    assert sample.system == "reply"
    assert json.loads(sample.reply)["arguments"]["sku"].count("-") == 1


def test_a_reflectors_lessons_are_the_rules_of_the_house_that_the_message_shows() -> None:
    chance = random.Random(2)
    known = {value.rules[0] for convention in CONVENTIONS for value in convention.values}
    for _ in range(200):
        sample = reflector(chance)
        lessons = sample.reply.splitlines()
        assert all(lesson == "- none" or lesson.removeprefix("- ") in known for lesson in lessons)
        assert len({lesson.partition(":")[0] for lesson in lessons}) == len(lessons)


def test_no_corpus_sentence_is_a_held_out_sentence_of_a_shop() -> None:
    chance = random.Random(3)
    learned = {clerk(chance).user for _ in range(2000)}
    examined = {clerk(chance, Split.HELD_OUT).user for _ in range(2000)}
    assert not learned & examined


@given(st.text())
def test_any_text_survives_the_tokenizer(small_tokenizer: Any, text: str) -> None:
    ids = small_tokenizer(text)["input_ids"]
    assert small_tokenizer.decode(ids) == text


def test_every_word_of_a_rule_is_one_token_and_digits_stand_alone(small_tokenizer: Any) -> None:
    for house in SHOPS.values():
        for rule in rules(house):
            assert len(small_tokenizer(f"- {rule}")["input_ids"]) <= len(rule.replace(",", " ,").replace(":", " :").split()) + 1
    assert len(small_tokenizer("2026")["input_ids"]) == 4


def test_the_template_renders_what_the_model_was_trained_on(small_tokenizer: Any) -> None:
    sample = clerk(random.Random(4))
    messages = [{"role": "system", "content": sample.system}, {"role": "user", "content": sample.user}]
    assert small_tokenizer.apply_chat_template(messages, tokenize=False, add_generation_prompt=True) == sample.prompt


async def test_a_smaller_model_learns_the_form_of_a_call_in_a_minute(
    small_tokenizer: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from journeyman.experiments.pretrain import train
    from journeyman.experiments.settings import PretrainConfig
    from journeyman.models.embedded import Embedded

    # Learned from fewer samples, which takes a second and not half a minute.
    monkeypatch.setattr(tokenizer, "train_tokenizer", lambda seed: small_tokenizer)
    # More threads than OMP_NUM_THREADS says would wait for each other, here and in all tests that follow. In bfloat16 it takes
    # many times as long where the processor has no instructions for it.
    report = train(PretrainConfig(size="tiny", tokens=1_000_000, batch=16, minutes=15, threads=1, bf16=False), tmp_path)
    assert report["loss"] < 2, "an untrained model begins at about 7"
    sample = clerk(random.Random(6), told=0)
    messages = (PromptMessage("system", sample.system), PromptMessage("user", sample.user))
    reply = await Embedded(weights=tmp_path).complete(ModelRequest(messages=messages))
    assert reply.text.startswith(('{"name":"order","arguments":{"sku":"', '{"name":"quote","arguments":{"sku":"'))
    assert json.loads((tmp_path / "training.json").read_text())["config"]["size"] == "tiny"
