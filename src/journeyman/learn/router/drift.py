"""Are these still the requests that were learned from? If not, the safe worker answers, and the log says so.

Two things are watched: how many requests are unfamiliar, and how far successes stay behind their probabilities. Each is a bet
against "nothing has changed": the stake grows while the numbers are worse than allowed, never falls below 1, and an alarm is a
stake of 1/`rate`. Such an e-CUSUM cries wolf at most once in 1/`rate` requests on average, whatever the numbers' distribution
(Shin, Ramdas and Rinaldo, "E-detectors: a nonparametric framework for sequential change detection", New England Journal of
Statistics in Data Science 2, 2024; the bets are those of `stats.e_value`).
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from journeyman.learn.router.objective import Objective
from journeyman.policy import Forecast

_FRACTIONS = (0.1, 0.5)
"""Stakes, as fractions of what a bettor may lose: the small one finds a small change, the large one a large change sooner."""


class ShiftDetector:
    """Numbers between 0 and 1 whose mean should not pass `allowed`."""

    def __init__(self, allowed: float, rate: float = 1e-4) -> None:
        """`rate` bounds the false alarms a number seen, 1e-4 being one in ten thousand."""
        if not (0 < allowed < 1 and 0 < rate < 1):
            raise ValueError(f"what is allowed and the rate are between 0 and 1, not {allowed} and {rate}")
        self.allowed = allowed
        self._alarm = math.log(len(_FRACTIONS) / rate)
        self.evidence = [0.0] * len(_FRACTIONS)
        """Logarithms of the stakes: all that has to be kept to go on after a restart."""
        self.shifted = False

    def see(self, value: float) -> bool:
        """Take in the next number; returns whether they have shifted.

        A shift is over when all evidence of it has gone again. It is kept no higher than the alarm, so that an end is found as
        soon as a beginning.
        """
        for at, fraction in enumerate(_FRACTIONS):
            won = math.log1p(fraction * (value - self.allowed) / self.allowed)
            self.evidence[at] = min(self._alarm, max(0.0, self.evidence[at] + won))
        if max(self.evidence) >= self._alarm:
            self.shifted = True
        elif not any(self.evidence):
            self.shifted = False
        return self.shifted


class Drift:
    """Watches what is routed. Made anew when the predictor is."""

    def __init__(self, *, familiar: float, unfamiliar: float = 0.05, slack: float = 0.1, rate: float = 1e-4) -> None:
        """
        Args:
            familiar: The predictor's threshold: a request below it is of another kind.
            unfamiliar: The share of such requests among those that were learned from; three times as many and 5 % are allowed.
            slack: How far mean success may stay behind mean probability.
            rate: False alarms a request, at most, of each of the two watches.
        """
        self.familiar = familiar
        self._slack = slack
        self.unfamiliar = ShiftDetector(min(0.9, 3 * unfamiliar + 0.05), rate)
        # An error between -1 and 1 is watched as a number between 0 and 1.
        self.behind = ShiftDetector((1 + slack) / 2, rate)

    def see(self, familiar: float) -> str:
        """Take in a request. Returns why the safe worker should answer it, or nothing."""
        strange = familiar < self.familiar
        self.unfamiliar.see(float(strange))
        if strange:
            return f"the request is unlike those that were learned from ({familiar:.2f} below {self.familiar:.2f})"
        return self.why

    def learn(self, probability: float, success: float) -> None:
        """Take in what became of an answer, 0 to 1, that was right with this probability as forecast."""
        self.behind.see((1 + probability - success) / 2)

    @property
    def why(self) -> str:
        """Why no forecast should be trusted now; empty while nothing has shifted."""
        if self.unfamiliar.shifted:
            return f"more than {self.unfamiliar.allowed:.0%} of the requests are unlike those that were learned from"
        if self.behind.shifted:
            return f"answers are right less often than forecast, by more than {self._slack:.0%}"
        return ""

    def state(self) -> dict[str, Any]:
        """All that has to be kept to go on after a restart; JSON can hold it."""
        return {name: [watch.evidence, watch.shifted] for name, watch in self._watches.items()}

    def restore(self, state: Mapping[str, Any]) -> None:
        """Go on from `state`. What does not fit is left as it is: a watch that starts anew is late, not wrong."""
        for name, watch in self._watches.items():
            match state.get(name):
                case [[*evidence], bool(shifted)] if len(evidence) == len(_FRACTIONS):
                    watch.evidence, watch.shifted = [float(value) for value in evidence], shifted

    @property
    def _watches(self) -> dict[str, ShiftDetector]:
        return {"unfamiliar": self.unfamiliar, "behind": self.behind}


@dataclass(frozen=True, slots=True, kw_only=True)
class Fallback:
    """Who answers instead."""

    worker: str
    """Empty where no safe worker may be asked."""
    reason: str
    """One sentence, for the log of decisions."""


def fall_back(why: str, forecasts: Sequence[Forecast], objective: Objective, singles: Sequence[str]) -> Fallback:
    """The safe worker for a request whose forecasts are not to be trusted.

    It is the one that the operator named, else the first of the best single ones, and always one that the lists admit and whose
    expected cost is known and within `max_cost`, where there is one: a shift is no reason to spend more than was agreed. What
    was passed over, and for what price, is in the reason.

    Args:
        why: From `Drift.see`.
        singles: Workers, the best to ask always first: `policies.ranked_singles`.
    """
    named = [objective.safe] if objective.safe else []
    expected = {forecast.worker: forecast for forecast in forecasts}
    passed: list[str] = []
    for worker in dict.fromkeys([*named, *singles]):
        if worker not in expected or not objective.admits(worker):
            passed.append(f"{worker} may not be chosen")
            continue
        cost = expected[worker].cost
        if cost is None and objective.money_counts and not objective.unpriced:
            passed.append(f"{worker} has no known price")
        elif objective.max_cost is not None and cost is not None and cost > objective.max_cost:
            passed.append(f"{worker} costs ${cost:.3g}, more than the ${objective.max_cost:.3g} agreed")
        else:
            price = "at a price that is not known" if cost is None else f"for ${cost:.3g}"
            return Fallback(worker=worker, reason="; ".join([f"{why}: {worker} answers, {price}", *passed]))
    return Fallback(worker="", reason="; ".join([f"{why}, and no safe worker may be asked", *passed]))
