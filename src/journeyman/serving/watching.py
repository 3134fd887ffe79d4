"""What a monitor does until it is told to stop: one thread decides what becomes of rollouts, one tells of what goes wrong.

It runs in a process of its own, as `journeyman monitor`, or in the one that records for a gateway.
"""

import logging
import os
import threading
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

from journeyman.core.errors import ReleaseError, StoreError, StoreUnreachable
from journeyman.experiments.settings import AlertSettings, UpstreamSettings

if TYPE_CHECKING:
    from journeyman.serving.monitor import Decided
    from journeyman.stores.rollouts import RolloutStore

log = logging.getLogger(__name__)

_AGAIN = 5.0
"""Seconds after which a monitor that failed begins anew."""


@dataclass(frozen=True, slots=True, kw_only=True)
class MonitorConfig:
    """What is watched, and how."""

    url: str
    """Of the store."""
    folder: Path
    """Of the project."""
    alerts: AlertSettings = field(default_factory=AlertSettings)
    upstreams: Mapping[str, UpstreamSettings] = field(default_factory=dict)
    every: float = 10.0
    """Seconds between two looks at rollouts."""


Rounds = Callable[[], "list[Decided] | None"]
"""One look at all rollouts."""


def rounds(store: "RolloutStore", config: MonitorConfig) -> Rounds:
    """What looks at the rollouts of a store. Where nothing was ever released, nothing is loaded for it."""

    def once() -> "list[Decided] | None":
        if not looks and not any(store.version()):
            return []
        if not looks:
            from journeyman.serving.monitor import Monitor
            from journeyman.serving.releases.artifacts import KeepLoaded
            from journeyman.serving.shadow import ShadowJudge

            lease = max(60.0, 3 * config.every)
            keep, judge = KeepLoaded(config.upstreams), ShadowJudge(config.url)
            looks.append(Monitor(store, lease_seconds=lease, keep_loaded=keep, judge=judge).once)
        return looks[0]()

    looks: list[Rounds] = []
    return once


def watch(
    config: MonitorConfig,
    over: threading.Event,
    *,
    processes: Mapping[str, int],
    acted: Callable[["list[Decided]"], None] = lambda found: None,
    said: Callable[[str], None] = log.warning,
) -> None:
    """Look at rollouts and for alerts until told to stop.

    Args:
        processes: Those whose work and memory are looked at, by what they are there for.
        acted: Told of the rollouts that something became of.
        said: Told why nothing can be decided for now.

    Raises:
        StoreError: There is no store that will ever answer.
    """
    # Late, as the gateway tells the other process what is to be watched, and carries none of this itself.
    from journeyman.serving.alerts.samples import Sampler
    from journeyman.serving.alerts.watch import AlertMonitor, Surroundings
    from journeyman.stores.rollouts import open_rollouts

    ended, wake = threading.Event(), threading.Event()
    around = Surroundings(look=Sampler(config.folder, processes).look)
    alerts = AlertMonitor(config.url, config.folder, config.alerts, around)
    thread = threading.Thread(target=alerts.run, args=(ended, wake), name="alerts", daemon=True)
    thread.start()

    def told(found: "list[Decided]") -> None:
        # What happens to a rollout is told at once.
        wake.set()
        acted(found)

    try:
        while not over.is_set():
            try:
                opened = open_rollouts(config.url)
            except StoreUnreachable as error:
                # Of two that are started together, the database may come second.
                said(f"the monitor waits: {error}")
                over.wait(config.every)
            else:
                with opened:
                    decide(rounds(opened, config), config.every, over, acted=told, said=said)
    finally:
        # Else a process that decides nothing any more would wait for the thread for ever.
        for each in (ended, wake):
            each.set()
        thread.join()


def decide(
    once: Rounds,
    every: float,
    over: threading.Event,
    *,
    acted: Callable[["list[Decided]"], None],
    said: Callable[[str], None],
) -> None:
    """Look at the rollouts of a store until told to stop."""
    fault = ""
    while not over.is_set():
        try:
            found, fault = once(), ""
        except (StoreError, ReleaseError) as error:
            # Shares stay as they are; what was missed is read when the store is back, or in the next round.
            if str(error) != fault:
                fault = str(error)
                said(f"the monitor waits: {fault}")
        else:
            if moved := [each for each in found or () if each.acted]:
                acted(moved)
        over.wait(every)


def watch_beside(config: MonitorConfig, over: threading.Event) -> threading.Thread:
    """Watch in a thread of the process that records for a gateway, its parent; begun anew where it fails."""

    def run() -> None:
        from journeyman.serving.alerts.watch import say_failed

        while not over.is_set():
            try:
                watch(config, over, processes={"recorder": os.getpid(), "serve": os.getppid()})
            except StoreError as error:
                log.warning("the monitor waits: %s", error)
            except Exception as error:  # noqa: BLE001 - a thread that ends unnoticed would watch nothing any more
                say_failed("the monitor", error)
            over.wait(_AGAIN)

    thread = threading.Thread(target=run, name="monitor", daemon=True)
    thread.start()
    return thread
