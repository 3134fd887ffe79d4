"""One training from beginning to end, in the process that was started for it: what it does is written down, looked at and kept,
and it stops when it should.

    outcome = train(trainer, work)                # goes on from the newest checkpoint where there is one
    if outcome is None: ...                       # it was interrupted, after a checkpoint
    report = outcome.report(parameters=…, trained=…)
    # trainer.model has the adapter that is worth keeping: the best, the last good, or the last

`trainer` is any `transformers.Trainer` on `work.model`. Its arguments for logging and saving are set here. One that has
`curriculum` with `state_dict()` and `load_state_dict()` gets it kept with each checkpoint.

All that is decided in training follows from metrics.jsonl alone, so that one that was killed decides the same again.
"""

import json
import os
import re
import resource
import shutil
import signal
import sys
import threading
import time
import warnings
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from types import FrameType
from typing import Any

import huggingface_hub
import torch
from peft import LoraConfig, PeftModel, get_peft_model, set_peft_model_state_dict
from safetensors.torch import load_file
from transformers import TrainerCallback, set_seed
from transformers.integrations import TensorBoardCallback, TrackioCallback, WandbCallback
from transformers.pytorch_utils import Conv1D
from transformers.utils import logging
from trl.trainer.utils import RepeatSampler

from journeyman.core.errors import InputError, MissingExtra, ModelRefused, SettingError
from journeyman.core.task import Split, Task
from journeyman.io.atomic import flush, write_json, write_text
from journeyman.models.base import Dialect
from journeyman.models.local import location, peft_as_it_is, pretrained, why_refused
from journeyman.optimizers.weights import metrics
from journeyman.optimizers.weights.adapters import read_adapter, save_adapter
from journeyman.optimizers.weights.config import TrainingConfig
from journeyman.optimizers.weights.data import read, write
from journeyman.optimizers.weights.job import Ended, TrainingJob, TrainingReport
from journeyman.optimizers.weights.metrics import UpdateMetrics
from journeyman.optimizers.weights.rows import Row, TextOrMessages, too_few_right
from journeyman.optimizers.weights.train import (
    CompletionJudge,
    MakeTrainer,
    ToolEnvironment,
    TrainingSetup,
    distributed,
    sampling,
)

# Checkpoints: each a folder that is whole or not there, from which a training goes on as though it had never stopped.
#
# `transformers.Trainer` writes what it knows (adapter, optimizer, scheduler, random states, its own state) below
# `checkpoints/.unfinished`; what it does not know is added, everything is flushed to the disk, and then the folder gets its
# name, `step-00010`, in one rename. `step-00000` holds the adapter that the training started from and nothing else.
#
# Nothing in them is unpickled freely: weights are safetensors, the other states are read with `weights_only`.

STATE = "journeyman.json"
"""The state that `transformers` does not know, that of `trainer.curriculum`: `{"curriculum": …}`, or `{}` without one."""
_NAME = re.compile(r"step-(\d{5,})")
_UNREAD = {"training_args.bin", "README.md"}
"""Written beside the rest, and read by nobody; the first is a pickle."""


@dataclass(frozen=True, slots=True)
class Checkpoints:
    """The folder of a training's checkpoints."""

    folder: Path

    @property
    def unfinished(self) -> Path:
        """Where what is being written lies."""
        return self.folder / ".unfinished"

    @property
    def steps(self) -> list[int]:
        """Of which updates there are checkpoints, in their order; 0 is the start, from which nothing can go on."""
        if not self.folder.is_dir():
            return []
        matches = (_NAME.fullmatch(path.name) for path in self.folder.iterdir())
        return sorted(int(match[1]) for match in matches if match)

    @property
    def newest_step(self) -> int | None:
        """The last update after which `train(resume_from_checkpoint=…)` can go on."""
        return max((step for step in self.steps if step), default=None)

    def of(self, step: int) -> Path:
        """The folder of the checkpoint after that update."""
        return self.folder / f"step-{step:05}"

    def save_start(self, trainer: Any) -> None:
        """Keep the adapter that training starts from, once."""
        target = self.of(0)
        if target.exists():
            return
        part = self.unfinished / target.name
        trainer.save_model(str(part), _internal_call=True)
        self._publish(trainer, part, target)

    def finish(self, trainer: Any, step: int) -> None:
        """Give what `transformers` has just written its name, with the states that it does not know."""
        part = self.unfinished / f"checkpoint-{step}"
        if trainer.is_world_process_zero():
            curriculum = getattr(trainer, "curriculum", None)
            states = {} if curriculum is None else {"curriculum": curriculum.state_dict()}
            (part / STATE).write_text(json.dumps(states), encoding="utf-8")
        self._publish(trainer, part, self.of(step))

    def prune(self, keep: Iterable[int]) -> None:
        """Remove all but these, the start and the newest."""
        saved = self.steps
        for step in set(saved) - {0, *saved[-1:], *keep}:
            # Renamed first: a folder that is half removed must not look like a checkpoint.
            trash = self.unfinished / f"old-{step}"
            trash.parent.mkdir(exist_ok=True)
            shutil.rmtree(trash, ignore_errors=True)
            self.of(step).rename(trash)
            shutil.rmtree(trash)

    def clear_unfinished(self) -> None:
        """Remove what a killed process left half written."""
        shutil.rmtree(self.unfinished, ignore_errors=True)

    def _publish(self, trainer: Any, part: Path, target: Path) -> None:
        trainer.accelerator.wait_for_everyone()
        if trainer.is_world_process_zero():
            for name in _UNREAD:
                (part / name).unlink(missing_ok=True)
            for path in (*part.rglob("*"), part):
                flush(path)
            shutil.rmtree(target, ignore_errors=True)
            part.rename(target)
            flush(target.parent)
        trainer.accelerator.wait_for_everyone()


