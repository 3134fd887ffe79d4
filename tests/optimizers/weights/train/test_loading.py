"""The base model with an adapter on it, and an adapter as it is written down."""

import json
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("peft", reason="needs the extra: pip install 'journeyman[weights]'")

import torch
from transformers import (
    AutoModelForCausalLM,
    AutoTokenizer,
    GemmaConfig,
    GPT2Config,
    LlamaConfig,
    MistralConfig,
    Phi3Config,
    PhiConfig,
    PretrainedConfig,
    Qwen2Config,
    Qwen3Config,
)

from journeyman.core.errors import InputError, ModelRefused, SettingError
from journeyman.models import WEIGHTS
from journeyman.models.local import load as load_to_decode
from journeyman.optimizers.weights.adapters import read_adapter, save_adapter
from journeyman.optimizers.weights.config import TrainingConfig
from journeyman.optimizers.weights.train.run import LoadedModel, load

pytestmark = pytest.mark.training

SMALL: dict[str, Any] = {
    "vocab_size": 1330,
    "hidden_size": 16,
    "intermediate_size": 32,
    "num_hidden_layers": 2,
    "num_attention_heads": 2,
    "num_key_value_heads": 2,
    "max_position_embeddings": 64,
    "pad_token_id": 0,
    "bos_token_id": 1,
    "eos_token_id": 2,
}
PROJECTIONS = ("down_proj", "gate_proj", "k_proj", "o_proj", "q_proj", "up_proj", "v_proj")
ARCHITECTURES: list[tuple[PretrainedConfig, tuple[str, ...]]] = [
    (LlamaConfig(**SMALL), PROJECTIONS),
    (Qwen2Config(**SMALL), PROJECTIONS),
    (Qwen3Config(**SMALL, head_dim=8), PROJECTIONS),
    (MistralConfig(**SMALL), PROJECTIONS),
    (GemmaConfig(**SMALL, head_dim=8), PROJECTIONS),
    (PhiConfig(**SMALL), ("dense", "fc1", "fc2", "k_proj", "q_proj", "v_proj")),
    (Phi3Config(**SMALL), ("down_proj", "gate_up_proj", "o_proj", "qkv_proj")),
    (GPT2Config(vocab_size=1330, n_embd=16, n_layer=2, n_head=2, n_positions=64), ("c_attn", "c_fc", "c_proj")),
]
NOTED = {"base_model": "embedded:small", "method": "kto"}


def config(**settings: Any) -> TrainingConfig:
    return TrainingConfig(**{"base_model": "embedded:small", **settings})


@pytest.fixture(scope="module")
def loaded() -> LoadedModel:
    return load(config())


@pytest.fixture
def adapter(loaded: LoadedModel, tmp_path: Path) -> Path:
    save_adapter(loaded.model, loaded.tokenizer, tmp_path / "adapter", NOTED)
    return tmp_path / "adapter"


@pytest.mark.parametrize(("made", "layers"), ARCHITECTURES, ids=lambda each: getattr(each, "model_type", ""))
def test_every_linear_layer_but_the_head_is_adapted(made: PretrainedConfig, layers: tuple[str, ...], tmp_path: Path) -> None:
    torch.manual_seed(0)
    AutoModelForCausalLM.from_config(made).save_pretrained(tmp_path / "base")
    AutoTokenizer.from_pretrained(WEIGHTS / "small").save_pretrained(tmp_path / "base")
    found = load(config(base_model=str(tmp_path / "base"), lora_r=4))
    assert found.target_modules == layers
    trained = {name for name, weight in found.model.named_parameters() if weight.requires_grad}
    assert all("lora_" in name and "lm_head" not in name for name in trained)
    assert found.trained == sum(weight.numel() for weight in found.model.parameters() if weight.requires_grad)
    ids = torch.tensor([[1, 5, 9, 2]])
    with torch.no_grad(), found.model.disable_adapter():
        before = found.model.eval()(ids).logits
    # A fresh adapter changes nothing yet.
    torch.testing.assert_close(found.model(ids).logits, before)


def test_two_loads_with_one_seed_are_the_same_to_the_last_bit(loaded: LoadedModel) -> None:
    again = load(config())
    assert all(torch.equal(one, other) for one, other in zip(loaded.model.parameters(), again.model.parameters(), strict=True))
    other = load(config(seed=1))
    assert not all(
        torch.equal(one, each) for one, each in zip(loaded.model.parameters(), other.model.parameters(), strict=True)
    )


def test_an_adapter_is_known_by_its_weights(loaded: LoadedModel, adapter: Path, tmp_path: Path) -> None:
    again = save_adapter(loaded.model, loaded.tokenizer, tmp_path / "again", {**NOTED, "method": "rft", "domain": "oslo"})
    found = read_adapter(adapter)
    assert again.digest == found.digest
    assert (found.method, found.rank, found.alpha, found.parent) == ("kto", 16, 32, None)
    assert found.target_modules == loaded.target_modules
    other = load(config(seed=1))
    assert save_adapter(other.model, other.tokenizer, tmp_path / "other", NOTED).digest != found.digest


def test_an_adapter_that_is_there_is_replaced_whole(loaded: LoadedModel, adapter: Path) -> None:
    (adapter / "stale.txt").write_text("old")
    save_adapter(loaded.model, loaded.tokenizer, adapter, NOTED)
    assert not (adapter / "stale.txt").exists()
    assert [path.name for path in adapter.parent.iterdir()] == ["adapter"]


