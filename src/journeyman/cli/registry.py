"""`journeyman runs`, `candidates`, `evaluations` and `releases`: look at what was done, learned, proven and released."""

from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict
from functools import wraps
from typing import TYPE_CHECKING, Any

import click

from journeyman.cli.console import head, minute, number, plain, rows_table, say
from journeyman.cli.lazy import LazyGroup
from journeyman.cli.shared import emit, json_option, read_store_url, show_bullets, show_shadow, store_option, store_url
from journeyman.core import format
from journeyman.core.candidate import Candidate, Kind
from journeyman.core.errors import PlaybookError
from journeyman.core.evaluation import Pair
from journeyman.core.format import counted, value_text
from journeyman.core.release import Move, Release, Stage
from journeyman.core.rollout import Rollout, Slot
from journeyman.stores.base import AttemptTotals, EvaluationRecord, RunRecord, RunState
from journeyman.stores.registry import Registry, comparison_of, find_rollout, names_rollout
from journeyman.stores.urls import redacted

if TYPE_CHECKING:
    from journeyman.stores.rollouts import RolloutStore

_FIRST_LINES = 40
"""Lines of a candidate that are shown; `--json` has all of it."""
_HOW = {
    "runs": "To have one: journeyman train playbook, router, planner or weights",
    "candidates": "They come from journeyman train",
    "evaluations": "They come from journeyman train and journeyman evaluate",
    "releases": "They come from a training whose gate passes",
}
_LIVE = {
    "start": "Begin to bring a candidate to live traffic, or several, of which the best stays.",
    "ramp": "Give a rollout's candidate the plan's next share of new sessions, or another one.",
    "hold": "Keep a rollout as it is: nothing grows, and nothing is promoted.",
    "resume": "Let a rollout that is held go on.",
    "promote": "Put a rollout's candidate into production of its slot.",
    "rollback": "Bring all sessions of a rollout back to what was in production before.",
    "close": "End a rollout without a verdict.",
    "undo": "Bring back what was in production of a slot before.",
    "slots": "List what is in production where, and the rollouts that are open there.",
    "rollouts": "List rollouts, newest first.",
    "assign": "Say which arm a session is on, and why; writes nothing.",
    "evidence": "Show what the test of a rollout has come to.",
    "simulate": "Say before a rollout starts how many sessions and days it takes to find out.",
}
_LOOKS = ("slots", "rollouts", "assign", "evidence")
"""Of these, those that only look."""
_LIMIT = click.option("--limit", type=click.IntRange(1), default=20, show_default=True, metavar="N", help="So many at most.")

Read = Callable[..., dict[str, Any]]
"""Takes the registry and the command's own options, shows what it finds unless `quiet`, and gives it for `--json`."""


def _reading(read: Read) -> Callable[..., None]:
    """Gives a command `--store` and `--json`."""

    @wraps(read)
    def run(store: str | None, as_json: bool, **given: Any) -> None:
        with Registry.open(read_store_url(store)) as registry:
            result = read(registry, quiet=as_json, **given)
        emit(result, as_json=as_json)

    return store_option(json_option(run))


@click.group()
def runs() -> None:
    """List, show, compare and forget runs.

    A run is one training, with its settings, attempts and result. As much of an ID as tells it apart is enough.

    \b
    Examples:
      journeyman runs list
      journeyman runs show 20261105-1200
    """


@runs.command("list")
@click.option("--kind", metavar="NAME", help='What ran: "train playbook", for instance.')
@click.option("--state", type=click.Choice([each.value for each in RunState]), help="In this state now.")
@_LIMIT
@_reading
def list_runs(registry: Registry, *, kind: str | None, state: str | None, limit: int, quiet: bool) -> dict[str, Any]:
    """List runs, newest first.

    \b
    Examples:
      journeyman runs list
      journeyman runs list --kind "train router" --state finished
    """
    found = registry.runs(kind=kind, state=RunState(state) if state else None, limit=limit)
    if not quiet:
        rows = [(run.id, run.kind, run.state.value, minute(run.started_at), _took(run), run.said) for run in found]
        _listed("runs", ("id", "kind", "state", "started", "took", "result"), rows)
    return {"runs": [_run_json(run) for run in found]}


