"""What a model client is: one verb."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal, Protocol

Dialect = Literal["full", "terse"]
"""How prompts are worded: for a model that reads instructions, or for the small embedded one that knows two fixed formats."""


@dataclass(frozen=True, slots=True)
class PromptMessage:
    role: Literal["system", "user", "assistant"]
    content: str


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelRequest:
    """What is asked of a model."""

    messages: tuple[PromptMessage, ...]
    temperature: float | None = None
    """`None` leaves it to the provider; the embedded model then decodes greedily."""
    max_tokens: int | None = None
    seed: int | None = None
    schema: Mapping[str, object] | None = None
    """A JSON schema that the reply must follow, where the provider can enforce one."""
    task_id: str = ""
    """For records and replays; never sent."""

    @property
    def text(self) -> str:
        """The whole prompt as one text, for a trace."""
        return "\n\n".join(f"[{message.role}]\n{message.content}" for message in self.messages)


@dataclass(frozen=True, slots=True, kw_only=True)
class Reply:
    """What came back."""

    text: str
    model: str
    """The model's name as the server gave it."""
    input_tokens: int | None = None
    output_tokens: int | None = None
    """`None` when the provider did not count: unknown is not zero."""
    cached_tokens: int | None = None
    """How many of the input tokens the provider read from its cache, which makes them cheaper."""
    cost: float | None = None
    """US dollars; `None` when the model has no known price."""
    seconds: float | None = None
    finish: str | None = None
    raw: Mapping[str, object] = field(default_factory=dict)


class Model(Protocol):
    """A model client. Raises `ModelRefused`, `ModelBusy` or `ModelError`, never a library's own error."""

    @property
    def name(self) -> str:
        """As a user would type it after `--model`."""

    @property
    def dialect(self) -> Dialect: ...

    @property
    def deterministic(self) -> bool:
        """Whether the same request always gives the same reply, on any day."""

    async def complete(self, request: ModelRequest) -> Reply: ...

    async def close(self) -> None:
        """Give back connections; the client is not used afterwards."""


# A model client around another one: what it is called and can do is the other's.


class Around:
    """All of a `Model` but its verb, `complete`."""

    def __init__(self, model: Model) -> None:
        self.model = model

    @property
    def name(self) -> str:
        return self.model.name

    @property
    def dialect(self) -> Dialect:
        return self.model.dialect

    @property
    def deterministic(self) -> bool:
        return self.model.deterministic

    async def close(self) -> None:
        await self.model.close()
