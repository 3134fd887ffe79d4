"""`journeyman runs`, `candidates`, `evaluations` and `releases`: look at what was done, learned, proven and released."""

from collections.abc import Callable
from typing import Any, TypeVar

import click

from journeyman.cli.shared import emit, json_option

_Made = TypeVar("_Made", bound=Callable[..., Any])
_STORE = click.option("--store", metavar="URL", help="Another store than the project's: a file, or postgresql://…")
_LIMIT = click.option("--limit", type=click.IntRange(1), default=20, show_default=True, metavar="N", help="So many at most.")


def _told(made: _Made) -> _Made:
    """Gives a command `--store` and `--json`."""
    return _STORE(json_option(made))


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
@click.option("--state", type=click.Choice(("running", "stopped", "finished", "failed")), help="In this state now.")
@_LIMIT
@_told
def list_runs(as_json: bool, **given: Any) -> None:
    """List runs, newest first.

    \b
    Examples:
      journeyman runs list
      journeyman runs list --kind "train router" --state finished
    """
    from journeyman.cli.actions import registry

    emit(registry.runs(quiet=as_json, **given), as_json=as_json)


@runs.command("show")
@click.argument("run_id", metavar="ID")
@_told
def show_run(run_id: str, store: str | None, as_json: bool) -> None:
    """Show a run: its settings, what its attempts came to, its evaluations and its result.

    \b
    Example:
      journeyman runs show 20261105-1200
    """
    from journeyman.cli.actions import registry

    emit(registry.run(store, run_id, quiet=as_json), as_json=as_json)


@runs.command("diff")
@click.argument("before", metavar="ID")
@click.argument("after", metavar="OTHER")
@_told
def diff_runs(before: str, after: str, store: str | None, as_json: bool) -> None:
    """Show in which settings and results two runs differ.

    \b
    Example:
      journeyman runs diff 20261105-1200 20261106-0930
    """
    from journeyman.cli.actions import registry

    emit(registry.runs_diff(store, before, after, quiet=as_json), as_json=as_json)


@runs.command("rm")
@click.argument("run_id", metavar="ID")
@click.option("--yes", is_flag=True, help="Do not ask.")
@_told
def remove_run(run_id: str, yes: bool, store: str | None, as_json: bool) -> None:
    """Forget a run with its attempts, their traces and its evaluations, for good.

    A run stays when a release stands on one of its evaluations. Candidates stay, and so does the count of looks at held-out
    tasks. The folder of the run is not touched.

    \b
    Example:
      journeyman runs rm 20261105-1200
    """
    from journeyman.cli.actions import registry

    emit(registry.run_removed(store, run_id, yes=yes, quiet=as_json), as_json=as_json)


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
@click.option("--kind", type=click.Choice(("playbook", "policy", "adapter")), help="Of one kind.")
@_LIMIT
@_told
def list_candidates(as_json: bool, **given: Any) -> None:
    """List candidates, newest first, with how far they are released.

    \b
    Example:
      journeyman candidates list --kind playbook
    """
    from journeyman.cli.actions import registry

    emit(registry.candidates(quiet=as_json, **given), as_json=as_json)


@candidates.command("show")
@click.argument("candidate_id", metavar="ID")
@_told
def show_candidate(candidate_id: str, store: str | None, as_json: bool) -> None:
    """Show a candidate: what it holds, where it came from, its evaluations and its release.

    \b
    Example:
      journeyman candidates show 3f2a
    """
    from journeyman.cli.actions import registry

    emit(registry.candidate(store, candidate_id, quiet=as_json), as_json=as_json)


@candidates.command("diff")
@click.argument("before", metavar="ID")
@click.argument("after", metavar="OTHER")
@_told
def diff_candidates(before: str, after: str, store: str | None, as_json: bool) -> None:
    """Show line by line in what two candidates differ.

    \b
    Example:
      journeyman candidates diff 3f2a 81bc
    """
    from journeyman.cli.actions import registry

    emit(registry.candidates_diff(store, before, after, quiet=as_json), as_json=as_json)


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
@_told
def list_evaluations(as_json: bool, **given: Any) -> None:
    """List evaluations, newest first.

    \b
    Examples:
      journeyman evaluations list
      journeyman evaluations list --candidate 3f2a --passed
    """
    from journeyman.cli.actions import registry

    emit(registry.evaluations(quiet=as_json, **given), as_json=as_json)


@evaluations.command("show")
@click.argument("evaluation_id", metavar="ID")
@click.option("--all", "everything", is_flag=True, help="The tasks on which nothing changed, too.")
@_told
def show_evaluation(evaluation_id: str, everything: bool, store: str | None, as_json: bool) -> None:
    """Show an evaluation, with the tasks won and lost, before and after side by side.

    \b
    Example:
      journeyman evaluations show 20261105-1200
    """
    from journeyman.cli.actions import registry

    emit(registry.evaluation(store, evaluation_id, everything=everything, quiet=as_json), as_json=as_json)


@click.group()
def releases() -> None:
    """List and show releases, with all their moves.

    A release takes a candidate through shadow and canary to production. It has the ID of its candidate, and as much of that as
    tells it apart is enough.

    \b
    Examples:
      journeyman releases list --stage production
      journeyman releases show 3f2a
    """


@releases.command("list")
@click.option(
    "--stage", type=click.Choice(("shadow", "canary", "production", "retired", "rolled_back")), help="That are there now."
)
@_LIMIT
@_told
def list_releases(as_json: bool, **given: Any) -> None:
    """List releases and where they are now, last moved first.

    \b
    Example:
      journeyman releases list --stage production
    """
    from journeyman.cli.actions import registry

    emit(registry.releases(quiet=as_json, **given), as_json=as_json)


@releases.command("show")
@click.argument("candidate_id", metavar="ID")
@_told
def show_release(candidate_id: str, store: str | None, as_json: bool) -> None:
    """Show the release of a candidate: every move with its reason, and the evaluations that it stands on.

    \b
    Example:
      journeyman releases show 3f2a
    """
    from journeyman.cli.actions import registry

    emit(registry.release(store, candidate_id, quiet=as_json), as_json=as_json)


@releases.command("history")
@_LIMIT
@_told
def history(store: str | None, limit: int, as_json: bool) -> None:
    """List the moves of all releases, newest first.

    \b
    Example:
      journeyman releases history --limit 5
    """
    from journeyman.cli.actions import registry

    emit(registry.history(store, limit=limit, quiet=as_json), as_json=as_json)
