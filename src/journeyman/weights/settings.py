"""Where a training of weights happens, and how what it learned is proven."""

from collections.abc import Iterator
from dataclasses import asdict, dataclass
from typing import Any

from journeyman.errors import SettingError
from journeyman.gate import BetterOnHeldOut
from journeyman.release import Stage


@dataclass(frozen=True, slots=True, kw_only=True)
class RunSettings:
    """What is not the training's own business. The training program never sees it."""

    evaluate: bool = True
    held_out: int = 200
    """Held-out tasks of the examination, at most."""
    trials: int = 1
    """Attempts at each of them."""
    alpha: float = 0.05
    """How often an adapter that is no better may pass, over all looks at the same held-out tasks together."""
    least_gain: float = 0.0
    least_tasks: int = 30
    earlier: tuple[str, ...] = ()
    """Domains learned before, whose held-out tasks show what was forgotten."""
    target_stage: Stage = Stage.SHADOW
    """Where the adapter should go when it passes the gate."""
    force: bool = False
    """Go there even when it does not pass; that is written down."""
    launch: str = ""
    """How several processes train together: a file of `accelerate launch`, or the name of one that is shipped."""
    workers: str = "here"
    """Where it trains: `here`, or wherever a Ray cluster has room (`ray`, `ray:ADDRESS`)."""
    project: str = ".journeyman"
    """The folder of the runs."""
    store: str = ".journeyman/journeyman.db"
    """Path or URL; kept out of the run's files, as it may hold a password."""
    artifacts: str = ".journeyman/artifacts"

    def __post_init__(self) -> None:
        for name, fine, must in self._values():
            if not fine:
                raise SettingError(name, f"{{}} is {getattr(self, name)!r}, and must {must}")

    def _values(self) -> Iterator[tuple[str, bool, str]]:
        for name in ("held_out", "trials", "least_tasks"):
            yield name, getattr(self, name) >= 1, "be at least 1"
        yield "alpha", 0 < self.alpha < 1, "lie between 0 and 1"
        yield "least_gain", -1 <= self.least_gain <= 1, "lie between -1 and 1"
        yield "workers", self.workers.partition(":")[0] == "ray" or self.workers == "here", "be here, ray or ray:ADDRESS"
        yield "target_stage", self.target_stage in (Stage.SHADOW, Stage.PRODUCTION), "be 'shadow' or 'production'"

    @property
    def gate(self) -> BetterOnHeldOut:
        return BetterOnHeldOut(alpha=self.alpha, least_gain=self.least_gain, least_tasks=self.least_tasks)

    def json(self) -> dict[str, Any]:
        """As a run keeps them: everything but where its store is."""
        return {key: value for key, value in asdict(self).items() if key != "store"}
