"""The router at work: a request goes to the cheapest worker that will get it right.

router = Router.load("routers/mine", log=DecisionLog(Path("decisions.jsonl")))
choice = router.route("Prove that there are infinitely many primes.")
print(choice.worker, choice.reason)
"""

import random
import threading
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from journeyman import config, embed
from journeyman.embed.base import Embedder
from journeyman.errors import InputError
from journeyman.learn.router.decide import OnlineBudget, Selection, decide_one
from journeyman.learn.router.decisions import DecisionLog
from journeyman.learn.router.drift import Drift, fall_back
from journeyman.learn.router.objective import Objective
from journeyman.learn.router.single import Single
from journeyman.learn.router.warm import RoutingSession, in_session
from journeyman.optimizers.exploration import epsilon_greedy, pareto_front
from journeyman.policy import Choice, Forecast, Outcome
from journeyman.routing import policies
from journeyman.routing.online import OnlineLearner, utility
from journeyman.routing.policies import Approval, Policy
from journeyman.stores import open_store
from journeyman.stores.artifacts import Artifacts

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
        self._embedder = embedder or embed.load(policy.fitted.embedder)
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
            router.learn_online(Path(where) / policies.ONLINE)
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
        return policies.read(Path(where))
    project = config.load()
    with open_store(project.store_url, make=False) as store:
        return policies.restore(str(where), store, Artifacts(project.artifacts))


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
