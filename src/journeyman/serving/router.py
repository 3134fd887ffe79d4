"""The router at work: a request goes to the cheapest worker that will get it right.

router = Router.load("routers/mine", log=DecisionLog(Path("decisions.jsonl")))
choice = router.route("Prove that there are infinitely many primes.")
print(choice.worker, choice.reason)
"""

import math
import random
import threading
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from journeyman.core.errors import InputError
from journeyman.core.policy import Card, Choice, Forecast, Outcome
from journeyman.experiments import settings
from journeyman.io.atomic import write_text
from journeyman.io.files import read_text
from journeyman.models import embedders
from journeyman.models.embedders import Embedder
from journeyman.optimizers.exploration import Thompson, epsilon_greedy, pareto_front
from journeyman.optimizers.router import artifact
from journeyman.optimizers.router.artifact import Approval, Policy
from journeyman.optimizers.router.decide import OnlineBudget, Selection, decide_one
from journeyman.optimizers.router.decisions import DecisionLog
from journeyman.optimizers.router.objective import Objective
from journeyman.optimizers.router.predict import Single
from journeyman.stores import open_store
from journeyman.stores.artifacts import Artifacts

# Learning while serving: by how much outcomes are better than forecast, of each worker on each type of request.


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


# Are these still the requests that were learned from? If not, the safe worker answers, and the log says so.
#
# Two things are watched: how many requests are unfamiliar, and how far successes stay behind their probabilities. Each is a bet
# against "nothing has changed": the stake grows while the numbers are worse than allowed, never falls below 1, and an alarm is
# a
# stake of 1/`rate`. Such an e-CUSUM cries wolf at most once in 1/`rate` requests on average, whatever the numbers' distribution
# (Shin, Ramdas and Rinaldo, "E-detectors: a nonparametric framework for sequential change detection", New England Journal of
# Statistics in Data Science 2, 2024; the bets are those of `stats.e_value`).

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


# What changing the model inside a session costs: another one has to read the whole session again, at full price.
#
# Providers keep what they have read of a prompt for some minutes and charge a part of the price for it, to the model that read
# it
# and to no other.


@dataclass(frozen=True, slots=True, kw_only=True)
class RoutingSession:
    """What stands before the request."""

    tokens: int
    """Of the session so far: they are sent again with every request."""
    worker: str = ""
    """Who has read them; empty where nobody has."""
    idle: float = 0.0
    """Seconds since then."""
    kept: float = 300.0
    """Seconds for which the provider keeps what was read: OpenAI and Anthropic say five minutes at least."""
    share: float = 0.1
    """Of the price of input that a kept token costs. It is 0.1 for most models of 2025 and 0.5 for older ones of OpenAI."""

    def of(self, card: Card) -> float | None:
        """US dollars for reading the session by a worker, besides the request itself; `None` where its price is not known.

        A worker that is paid by the call reads for nothing.
        """
        if card.input_price is None:
            return None if card.call_price is None else 0.0
        warm = card.name == self.worker and self.idle <= self.kept
        return card.input_price * self.tokens * (self.share if warm else 1.0) / 1e6


def in_session(forecasts: Sequence[Forecast], session: RoutingSession, cards: Mapping[str, Card]) -> tuple[Forecast, ...]:
    """The forecasts of one request with the session's tokens in their cost. Who has no card has no known cost."""
    return tuple(replace(forecast, cost=_with(forecast.cost, session, cards.get(forecast.worker))) for forecast in forecasts)


def _with(cost: float | None, session: RoutingSession, card: Card | None) -> float | None:
    read = None if card is None else session.of(card)
    return None if cost is None or read is None else cost + read


_REMEMBERED = 4096
"""Requests whose vectors are kept."""
_WAITING = 10_000
"""Decisions whose outcome may still be told, for the watch on drift."""
SERVES = Approval(serves=True, reason="asked for by hand")


@dataclass(frozen=True, slots=True)
class _Waiting:
    """A decision whose outcome is not known yet."""

    type: str
    forecast: Forecast
    objective: Objective