def restore_curriculum(checkpoint: Path, trainer: Any) -> None:
    """Load the curriculum's state, which `transformers` does not know, where the checkpoint and the trainer have one."""
    states = json.loads((checkpoint / STATE).read_text(encoding="utf-8"))
    if "curriculum" in states and getattr(trainer, "curriculum", None) is not None:
        trainer.curriculum.load_state_dict(states["curriculum"])


def load_adapter(model: Any, checkpoint: Path) -> None:
    """Load the adapter of a checkpoint into a `peft.PeftModel`.

    Raises:
        InputError: It holds weights that the model does not have.
    """
    weights = load_file(checkpoint / "adapter_model.safetensors")
    loaded = set_peft_model_state_dict(model, weights, adapter_name=model.active_adapter)
    if loaded.unexpected_keys:
        raise InputError(f"{checkpoint} holds weights that this model has not, such as {loaded.unexpected_keys[0]}")


# The training itself, under watch.

_COLUMNS = {
    **{name: name for name in ("loss", "reward", "reward_std", "entropy", "kl", "learning_rate", "grad_norm", "ess")},
    "completions/mean_length": "completion_tokens",
}
"""What a method logs under its own name, and the field that it is."""


@dataclass(frozen=True, slots=True)
class TrainingOutcome:
    """How a training ended, and what is kept of it."""

    ended: Ended
    reason: str
    kept_step: int
    updates: tuple[UpdateMetrics, ...]

    def report(self, *, parameters: int, trained: int) -> TrainingReport:
        last = self.updates[-1]
        looks = {each.step: each.validation for each in self.updates}
        return TrainingReport(
            ended=self.ended,
            reason=self.reason,
            steps=last.step,
            kept_step=self.kept_step,
            seconds=last.seconds or 0.0,
            cpu_seconds=last.cpu_seconds or 0.0,
            peak_memory=last.peak_memory,
            peak_gpu_memory=last.peak_gpu_memory,
            parameters=parameters,
            trained=trained,
            tokens=last.tokens or 0,
            validation_before=looks.get(0),
            validation_after=looks.get(self.kept_step),
        )


def train(trainer: Any, work: TrainingSetup) -> TrainingOutcome | None:
    """Train to the end, from the newest checkpoint where there is one; afterwards the model has the adapter to keep.

    A model that is spread over several processes has it not: it lies in the checkpoint of `kept_step` alone.

    SIGINT and SIGTERM end it after the update that is under way, with a checkpoint, and `None` is the answer.
    """
    watch = MonitorCallback(trainer, work)
    trainer.add_callback(watch)
    checkpoints, outcome = Checkpoints(work.job.checkpoints), watch.outcome
    if outcome is None:
        newest = checkpoints.newest_step
        with watch.interruptible():
            trainer.train(resume_from_checkpoint=str(checkpoints.of(newest)) if newest else None)
        outcome = watch.outcome
    if outcome is not None:
        if not distributed.is_sharded(trainer):
            load_adapter(trainer.accelerator.unwrap_model(trainer.model), checkpoints.of(outcome.kept_step))
        checkpoints.clear_unfinished()
    return outcome


