"""Everything that a training of weights can be told."""

from collections.abc import Iterator
from dataclasses import asdict, fields
from typing import TYPE_CHECKING, Annotated, Any, Literal, get_args

from pydantic import AfterValidator, BeforeValidator, Field

from journeyman.core.errors import SettingError
from journeyman.io.config import Count, Names, Natural, SeedSettings, config, option

if TYPE_CHECKING:
    # Names come from options and files, so that a type checker would be told nothing by the choices.
    Method = str
    Generation = str
else:
    Method = Literal["grpo", "grpo-offline", "kto", "dpo", "rft"]
    Generation = Literal["auto", "transformers", "vllm"]
METHODS: tuple[str, ...] = get_args(Method)
Tracker = Literal["tensorboard", "trackio", "wandb", "none"]
_ONLY = {
    "environment": "grpo",
    "clip": "grpo",
    "curriculum": "grpo",
    "generation": "grpo",
    "importance": "grpo-offline",
    "imitation": "dpo",
    "desirable_weight": "kto",
    "undesirable_weight": "kto",
}
"""Settings of one method, which to set with another would have no effect."""


def _named(model: str) -> str:
    if not model.strip():
        raise ValueError("must name a model")
    return model


def _layers(names: Any) -> Any:
    """PEFT's word for what is found here anyway is taken, too."""
    return () if names == "all-linear" else names


_Weight = Annotated[float | None, Field(gt=0)]
_Counted = Annotated[int | None, Field(ge=1)]


@config
class WeightsTrainingConfig(SeedSettings):
    """Rows or tasks in, an adapter out. What is `None` is derived, from the method, the model's size and the hardware."""

    method: Method = "grpo"
    """grpo on fresh completions, grpo-offline on recorded ones, kto on labels, dpo on pairs, rft on what is right."""
    dataset_name: Annotated[str, option("--tasks")] = ""
    """Tasks to learn from and to be examined on: desk, gsm8k, custom, humaneval, mbpp, bfcl, or live: what the store has
    recorded and somebody called right."""
    input_path: Annotated[str, option("--input", metavar="FILE")] = ""
    """The file of the tasks."""
    domain: str = ""
    """Only tasks of this domain; for the desk, the shop."""
    num_examples: Count = 400
    """Tasks to train on, at most."""
    validation: Natural = 64
    """Tasks, apart from those, to choose the best checkpoint by and to notice a collapse; 0 for none."""
    data: Annotated[str, option(metavar="FILE")] = ""
    """Rows to learn from, JSONL or Parquet: see `journeyman dataset build`. Without it, completions are sampled and judged."""
    base_model: Annotated[str, AfterValidator(_named), option(metavar="MODEL")] = "Qwen/Qwen2.5-1.5B-Instruct"
    """A Hugging Face id, a folder, or embedded:SIZE."""
    start_adapter: Annotated[str, option(metavar="RUN")] = ""
    """Go on from this adapter: a run, or a folder."""
    context: Annotated[str, option("--playbook", metavar="FILE")] = ""
    """Show these bullets in every prompt, while learning and examined; without it the prompts are bare."""
    rewards: Annotated[Names, option("--reward", metavar="NAME")] = ()
    """A reward that counts beside the verifier of the tasks; see `journeyman rewards list`."""
    environment: Annotated[str, option(metavar="MODULE:NAME")] = ""
    """A world with tools to attempt the tasks in, over several turns: a class whose public methods are the tools, and whose
    `reset(task)` begins a task anew."""

    lora_r: Count = 16
    """Rank of the adapter."""
    lora_alpha: Count = 32
    """Its scale: what is added is multiplied by this and divided by the rank."""
    lora_dropout: Annotated[float, Field(ge=0, lt=1)] = 0.0
    """Share of the adapter's inputs that is dropped in training."""
    target_modules: Annotated[Names, BeforeValidator(_layers), option(metavar="LAYER", default="all linear ones")] = ()
    """Layers to adapt."""

    learning_rate: Annotated[float | None, Field(gt=0, lt=1), option(default="by method and size")] = None
    """How far an update goes."""
    num_epochs: Annotated[float, Field(gt=0), option("--num-epochs", "--epochs")] = 3.0
    """Times through the data."""
    max_steps: _Counted = None
    """Updates, whatever the epochs."""
    per_device_batch_size: Annotated[_Counted, option("--batch-size", default="what fits")] = None
    """Completions in one forward and backward pass."""
    gradient_accumulation_steps: Annotated[_Counted, option(default="by batch size")] = None
    """Passes of one update."""
    num_generations: Annotated[
        int | None, Field(ge=2), option(default="by size", why="completions are compared with each other")
    ] = None
    """Completions of a prompt that are compared: GRPO's group, and what is sampled for the other methods."""
    temperature: Annotated[float, Field(gt=0, le=5)] = 1.0
    """Of the sampling."""
    max_prompt_tokens: _Counted = None
    """Longer prompts lose their beginning; tasks of GRPO with such are left out."""
    max_completion_tokens: _Counted = None
    """Longer completions are cut off."""
    beta: Annotated[float | None, Field(ge=0), option(default="by method")] = None
    """How much it counts to stay near the start: weight of the KL term (GRPO), of the implicit reward (KTO, DPO)."""
    clip: Annotated[float, Field(gt=0, lt=1)] = 0.2
    """How far the probability ratio may move what a completion counts, in grpo."""
    importance: bool = True
    """Offline GRPO weighs by the ratio to the recorded policy. Without it a run collapses; here to show that guards see it."""
    imitation: Annotated[float, Field(ge=0)] = 1.0
    """DPO: what it counts, beside the comparison, that the better completion becomes likelier; 0 for the comparison alone."""
    desirable_weight: _Weight = None
    """Of what is good in KTO's loss; derived from the balance of the labels, so that neither side drowns the other."""
    undesirable_weight: _Weight = None
    """Of what is not."""
    curriculum: bool = True
    """GRPO: from solvable to hard by measured pass rate, and prompts whose completions all score alike are drawn again."""

    use_bf16: Annotated[bool | None, option("--bf16/--fp32", default="bf16 where the hardware does it natively")] = None
    """Which numbers it multiplies."""
    gradient_checkpointing: bool | None = None
    """Less memory, a third more time."""
    threads: Annotated[_Counted, option(default="the cores that this process may use")] = None
    """Threads of the processor."""
    seed: Natural = 0
    """Of shuffles and samples."""

    checkpoint_interval: Count = 10
    """Updates between checkpoints."""
    evaluation_interval: _Counted = None
    """Updates between looks at the validation tasks."""
    patience: Natural = 5
    """Looks without a better validation reward after which a run stops early; 0 for never."""
    guards: bool = True
    """Refuse what will not learn, and stop with the last good checkpoint when the loss is no number or the policy collapses."""
    tracker: Tracker = "tensorboard"
    """Where the metrics go, beside metrics.jsonl."""
    generation: Generation = "auto"
    """What samples; auto is vLLM where there is a GPU and it is installed."""

    def __post_init__(self) -> None:
        for name, fine, must in self._idle():
            if not fine:
                raise SettingError(name, f"{{}} is {getattr(self, name)!r}, and must {must}")

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


TrainingConfig = WeightsTrainingConfig
"""As it is called from `journeyman.experiments.weights`."""