@runs.command("show")
@click.argument("run_id", metavar="ID")
@_reading
def show_run(registry: Registry, *, run_id: str, quiet: bool) -> dict[str, Any]:
    """Show a run: its settings, what its attempts came to, its evaluations and its result.

    \b
    Example:
      journeyman runs show 20261105-1200
    """
    found = registry.run(run_id)
    if not quiet:
        run = found.run
        head(
            *(("run", run.id), ("kind", run.kind), ("state", run.state.value)),
            *(("started", minute(run.started_at)), ("took", _took(run)), ("result", run.said)),
            *(("attempts", _totals(totals)) for totals in found.attempts),
            *_verdicts(found.evaluations),
            *((name, value_text(value)) for name, value in run.config.items() if value not in (None, "", [], {})),
        )
    return {
        "run": _run_json(found.run),
        "attempts": [asdict(totals) for totals in found.attempts],
        "evaluations": [_evaluation_json(each) for each in found.evaluations],
    }


@runs.command("diff")
@click.argument("before", metavar="ID")
@click.argument("after", metavar="OTHER")
@_reading
def diff_runs(registry: Registry, *, before: str, after: str, quiet: bool) -> dict[str, Any]:
    """Show in which settings and results two runs differ.

    \b
    Example:
      journeyman runs diff 20261105-1200 20261106-0930
    """
    changes = registry.diff_runs(before, after)
    if not quiet:
        rows_table(("what", before, after), [(each.name, value_text(each.before), value_text(each.after)) for each in changes])
        if not changes:
            say("the two runs have the same settings and the same result")
    return {"changes": [asdict(each) for each in changes]}


@runs.command("rm")
@click.argument("run_id", metavar="ID")
@click.option("--yes", is_flag=True, help="Do not ask.")
@_reading
def remove_run(registry: Registry, *, run_id: str, yes: bool, quiet: bool) -> dict[str, Any]:
    """Forget a run with its attempts, their traces and its evaluations, for good.

    A run stays when a release stands on one of its evaluations. Candidates stay, and so does the count of looks at held-out
    tasks. The folder of the run is not touched.

    \b
    Example:
      journeyman runs rm 20261105-1200
    """
    found = registry.run(run_id)
    id, count = found.run.id, sum(totals.attempts for totals in found.attempts)
    with_it = format.counted(count, "attempt")
    if not yes:
        click.confirm(f"Forget run {id} ({found.run.state.value}) with its {with_it} for good?", abort=True, err=True)
    removed = registry.remove_run(id)
    if not quiet:
        say(f"run {id} and its {with_it} are forgotten")
    return {"run": id, "attempts": removed}


@click.group()
def candidates() -> None:
    """List, show and compare what was learned.

    A candidate is a playbook, a policy or an adapter, known by its content. As much of an ID as tells it apart is enough.

    \b
    Examples:
      journeyman candidates list --kind playbook
      journeyman candidates diff 3f2a 81bc
    """


@candidates.command("list")
@click.option("--kind", type=click.Choice([each.value for each in Kind]), help="Of one kind.")
@_LIMIT
@_reading
def list_candidates(registry: Registry, *, kind: str | None, limit: int, quiet: bool) -> dict[str, Any]:
    """List candidates, newest first, with how far they are released.

    \b
    Example:
      journeyman candidates list --kind playbook
    """
    found = registry.candidates(kind=Kind(kind) if kind else None, limit=limit)
    stages = {release.candidate_id: release.stage.value for release in registry.releases()}
    passed = {each.candidate_id: each.passed for each in reversed(registry.evaluations())}
    if not quiet:
        rows = [
            (each.id, each.kind.value, stages.get(each.id, ""), _passed(passed.get(each.id)), " ".join(each.parents))
            for each in found
        ]
        _listed("candidates", ("id", "kind", "stage", "last evaluation", "parents"), rows)
    return {
        "candidates": [{**_candidate_json(each), "stage": stages.get(each.id), "passed": passed.get(each.id)} for each in found]
    }


