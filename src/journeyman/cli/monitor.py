"""`journeyman monitor`: decides what becomes of rollouts, and tells of what goes wrong."""

import os
import threading
from functools import partial
from typing import TYPE_CHECKING, Any

import click

from journeyman.cli.console import say
from journeyman.cli.shared import emit, json_option, read_store_url, store_option
from journeyman.io.processes import when_parent_ends, when_told

if TYPE_CHECKING:
    from collections.abc import Mapping

    from journeyman.serving.alerts.watch import AlertMonitor, AlertRound
    from journeyman.serving.monitor import Decided
    from journeyman.serving.watching import MonitorConfig

_LOADING = 60.0
"""Seconds for which models that may be needed are waited for, who looks once."""


@click.command()
@click.option("--once", is_flag=True, help="Look once, say what was found, and end.")
@click.option(
    "--every", type=click.FloatRange(min=0.1), default=10.0, show_default=True, metavar="SECONDS", help="How often to look."
)
@click.option("--with-parent", is_flag=True, hidden=True, help="End when standard input does.")
@store_option
@json_option
def command(as_json: bool, store: str | None, once: bool, every: float, with_parent: bool) -> int:
    """Decide what becomes of rollouts, and tell of what goes wrong.

    What is good is promoted, what harms is rolled back, the rest is held: by what live sessions have shown, at the levels of
    the plan. Whatever cannot be known is held. Alerts are measured as often as [alerts] says, and told to its channels.

    The gateway starts one by itself. Several may run, and one at a time decides. With --once the exit code is 1 when a rollout
    is held or an alert fires.

    \b
    Examples:
      journeyman monitor --once
      journeyman monitor --every 30 --store postgresql://journeyman@db/journeyman
    """
    if with_parent:
        # Beside a gateway answers go first, and then what is recorded of them: also while all of this is loaded.
        os.nice(10)
    from journeyman.experiments import settings
    from journeyman.serving.watching import MonitorConfig, watch

    project = settings.load()
    config = MonitorConfig(
        url=read_store_url(store),
        folder=project.folder,
        alerts=project.settings.alerts,
        upstreams=project.settings.upstreams,
        every=every,
    )
    processes = {"monitor": os.getpid(), **({"serve": os.getppid()} if with_parent else {})}
    if once:
        return _once(config, processes, as_json=as_json)
    over = threading.Event()
    when_told(over.set)
    if with_parent:
        when_parent_ends(over.set)
    watch(
        config,
        over,
        processes=processes,
        acted=lambda found: _show(found, as_json=as_json),
        said=lambda why: say(f"journeyman: {why}"),
    )
    return 0


def _once(config: "MonitorConfig", processes: "Mapping[str, int]", *, as_json: bool) -> int:
    from journeyman.serving.alerts.samples import Sampler
    from journeyman.serving.alerts.watch import AlertMonitor, Surroundings
    from journeyman.serving.monitor import Monitor
    from journeyman.serving.releases.artifacts import KeepLoaded
    from journeyman.serving.shadow import ShadowJudge
    from journeyman.stores.alerts import open_alerts
    from journeyman.stores.rollouts import open_rollouts

    keep = KeepLoaded(config.upstreams)
    around = Surroundings(look=Sampler(config.folder, processes).look, open=partial(open_alerts, make=False))
    with open_rollouts(config.url, make=False) as opened:
        decides = Monitor(opened, keep_loaded=keep, judge=ShadowJudge(config.url))
        found = decides.once()
        decides.leave()
        watched = _looked(AlertMonitor(config.url, config.folder, config.alerts, around))
        _show(found, watched, as_json=as_json)
        keep.wait(_LOADING)
        return int(any(each.rollout.is_held for each in found or ()) or bool(watched.firing))


def _looked(monitor: "AlertMonitor") -> "AlertRound":
    try:
        return monitor.once()
    finally:
        monitor.close()


def _show(found: "list[Decided] | None", watched: "AlertRound | None" = None, *, as_json: bool) -> None:
    if not as_json:
        if found is None:
            say("another monitor decides at the moment")
        elif not found:
            say("no rollout is open")
        for each in found or ():
            say(f"{each.rollout.id} ({each.rollout.slot}): {each.rollout.state.replace('_', ' ')}: {each.verdict.reason}")
        if watched is not None:
            say(*(["another monitor measures at the moment"] if watched.elsewhere else []))
            say(*(f"{alert.name} fires: {alert.says}" for alert in watched.firing))
            say(*([] if watched.firing else ["no alert fires"]))
    alerts = {} if watched is None else {"alerts": [each.as_json() for each in watched.firing], "away": watched.away or None}
    emit({"decides": found is not None, "rollouts": [_row(each) for each in found or ()], **alerts}, as_json=as_json)


def _row(found: "Decided") -> dict[str, Any]:
    return {
        "id": found.rollout.id,
        "slot": str(found.rollout.slot),
        "state": found.rollout.state.value,
        "shares": dict(found.rollout.shares),
        "event": found.verdict.event.value if found.acted and found.verdict.event else None,
        "reason": found.verdict.reason,
    }
