"""`journeyman releases …` that are about live traffic: start a rollout, move it, end it, and see what is served to whom."""

import math
import tomllib
from collections.abc import Iterator, Mapping
from dataclasses import asdict, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from journeyman.cli.console import named_columns, say, table
from journeyman.cli.shared import acting, answering, emit, json_option, options_named, read_store_url, store_url, together
from journeyman.core.candidate import Candidate
from journeyman.core.errors import InputError
from journeyman.core.format import counted
from journeyman.core.playbook import Playbook
from journeyman.core.rollout import ANY, EventKind, Slot
from journeyman.core.rollout_plan import RolloutPlan
from journeyman.io.files import read_json, read_text
from journeyman.stores.registry import Registry, find_rollout

if TYPE_CHECKING:
    from journeyman.experiments.release_simulation import RolloutForecast
    from journeyman.serving.releases.control import Begun
    from journeyman.stores.rollouts import RolloutStore

_NEVER = "-"
# What all of them have.


_moving = together(
    click.argument("rollout", metavar="ROLLOUT"),
    click.option("--reason", required=True, metavar="TEXT", help="Why, in one sentence; it is kept."),
)

_arm = click.option("--arm", metavar="NAME", help="Of several candidates this one, by its arm or its ID.")


def _opened(store: str | None) -> "RolloutStore":
    from journeyman.stores.rollouts import open_rollouts

    return open_rollouts(read_store_url(store), make=False)


# Begin.


@click.command("start")
@click.argument("candidates", metavar="CANDIDATE [CANDIDATE …]", nargs=-1, required=True)
@click.option("--agent", default=ANY, metavar="NAME", help="Of this agent's requests.  [default: every agent's]")
@click.option("--domain", default=ANY, metavar="NAME", help="Of this domain's requests.  [default: every domain's]")
@click.option(
    "--plan", "plan_file", type=click.Path(path_type=Path, dir_okay=False), metavar="FILE", help="A plan, TOML or JSON."
)
@click.option("--share", type=float, metavar="SHARE", help="One step at this share of new sessions, instead of the plan's.")
@click.option("--shadow", is_flag=True, help="Mirror requests first, as the plan says or a tenth; nobody is given the answers.")
@click.option("--planned-only", is_flag=True, help="Serve nobody yet: `ramp` begins the first step.")
@click.option("--force", is_flag=True, help="Although no gate let it pass; needs --reason, and is kept as forced.")
@click.option("--reason", default="", metavar="TEXT", help="Why, in one sentence.  [default: what the gate said]")
@click.option("--dry-run", is_flag=True, help="Say what would happen, and do nothing.")
@answering
def start(*, candidates: tuple[str, ...], store: str | None, dry_run: bool, quiet: bool, **given: Any) -> dict[str, Any]:
    """Begin to bring a candidate to live traffic, or several, of which the best stays.

    CANDIDATE is as much of an ID as tells it apart, or a playbook's file, which is then kept as a candidate. A playbook goes to
    the context of the requests that name the agent and the domain, a router's policy chooses who answers those for the model
    auto, and weights that were deployed with --release answer them; first the plan's first share of new sessions. What is in
    production there now stays for all others. The latest evaluation of the candidate must have passed the gate; --force starts
    it all the same. Several candidates divide the share, and each is compared with production.

    \b
    Examples:
      journeyman releases start 3f2a --agent desk --domain oslo
      journeyman releases start 3f2a --plan plan.toml --dry-run
      journeyman releases start 3f2a --domain oslo --shadow
      journeyman releases start 3f2a 81c0 b7d4 --agent desk
      journeyman releases start playbooks/oslo.json --share 1 --force --reason "a typing error is mended"
    """
    from journeyman.serving.releases import control

    wanted = control.RolloutRequest(
        candidates=lambda registry: [_candidate(registry, each) for each in candidates],
        plan=_plan(given.pop("plan_file"), given.pop("share"), shadow=given.pop("shadow")),
        by=acting(given.pop("reason")),
        **given,
    )
    begun = control.start(read_store_url(store) if store else store_url(None), wanted, dry_run=dry_run)
    say(*(f"journeyman: {each}" for each in begun.warnings))
    if not quiet:
        say(*_started(begun, dry_run=dry_run))
    return {"done": not dry_run, "dry_run": dry_run, **begun.as_json()}


def _candidate(registry: Registry, text: str) -> Candidate:
    from journeyman.experiments.agents import candidate_of
    from journeyman.serving.releases.control import kept_candidate

    file = Path(text.rpartition("@")[0] or text)
    if not (Path(text).is_file() or file.is_file()):
        if file.suffix or len(file.parts) > 1:
            raise InputError(f"{text}: there is no such file; name a playbook's file, or a candidate by its id")
        return kept_candidate(registry, text)
    made = candidate_of(Playbook.load(text))
    if made is None:
        raise InputError(f"{text} holds no bullets, so there is nothing to serve; name another playbook")
    return made


def _started(begun: "Begun", *, dry_run: bool) -> Iterator[str]:
    rollout, would = begun.rollout, "would begin" if dry_run else "begins"
    candidates = ", ".join(arm.candidate_id for arm in rollout.arms)
    yield f"rollout {rollout.id} {would} in {rollout.slot}: {candidates}, against {rollout.baseline.candidate_id}"
    for word in begun.words:
        yield f"  gate: {word.verdict.replace('_', ' ')}: {word.reason}"
    shares = rollout.said_shares
    if rollout.is_mirroring:
        plan = rollout.plan
        yield (
            f"  shadow: {plan.shadow_share:.4g} of requests without tools are mirrored, for ${plan.shadow_budget:g} at most; "
            f"the first step comes after {counted(plan.shadow_pairs, 'session')}"
        )
        return
    yield (
        f"  {rollout.state}: {shares} of new sessions"
        if shares
        else f"  {rollout.state}: nobody is served it until it is ramped"
    )


