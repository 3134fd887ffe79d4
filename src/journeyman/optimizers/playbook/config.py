"""How a playbook is learned. Apart from what learns it, so that its options can be told without loading that."""

from typing import Annotated, ClassVar, Literal

from pydantic import Field

from journeyman.io.config import HIDDEN, BudgetSettings, Config, Count, SeedSettings, config


@config
class PlaybookSettings(Config):
    """How a playbook is learned and used."""

    batch_size: Count = 10
    """Tasks attempted and merged together."""
    epochs: Annotated[Count, Field(le=1000)] = 1
    """Times through the tasks; from the second on in a shuffled order."""
    attempts: Annotated[Count, Field(le=100)] = 1
    """Attempts at each task; several are compared."""
    temperature: Annotated[float, Field(ge=0, le=5), HIDDEN] = 0.7
    """Of the second attempt and those after it; the first is left to the model's own setting."""
    reflect_on: Literal["all", "failures"] = "all"
    """Which attempts are reflected on. The embedded model's reflector reads failures only."""
    min_support: Count = 1
    """Different tasks whose reflection must have written a bullet before it is shown; with 2, no attempt alone makes a rule."""
    token_budget: Count = 2000
    """Tokens of bullets in a prompt: all of them while they fit, else the best for the task."""
    similarity_threshold: Annotated[float, Field(gt=0, le=1)] = 0.8
    """Cosine from which two bullets are one."""
    concurrency: Annotated[Count, Field(le=1000)] = 10
    """Calls at once, fewer while the server is busy."""
    checkpoint_interval: Count = 50
    """Examples between checkpoints."""

    renamed: ClassVar = {"batch_merge_size": "batch_size"}


@config
class LearnConfig(PlaybookSettings, BudgetSettings, SeedSettings):
    """All that the learning of a playbook is told."""
