"""Everything that the building of a set of rows can be told."""

from collections.abc import Mapping
from dataclasses import asdict, field
from typing import Annotated, Any, Literal, get_args

from pydantic import Field

from journeyman.core.errors import SettingError
from journeyman.io.config import HIDDEN, Config, config

Method = Literal["kto", "grpo"]
METHODS: tuple[str, ...] = get_args(Method)
Balance = Literal["none", "undersample", "oversample", "weights"]
BALANCES: tuple[str, ...] = get_args(Balance)
Form = Literal["conversational", "plain"]
FORMS: tuple[str, ...] = get_args(Form)
Keep = Literal["keep", "drop"]
_Weight = Annotated[float, Field(ge=0, le=100)]


@config
class DatasetConfig(Config):
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
    threshold: Annotated[float, Field(gt=0, le=1)] = 0.5
    """A mean reward from which an attempt is good that neither a person nor a check judged."""
    auto_labels: bool = False
    """Also take the auto-labeler's word, where there is neither a person's nor a reward."""
    calls: bool = False
    """Also rows of single tool calls, of attempts that nobody judged: what a tool refused as bad, and with which arguments it
    took the call afterwards as good. Only for kto."""
    balance: Balance = "none"
    """Of labels. `undersample` leaves out of the larger side, `oversample` repeats of the smaller; `weights` leaves the rows
    as they are, and says by which weights a trainer makes up for it."""
    max_characters: Annotated[int | None, Field(ge=1)] = None
    """Of prompt and completion together."""
    max_tokens: Annotated[int | None, Field(ge=1)] = None
    """The same in tokens, as far as characters tell: four to a token."""
    agent_weights: Annotated[Mapping[str, Annotated[float, Field(ge=0, le=100)]], HIDDEN] = field(
        default_factory=dict, hash=False
    )
    """How often each row of an agent stands in the set: 2 is twice, 0.5 every other, 0 not at all. 1 for who is not named."""
    seed: int = 0
    """Of what is left out or repeated."""

    def __post_init__(self) -> None:
        if self.balance != "none" and self.method != "kto":
            raise SettingError(
                "balance", f"{{}} is {self.balance!r}, and must be none for grpo: it is labels that are balanced"
            )

        if self.calls and self.method != "kto":
            raise SettingError("calls", "{} is for kto: a refused call and the one that was taken are labels, and no group")

    def json(self) -> dict[str, Any]:
        return asdict(self)
