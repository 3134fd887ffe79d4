"""What the two ways of learning to plan from executions are told: collecting them, and reinforcement."""

from dataclasses import asdict, field
from typing import TYPE_CHECKING, Annotated, Any

from pydantic import Field, SkipValidation

from journeyman.core.candidate import BASE
from journeyman.experiments.settings import GateSettings, HeldOutSettings, ReleaseSettings
from journeyman.io.config import HIDDEN, BudgetSettings, Count, SeedSettings, config
from journeyman.optimizers.planner.config import PPOConfig

if TYPE_CHECKING:
    from journeyman.rewards.utility import RunReward
else:
    # A protocol, which is not checked; what it stands in takes long to load.
    RunReward = Any


@config
class CollectConfig(BudgetSettings, SeedSettings):
    """How executions are collected."""

    executions: Count = 200
    """In all, with those that were logged before."""
    explore: Annotated[float, Field(ge=0, le=1)] = 0.5
    """Share of the subtasks whose worker is drawn from all models."""
    concurrency: Count = 4
    """Plans under way at once, and subtasks of each."""
    policy: Annotated[str, HIDDEN] = BASE
    """Who plans, as it is logged: the id of a policy, or "expert"."""


@config
class ReinforceConfig(HeldOutSettings, ReleaseSettings, GateSettings):
    """How phase 2 learns and is examined."""

    ppo: Annotated[PPOConfig, HIDDEN] = field(default_factory=PPOConfig.measured)
    reward: Annotated[SkipValidation[RunReward | None], HIDDEN] = None
    """What it learns by, where that is not the utility. It is examined by the utility in any case."""
    dollars_per_success: Annotated[float | None, HIDDEN] = None
    """What one more success is worth, in the operator's money; a default when it is not said."""
    seconds_per_success: Annotated[float | None, HIDDEN] = None

    def json(self) -> dict[str, Any]:
        return asdict(self)
