"""What a training of a router is told."""

from dataclasses import asdict, field
from typing import Annotated, Any, ClassVar

from pydantic import Field

from journeyman.experiments.settings import GateSettings, ReleaseSettings
from journeyman.io.config import HIDDEN, Names, SeedSettings, config, option
from journeyman.optimizers.router.objective import Objective


@config
class RouterConfig(ReleaseSettings, GateSettings, SeedSettings):
    """How a router is trained and proven. Its gate counts in successes a request."""

    objective: Annotated[Objective, HIDDEN] = field(default_factory=Objective)
    """What is wanted of a choice."""
    held_out_share: Annotated[float, Field(ge=0, le=0.9)] = 0.2
    """Share of the requests to prove it on, where the file sets none apart."""
    validation: Annotated[float, Field(ge=0, le=0.9), HIDDEN] = 0.15
    """Share of the requests to choose by: which policy is used, what a dollar is worth, and what is unfamiliar."""
    newcomers: Annotated[Names, option("--newcomer", metavar="MODEL")] = ()
    """Was asked a few requests only: place it by how hard they are. See `journeyman route anchors`."""

    renamed: ClassVar = {"held_out": "held_out_share"}

    def json(self) -> dict[str, Any]:
        return asdict(self)
