"""What an export tells: the files, what is in them, and what each of them costs."""

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from journeyman.optimizers.weights.merge import Merged

Text = str | Sequence[Mapping[str, Any]]
"""A text, or a conversation of messages; where somebody else spoke last, the model's reply is part of what is measured."""
WRITTEN = ("F32", "F16", "BF16")
"""Types that need no llama.cpp."""
QUANTISED = ("Q8_0", "Q6_K", "Q5_K_M", "Q4_K_M", "Q4_0", "Q3_K_M", "Q2_K")
TYPES = (*WRITTEN, *QUANTISED)
"""From the most exact to the smallest."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Replaced:
    """Matrices that did not become what was asked for, as their rows do not fit it."""

    tensors: int
    width: int
    """Of their rows."""
    became: str
    """The type that llama.cpp gave them instead."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Contents:
    """What is in a file."""

    size: int
    """In bytes, of the whole file."""
    types: Mapping[str, int]
    """Matrices of each type."""
    replaced: tuple[Replaced, ...]
    """llama.cpp says nothing of these itself."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Cost:
    """How a file predicts, beside the original."""

    tokens: int
    """Positions that were compared."""
    perplexity: float
    original: float
    """The original's perplexity."""
    divergence: float
    """The mean Kullback-Leibler divergence of the file's predictions from the original's, in nats."""
    worst: float
    """The 99th percentile of the divergence at one position."""
    agreement: float
    """The share of positions at which both think the same token the likeliest."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ExportedFile:
    """One file."""

    path: Path
    type: str
    contents: Contents
    cost: Cost | None
    """`None` where it was not measured."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Export:
    """What was made of a model."""

    model: str
    """Its folder or the adapter's."""
    architecture: str
    parameters: int
    original: str
    """The type of the weights as they came: what the files are held against."""
    size: int
    """Of the weights as they came, in bytes."""
    merged: "Merged | None"
    """How well the merged model agrees with base and adapter; `None` where nothing was merged."""
    agreeing: int
    """Probe texts of which llama.cpp makes the same tokens as the model's own tokenizer."""
    probed: int
    """0 where llama.cpp is not installed."""
    notes: tuple[str, ...]
    """What whoever uses the files should know, a sentence each."""
    files: tuple[ExportedFile, ...]

    def json(self) -> dict[str, Any]:
        return asdict(self)
