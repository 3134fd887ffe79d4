"""Everything that the building of a set of rows can be told."""

from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass, field
from math import isfinite
from typing import Any, Literal, get_args

from journeyman.core.errors import SettingError

Method = Literal["kto", "grpo"]
METHODS: tuple[str, ...] = get_args(Method)
Balance = Literal["none", "undersample", "oversample", "weights"]
BALANCES: tuple[str, ...] = get_args(Balance)
Form = Literal["conversational", "plain"]
FORMS: tuple[str, ...] = get_args(Form)
Keep = Literal["keep", "drop"]


@dataclass(frozen=True, slots=True, kw_only=True)
class DatasetConfig:
    """Traces in, rows out. The same traces and settings give the same bytes."""

    method: Method = "kto"
    """`kto`: a row for each completion with its label. `grpo`: a row for the completions of one prompt with their rewards."""
    form: Form = "conversational"
    """`conversational`: messages, tool calls and all. `plain`: "User: " and what was asked, and the agent's last word."""
    context: Keep = "keep"
    """`drop` takes the bullets of a playbook out of the prompts in which they stood: what the context taught is then learned
    by the weights."""
    reasoning: Keep = "keep"
    """`keep` puts what the model thought before an answer beside it, as `reasoning_content`: chat templates that know of
    thoughts write them, others do not."""
    threshold: float = 0.5
    """A mean reward from which an attempt that nobody labelled is good."""
    auto_labels: bool = False
    """Also take the auto-labeler's word, where there is neither a person's nor a reward."""
    balance: Balance = "none"
    """Of labels. `undersample` leaves out of the larger side, `oversample` repeats of the smaller; `weights` leaves the rows
    as they are, and says by which weights a trainer makes up for it."""
    max_characters: int | None = None
    """Of prompt and completion together."""
    max_tokens: int | None = None
    """The same in tokens, as far as characters tell: four to a token."""
    agent_weights: Mapping[str, float] = field(default_factory=dict, hash=False)
    """How often each row of an agent stands in the set: 2 is twice, 0.5 every other, 0 not at all. 1 for who is not named."""
    seed: int = 0
    """Of what is left out or repeated."""

    def __post_init__(self) -> None:
        for name, fine, must in self._values():
            if not fine:
                raise SettingError(name, f"{{}} is {getattr(self, name)!r}, and must {must}")

    def _values(self) -> Iterator[tuple[str, bool, str]]:
        yield "method", self.method in METHODS, f"be one of {', '.join(METHODS)}"
        yield "form", self.form in FORMS, f"be one of {', '.join(FORMS)}"
        yield "balance", self.balance in BALANCES, f"be one of {', '.join(BALANCES)}"
        yield "balance", self.balance == "none" or self.method == "kto", "be none for grpo: it is labels that are balanced"
        for name in ("context", "reasoning"):
            yield name, getattr(self, name) in get_args(Keep), "be keep or drop"
        yield "threshold", 0 < self.threshold <= 1, "lie above 0 and at most at 1"
        for name in ("max_characters", "max_tokens"):
            yield name, getattr(self, name) is None or getattr(self, name) >= 1, "be at least 1"
        weights = self.agent_weights.values()
        yield "agent_weights", all(isfinite(each) and 0 <= each <= 100 for each in weights), "be numbers from 0 to 100"

    def json(self) -> dict[str, Any]:
        return asdict(self)
