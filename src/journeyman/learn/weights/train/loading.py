"""The base model with low-rank layers on it: what is trained, and how it is written down."""

import json
import os
import shutil
import warnings
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import huggingface_hub
import torch
from peft import LoraConfig, PeftModel, get_peft_model
from transformers import set_seed
from transformers.pytorch_utils import Conv1D
from transformers.utils import logging

from journeyman.adapter import Adapter
from journeyman.errors import InputError, ModelRefused, SettingError
from journeyman.learn.weights.adapters import CONTENT, digest, read_adapter, whole_folder
from journeyman.learn.weights.config import TrainingConfig
from journeyman.models.local import location, peft_as_it_is, pretrained, why_refused

SMALL = 50_000_000
"""Parameters up to which plain attention is quicker on a CPU than PyTorch's fused one, whose set-up then weighs more."""


@dataclass(frozen=True, slots=True, eq=False, kw_only=True)
class LoadedModel:
    """A model that is ready to be trained."""

    model: Any
    """The base model, frozen, with an adapter on it that is not (`peft.PeftModel`)."""
    tokenizer: Any
    """It has a token for padding, and pads on the left."""
    parameters: int
    """Of the base model."""
    trained: int
    """Of the adapter."""
    target_modules: tuple[str, ...]
    """The layers that it changes, by the last part of their names, sorted."""