class Router:
    """Chooses a worker for each request. May be used by several threads; with a seed, the same requests give the same choices.

    A policy that no gate let pass answers with its best single worker, and says so.
    """

    def __init__(
        self,
        policy: Policy,
        embedder: Embedder | None = None,
        *,
        verdict: Approval = SERVES,
        explore: float = 0.0,
        seed: int = 0,
        log: DecisionLog | None = None,
    ) -> None:
        """
        Args:
            policy: What was trained.
            embedder: The one that it was fitted with; without it, that one is loaded.
            verdict: Whether the policy may choose.
            explore: Share of the requests, 0 to 1, for which a worker is drawn at random to learn more, among those that meet
                all limits and of which no other is better in everything. 0.1 to 0.2 lets a later policy be judged by the log.
            seed: Of the draws.
            log: Where decisions and outcomes are written.

        Raises:
            InputError: The share is not between 0 and 1, or the embedder is another one.
        """
        if not 0 <= explore <= 1:
            raise InputError(f"a share of {explore:g} of the requests cannot be explored; it is between 0 and 1")
        self.policy = policy
        self.verdict = verdict
        self.explore = explore
        self._log = log
        self._embedder = embedder or embedders.load(policy.fitted.embedder)
        if self._embedder.name != policy.fitted.embedder:
            raise InputError(f"the router was fitted with {policy.fitted.embedder!r}, and is given {self._embedder.name!r}")
        self._vector = lru_cache(maxsize=_REMEMBERED)(self._embedded)
        self._forecast = Single(policy.fitted)
        self._id = policy.id
        self._cards = {card.name: card for card in policy.fitted.cards}
        self._lock = threading.Lock()
        self._draws = random.Random(seed)
        self._drift = Drift(familiar=policy.fitted.strange, unfamiliar=policy.unfamiliar)
        self._budgets: dict[Objective, OnlineBudget] = {}
        self._waiting: dict[str, _Waiting] = {}
        self._online: OnlineLearner | None = None

    @classmethod
    def load(
        cls,
        where: Path | str,
        *,
        unproven: bool = False,
        explore: float = 0.0,
        seed: int = 0,
        log: DecisionLog | None = None,
        online: bool = False,
    ) -> "Router":
        """A router from the folder that its training wrote, or by its id from the project's store.

        Args:
            unproven: Let it choose although no gate has let it pass.
            online: Learn from outcomes while serving, as `learn_online` says; what is learned is kept in the folder.

        Raises:
            InputError: There is no such router, its files are not what they were, or it shall learn and could not.
        """
        policy, verdict = find(where)
        if online and not Path(where).is_dir():
            raise InputError("a router that learns while serving keeps its state in its folder; name the folder, not an id")
        router = cls(policy, verdict=SERVES if unproven else verdict, explore=explore, seed=seed, log=log)
        if online:
            router.learn_online(Path(where) / artifact.ONLINE)
        return router

    def learn_online(self, state: Path) -> None:
        """From now on learn from what `became` tells, and go on with what the file `state` holds.

        Workers that `explore` could draw are chosen as often as they may be the best, as far as forecasts and outcomes tell
        (Thompson sampling). Requests with a floor of quality are chosen for as always: more success is worth nothing there.

        Raises:
            InputError: The state is no such file, a share is to be explored besides, or there is no log to tell outcomes by.
        """
        if self.explore:
            raise InputError("a router that learns while serving explores by itself; leave out the share to explore")
        if self._log is None:
            raise InputError("a router that learns while serving needs a log of decisions, by whose ids outcomes are told")
        if self.policy.objective.min_quality is not None:
            raise InputError("a router with a floor of quality cannot learn while serving; give it an objective with weights")
        self._online = OnlineLearner(self._id, self.policy.fitted.workers, state, self._draws.getrandbits(32))

    def route(
        self,
        request: str,
        *,
        type: str = "general",
        session: RoutingSession | None = None,
        objective: Objective | None = None,
    ) -> Choice:
        """Choose a worker for a request.

        Args:
            type: What kind of request it is, where that is known.
            session: What stands before it: another worker than the last one would have to read all that again.
            objective: What is wanted, where it is not what the policy was trained for.

        Raises:
            InputError: Nobody may be chosen; the message says why.
        """
        wanted = objective or self.policy.objective
        forecasts, familiar = self._forecast(self._vector(request), request, type)
        if session is not None:
            forecasts = in_session(forecasts, session, self._cards)
        with self._lock:
            choice = self._chosen(forecasts, wanted, (familiar, type))
            self._spend(choice, wanted)
        return self._logged(choice, request, type, wanted)

    def became(self, decision: str, outcome: Outcome) -> None:
        """Tell what became of a decision, by the id in its `extra`: for the log, the watch on drift, and to learn online."""
        with self._lock:
            waiting = self._waiting.pop(decision, None)
            if waiting is not None and outcome.success is not None:
                self._drift.learn(waiting.forecast.success, outcome.success)
            if waiting is not None and self._online is not None:
                self._online.learn(waiting.type, waiting.forecast, outcome, waiting.objective)
        if self._log is not None:
            self._log.became(decision, outcome)

    def _chosen(self, forecasts: tuple[Forecast, ...], objective: Objective, of: tuple[float, str]) -> Choice:
        familiar, type = of
        why = self._drift.see(familiar) if self.verdict.serves else f"the router is not proven ({self.verdict.reason})"
        if why:
            safe = fall_back(why, forecasts, objective, self.policy.singles)
            if safe.worker:
                return self._choice(safe.worker, forecasts, safe.reason, fallback=why)
        budget = self._budget(objective)
        dual, left = (budget.dual, budget.left) if budget else (0.0, None)
        best = decide_one(forecasts, objective, dual=dual, left=left)
        if not best.worker:
            raise InputError(f"nobody may be asked: {best.reason}")
        if why:
            # Nobody is safe within the limits: the best guess is taken, and said to be one.
            return self._choice(best.worker, forecasts, f"{safe.reason}; so {best.reason}", fallback=why)
        if self._online is not None and objective.min_quality is None:
            return self._sampled(self._online, type, forecasts, (best, objective, left))
        return self._drawn(best, forecasts, objective, left)

    def _sampled(
        self, online: OnlineLearner, type: str, forecasts: tuple[Forecast, ...], of: tuple[Selection, Objective, float | None]
    ) -> Choice:
        """One of those that are not beaten in everything, as often as it may be the best."""
        best, objective, left = of
        budget = self._budget(objective)
        # A dollar counts what it counts in the choice without learning.
        priced = replace(objective, cost=objective.cost + (budget.dual if budget else 0.0))
        arms = _explorable(best.worker, forecasts, objective, left)
        expected = {each.worker: utility(each, priced) for each in forecasts if each.worker in arms}
        return replace(online.choose(type, expected), policy=self._id, forecasts=forecasts)

    def _drawn(self, best: Selection, forecasts: tuple[Forecast, ...], objective: Objective, left: float | None) -> Choice:
        """The best one, or now and then another to learn from, with the probability that it had."""
        arms = _explorable(best.worker, forecasts, objective, left) if self.explore else (best.worker,)
        if len(arms) == 1:
            return self._choice(best.worker, forecasts, best.reason)
        choice = epsilon_greedy(best.worker, arms, self.explore, self._draws, policy=self._id)
        reason = f"drawn among {len(arms)} to learn; best is {best.reason}" if choice.explored else best.reason
        return replace(choice, forecasts=forecasts, reason=reason)

    def _choice(self, worker: str, forecasts: tuple[Forecast, ...], reason: str, *, fallback: str = "") -> Choice:
        return Choice(
            worker=worker,
            propensity=1.0,
            candidates=(worker,),
            policy=self._id,
            forecasts=forecasts,
            reason=reason,
            fallback=fallback,
        )

    def _budget(self, objective: Objective) -> OnlineBudget | None:
        if objective.max_cost is None:
            return None
        tuned = self.policy.dual if objective == self.policy.objective else 0.0
        return self._budgets.setdefault(objective, OnlineBudget(share=objective.max_cost, dual=tuned))

    def _spend(self, choice: Choice, objective: Objective) -> None:
        budget = self._budget(objective)
        if budget is None:
            return
        cost = next((each.cost for each in choice.forecasts if each.worker == choice.worker), None)
        if cost is not None:
            self._budgets[objective] = budget.after(cost)

    def _logged(self, choice: Choice, request: str, type: str, objective: Objective) -> Choice:
        if self._log is None:
            return choice
        id = self._log.decided(choice, request, type=type)
        with self._lock:
            forecast = next(each for each in choice.forecasts if each.worker == choice.worker)
            self._waiting[id] = _Waiting(type, forecast, objective)
            if len(self._waiting) > _WAITING:
                del self._waiting[next(iter(self._waiting))]
        return replace(choice, extra={**choice.extra, "decision": id})

    def _embedded(self, request: str) -> NDArray[np.float32]:
        return self._embedder.embed([request])


def find(where: Path | str) -> tuple[Policy, Approval]:
    """A policy and whether it may choose, from its folder, or by its id from the project's store.

    Raises:
        InputError: There is no such router, or its files are not what they were.
    """
    if Path(where).is_dir():
        return artifact.read(Path(where))
    project = settings.load()
    with open_store(project.store_url, make=False) as store:
        return artifact.restore(str(where), store, Artifacts(project.artifacts))


def _explorable(best: str, forecasts: Sequence[Forecast], objective: Objective, left: float | None) -> tuple[str, ...]:
    """The best one, and those that meet every limit and of which no other is better in all that counts; in order of names."""
    alone = replace(objective, min_quality=None)
    able = [each for each in forecasts if each.worker == best or _within(each, objective, alone, left)]
    front = pareto_front(*zip(*((each.success, each.cost, each.p95) for each in able), strict=True))
    return tuple(sorted({best, *(able[at].worker for at in front)}))


def _within(forecast: Forecast, objective: Objective, alone: Objective, left: float | None) -> bool:
    if objective.min_quality is not None and forecast.success < objective.min_quality:
        return False
    limits = [limit for limit in (left, objective.max_cost) if limit is not None]
    return bool(decide_one((forecast,), alone, left=min(limits, default=None)).worker)
