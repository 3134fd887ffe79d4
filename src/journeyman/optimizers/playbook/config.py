"""How a playbook is learned. Apart from what learns it, so that its options can be told without loading that."""

from typing import Annotated, ClassVar, Literal

from pydantic import Field

from journeyman.io.config import HIDDEN, BudgetSettings, Config, Count, SeedSettings, config, option


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
class TraceLearningSettings(Config):
    """What is learned from recorded traces, and how it is examined. Nothing has to be set."""

    last: Annotated[str, option(metavar="SPAN")] = "30d"
    """Traces of this time: 12h, 30d or 8w."""
    min_principals: Count = 3
    """People on whose behalf the same must have been met before it becomes a rule."""
    min_groups: Count = 30
    """Different requests below which nothing can be said of a candidate."""
    held_out_share: Annotated[float, Field(gt=0, lt=1)] = 0.3
    """Of the requests, the latest that are not learned from; more where customers come again and again."""
    twin_cut: Annotated[float, Field(gt=0, lt=1)] = 0.75
    """Distance from which two requests are not taken for one that is told anew."""
    max_calls: Annotated[int, Field(ge=0)] = 1500
    """Calls of models at most, for a run."""
    leave_one_out: bool = True
    """Examine also without each rule, to find one that harms."""
    approve: Literal["held", "all"] = "held"
    """Which rules a person must approve: those that are held for a reason, or all."""
    bullet_days: Count = 90
    """Days after which a rule is retired whose evidence was not met again."""


@config
class LearnConfig(PlaybookSettings, BudgetSettings, SeedSettings):
    """All that the learning of a playbook is told."""
