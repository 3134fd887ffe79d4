"""`journeyman releases …` that are about live traffic: what a rollout would find, before it starts."""

import math
import tomllib
from collections.abc import Mapping
from dataclasses import asdict, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from journeyman.cli.console import named_columns, say, table
from journeyman.cli.shared import emit, json_option
from journeyman.core.errors import InputError
from journeyman.core.rollout import EventKind, RolloutPlan
from journeyman.io.files import read_json, read_text

if TYPE_CHECKING:
    from journeyman.experiments.release_simulation import RolloutForecast

_NEVER = "-"


@click.command("simulate")
@click.option("--sessions-per-day", type=float, required=True, metavar="N", help="That come to the slot; 5.7 is 40 a week.")
@click.option("--share", type=float, metavar="SHARE", help="Keep the canary at this share, instead of the plan's steps.")
@click.option("--worse", type=float, default=0.2, show_default=True, help="By how much a bad candidate's success is lower.")
@click.option("--icc", type=float, default=0.3, show_default=True, help="How much the tasks of a session go well together.")
@click.option("--baseline", type=float, default=0.7, show_default=True, help="Production's success.")
@click.option("--tasks", type=float, default=3.0, show_default=True, help="Of a session, on the mean.")
@click.option("--runs", type=click.IntRange(20, 2000), default=200, show_default=True, help="Of each kind of candidate.")
@click.option(
    "--plan", "plan_file", type=click.Path(path_type=Path, dir_okay=False), metavar="FILE", help="A plan, TOML or JSON."
)
@click.option("--seed", type=click.IntRange(min=0), default=0, show_default=True, help="Of what is drawn.")
@json_option
def simulate(as_json: bool, **given: Any) -> int:
    """Say before a rollout starts how many sessions and days it takes to find out.

    Sessions are made up, and the real evidence and the real rule decide: for a candidate that is worse by --worse, one that is
    worse by the plan's margin, one that is as good, and one that is better by the margin. Guardrails are taken to stay quiet.
    Exit code 1 when the plan's time is too short at this traffic for a candidate that is as good.

    \b
    Examples:
      journeyman releases simulate --sessions-per-day 1000
      journeyman releases simulate --sessions-per-day 5.7 --share 0.5 --worse 0.1
      journeyman releases simulate --sessions-per-day 300 --plan plan.toml --json
    """
    from journeyman.experiments.release_simulation import Traffic, forecast

    _check(given)
    plan, per_day = _plan(given["plan_file"], given["share"]), given["sessions_per_day"]
    traffic = Traffic(baseline=given["baseline"], icc=given["icc"], tasks=given["tasks"])
    margin = plan.primary.margin
    found = [
        forecast(plan, replace(traffic, worse=worse), per_day=per_day, runs=given["runs"], seed=given["seed"])
        for worse in dict.fromkeys((given["worse"], margin, 0.0, -margin))
    ]
    alike = next(each for each in found if each.worse == 0)
    enough = alike.within_plan >= 0.5
    if not as_json:
        _show(found, plan, per_day)
    said = _said(alike, plan, per_day)
    if not as_json:
        say(said, colour=None if enough else "yellow")
    rows = [{name: _finite(value) for name, value in asdict(each).items()} for each in found]
    emit({"sessions_per_day": per_day, "plan": plan.as_json(), "rows": rows, "enough": enough, "reason": said}, as_json=as_json)
    return 0 if enough else 1


def _check(given: Mapping[str, Any]) -> None:
    limits = (
        ("sessions_per_day", 0.0, 1e9, "is a number above 0"),
        ("share", 0.0, 1.0, "is above 0 and below 1, as some stay on production"),
        ("worse", 0.0, 1.0, "is above 0 and below 1"), ("baseline", 0.0, 1.0, "is above 0 and below 1"),
        ("icc", -1e-9, 1.0, "is from 0 to below 1"), ("tasks", 1 - 1e-9, 1000.0, "is from 1 to 1,000"),
    )  # fmt: skip
    for name, low, high, must in limits:
        value = given[name]
        if value is not None and not low < value < high:
            raise InputError(f"--{name.replace('_', '-')} {must}, not {value:g}")
    if given["worse"] > given["baseline"]:
        raise InputError(f"--worse {given['worse']:g} is more than production's success of {given['baseline']:g} can lose")


def _plan(file: Path | None, share: float | None) -> RolloutPlan:
    plan = RolloutPlan()
    if file is not None:
        try:
            held = read_json(file) if file.suffix == ".json" else tomllib.loads(read_text(file))
        except tomllib.TOMLDecodeError as error:
            raise InputError(f"{file} is no TOML ({error}); a plan is written like [release] in journeyman.toml") from None
        plan = RolloutPlan.read(held.get("release", held) if isinstance(held, Mapping) else held, str(file))
    if share is None:
        return plan
    return replace(plan, steps=(share,), step_sessions=(0,), step_hours=(0.0,), step_worst=(1.0,))


def _show(found: "list[RolloutForecast]", plan: RolloutPlan, per_day: float) -> None:
    columns = named_columns(
        "candidate", "rolled back", "promoted", "sessions", "of them on it", "time", "within the plan's time"
    )
    table(columns, [_row(each) for each in found])
    say("of each two numbers: half of the runs end by then, and 95 of 100")


def _row(each: "RolloutForecast") -> tuple[str, ...]:
    points = 100 * each.worse
    name = "as good" if not points else f"{abs(points):.3g} points {'worse' if points > 0 else 'better'}"
    times = tuple(_time(days) for days in each.days)
    return (
        name, f"{each.rolled_back:.1%}", f"{each.promoted:.1%}", _two(each.sessions), _two(each.canary), " / ".join(times),
        f"{each.within_plan:.0%}",
    )  # fmt: skip


def _said(alike: "RolloutForecast", plan: RolloutPlan, per_day: float) -> str:
    end = "is held, and asks" if plan.on_end == "hold" else "is rolled back"
    if alike.within_plan >= 0.5:
        days = _time(alike.days[0])
        return (
            f"enough: at {_rate(per_day)} half of the candidates that are as good as production are promoted within {days}, "
            f"and the plan gives {plan.max_days:g} days"
        )
    if alike.mostly is not EventKind.PROMOTE or math.isinf(alike.days[0]):
        needs = "more than was simulated"
    else:
        needs = f"about {_time(alike.days[0])} ({alike.sessions[0]:,.0f} sessions) in half of the runs"
    return (
        f"too little: at {_rate(per_day)} a candidate as good as production needs {needs}, and the plan gives "
        f"{plan.max_days:g} days, after which it {end}; start at a share of 0.5 with a larger margin, or ask held-out tasks, "
        "which tell the same today: journeyman evaluate"
    )


def _rate(per_day: float) -> str:
    return f"{per_day:,.4g} sessions a day" if per_day >= 10 else f"{7 * per_day:,.3g} sessions a week"


def _two(counts: tuple[float, float]) -> str:
    return " / ".join(_NEVER if math.isinf(each) else f"{each:,.0f}" for each in counts)


def _time(days: float) -> str:
    if math.isinf(days):
        return _NEVER
    for unit, long in (("year", 365.0), ("month", 30.4), ("week", 7.0), ("day", 1.0)):
        if days >= 2 * long:
            return f"{days / long:.1f} {unit}s"
    return f"{24 * days:.0f} hours"


def _finite(value: Any) -> Any:
    """JSON knows no infinity."""
    if isinstance(value, tuple):
        return [_finite(each) for each in value]
    return None if isinstance(value, float) and not math.isfinite(value) else value