class MonitorCallback(TrainerCallback):  # type: ignore[misc]  # transformers is untyped here
    """Writes metrics.jsonl, looks at the validation tasks, listens to the guards, and says when to save and to stop."""

    def __init__(self, trainer: Any, work: TrainingSetup) -> None:
        self._trainer = trainer
        self._work = work
        self._tasks = work.job.read_tasks(Split.VALIDATION) if work.judge is not None else []
        self._looked: sampling.ValidationResult | None = None
        self._interrupted = False
        self._clock = time.monotonic(), metrics.cpu_seconds()
        self._generation = _updates_a_generation(trainer.args)
        self._checkpoints = Checkpoints(work.job.checkpoints)
        newest = self._checkpoints.newest_step
        self._updates = [each for each in metrics.read(work.job.metrics) if each.step <= (newest or -1)]
        self._before = self._updates[-1] if self._updates else None
        if trainer.is_world_process_zero():
            self._checkpoints.clear_unfinished()
            write_text(work.job.metrics, "".join(each.line() for each in self._updates))
        if newest:
            restore_curriculum(self._checkpoints.of(newest), trainer)
        trainer.accelerator.wait_for_everyone()
        _set_arguments(trainer, str(self._checkpoints.unfinished))

    @property
    def outcome(self) -> TrainingOutcome | None:
        """`None` while it is not over."""
        verdict = _verdict(self._updates, self._work.config)
        if verdict is None:
            return None
        ended, reason, kept_step = verdict
        saved = [step for step in self._checkpoints.steps if step <= kept_step]
        return TrainingOutcome(ended, reason, saved[-1], tuple(self._updates))

    @contextmanager
    def interruptible(self) -> Iterator[None]:
        """A first signal to stop is obeyed after a checkpoint, a second one at once."""
        if threading.current_thread() is not threading.main_thread():
            yield
            return

        def stop(number: int, frame: FrameType | None) -> None:
            self._interrupted = True
            signal.signal(number, signal.SIG_DFL)

        before = {number: signal.signal(number, stop) for number in (signal.SIGINT, signal.SIGTERM)}
        try:
            yield
        finally:
            for number, handler in before.items():
                signal.signal(number, handler)

    def on_train_begin(self, args: Any, state: Any, control: Any, **loaded: Any) -> None:
        if self._before is not None:
            _advance_sampler(loaded["train_dataloader"], int(state.epoch))
            if self._before.tokens is not None and hasattr(self._trainer, "_total_train_tokens"):
                self._trainer._total_train_tokens = self._before.tokens
            return
        self._checkpoints.save_start(self._trainer)
        validated = self._look() if self._tasks else sampling.ValidationResult(None, None)
        self._write(self._update(state, {"validation": validated.reward, "solved": validated.solved}))

    def on_step_end(self, args: Any, state: Any, control: Any, **_: Any) -> None:
        step, last = state.global_step, state.global_step >= state.max_steps
        config = self._work.config
        if self._tasks and (last or self._due(step, config.evaluation_interval)):
            self._looked = self._look()
        if self._between_generations(step) and not last and self._stop_requested():
            control.should_save = control.should_training_stop = True
        if last or self._due(step, config.checkpoint_interval):
            control.should_save = True

    def on_log(self, args: Any, state: Any, control: Any, logs: Mapping[str, Any] | None = None, **_: Any) -> None:
        if not logs or "loss" not in logs or (self._updates and self._updates[-1].step >= state.global_step):
            return
        validated, self._looked = self._looked or sampling.ValidationResult(None, None), None
        update = self._update(state, {**_named(logs), "validation": validated.reward, "solved": validated.solved})
        self._write(distributed.broadcast(update))
        verdict = _verdict(self._updates, self._work.config)
        if verdict is None or verdict[0] is not Ended.GUARDED:
            best = metrics.best(self._updates)
            control.should_save = control.should_save or (best is not None and best.step == state.global_step)
        else:
            control.should_save = False
        if verdict is not None:
            control.should_training_stop = True

    def on_save(self, args: Any, state: Any, control: Any, **_: Any) -> None:
        if self._trainer.is_world_process_zero():
            flush(self._work.job.metrics)
        self._checkpoints.finish(self._trainer, state.global_step)
        if self._trainer.is_world_process_zero():
            self._checkpoints.prune(metrics.worth_keeping(self._updates, self._checkpoints.steps))

    def _stop_requested(self) -> bool:
        """Whether any process was: they must stop after the same update."""
        return any(distributed.gather([self._interrupted]))

    def _look(self) -> sampling.ValidationResult:
        return sampling.validate(self._trainer, self._work, self._tasks)

    def _between_generations(self, step: int) -> bool:
        """Whether nothing is under way that a checkpoint could not hold: completions that are written and not all used."""
        return step % self._generation == 0

    def _due(self, step: int, interval: int | None) -> bool:
        """Whether the interval has passed since the last update at which this could be done."""
        if interval is None or not self._between_generations(step):
            return False
        return step // interval > (step - self._generation) // interval

    def _update(self, state: Any, values: Mapping[str, Any]) -> UpdateMetrics:
        before = self._before or UpdateMetrics(step=0, of=0, seconds=0.0, cpu_seconds=0.0)
        wall, cpu = self._clock
        known, broken = metrics.finite(values)
        more, more_broken = metrics.finite(known.pop("more", {}))
        return UpdateMetrics(
            step=state.global_step,
            of=state.max_steps,
            seconds=round((before.seconds or 0.0) + time.monotonic() - wall, 3),
            cpu_seconds=round((before.cpu_seconds or 0.0) + metrics.cpu_seconds() - cpu, 3),
            peak_memory=max(before.peak_memory or 0, _peak_memory()),
            peak_gpu_memory=max(before.peak_gpu_memory or 0, torch.cuda.max_memory_allocated())
            if torch.cuda.is_available()
            else None,
            broken=(*broken, *more_broken),
            more={name: value for name, value in more.items() if value is not None},
            **known,
        )

    def _write(self, update: UpdateMetrics) -> None:
        self._updates.append(update)
        if self._trainer.is_world_process_zero():
            with self._work.job.metrics.open("a", encoding="utf-8") as file:
                file.write(update.line())


