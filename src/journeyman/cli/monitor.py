"""`journeyman monitor`: decides what becomes of rollouts, and tells of what goes wrong."""

import os
import signal
import sys
import threading
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from journeyman.cli.console import say
from journeyman.cli.shared import emit, json_option, read_store_url, store_option
from journeyman.core.errors import ReleaseError, StoreError, StoreUnreachable

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from datetime import datetime

    from journeyman.serving.alerts.watch import AlertMonitor, AlertRound
    from journeyman.serving.monitor import Decided, Monitor
    from journeyman.stores.alerts import ResourceSample

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
    from journeyman.serving.alerts.watch import AlertMonitor, Surroundings
    from journeyman.serving.monitor import Monitor
    from journeyman.serving.releases.artifacts import KeepLoaded
    from journeyman.stores.alerts import open_alerts
    from journeyman.stores.rollouts import open_rollouts

    project = settings.load()
    keep = KeepLoaded(project.settings.upstreams)
    url, seconds = read_store_url(store), max(60.0, 3 * every)
    look, over, wake = _sampler(project.folder, with_parent=with_parent), threading.Event(), threading.Event()
    if once:
        around = Surroundings(look=look, open=partial(open_alerts, make=False))
        with open_rollouts(url, make=False) as opened:
            decides = Monitor(opened, lease_seconds=seconds, keep_loaded=keep)
            found = decides.once()
            decides.leave()
            watched = _looked(AlertMonitor(url, project.folder, project.settings.alerts, around))
            _show(found, watched, as_json=as_json)
            keep.wait(_LOADING)
            return int(any(each.rollout.state == "held" for each in found or ()) or bool(watched.firing))
    _until_told(over, with_parent=with_parent)
    alerts = AlertMonitor(url, project.folder, project.settings.alerts, Surroundings(look=look))
    thread = threading.Thread(target=alerts.run, args=(over, wake), name="alerts")
    thread.start()
    try:
        while not over.is_set():
            try:
                opened = open_rollouts(url)
            except StoreUnreachable as error:
                # Of two that are started together, the database may come second.
                say(f"journeyman: the monitor waits: {error}")
                over.wait(every)
            else:
                with opened:
                    _go_on(Monitor(opened, lease_seconds=seconds, keep_loaded=keep), every, over, wake, as_json=as_json)
    finally:
        # Else a process that decides nothing any more would wait for the thread for ever.
        _end(thread, over, wake)
    return 0


def _end(thread: threading.Thread, *events: threading.Event) -> None:
    for each in events:
        each.set()
    thread.join()


def _sampler(folder: Path, *, with_parent: bool) -> "Callable[[datetime], Sequence[ResourceSample]]":
    from journeyman.serving.alerts.samples import Sampler

    beside = {"serve": os.getppid()} if with_parent else {}
    return Sampler(folder, {"monitor": os.getpid(), **beside}).look


def _looked(monitor: "AlertMonitor") -> "AlertRound":
    try:
        return monitor.once()
    finally:
        monitor.close()


def _until_told(over: threading.Event, *, with_parent: bool) -> None:
    """Have it set when it is to end."""
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda *_: over.set())

    def wait_for_parent() -> None:
        sys.stdin.buffer.read()
        over.set()

    if with_parent:
        threading.Thread(target=wait_for_parent, daemon=True).start()


def _go_on(monitor: "Monitor", every: float, over: threading.Event, wake: threading.Event, *, as_json: bool) -> None:
    fault = ""
    while not over.is_set():
        try:
            found, fault = monitor.once(), ""
        except (StoreError, ReleaseError) as error:
            # Shares stay as they are; what was missed is read when the store is back, or in the next round.
            if str(error) != fault:
                fault = str(error)
                say(f"journeyman: the monitor waits: {fault}")
        else:
            acted = [each for each in found or () if each.acted]
            if acted:
                # What happens to a rollout is told at once.
                wake.set()
                _show(acted, as_json=as_json)
        over.wait(every)


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