def test_training_goes_on_from_an_adapter_and_decoding_uses_it(loaded: LoadedModel, tmp_path: Path) -> None:
    torch.manual_seed(3)
    changed = load(config())
    for name, weight in changed.model.named_parameters():
        if "lora_B" in name:
            torch.nn.init.normal_(weight, std=0.1)
    folder = tmp_path / "adapter"
    save_adapter(changed.model, changed.tokenizer, folder, NOTED)
    further = load(config(start_adapter=str(folder)))
    ids = torch.tensor([[1, 5, 9, 2]])
    with torch.no_grad():
        wanted = changed.model.eval()(ids).logits
        assert torch.equal(further.model.eval()(ids).logits, wanted)
        assert not torch.equal(loaded.model.eval()(ids).logits, wanted)
        _, decoding = load_to_decode(str(WEIGHTS / "small"), str(folder))
        torch.testing.assert_close(decoding(ids).logits, wanted)
    assert further.trained == changed.trained


def test_an_adapter_that_was_changed_by_hand_is_refused(adapter: Path) -> None:
    written = json.loads((adapter / "adapter_config.json").read_text())
    (adapter / "adapter_config.json").write_text(json.dumps({**written, "lora_alpha": 64}))
    with pytest.raises(InputError, match="has changed since it was written"):
        load(config(start_adapter=str(adapter)))


def test_an_adapter_from_elsewhere_can_be_started_from(adapter: Path) -> None:
    (adapter / "adapter.json").unlink()
    assert read_adapter(adapter).method == "elsewhere"
    assert load(config(start_adapter=str(adapter))).trained > 0


@pytest.mark.parametrize(
    ("settings", "says"),
    [
        ({"lora_r": 8}, "lora_r is 8, and the adapter .* was made with 16"),
        ({"lora_alpha": 8}, "lora_alpha is 8, and the adapter .* was made with 32"),
        ({"target_modules": ("q_proj",)}, "and the training is set to q_proj: leave target_modules out"),
        ({"base_model": "embedded:base"}, "does not fit the model .*: its weights have other shapes"),
    ],
)
def test_an_adapter_that_does_not_fit_is_one_sentence(adapter: Path, settings: dict[str, Any], says: str) -> None:
    with pytest.raises(InputError, match=says) as found:
        load(config(start_adapter=str(adapter), **settings))
    assert "\n" not in str(found.value)
    assert isinstance(found.value, SettingError) == any(name.startswith("lora_") for name in settings)


def test_weights_that_an_adapter_lacks_are_not_made_up(adapter: Path) -> None:
    from safetensors.torch import load_file, save_file

    (adapter / "adapter.json").unlink()
    weights = load_file(adapter / "adapter_model.safetensors")
    weights.pop(sorted(weights)[0])
    save_file(weights, adapter / "adapter_model.safetensors")
    with pytest.raises(InputError, match="lacks weights"):
        load(config(start_adapter=str(adapter)))


@pytest.mark.parametrize(
    ("settings", "says"),
    [
        ({"base_model": "embedded:huge"}, "no embedded model 'huge'; there are: base, small"),
        ({"base_model": "{empty}"}, "holds no model: it has no config.json"),
        # Slow, as transformers loads all its architectures to name them.
        pytest.param(
            {"base_model": "{translator}"}, "could not be loaded: Unrecognized configuration", marks=pytest.mark.training
        ),
        ({"base_model": "{code}"}, "could not be loaded: The repository .* contains custom code"),
        ({"target_modules": ("q_proj", "nowhere")}, "has no layers 'nowhere' to adapt; a Qwen3ForCausalLM has down_proj"),
    ],
)
def test_a_model_that_cannot_be_had_is_one_sentence(settings: dict[str, Any], says: str, tmp_path: Path) -> None:
    written = {
        "empty": None,
        "translator": {"model_type": "t5"},
        "code": {"model_type": "own", "auto_map": {"AutoConfig": "own.Own", "AutoModelForCausalLM": "own.Own"}},
    }
    for name, content in written.items():
        (tmp_path / name).mkdir()
        if content is not None:
            AutoTokenizer.from_pretrained(WEIGHTS / "small").save_pretrained(tmp_path / name)
            (tmp_path / name / "config.json").write_text(json.dumps(content))
    (tmp_path / "code" / "own.py").write_text("raise SystemExit('code that came with a model was run')")
    named = {name: value.format(**{each: tmp_path / each for each in written}) if isinstance(value, str) else value
             for name, value in settings.items()}  # fmt: skip
    with pytest.raises(ModelRefused, match=says) as found:
        load(config(**named))
    assert "\n" not in str(found.value)


def test_a_model_of_hugging_face_is_not_waited_for_where_there_is_no_network(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("http_proxy", "https_proxy", "all_proxy", "HTTP_PROXY", "HTTPS_PROXY", "ALL_PROXY"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("HF_ENDPOINT", "https://nowhere.invalid")
    with pytest.raises(ModelRefused, match="the model 'nobody/no-such-model' is not on this machine, and Hugging Face cannot"):
        load(config(base_model="nobody/no-such-model"))
