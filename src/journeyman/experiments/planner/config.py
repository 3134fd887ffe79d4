"""What the two ways of learning to plan from executions are told: collecting them, and reinforcement."""

from dataclasses import asdict, field
from typing import TYPE_CHECKING, Annotated, Any

from pydantic import SkipValidation

from journeyman.core.candidate import BASE
from journeyman.experiments.settings import CollectSettings, GateSettings, HeldOutSettings, ReleaseSettings, WorkSettings
from journeyman.io.config import HIDDEN, BudgetSettings, SeedSettings, config
from journeyman.optimizers.planner.config import PPOConfig

if TYPE_CHECKING:
    from journeyman.rewards.utility import RunReward
else:
    # A protocol, which is not checked; what it stands in takes long to load.
    RunReward = Any


@config
class CollectConfig(CollectSettings, WorkSettings, BudgetSettings, SeedSettings):
    """How executions are collected: so many in all, with those that were logged before, and so many plans at once."""

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