@candidates.command("show")
@click.argument("candidate_id", metavar="ID")
@_reading
def show_candidate(registry: Registry, *, candidate_id: str, quiet: bool) -> dict[str, Any]:
    """Show a candidate: what it holds, where it came from, its evaluations and its release.

    \b
    Example:
      journeyman candidates show 3f2a
    """
    found = registry.candidate(candidate_id)
    one = found.candidate
    if not quiet:
        head(("candidate", one.id), ("kind", one.kind.value), ("stage", found.stage.value if found.stage else "not released"))
        head(("parents", ", ".join(one.parents)), ("children", ", ".join(found.children)))
        for each in found.evaluations:
            head(("evaluated", f"{_passed(each.passed)} against {each.baseline_id}: {each.reason}"))
        _show_body(one)
    return {
        "candidate": {**_candidate_json(one), "body": one.body},
        "children": list(found.children),
        "evaluations": [_evaluation_json(each) for each in found.evaluations],
        "release": _release_json(found.release, registry) if found.release else None,
    }


@candidates.command("diff")
@click.argument("before", metavar="ID")
@click.argument("after", metavar="OTHER")
@_reading
def diff_candidates(registry: Registry, *, before: str, after: str, quiet: bool) -> dict[str, Any]:
    """Show line by line in what two candidates differ.

    \b
    Example:
      journeyman candidates diff 3f2a 81bc
    """
    lines = registry.diff_candidates(before, after)
    if not quiet:
        for line in lines:
            click.secho(plain(line), fg={"+": "green", "-": "red"}.get(line[:1]))
        if not lines:
            say("the two candidates hold the same")
    return {"diff": lines}


@click.group()
def evaluations() -> None:
    """List and show comparisons on held-out tasks.

    An evaluation is a candidate against a baseline on the same tasks, with the gate's word on it. As much of an ID as tells it
    apart is enough: that of its run, where the run has one evaluation.

    \b
    Examples:
      journeyman evaluations list --passed
      journeyman evaluations show 20261105-1200
    """


@evaluations.command("list")
@click.option("--candidate", metavar="ID", help="Of one candidate.")
@click.option("--passed/--not-passed", default=None, help="That the gate let pass, or that it did not.")
@_LIMIT
@_reading
def list_evaluations(
    registry: Registry, *, candidate: str | None, passed: bool | None, limit: int, quiet: bool
) -> dict[str, Any]:
    """List evaluations, newest first.

    \b
    Examples:
      journeyman evaluations list
      journeyman evaluations list --candidate 3f2a --passed
    """
    found = registry.evaluations(candidate_id=candidate, passed=passed, limit=limit)
    if not quiet:
        rows = [
            (each.id, each.candidate_id, each.baseline_id, _gain(each), _passed(each.passed), minute(each.at)) for each in found
        ]
        _listed("evaluations", ("id", "candidate", "baseline", "gain", "gate", "at"), rows)
    return {"evaluations": [_evaluation_json(each) for each in found]}


@evaluations.command("show")
@click.argument("evaluation_id", metavar="ID")
@click.option("--all", "everything", is_flag=True, help="The tasks on which nothing changed, too.")
@_reading
def show_evaluation(registry: Registry, *, evaluation_id: str, everything: bool, quiet: bool) -> dict[str, Any]:
    """Show an evaluation, with the tasks won and lost, before and after side by side.

    \b
    Example:
      journeyman evaluations show 20261105-1200
    """
    found = registry.evaluation(evaluation_id)
    one = found.evaluation
    if not quiet:
        head(("evaluation", one.id), ("candidate", one.candidate_id), ("baseline", one.baseline_id))
        head(("found", comparison_of(one).sentence))
        head(("at", minute(one.at)), ("gate", f"{_passed(one.passed)}: {one.reason}"))
        counts = f"{len(found.won)} won, {len(found.lost)} lost, {len(found.same)} the same"
        head(("tasks", counts if found.pairs else "were not kept one by one with this evaluation"))
        shown = [*found.won, *found.lost, *(found.same if everything else ())]
        rows_table(("task", "before", "after", "change"), [_pair(each) for each in shown])
    pairs = {name: [each.json() for each in getattr(found, name)] for name in ("won", "lost", "same")}
    return {"evaluation": _evaluation_json(one), **pairs}


