"""Everything that a training of weights can be told."""

from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass, fields
from functools import cache
from types import NoneType, UnionType
from typing import Any, Literal, get_args, get_origin, get_type_hints

from journeyman.core.errors import InputError, SettingError

Method = Literal["grpo", "grpo-offline", "kto", "dpo", "rft"]
METHODS: tuple[str, ...] = get_args(Method)
Tracker = Literal["tensorboard", "trackio", "wandb", "none"]
_ONLY = {
    "environment": "grpo",
    "clip": "grpo",
    "curriculum": "grpo",
    "generation": "grpo",
    "importance": "grpo-offline",
    "desirable_weight": "kto",
    "undesirable_weight": "kto",
}
"""Settings of one method, which to set with another would have no effect."""


@dataclass(frozen=True, slots=True, kw_only=True)
class WeightsTrainingConfig:
    """Rows or tasks in, an adapter out. What is `None` is derived, from the method, the model's size and the hardware."""

    base_model: str = "Qwen/Qwen2.5-1.5B-Instruct"
    """A Hugging Face id, a local folder, or `embedded:SIZE`."""
    method: str = "grpo"
    """`grpo` on fresh completions, `grpo-offline` on recorded ones, `kto` on labels, `dpo` on pairs, `rft` on what is right."""
    data: str = ""
    """A file of rows, JSONL or Parquet. Without one, completions are sampled from the model and judged, task by task."""
    dataset_name: str = ""
    """The data set of the tasks: desk, gsm8k, custom, humaneval or mbpp."""
    input_path: str = ""
    domain: str = ""
    num_examples: int = 400
    """Tasks to train on, at most."""
    validation: int = 64
    """Tasks, apart from those, by which the best checkpoint is chosen and a collapse is noticed; 0 for none."""
    rewards: tuple[str, ...] = ()
    """Names of rewards that count beside the verifier of the tasks; see `journeyman rewards list`."""
    environment: str = ""
    """`MODULE:NAME` of the world with tools in which the tasks are attempted, over several turns: a class whose public methods
    are the tools, and whose `reset(task)` begins a task anew."""
    context: str = ""
    """A playbook whose bullets stand in every prompt; without one the prompts are bare."""

    lora_r: int = 16
    lora_alpha: int = 32
    lora_dropout: float = 0.0
    target_modules: tuple[str, ...] = ()
    """Names of layers; found for the architecture where none are named."""
    start_adapter: str = ""
    """The folder of an adapter to go on from."""

    learning_rate: float | None = None
    num_epochs: float = 3.0
    max_steps: int | None = None
    """Updates; where it is given, `num_epochs` is not asked."""
    per_device_batch_size: int | None = None
    """Completions in one forward and backward pass."""
    gradient_accumulation_steps: int | None = None
    num_generations: int | None = None
    """Completions of one prompt that are compared: GRPO's group, and what is sampled for the other methods."""
    temperature: float = 1.0
    """Of the sampling."""
    max_prompt_tokens: int | None = None
    max_completion_tokens: int | None = None
    beta: float | None = None
    """Weight of staying near the start: of the KL term (GRPO), of the implicit reward (KTO, DPO)."""
    clip: float = 0.2
    """How far the probability ratio may move what a completion counts (GRPO)."""
    importance: bool = True
    """Offline GRPO weighs by the ratio to the recorded policy. Without it a run collapses; here to show that guards see it."""
    desirable_weight: float | None = None
    undesirable_weight: float | None = None
    """Of KTO's loss; derived from the balance of the labels, so that neither side drowns the other."""
    curriculum: bool = True
    """GRPO: from solvable to hard by measured pass rate, and prompts whose completions all score alike are drawn again."""

    use_bf16: bool | None = None
    gradient_checkpointing: bool | None = None
    threads: int | None = None
    seed: int = 0

    checkpoint_interval: int = 10
    """Updates between two checkpoints."""
    evaluation_interval: int | None = None
    """Updates between two looks at the validation tasks."""
    patience: int = 5
    """Looks without a better validation reward after which a run stops early; 0 never stops it."""
    guards: bool = True
    """Stop with the last good checkpoint when the loss is no number or the policy collapses."""
    tracker: str = "tensorboard"
    generation: str = "auto"
    """`transformers`, `vllm`, or `auto`: vLLM where there is a GPU and it is installed."""

    def __post_init__(self) -> None:
        if self.target_modules == "all-linear":  # type: ignore[comparison-overlap]  # PEFT's word for what is found here anyway
            object.__setattr__(self, "target_modules", ())
        for name, kinds in _kinds().items():
            value = getattr(self, name)
            if tuple in kinds and isinstance(value, list):
                object.__setattr__(self, name, value := tuple(value))
            if not _is_one(value, kinds):
                raise SettingError(name, f"{{}} is {value!r}, and must be {' or '.join(_WORDS[kind] for kind in kinds)}")
        for name, fine, must in self._values():
            if not fine:
                raise SettingError(name, f"{{}} is {getattr(self, name)!r}, and must {must}")

    def _values(self) -> Iterator[tuple[str, bool, str]]:
        yield "method", self.method in METHODS, f"be one of {', '.join(METHODS)}"
        yield "tracker", self.tracker in get_args(Tracker), f"be one of {', '.join(get_args(Tracker))}"
        yield "generation", self.generation in ("auto", "transformers", "vllm"), "be auto, transformers or vllm"
        yield "base_model", bool(self.base_model.strip()), "name a model"
        for name in ("lora_r", "lora_alpha", "num_examples", "checkpoint_interval"):
            yield name, getattr(self, name) >= 1, "be at least 1"
        for name in ("per_device_batch_size", "gradient_accumulation_steps", "max_steps", "max_prompt_tokens", "threads"):
            yield name, _from(getattr(self, name), 1), "be at least 1"
        yield "num_generations", _from(self.num_generations, 2), "be at least 2: completions are compared with each other"
        yield "max_completion_tokens", _from(self.max_completion_tokens, 1), "be at least 1"
        yield "evaluation_interval", _from(self.evaluation_interval, 1), "be at least 1"
        yield "learning_rate", self.learning_rate is None or 0 < self.learning_rate < 1, "lie between 0 and 1"
        yield "num_epochs", self.num_epochs > 0, "be above 0"
        yield "temperature", 0 < self.temperature <= 5, "lie above 0 and at most at 5"
        yield "beta", self.beta is None or self.beta >= 0, "not be negative"
        yield "clip", 0 < self.clip < 1, "lie between 0 and 1"
        yield "lora_dropout", 0 <= self.lora_dropout < 1, "lie from 0 to below 1"
        for name in ("validation", "patience", "seed"):
            yield name, getattr(self, name) >= 0, "not be negative"
        for name in ("desirable_weight", "undesirable_weight"):
            yield name, getattr(self, name) is None or getattr(self, name) > 0, "be above 0"
        yield from self._idle()

    def _idle(self) -> Iterator[tuple[str, bool, str]]:
        """What is set and would do nothing."""
        usual = {field.name: field.default for field in fields(self)}
        for name, method in _ONLY.items():
            fine = self.method == method or getattr(self, name) == usual[name]
            yield name, fine, f"be left out: only {method} knows it, and the method is {self.method}"
        sampled = not self.data or self.method == "grpo-offline"
        yield "temperature", sampled or self.temperature == usual["temperature"], "be left out: the rows are there already"
        yield "beta", self.method != "rft" or not self.beta, "be left out: rft only imitates"
        yield "rewards", not self.rewards or bool(self.dataset_name), "be left out: without tasks nothing is judged"
        yield "validation", not (self.environment and self.validation), "be 0: in an environment no single turn tells"
        certain = self.lora_dropout == 0
        yield "lora_dropout", certain or not self.start_adapter, "be left out: the adapter that is gone on with has its own"
        compared = self.method in ("kto", "dpo")
        yield "lora_dropout", certain or not compared, f"be left out: {self.method} compares with what the start says for sure"

    def json(self) -> dict[str, Any]:
        return asdict(self)

    @classmethod
    def of(cls, values: Mapping[str, Any]) -> "WeightsTrainingConfig":
        """From what `json` gave.

        Raises:
            InputError: It holds what no setting is.
        """
        known = {field.name for field in fields(cls)}
        if unknown := sorted(values.keys() - known):
            raise InputError(
                f"there is no setting {unknown[0]!r} of a training of weights; there are {', '.join(sorted(known))}"
            )
        listed = {name: tuple(values.get(name, ())) for name in ("target_modules", "rewards")}
        return cls(**{**values, **listed})


TrainingConfig = WeightsTrainingConfig
"""As it is called from `journeyman.experiments.weights`."""

_WORDS = {
    int: "a whole number",
    float: "a number",
    bool: "true or false",
    str: "text",
    tuple: "a list of names",
    NoneType: "None",
}


@cache
def _kinds() -> Mapping[str, tuple[type, ...]]:
    """By setting, what it may be."""
    hints = get_type_hints(WeightsTrainingConfig)
    each = {name: get_args(hint) if isinstance(hint, UnionType) else (hint,) for name, hint in hints.items()}
    return {name: tuple(get_origin(kind) or kind for kind in kinds) for name, kinds in each.items()}


def _is_one(value: object, kinds: tuple[type, ...]) -> bool:
    if isinstance(value, bool):
        return bool in kinds
    if isinstance(value, tuple):
        return tuple in kinds and all(isinstance(name, str) for name in value)
    return isinstance(value, kinds) or (float in kinds and isinstance(value, int))


def _from(value: float | None, least: float) -> bool:
    return value is None or value >= least