def load(config: TrainingConfig) -> LoadedModel:
    """The base model with a fresh adapter, or with the one that training goes on from.

    The seed is set: two loads with one config are the same to the last bit.

    Raises:
        ModelRefused: There is no such model, or no adapter can be put on it.
        InputError: The adapter to start from is not what the config says.
    """
    logging.set_verbosity_error()
    logging.disable_progress_bar()
    # TRL's trainers tell Hugging Face that they were started.
    huggingface_hub.constants.HF_HUB_DISABLE_TELEMETRY = True
    if config.threads is not None:
        torch.set_num_threads(max(1, config.threads // int(os.environ.get("LOCAL_WORLD_SIZE", "1"))))
    tokenizer, model = base(config)
    parameters = sum(weight.numel() for weight in model.parameters())
    if parameters <= SMALL and not torch.cuda.is_available():
        model.set_attn_implementation("eager")
    set_seed(config.seed)
    adapted, layers = _continued(model, config) if config.start_adapter else _fresh(model, config)
    adapted.train()
    trained = sum(weight.numel() for weight in adapted.parameters() if weight.requires_grad)
    return LoadedModel(model=adapted, tokenizer=tokenizer, parameters=parameters, trained=trained, target_modules=layers)


def base(config: TrainingConfig) -> tuple[Any, Any]:
    """Tokenizer and base model, on the device that trains.

    Raises:
        ModelRefused: There is no such model, or it may not be had.
    """
    tokenizer, model = pretrained(location(config.base_model), torch.bfloat16 if config.use_bf16 else torch.float32, "sdpa")
    model.config.pad_token_id = tokenizer.pad_token_id
    return tokenizer, model.to(_device())


def _device() -> torch.device:
    """That of this process, of those that train together."""
    return torch.device("cuda", int(os.environ.get("LOCAL_RANK", "0"))) if torch.cuda.is_available() else torch.device("cpu")


def linear_layers(model: Any) -> tuple[str, ...]:
    """The last parts of the names of all linear layers but the head, sorted; GPT-2's `Conv1D` is one too."""
    head = model.get_output_embeddings()
    return tuple(sorted({name.rpartition(".")[2] for name, layer in _linear(model) if layer is not head}))


def _linear(model: Any) -> list[tuple[str, Any]]:
    return [(name, layer) for name, layer in model.named_modules() if isinstance(layer, torch.nn.Linear | Conv1D)]


def _fresh(model: Any, config: TrainingConfig) -> tuple[Any, tuple[str, ...]]:
    linear = linear_layers(model)
    layers = tuple(sorted(config.target_modules)) or linear
    kind = type(model).__name__
    if not layers:
        raise ModelRefused(f"{config.base_model!r} is a {kind}, in which no linear layers were found that a LoRA could change")
    if unknown := sorted(set(layers) - set(linear)):
        raise ModelRefused(f"{config.base_model!r} has no layers {unknown[0]!r} to adapt; a {kind} has {', '.join(linear)}")
    lora = LoraConfig(
        r=config.lora_r,
        lora_alpha=config.lora_alpha,
        lora_dropout=config.lora_dropout,
        target_modules=list(layers),
        fan_in_fan_out=any(isinstance(layer, Conv1D) for _, layer in _linear(model)),
        task_type="CAUSAL_LM",
    )
    with peft_as_it_is():
        return get_peft_model(model, lora), layers


def _continued(model: Any, config: TrainingConfig) -> tuple[Any, tuple[str, ...]]:
    start = read_adapter(Path(config.start_adapter))
    for name, value in (("lora_r", start.rank), ("lora_alpha", start.alpha)):
        if value != (wanted := getattr(config, name)):
            raise SettingError(
                name, f"{{}} is {wanted}, and the adapter {config.start_adapter} was made with {value}: set it to that"
            )
    if config.target_modules and set(config.target_modules) != set(start.target_modules):
        raise InputError(
            f"the adapter {config.start_adapter} changes {', '.join(start.target_modules)}, and the training is set to "
            f"{', '.join(sorted(config.target_modules))}: leave target_modules out, or train a fresh adapter"
        )
    if missing := sorted(set(start.target_modules) - set(linear_layers(model))):
        raise InputError(
            f"the adapter {config.start_adapter} does not fit {config.base_model!r}, which has no layers {missing[0]!r}"
        )
    try:
        return _trainable_adapter(model, config), start.target_modules
    except (OSError, ValueError, RuntimeError) as error:
        raise InputError(why_refused(config.base_model, config.start_adapter, error)) from error


def _trainable_adapter(model: Any, config: TrainingConfig) -> Any:
    with peft_as_it_is():
        # PEFT only warns of weights that the file does not have: the layers would silently start afresh.
        warnings.filterwarnings("error", message="Found missing adapter keys", category=UserWarning)
        try:
            return PeftModel.from_pretrained(model, config.start_adapter, is_trainable=True)
        except UserWarning as warned:
            raise ValueError(f"the adapter {config.start_adapter} lacks weights: {warned}") from warned


def save_adapter(model: Any, tokenizer: Any, folder: Path, adapter: Mapping[str, Any]) -> Adapter:
    """Write the adapter of a `PeftModel` in PEFT's form, whole or not at all; what lay in the folder is replaced.

    Args:
        model: Or the folder of a checkpoint of one.
        adapter: What the weights do not tell: `base_model`, `method` and `parent` of the `Adapter`, and whatever else is
            worth a line in adapter.json.
    """
    with whole_folder(folder, replace=True) as part:
        if isinstance(model, Path):
            for name in CONTENT:
                shutil.copyfile(model / name, part / name)
        else:
            model.save_pretrained(part, save_embedding_layers=False)
        tokenizer.save_pretrained(part)
        (part / "README.md").unlink(missing_ok=True)
        _normalise_config(part / "adapter_config.json", str(adapter["base_model"]))
        metadata = {"parent": None, **adapter, "digest": digest(part)}
        _write(part / "adapter.json", metadata)
        saved = read_adapter(part)
        _write(part / "adapter.json", {**metadata, **asdict(saved)})
    return saved


def _normalise_config(path: Path, base_model: str) -> None:
    # What PEFT writes depends on the order of a set, on its version and on where the base model lies.
    config = json.loads(path.read_text(encoding="utf-8"))
    config.pop("peft_version", None)
    config["base_model_name_or_path"] = base_model
    if isinstance(config["target_modules"], list):
        config["target_modules"] = sorted(config["target_modules"])
    _write(path, config)


def _write(path: Path, value: Mapping[str, Any]) -> None:
    path.write_text(json.dumps(value, indent=2, sort_keys=True, ensure_ascii=False) + "\n", encoding="utf-8")