# Move, and end.


def _move(store: str | None, rollout: str, reason: str, kind: EventKind, *, quiet: bool, **more: Any) -> dict[str, Any]:
    """One event, of a person."""
    from journeyman.serving.releases import control

    with _opened(store) as kept:
        found = find_rollout(kept.rollouts(), rollout)
        moved = control.move(kept, found, control.RolloutMove(kind=kind, by=acting(reason), **more))
    after = moved.rollout
    if not quiet:
        told = f"; {after.said_shares} of new sessions" if after.is_drawing else ""
        say(f"{after.id} is {after.state.replace('_', ' ')}{told}; in production of {after.slot}: {moved.production}")
    return moved.as_json()


@click.command("ramp")
@_moving
@click.option("--share", type=float, metavar="SHARE", help="Of new sessions, instead of the plan's next step; 1 is all.")
@answering
def ramp(*, rollout: str, reason: str, share: float | None, store: str | None, quiet: bool) -> dict[str, Any]:
    """Give a rollout's candidate the plan's next share of new sessions, or another one.

    Sessions that were on an arm stay there.

    \b
    Examples:
      journeyman releases ramp 20261124-0915 --reason "no complaint for a day"
      journeyman releases ramp context:desk/oslo --share 0.5 --reason "it is only a typing error"
    """
    return _move(store, rollout, reason, EventKind.RAMP, quiet=quiet, share=share)


@click.command("hold")
@_moving
@answering
def hold(*, rollout: str, reason: str, store: str | None, quiet: bool) -> dict[str, Any]:
    """Keep a rollout as it is: nothing grows, and nothing is promoted.

    \b
    Example:
      journeyman releases hold context:desk/oslo --reason "the shop has a sale this week"
    """
    return _move(store, rollout, reason, EventKind.HOLD, quiet=quiet)


@click.command("resume")
@_moving
@answering
def resume(*, rollout: str, reason: str, store: str | None, quiet: bool) -> dict[str, Any]:
    """Let a rollout that is held go on.

    \b
    Example:
      journeyman releases resume context:desk/oslo --reason "the sale is over"
    """
    return _move(store, rollout, reason, EventKind.RESUME, quiet=quiet)


@click.command("promote")
@_moving
@_arm
@answering
def promote(*, rollout: str, reason: str, arm: str | None, store: str | None, quiet: bool) -> dict[str, Any]:
    """Put a rollout's candidate into production of its slot.

    The plan's holdback stays on what was there before, until the rollout is concluded, rolled back or closed.

    \b
    Example:
      journeyman releases promote context:desk/oslo --reason "a week without harm"
    """
    return _move(store, rollout, reason, EventKind.PROMOTE, quiet=quiet, arm=arm)


@click.command("rollback")
@_moving
@_arm
@answering
def rollback(*, rollout: str, reason: str, arm: str | None, store: str | None, quiet: bool) -> dict[str, Any]:
    """Bring all sessions of a rollout back to what was in production before.

    Running gateways follow within two seconds. After a promotion, production is as before, too. With --arm, one of several
    candidates is taken out, and the others go on.

    \b
    Example:
      journeyman releases rollback context:desk/oslo --reason "it quotes old prices"
    """
    return _move(store, rollout, reason, EventKind.ROLLBACK, quiet=quiet, arm=arm)


@click.command("close")
@_moving
@answering
def close(*, rollout: str, reason: str, store: str | None, quiet: bool) -> dict[str, Any]:
    """End a rollout without a verdict.

    Its sessions go back to production, and nothing is held against the candidate. After a promotion, what was promoted stays,
    and nobody is held back any longer.

    \b
    Example:
      journeyman releases close context:desk/oslo --reason "a better one is ready"
    """
    return _move(store, rollout, reason, EventKind.CLOSE, quiet=quiet)


@click.command("undo")
@click.argument("slot", metavar="SLOT")
@click.option("--reason", required=True, metavar="TEXT", help="Why, in one sentence; it is kept.")
@answering
def undo(*, slot: str, reason: str, store: str | None, quiet: bool) -> dict[str, Any]:
    """Bring back what was in production of a slot before.

    Where a rollout is open, end that first.

    \b
    Example:
      journeyman releases undo context:desk/oslo --reason "complaints since Monday"
    """
    with _opened(store) as kept:
        move = kept.undo(Slot.parse(slot), acting(reason).cause())
    if not quiet:
        say(f"{move.slot}: {move.candidate_id} is in production again")
    return {"done": True, "move": move.as_json()}


# What a rollout would find.


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


def _plan(file: Path | None, share: float | None, *, shadow: bool = False) -> RolloutPlan:
    from journeyman.serving.releases.control import plan_of

    held: Any = {}
    if file is not None:
        try:
            held = read_json(file) if file.suffix == ".json" else tomllib.loads(read_text(file))
        except tomllib.TOMLDecodeError as error:
            raise InputError(f"{file} is no TOML ({error}); a plan is written like [release] in journeyman.toml") from None
    with options_named():
        return plan_of(held, str(file), share, shadow=shadow)


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
