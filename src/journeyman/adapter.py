"""Learned weights: a LoRA adapter, and what it was made of."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class Adapter:
    """A low-rank change of a model's weights (Hu et al. 2021, "LoRA"), known by its content."""

    digest: str
    """SHA-256 over the names and contents of its files: the body of its `Candidate`."""
    base_model: str
    """The model that it changes, as a user would type it after `--base-model`."""
    method: str
    """How it was learned: grpo, grpo-offline, kto, dpo or rft."""
    rank: int
    alpha: int
    target_modules: tuple[str, ...]
    """The layers that it changes, by the last part of their names."""
    parent: str | None = None
    """The digest of the adapter that its training started from."""
