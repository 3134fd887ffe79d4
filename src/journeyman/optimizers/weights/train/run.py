"""One training from beginning to end, in the process that was started for it."""

import json
import os
import shutil
import warnings
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import huggingface_hub
import torch
from peft import LoraConfig, PeftModel, get_peft_model
from transformers import TrainerCallback, set_seed
from transformers.integrations import TensorBoardCallback, TrackioCallback, WandbCallback
from transformers.pytorch_utils import Conv1D
from transformers.utils import logging

from journeyman.core.candidate import Adapter
from journeyman.core.errors import InputError, MissingExtra, ModelRefused, SettingError
from journeyman.core.task import Split, Task
from journeyman.io.atomic import write_json
from journeyman.models.base import Dialect
from journeyman.models.local import location, peft_as_it_is, pretrained, why_refused
from journeyman.optimizers.weights.adapters import CONTENT, digest, read_adapter, whole_folder
from journeyman.optimizers.weights.config import TrainingConfig
from journeyman.optimizers.weights.data import read, write
from journeyman.optimizers.weights.job import TrainingJob, TrainingReport
from journeyman.optimizers.weights.rows import Row, TextOrMessages
from journeyman.optimizers.weights.train import (
    CompletionJudge,
    MakeTrainer,
    ToolEnvironment,
    TrainingSetup,
    callbacks,
    distributed,
    sampling,
)

# The base model with low-rank layers on it: what is trained, and how it is written down.

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


# Where the curves of a training can be watched, besides metrics.jsonl: TensorBoard in the run's folder, trackio or W&B.

PROJECT = "journeyman"
"""What trackio and W&B call all runs together."""


def trackers(config: TrainingConfig, job: TrainingJob) -> list[Any]:
    """The callbacks for `config.tracker`; none for `none`.

    Raises:
        MissingExtra: The tracker is not installed.
    """
    if config.tracker == "none":
        return []
    if find_spec(config.tracker) is None:
        raise MissingExtra(f"{config.tracker} is missing: pip install {config.tracker}, or set the tracker to tensorboard")
    if config.tracker == "tensorboard":
        board = TensorBoardCallback()
        board.logging_dir = str(job.folder / "tensorboard")
        return [board]
    os.environ.setdefault("WANDB_PROJECT", PROJECT)
    return [_Named(job.folder.name), TrackioCallback() if config.tracker == "trackio" else WandbCallback()]


class _Named(TrainerCallback):  # type: ignore[misc]  # transformers is untyped here
    """Gives the run its name, and keeps what trackio writes on this machine."""

    def __init__(self, name: str) -> None:
        self._name = name

    def on_init_end(self, args: Any, state: Any, control: Any, **_: Any) -> None:
        args.run_name, args.project = self._name, PROJECT
        args.trackio_static_space_id = False


_METHODS = {
    "grpo": ("online", "grpo"),
    "grpo-offline": ("offline", "grpo_offline"),
    "kto": ("preference", "kto"),
    "dpo": ("preference", "dpo"),
    "rft": ("preference", "rft"),
}
"""Module and builder. Strings, as each module loads a trainer that the others do not need."""

Put = Callable[[Task, Dialect], TextOrMessages]
"""How a task is put to a model that reads prompts of that kind."""


def run(job: TrainingJob, put: Put, judge: CompletionJudge | None) -> TrainingReport | None:
    """Train what the folder of the job says, from where it was, and write adapter and report there.

    Args:
        judge: What judges fresh completions; a training that has rows can do without.

    Returns:
        `None` when it was interrupted: it goes on when it is run again.

    Raises:
        InputError: There is nothing that could be learned from.
    """
    config = job.config
    distributed.initialise()
    loaded = load(config)
    dialect: Dialect = "terse" if getattr(loaded.model.config, "dialect", "") == "terse" else "full"
    work = TrainingSetup(
        config=config,
        job=job,
        model=loaded.model,
        tokenizer=loaded.tokenizer,
        tasks=job.read_tasks(Split.TRAIN),
        rows=(),
        put=lambda task: put(task, dialect),
        judge=judge,
        callbacks=trackers(config, job),
        environment=_environment_class(config.environment) if config.environment else None,
    )
    if config.method != "grpo":
        work = replace(work, rows=_rows(work))
    module, builder = _METHODS[config.method]
    make: MakeTrainer = getattr(import_module(f"{__package__}.{module}"), builder)
    trainer = make(work)
    outcome = callbacks.train(trainer, work)
    if outcome is None:
        return None
    report = outcome.report(parameters=loaded.parameters, trained=loaded.trained)
    if trainer.is_world_process_zero():
        if report.kept_step:
            kept = callbacks.Checkpoints(job.checkpoints).of(report.kept_step)
            _save(work, kept if distributed.is_sharded(trainer) else loaded.model)
        write_json(job.folder / "report.json", report.json())
    trainer.accelerator.wait_for_everyone()
    return report


def _environment_class(named: str) -> Callable[[], ToolEnvironment]:
    """What makes the world of that name.

    Raises:
        InputError: There is none.
    """
    module, _, name = named.partition(":")
    try:
        environment: Callable[[], ToolEnvironment] = getattr(import_module(module), name)
    except (ImportError, AttributeError, ValueError) as error:
        raise InputError(f"the environment {named!r} cannot be loaded: {error}; name it as MODULE:NAME") from error
    if not callable(getattr(environment, "reset", None)):
        raise InputError(f"the environment {named!r} is none: it has no reset(task)")
    return environment


def _rows(work: TrainingSetup) -> Sequence[Row]:
    """What is learned from: rows that were given, else completions that the model writes now, before it learns."""
    # One answer for all, as the first one to be done writes them.
    if not distributed.broadcast(work.job.rows.is_file()):
        if not work.tasks or work.judge is None:
            raise InputError(f"{work.job.folder} has neither rows nor tasks: there is nothing to learn from")
        written = distributed.gather(sampled(replace(work, tasks=distributed.shard(work.tasks))))
        if distributed.is_main_process():
            write(work.job.rows, written)
        distributed.barrier()
    rows = list(read(work.job.rows))
    if not rows:
        raise InputError(_nothing(work))
    return rows


def _nothing(work: TrainingSetup) -> str:
    written = f"{len(work.tasks)} tasks were attempted"
    if work.config.method == "rft":
        return (
            f"{written}, and no attempt was right: there is nothing to imitate; --method grpo learns from what was nearly right"
        )
    return f"{written}, and no attempt could be judged: there is nothing to learn from"


def sampled(work: TrainingSetup) -> Sequence[Row]:
    """Completions of the tasks by the model as it is, judged, in the form that the method learns from."""
    groups = sampling.groups(work, work.tasks)
    if work.config.method == "rft":
        return [row for row in sampling.labelled(groups) if row.label]
    return sampling.labelled(groups) if work.config.method == "kto" else groups


def _save(work: TrainingSetup, trained: Any) -> None:
    config = work.config
    parent = read_adapter(work.job.folder / config.start_adapter).digest if config.start_adapter else None
    metadata = {"base_model": config.base_model, "method": config.method, "parent": parent, "domain": config.domain}
    save_adapter(trained, work.tokenizer, work.job.adapter, metadata)