@click.group(
    cls=LazyGroup,
    lines=_LIVE,
    homes={name: f"{'rollouts' if name in _LOOKS else 'releases'}:{name}" for name in _LIVE},
)
def releases() -> None:
    """Bring what was learned to live traffic in steps and back, and look at what is released.

    A release is the way of a candidate through shadow and canary to production, and has its ID. A rollout brings a candidate
    into a slot of live traffic, and is named by its own ID, or by the slot while it is open there. As much of an ID as tells it
    apart is enough. Who does something is $JOURNEYMAN_USER, else who is logged in. Exit codes: 0 done, 1 refused, 2 wrong call.

    \b
    Examples:
      journeyman releases start playbooks/oslo.json --agent desk --domain oslo
      journeyman releases slots
      journeyman releases rollback context:desk/oslo --reason "it quotes old prices"
      journeyman releases list --stage production
    """


@releases.command("list")
@click.option("--stage", type=click.Choice([each.value for each in Stage]), help="That are there now.")
@_LIMIT
@_reading
def list_releases(registry: Registry, *, stage: str | None, limit: int, quiet: bool) -> dict[str, Any]:
    """List releases, as far as each may go and where it is served now, last moved first.

    \b
    Example:
      journeyman releases list --stage production
    """
    found = registry.releases(stage=Stage(stage) if stage else None, limit=limit)
    served = _served()
    if not quiet:
        rows = []
        for each in found:
            stage, since, reason = _move(each.moves[-1])
            rows.append((each.candidate_id, stage, ", ".join(served.get(each.candidate_id, ["to nobody"])), since, reason))
        _listed("releases", ("candidate", "stage", "served", "since", "reason"), rows)
        for each in found:
            _say_contradicted(registry, each)
    return {"releases": [{**_release_json(each, registry), "served": served.get(each.candidate_id, [])} for each in found]}


def _served() -> Mapping[str, list[str]]:
    """Where each candidate is served: a stage says how far it may go, and slots say where it is."""
    with _rollouts() as kept:
        live = kept.live()
    found = defaultdict[str, list[str]](list)
    for slot, move in live.production.items():
        found[move.candidate_id].append(f"production of {slot}")
    for rollout in live.rollouts:
        for arm in rollout.arms:
            # What was promoted is in production, whoever is still held back from it.
            if (there := f"production of {rollout.slot}") not in found[arm.candidate_id]:
                found[arm.candidate_id].append(there.replace("production", rollout.state.value, 1))
    return found


@releases.command("show")
@click.argument("id", metavar="ID")
@_reading
def show_release(registry: Registry, *, id: str, quiet: bool) -> dict[str, Any]:
    """Show the release of a candidate, or a rollout.

    Of a release every move with its reason, and the evaluations that it stands on; of a rollout what happened to it, who did
    it, and why. Instead of a rollout's ID, the slot that it is open in will do.

    \b
    Examples:
      journeyman releases show 3f2a
      journeyman releases show 20261124-0915
      journeyman releases show context:desk/oslo --json
    """
    with _rollouts() as kept:
        rollouts = kept.rollouts()
        if names_rollout(rollouts, id):
            return _show_rollout(kept, find_rollout(rollouts, id), quiet=quiet)
    found = registry.release(id)
    stands_on = registry.evaluations(candidate_id=found.candidate_id)
    if not quiet:
        head(("candidate", found.candidate_id), ("stage", found.stage.value), *_verdicts(stands_on))
        rows_table(("stage", "at", "reason"), [_move(move) for move in found.moves])
        _say_contradicted(registry, found)
    return {"release": _release_json(found, registry), "evaluations": [_evaluation_json(each) for each in stands_on]}


