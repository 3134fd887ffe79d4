"""Learning while serving: by how much outcomes are better than forecast, of each worker on each type of request."""

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

import numpy as np

from journeyman.errors import InputError
from journeyman.learn.playbook.files import read_text, write_text
from journeyman.learn.router.objective import Objective
from journeyman.optimizers.exploration import Thompson
from journeyman.policy import Choice, Forecast, Outcome


class OnlineLearner:
    """Thompson sampling around a router's forecasts: each worker is chosen as often as it may be the best.

    What is learned is the difference between what an answer was worth and what it was forecast to be worth. So at first it
    chooses as the router does, apart from near equals, and then where the forecasts are wrong it follows the outcomes. Its
    state is one file, written whole after each outcome: one process at a time.
    """

    def __init__(self, policy: str, workers: tuple[str, ...], path: Path, seed: int = 0) -> None:
        """
        Args:
            policy: The id of the router's policy: other forecasts are wrong by other amounts.
            path: The state. It is gone on with where it is there.

        Raises:
            InputError: The state cannot be read, or is of another policy.
        """
        self._path, self._chance = path, np.random.default_rng(seed)
        self._thompson = Thompson(workers=workers, name=policy)
        if path.exists():
            self._thompson = Thompson.from_json(read_text(path))
            if (self._thompson.name, self._thompson.workers) != (policy, workers):
                raise InputError(f"{path} was learned by another router; move it away to begin anew")

    def choose(self, type: str, expected: Mapping[str, float]) -> Choice:
        """Draw one of those whose utility is given; the others may not be chosen."""
        ahead = np.array([expected.get(worker, -np.inf) for worker in self._thompson.workers])
        return replace(self._thompson.choose(type, self._chance, ahead), candidates=tuple(expected))

    def learn(self, type: str, forecast: Forecast, outcome: Outcome, objective: Objective) -> None:
        """What became of a request. An outcome that nobody judged teaches nothing; a call that failed has helped nobody.

        Raises:
            InputError: The state cannot be written.
        """
        found = realised(forecast, outcome)
        if found is None:
            return
        self._thompson.learn(type, forecast.worker, utility(found, objective) - utility(forecast, objective))
        write_text(self._path, self._thompson.to_json() + "\n")


def realised(forecast: Forecast, outcome: Outcome) -> Forecast | None:
    """The forecast as it should have been, in hindsight; what was not measured is as forecast. `None` if nobody judged."""
    failed = outcome.ending is outcome.ending.ERROR
    if outcome.success is None and not failed:
        return None
    seconds = outcome.seconds
    return replace(
        forecast,
        success=0.0 if failed else float(outcome.success or 0.0),
        cost=forecast.cost if outcome.cost is None else outcome.cost,
        p50=forecast.p50 if seconds is None else seconds,
        p95=forecast.p95 if seconds is None else seconds,
    )


def utility(forecast: Forecast, objective: Objective) -> float:
    """In successes; what is not known costs nothing here, on both sides of a difference."""
    cost, p50, p95 = objective.weights
    return forecast.success - cost * (forecast.cost or 0.0) - p50 * (forecast.p50 or 0.0) - p95 * (forecast.p95 or 0.0)
