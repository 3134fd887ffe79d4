"""What alert monitors are tested with: live traffic in a store, a handed clock, and a server on loopback that is told."""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

from journeyman.core.alert import Alert
from journeyman.core.reward import Reward
from journeyman.core.trace import ModelCall, Trace
from journeyman.experiments.settings import AlertSettings, ChannelSettings
from journeyman.serving.alerts.channels import DeliveryFailed, Webhook
from journeyman.serving.alerts.watch import AlertMonitor, AlertRound, Surroundings
from journeyman.stores import open_traces
from journeyman.stores.alerts import ResourceSample, open_alerts
from tests.support.upstream import Upstream

NOON = datetime(2026, 3, 5, 12, tzinfo=UTC)


def bodies(up: Upstream) -> list[dict[str, Any]]:
    """What a server was told, in order."""
    return [json.loads(asked.body) for asked in up.asked]


def trace(id: str, at: datetime, *, seconds: float = 0.2, error: str | None = None, **more: Any) -> Trace:
    tokens, reward = more.pop("tokens", 20), more.pop("reward", None)
    call = ModelCall(
        model="m", prompt="p", reply="r", seconds=seconds, started_at=at, error=error, input_tokens=tokens, output_tokens=5
    )
    rewards = () if reward is None else (Reward(name="success", value=reward),)
    given = {"task_id": "t", "candidate_id": "base", "source": "gateway", **more}
    return Trace(id=id, started_at=at, steps=(call,), rewards=rewards, **given)


@dataclass
class Deaf:
    """A channel that is away as long as it is deaf."""

    deaf: bool = False
    heard: list[Alert] = field(default_factory=list)

    def send(self, alert: Alert) -> None:
        if self.deaf:
            raise DeliveryFailed("the channel hook does not answer")
        self.heard.append(alert)


@dataclass(kw_only=True)
class Watched:
    """A store with traffic, and one who watches it."""

    url: str
    folder: Path
    channels: Mapping[str, Any]
    settings: AlertSettings = field(default_factory=AlertSettings)
    now: datetime = NOON
    sample: Mapping[str, float] = field(default_factory=dict)
    number: int = 0
    holder: str = "one"

    def __post_init__(self) -> None:
        self.monitor = self.another(self.holder)

    def another(self, holder: str) -> AlertMonitor:
        around = Surroundings(clock=lambda: self.now, look=self._look, channels=self.channels, holder=holder)
        return AlertMonitor(self.url, self.folder, self.settings, around)

    def _look(self, at: datetime) -> Sequence[ResourceSample]:
        return [ResourceSample(at=at, host="host", **self.sample)]  # type: ignore[arg-type]  # shares alone

    def come(self, count: int, *, failing: int = 0, seconds: float = 0.2, **more: Any) -> None:
        """So many conversations are recorded now, of which some failed."""
        made = []
        for each in range(count):
            self.number += 1
            error = "ModelError: 500" if each < failing else None
            made.append(trace(f"t{self.number}", self.now, seconds=seconds, error=error, **more))
        with open_traces(self.url) as store:
            store.add(made)

    def score(self, scores: Sequence[float]) -> None:
        """Conversations of the last ten hours, as they come, and what each was worth."""
        first, apart = self.now - timedelta(hours=10), timedelta(hours=10) / len(scores)
        made = [trace(f"s{self.number + n}", first + n * apart, reward=score) for n, score in enumerate(scores)]
        self.number += len(scores)
        with open_traces(self.url) as store:
            store.add(made)

    def look(self, *, after: float = 30.0) -> AlertRound:
        self.now += timedelta(seconds=after)
        return self.monitor.once()

    def go_on(self, rounds: int, count: int = 0, **more: Any) -> list[str]:
        """Traffic and looks, one every 30 seconds; which changes there were."""
        changes = []
        for _ in range(rounds):
            if count:
                self.come(count, **more)
            changes += [f"{each.rule} {each.change}" for each in self.look().changed]
        return changes

    def history(self) -> Sequence[Alert]:
        with open_alerts(self.url) as store:
            return store.history()


def hook(up: Upstream, name: str = "hook") -> dict[str, Webhook]:
    return {name: Webhook(name, up.url)}


def page(env: str = "HOOK_URL", **more: Any) -> AlertSettings:
    return AlertSettings(channels={"page": ChannelSettings(url_env=env)}, **more)