@releases.command("history")
@click.argument("slot", metavar="[SLOT]", required=False)
@_LIMIT
@_reading
def history(registry: Registry, *, slot: str | None, limit: int, quiet: bool) -> dict[str, Any]:
    """List the moves of all releases, or all that happened in a slot of live traffic, newest first.

    \b
    Examples:
      journeyman releases history --limit 5
      journeyman releases history context:desk/oslo
    """
    if slot is not None:
        return _slot_history(slot, limit, quiet=quiet)
    moves = [(release.candidate_id, move) for release in registry.releases() for move in reversed(release.moves)]
    # Sorting is stable: of two moves at one moment the later stays first.
    moves = sorted(moves, key=lambda each: each[1].at, reverse=True)[:limit]
    if not quiet:
        _listed("releases", ("candidate", "stage", "at", "reason"), [(id, *_move(move)) for id, move in moves])
    return {"moves": [{"candidate_id": id, **_move_json(move)} for id, move in moves]}


# Rollouts.


def _rollouts() -> "RolloutStore":
    """Of the store that the command was told."""
    from journeyman.stores.rollouts import open_rollouts

    return open_rollouts(read_store_url(click.get_current_context().params["store"]), make=False)


def _show_rollout(kept: "RolloutStore", rollout: Rollout, *, quiet: bool) -> dict[str, Any]:
    """What it is of, and what happened to it."""
    from journeyman.serving.shadow import shadow_told

    shadow = shadow_told(kept, rollout)
    if not quiet:
        arms = ", ".join(arm.candidate_id for arm in rollout.arms)
        head(("rollout", rollout.id), ("slot", str(rollout.slot)), ("state", rollout.state.value))
        head(("candidate", arms), ("baseline", rollout.baseline.candidate_id), ("gate", rollout.verdict))
        head(("share", rollout.said_shares), ("steps", ", ".join(f"{each:.4g}" for each in rollout.plan.steps)))
        rows = [
            (
                str(each.number),
                each.kind.value,
                minute(each.cause.at),
                each.cause.actor,
                each.said_shares,
                each.cause.said,
            )
            for each in rollout.events
        ]
        rows_table(("event", "what", "at", "by", "share", "reason"), rows)
        show_shadow(shadow)
    return {"rollout": rollout.told()} | ({} if shadow is None else {"shadow": shadow})


def _slot_history(text: str, limit: int, *, quiet: bool) -> dict[str, Any]:
    """What was in production of a slot, and what happened to its rollouts, newest first."""
    slot = Slot.parse(text)
    with _rollouts() as kept:
        moves, rollouts = kept.slot_history(slot), kept.rollouts(slot)
    told = [
        *((move.at, "production", move.candidate_id, move.actor, move.reason, move.as_json()) for move in reversed(moves)),
        *(
            (
                event.cause.at,
                event.kind.value,
                each.id,
                event.cause.actor,
                event.cause.said,
                {"rollout": each.id, **event.as_json()},
            )
            for each in rollouts
            for event in reversed(each.events)
        ),
    ]
    # Sorting is stable: of two things at one moment the later stays first, and what follows from an event before it.
    told = sorted(told, key=lambda each: each[0], reverse=True)[:limit]
    if not quiet:
        rows_table(("at", "what", "of", "by", "reason"), [(minute(each[0]), *each[1:5]) for each in told])
        if not told:
            say(f"Nothing was ever brought into {slot}.")
    return {"slot": str(slot), "history": [each[5] for each in told]}


# How it is shown to people.


