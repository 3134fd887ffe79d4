"""Two shops whose customers come through a gateway beside which somebody learns: one may change its ways, the other not."""

import json
import time
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from typing import Any
from urllib.request import Request, urlopen

from journeyman.core.rollout_plan import Metric, RolloutPlan
from journeyman.core.task import Task
from journeyman.tasks.desk import customers

AGENT, SHOP, STEADY = "desk", "shop", "lima"
TOGETHER, PEOPLE = 8, 120
TOKEN = "SHOPS_TOKEN"
"""The variable that holds what lets them say what became of an order."""
PLAN = RolloutPlan(
    steps=(0.5,),
    step_sessions=(40,),
    step_hours=(0.0,),
    step_worst=(1.0,),
    min_sessions=40,
    holdback=0.0,
    settle_seconds=2,
    primary=Metric(name="success", require="better", window_seconds=2),
    guardrails=(Metric(name="failed_requests", tolerance=0.01),),
)
SETTINGS = """\
[serve]
learn = true
monitor_seconds = 0.5

[models]
reflector_model = "embedded"

[alerts]
resources = 1.0
latency_ms = 60000

[learn]
every = "5s"
min_new = 110
release = "canary"
plan = "plan.json"
budget = { cost_per_day = inf, cpu_seconds_per_day = 7200, looks_per_month = 400 }
"""


@dataclass(slots=True)
class Orders:
    """Customers of both shops, and what became of each order."""

    url: str
    token: str
    steady: Sequence[Task]
    rate: float
    """Of the shop that changes, in a second."""
    taken: dict[str, list[bool]] = field(default_factory=lambda: {SHOP: [], STEADY: []})

    def come(self, tasks: Sequence[Task]) -> None:
        """So many of the shop that changes, and one in six of the other."""
        with customers.connect(f"{self.url}/v1") as client, ThreadPoolExecutor(TOGETHER) as pool:
            begun = time.monotonic()
            for start in range(0, len(tasks), TOGETHER):
                time.sleep(max(0.0, begun + start / self.rate - time.monotonic()))
                some = [(SHOP, task) for task in tasks[start : start + TOGETHER]]
                known = len(self.taken[STEADY])
                some += [(STEADY, self.steady[known + place]) for place in range(1 + (start // TOGETHER) % 3 // 2)]
                # Each is numbered before any is under way.
                visits = [self._visit(shop, task, place) for place, (shop, task) in enumerate(some)]
                found = list(pool.map(lambda visit: self._one(client, visit), visits))
                for (shop, _), taken in zip(some, found, strict=True):
                    self.taken[shop].append(taken)

    def _visit(self, shop: str, task: Task, place: int) -> customers.Visit:
        number = len(self.taken[shop]) + place
        labels = {
            "X-Journeyman-Session": f"{shop}-{number}-{place}",
            "X-Journeyman-Agent": AGENT,
            "X-Journeyman-Domain": shop,
        }
        return customers.Visit(task=task, customer=f"customer-{number % PEOPLE}", labels=labels)

    def _one(self, client: Any, visit: customers.Visit) -> bool:
        answers = list[str]()
        taken = customers.chat(client, visit, answered=answers.append)
        about = {"request": answers[-1]} if answers else {"session": visit.labels["X-Journeyman-Session"]}
        body = {**about, "value": taken, "source": "check", "rater": "the shop"}
        headers = {"content-type": "application/json", "x-journeyman-feedback-token": self.token}
        urlopen(Request(f"{self.url}/feedback", json.dumps(body).encode(), headers), timeout=60).read()
        return taken
