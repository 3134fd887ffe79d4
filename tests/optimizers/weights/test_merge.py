"""Base and adapter as one model: the same logits, and nothing half-written."""

import json
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("peft")

import torch
from peft import LoraConfig, PeftModel, get_peft_model
from transformers import AutoModelForCausalLM, AutoTokenizer

from journeyman.core.errors import InputError, ModelRefused
from journeyman.models import embedded_weights
from journeyman.models.local import Local, peft_as_it_is
from journeyman.optimizers.weights.merge import NOTE, merge
from tests.support import tiny_models

pytestmark = pytest.mark.training

PROMPT = "three blue mugs to Oslo by 5 March, please"


def adapter(folder: Path, base: str, where: Path | str, layers: list[str], **settings: Any) -> Path:
    """An adapter that changes a good deal, with random weights."""
    torch.manual_seed(0)
    with peft_as_it_is():
        adapted = get_peft_model(
            AutoModelForCausalLM.from_pretrained(where, dtype=torch.float32),
            LoraConfig(r=4, lora_alpha=8, target_modules=layers, task_type="CAUSAL_LM", **settings),
        )
    with torch.no_grad():
        for name, weight in adapted.named_parameters():
            if "lora_B" in name:
                weight.normal_(0, 0.05)
    adapted.save_pretrained(folder)
    config = json.loads((folder / "adapter_config.json").read_text())
    (folder / "adapter_config.json").write_text(json.dumps({**config, "base_model_name_or_path": base}))
    return folder


def logits(model: Any, where: Path | str) -> torch.Tensor:
    ids = AutoTokenizer.from_pretrained(where)(PROMPT, return_tensors="pt")["input_ids"]
    with torch.inference_mode():
        found: torch.Tensor = model.eval()(input_ids=ids).logits
    return found


@pytest.fixture
def embedded(tmp_path: Path) -> Path:
    return adapter(tmp_path / "adapter", "embedded:small", embedded_weights("small"), ["q_proj", "v_proj", "down_proj"])


def test_the_merged_model_gives_the_logits_of_base_and_adapter(embedded: Path, tmp_path: Path) -> None:
    where = embedded_weights("small")
    base = AutoModelForCausalLM.from_pretrained(where, dtype=torch.float32)
    plain = logits(base, where)
    with peft_as_it_is():
        wanted = logits(PeftModel.from_pretrained(base, embedded), where)

    found = merge(embedded, tmp_path / "merged")

    there = logits(AutoModelForCausalLM.from_pretrained(found.folder, dtype=torch.float32), found.folder)
    assert float((there - wanted).abs().max()) < 1e-4
    assert float((plain - wanted).abs().max()) > 0.1
    assert 0 < found.difference < 1e-4
    assert found.compared > 1000


def test_a_model_made_of_the_embedded_one_speaks_its_dialect_and_keeps_its_tokenizer(embedded: Path, tmp_path: Path) -> None:
    folder = merge(embedded, tmp_path / "merged").folder

    assert Local(str(folder)).dialect == "terse"
    before, after = (AutoTokenizer.from_pretrained(where) for where in (embedded_weights("small"), folder))
    assert after.chat_template == before.chat_template
    assert after(PROMPT)["input_ids"] == before(PROMPT)["input_ids"]
    assert after.padding_side == before.padding_side
    assert json.loads((folder / "generation_config.json").read_text())["eos_token_id"] == 2
    assert json.loads((folder / NOTE).read_text())["base_model"] == "embedded:small"


def test_weights_are_merged_in_float32_and_rounded_only_at_the_end(embedded: Path, tmp_path: Path) -> None:
    exact = merge(embedded, tmp_path / "exact")
    rounded = merge(embedded, tmp_path / "rounded", dtype="bfloat16")

    one, other = (AutoModelForCausalLM.from_pretrained(found.folder) for found in (exact, rounded))
    assert (one.dtype, other.dtype) == (torch.float32, torch.bfloat16)
    for a, b in zip(one.parameters(), other.parameters(), strict=True):
        assert torch.equal(a.bfloat16(), b)
    assert rounded.difference == exact.difference


def test_what_cannot_be_merged_leaves_nothing_behind(tmp_path: Path) -> None:
    tiny_models.save(tmp_path / "base", "Qwen2", tiny_models.byte_level(), tie_word_embeddings=True)
    other = adapter(tmp_path / "adapter", "embedded:small", tmp_path / "base", ["q_proj"])

    with pytest.raises(ModelRefused, match="does not fit"):
        merge(other, tmp_path / "merged")

    assert not (tmp_path / "merged").exists()
    assert sorted(path.name for path in tmp_path.iterdir()) == ["adapter", "base"]


def test_a_folder_that_is_there_is_not_written_over(tmp_path: Path) -> None:
    (tmp_path / "merged").mkdir()
    with pytest.raises(InputError, match="is there already"):
        merge(tmp_path, tmp_path / "merged")
    with pytest.raises(InputError, match="must be one of"):
        merge(tmp_path, tmp_path / "new", dtype="int8")