def _show_body(candidate: Candidate) -> None:
    """The bullets of a playbook, as `journeyman playbook show` has them; of others the beginning of the text."""
    if candidate.kind is Kind.PLAYBOOK:
        from journeyman.optimizers.playbook.files import loads

        with suppress(PlaybookError):
            bullets = [bullet for bullet in loads(candidate.body).bullets if not bullet.retired]
            show_bullets(bullets, {}, counted(len(bullets), "bullet"))
            return
    lines = candidate.body.splitlines()
    for line in lines[:_FIRST_LINES]:
        click.echo(plain(line))
    if len(lines) > _FIRST_LINES:
        say(f"{len(lines) - _FIRST_LINES} more lines; --json has them")


def _listed(what: str, names: Sequence[str], rows: Sequence[Sequence[str]]) -> None:
    rows_table(names, rows)
    if not rows:
        store = store_url(click.get_current_context().params["store"])
        say(f"There are no such {what} in {redacted(store)}. {_HOW[what]}.")


def _took(run: RunRecord) -> str:
    return "" if run.seconds is None else format.seconds(run.seconds)


def _totals(totals: AttemptTotals) -> str:
    unscored = f" ({totals.unscored} unscored)" if totals.unscored else ""
    side = "" if totals.candidate_id is None else f" ({totals.candidate_id})"
    return (
        f"{totals.attempts:,} {totals.split.value.replace('_', '-')}{side}, mean score {number(totals.mean_score)}{unscored}, "
        f"{number(totals.tokens, ',')} tokens, "
        f"cost {'unknown' if totals.cost is None else format.money(totals.cost)}"
    )


def _say_contradicted(registry: Registry, release: Release) -> None:
    if against := registry.contradicted(release.candidate_id):
        said = f"{release.candidate_id} is contradicted by {against.id}, on {minute(against.at)}: {against.reason}"
        say(said, colour="yellow")


def _verdicts(evaluations: Sequence[EvaluationRecord]) -> Iterator[tuple[str, str]]:
    return (("evaluated", f"{_passed(each.passed)}: {each.reason}") for each in evaluations)


def _passed(passed: bool | None) -> str:
    return "" if passed is None else "passed" if passed else "not passed"


def _gain(evaluation: EvaluationRecord) -> str:
    gain = evaluation.report.get("gain")
    return number(gain if isinstance(gain, float | int) else None, "+.3f")


def _pair(pair: Pair) -> tuple[str, str, str, str]:
    return pair.task_id, f"{pair.baseline:.3f}", f"{pair.candidate:.3f}", f"{pair.difference:+.3f}"


def _move(move: Move) -> tuple[str, str, str]:
    return move.stage.value, minute(move.at), f"forced: {move.reason}" if move.forced else move.reason


# What `--json` has of it.


def _run_json(run: RunRecord) -> dict[str, Any]:
    times = {"started_at": run.started_at.isoformat(), "ended_at": run.ended_at.isoformat() if run.ended_at else None}
    return {**asdict(run), **times, "state": run.state.value}


def _candidate_json(candidate: Candidate) -> dict[str, Any]:
    return {"id": candidate.id, "kind": candidate.kind.value, "parents": list(candidate.parents)}


def _evaluation_json(evaluation: EvaluationRecord) -> dict[str, Any]:
    report = _without_pairs(evaluation.report)
    if isinstance(inner := report.get("report"), Mapping):
        report["report"] = _without_pairs(inner)
    told = {"run_id": evaluation.run_id, "report": report, "at": evaluation.at.isoformat()}
    return {**asdict(evaluation), **told, **comparison_of(evaluation).json()}


def _without_pairs(report: Mapping[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in report.items() if name != "pairs"}


def _move_json(move: Move) -> dict[str, Any]:
    return {"stage": move.stage.value, "reason": move.reason, "at": move.at.isoformat(), "forced": move.forced}


def _release_json(release: Release, registry: Registry) -> dict[str, Any]:
    moves, against = [_move_json(move) for move in release.moves], registry.contradicted(release.candidate_id)
    told = {"candidate_id": release.candidate_id, "stage": release.stage.value, "moves": moves}
    return {**told, "contradicted_by": against.id if against else None}