def _verdict(updates: list[UpdateMetrics], config: TrainingConfig) -> tuple[Ended, str, int] | None:
    """How it ended, why, and after which update it was as it should be kept; `None` while it goes on."""
    if not updates:
        return None
    last, best = updates[-1], metrics.best(updates)
    which = f"the adapter is the one after update {best.step}" if best else ""
    if config.guards and (stopped := metrics.verdict(updates, config)):
        return Ended.GUARDED, stopped.reason, best.step if best else stopped.good_until
    if (
        best
        and config.patience
        and (looks := sum(each.validation is not None for each in updates if each.step > best.step)) >= config.patience
    ):
        return Ended.EARLY, f"{looks} looks without a better validation reward than {best.validation:.3f}; {which}", best.step
    if last.step >= last.of:
        return (
            Ended.FINISHED,
            f"all {last.of} updates were made" + (f"; {which}" if best else ""),
            best.step if best else last.step,
        )
    return None


def _named(logs: Mapping[str, Any]) -> dict[str, Any]:
    numbers = {name: float(value) for name, value in logs.items() if isinstance(value, int | float)}
    tokens = numbers.pop("num_tokens", None)
    named = {field: numbers.pop(name) for name, field in _COLUMNS.items() if name in numbers}
    return {**named, "tokens": None if tokens is None else int(tokens), "more": numbers}


def _set_arguments(trainer: Any, folder: str) -> None:
    args = trainer.args
    args.output_dir = folder
    args.logging_strategy, args.logging_steps, args.logging_first_step = "steps", 1, False
    # Otherwise a loss that is no number is replaced by the mean of those before it.
    args.logging_nan_inf_filter = False
    args.save_strategy, args.save_total_limit, args.eval_strategy = "no", None, "no"
    args.save_only_model = False


def _updates_a_generation(args: Any) -> int:
    """GRPO: how many updates are made on completions that were written together."""
    passes = int(getattr(args, "steps_per_generation", None) or 0)
    return max(1, passes * int(getattr(args, "num_iterations", 1)) // int(args.gradient_accumulation_steps))


def _advance_sampler(loader: Any, epochs: int) -> None:
    """Bring TRL's sampler to where it was: it shuffles anew in each epoch, with a generator that is not kept."""
    batches = getattr(loader.batch_sampler, "batch_sampler", loader.batch_sampler)
    if isinstance(sampler := batches.sampler, RepeatSampler) and sampler.shuffle:
        for _ in range(epochs):
            torch.randperm(sampler.num_samples, generator=sampler.generator)


def _peak_memory() -> int:
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return peak if sys.platform == "darwin" else peak * 1024


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
    outcome = train(trainer, work)
    if outcome is None:
        return None
    report = outcome.report(parameters=loaded.parameters, trained=loaded.trained)
    if trainer.is_world_process_zero():
        if report.kept_step:
            kept = Checkpoints(job.checkpoints).of(report.kept_step)
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
        _probe(work)
        written = distributed.gather(sampled(replace(work, tasks=distributed.shard(work.tasks))))
        if distributed.is_main_process():
            write(work.job.rows, written)
        distributed.barrier()
    rows = list(read(work.job.rows))
    if not rows:
        raise InputError(_nothing(work))
    return rows


PROBED = 32
"""Tasks that are attempted first, where the model must get some right by itself: a tenth of what all would cost."""


def _probe(work: TrainingSetup) -> None:
    """Attempt some tasks, and see that there will be something to learn from.

    Raises:
        InputError: There will not.
    """
    if not work.config.guards or work.config.method != "grpo-offline":
        return
    # Every process asks the same, and so decides the same.
    if few := too_few_right(sampling.groups(work, work.tasks[:PROBED])):
        raise InputError(
            f"grpo-offline learns from what the model writes before it begins, and of that {few}, too little to learn from: "
            "take --method grpo, which goes on writing while it learns, or record attempts that go better (--data); "
            "--no-guards trains all the same"
        )


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
