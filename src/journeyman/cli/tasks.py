"""`journeyman tasks`: tasks made of a team's own repositories."""

import asyncio
import os
import re
from collections.abc import Mapping
from difflib import unified_diff
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from journeyman.cli.console import Screen, rows_table, say, write
from journeyman.cli.shared import emit, json_option, together, workers_option
from journeyman.core import registry
from journeyman.core.errors import InputError
from journeyman.core.format import counted
from journeyman.io.atomic import write_json
from journeyman.io.files import check_writable

if TYPE_CHECKING:
    from journeyman.experiments.task_generation.base import TaskSource
    from journeyman.experiments.task_generation.generate import EnvironmentOptions, Yield
    from journeyman.experiments.task_generation.statements import Teller
    from journeyman.tasks.repository import RepositoryTask

_environment_options = together(
    click.option("--commit", metavar="NAME", default="", help="Of a repository.  [default: the one checked out]"),
    click.option(
        "--with",
        "extra",
        metavar="PACKAGE",
        multiple=True,
        help="What its tests need besides, as pip takes it; may be repeated.",
    ),
    click.option("--python", metavar="VERSION", default="", help="Another Python than this one, such as 3.12."),
    click.option("--plugin", metavar="MODULE", multiple=True, help="A plugin of pytest that its tests need; may be repeated."),
    click.option("--sandbox", metavar="NAME", default="auto", help="Where code runs.  [default: the strongest there is]"),
)


@click.group()
def command() -> None:
    """Make tasks of a team's own repositories, each checked by running it.

    \b
    Example:
      journeyman tasks generate --from ../our_package --count 100
      journeyman tasks stats tasks.jsonl
    """


@command.group("environment")
def environment() -> None:
    """Have a repository's own dependencies behind the walls of the sandbox.

    \b
    Example:
      journeyman tasks environment build ../our_package
    """


@environment.command("build")
@click.argument("repository", type=click.Path(path_type=Path), metavar="REPO")
@_environment_options
@json_option
def build(repository: Path, as_json: bool, **given: Any) -> None:
    """Install what a repository needs, run its tests three times, and say what they do.

    REPO is a git repository, a folder, or a source package (.tar.gz). Nothing of it is run outside the sandbox.

    \b
    Examples:
      journeyman tasks environment build ../our_package
      journeyman tasks environment build boltons-24.1.0.tar.gz --with "pytest<9"
    """
    subject = _prepared(repository, given)
    suite, made = subject.suite, subject.environment
    told = {
        "environment": made.digest,
        "tree": subject.tree.digest,
        "name": subject.name,
        "python": made.python,
        "distributions": list(made.distributions),
        "passing": len(suite.passing),
        "flaky": list(suite.flaky),
        "failing": list(suite.failing),
        "cpu_seconds": round(suite.cpu_seconds, 2),
    }
    if not as_json:
        write(f"{subject.name}: environment {made.digest}, Python {made.python}, {counted(len(made.distributions), 'package')}")
        write(f"files {subject.tree.digest}, {counted(len(subject.tree.sources), 'file')} of code")
        flaky = f", {len(suite.flaky)} now this and now that: {', '.join(suite.flaky[:3])}" if suite.flaky else ""
        steady = f"{len(suite.passing)} pass each time, {len(suite.failing)} fail{flaky}"
        write(f"tests: {steady}; {suite.cpu_seconds:.1f} s of CPU a run")
        if suite.failing:
            said = suite.run.why.get(suite.failing[0], "").strip().splitlines()
            write(f"the first that fails: {suite.failing[0]}: {said[0][:200] if said else 'it does not say why'}")
    emit(told, as_json=as_json)


@command.command("generate")
@click.argument("rows", type=click.Path(path_type=Path), metavar="[ROWS]", required=False)
@click.option(
    "--from",
    "source",
    type=click.Path(path_type=Path),
    required=True,
    metavar="REPO|FORMAT",
    help="A repository, a folder, or a source package; or what ROWS are: swe-bench, swe-smith or quixbugs.",
)
@click.option(
    "--clone", type=click.Path(path_type=Path), metavar="REPO", help="Of ROWS: a clone of the repository that they are of."
)
@click.option("--count", type=click.IntRange(1, 100_000), default=100, show_default=True, help="Of tasks, in all categories.")
@click.option(
    "--categories",
    metavar="NAMES",
    default="",
    help="Such as bug_fix=30,feature, or module:Class of your own.  [default: all]",
)
@click.option("--seed", type=int, default=0, show_default=True, help="The same one makes the same file.")
@click.option(
    "-o",
    "--out",
    type=click.Path(path_type=Path, dir_okay=False),
    default=Path("tasks.jsonl"),
    show_default=True,
    metavar="FILE",
    help="Where the tasks go, one a line.",
)
@click.option("--force", is_flag=True, help="Write over a file that is there.")
@click.option("--model", metavar="MODEL", default="", help="Have it ask for each task in a user's words.  [default: none]")
@click.option("--base-url", metavar="URL", default="", help="Where the model answers.")
@click.option(
    "--max-cost", type=click.FloatRange(0, min_open=True), metavar="USD", help="For the model: then plain words stay."
)
@_environment_options
@workers_option
@json_option
def generate(  # noqa: PLR0913 - a parameter an option
    rows: Path | None,
    source: Path,
    clone: Path | None,
    count: int,
    categories: str,
    seed: int,
    out: Path,
    force: bool,
    model: str,
    base_url: str,
    max_cost: float | None,
    as_json: bool,
    **given: Any,
) -> int:
    """Make tasks, each with a reference that passes and a start that fails.

    Needs no model. A run that was killed goes on where it was when it is started again. Ends with 1 where there are fewer tasks
    than were asked for.

    \b
    Examples:
      journeyman tasks generate --from ../our_package --count 100
      journeyman tasks generate --from ../our_package --categories bug_fix=30,feature=20 -o mixed.jsonl
      journeyman tasks generate --from ../our_package --count 1000 --workers local --item-timeout 300
      journeyman tasks generate --from swe-smith rows.jsonl --clone ../their_package
    """
    if rows is not None:
        if given["workers"] != "here":
            raise click.UsageError("rows that others wrote are tried here, one after the other; leave out --workers")
        return _import(str(source), rows, out, clone=clone, force=force, given=given, as_json=as_json)
    from journeyman.experiments.task_generation import generate as generation
    from journeyman.io import executors
    from journeyman.tasks.repository import stats_file
    from journeyman.tasks.repository.foreign import FORMATS
    from journeyman.tasks.repository.tree import is_repository

    wanted = shared_out(categories, count, history=is_repository(source))
    if str(source) in FORMATS and not source.exists():
        raise click.UsageError(f"name the file of {source} rows, too: journeyman tasks generate --from {source} rows.jsonl")
    if out.exists() and not force:
        raise click.UsageError(f"{out} is there already; name another file with --out, or write over it with --force")
    check_writable(out)
    teller = _teller(model, base_url, max_cost)
    subject = _prepared(source, given)
    with Screen("tasks", sum(wanted.values()), quiet=as_json, pause=5) as screen:
        made: dict[str, int] = {}

        def told(category: str, found: "Yield") -> None:
            made[category] = len(found.tasks)
            screen.show(sum(made.values()), state=f"{category}: {len(found.tasks)} of {found.tried} tried")

        how: dict[str, Any] = {"seed": seed, "words": teller.told if teller else None, "told": told}
        with executors.spread(given["workers"], given["item_timeout"]) as spread:
            if spread is None:
                found = asyncio.run(generation.generate(subject, wanted, out, **how))
            else:
                found = generation.generate_with(spread, subject, wanted, out, **how)
    stats = {category: each.as_json() for category, each in found.items()}
    write_json(stats_file(out), {"repository": subject.name, "seed": seed, "categories": stats})
    fewer = any(len(each.tasks) < each.wanted for each in found.values())
    if not as_json:
        _show_stats(stats)
        write(f"{counted(sum(len(each.tasks) for each in found.values()), 'task')} in {out}")
        if teller:
            became = ", ".join(f"{what} {number}" for what, number in teller.became.items())
            write(f"in the words of {model}: {became or 'none'}; ${teller.budget.cost:.2f}")
    emit({"file": str(out), "environment": subject.environment.digest, "categories": stats}, as_json=as_json)
    return 1 if fewer else 0


def _teller(model: str, base_url: str, max_cost: float | None) -> "Teller | None":
    if not model:
        return None
    from journeyman.experiments.task_generation.statements import Teller

    return Teller.opened(model, base_url=base_url, max_cost=max_cost)


def _import(  # noqa: PLR0913 - what was typed
    format: str, rows: Path, out: Path, *, clone: Path | None, force: bool, given: Mapping[str, Any], as_json: bool
) -> int:
    """Tasks of rows that others wrote; ends with 1 where some of them are none here."""
    from journeyman.experiments.task_generation.generate import import_rows
    from journeyman.tasks.repository import stats_file

    if out.exists() and not force:
        raise click.UsageError(f"{out} is there already; name another file with --out, or write over it with --force")
    check_writable(out)
    found = asyncio.run(import_rows(format, rows, out, _options(given), clone=clone, said=say))
    stats = {format: found.as_json()}
    write_json(stats_file(out), {"repository": format, "categories": stats})
    if not as_json:
        _show_stats(stats)
        write(f"{counted(len(found.tasks), 'task')} in {out}")
    emit({"file": str(out), "categories": stats}, as_json=as_json)
    return 1 if found.reasons else 0


@command.command("validate")
@click.argument("file", type=click.Path(path_type=Path), metavar="FILE")
@click.option("--every", is_flag=True, help="Try every cheat on each task, instead of one of each kind.")
@click.option("--plugin", metavar="MODULE", multiple=True, help="A plugin of pytest that the tests need; may be repeated.")
@click.option("--sandbox", metavar="NAME", default="auto", help="Where code runs.  [default: the strongest there is]")
@workers_option
@json_option
def validate(file: Path, every: bool, plugin: tuple[str, ...], sandbox: str, as_json: bool, **given: Any) -> int:
    """Examine tasks by running them: the reference passes three times, nothing done fails, and no cheat is paid.

    Cheats are stubs, ending the process, patched tests, skips, changed tests and settings, objects that equal everything, and
    looking up what is right. A run that was killed goes on where it was when it is started again. Ends with 1 when a task is
    not sound.

    \b
    Examples:
      journeyman tasks validate tasks.jsonl
      journeyman tasks validate tasks.jsonl --every --workers local --item-timeout 600
    """
    from journeyman.experiments.task_generation import validate as validation
    from journeyman.io import executors
    from journeyman.rewards.repository.cheats import KINDS
    from journeyman.tasks import repository

    tasks = repository.read(file)
    journal = file.with_name(f".{file.name}.examined") if os.access(file.parent, os.W_OK) else None
    spreading = executors.spread(given["workers"], given["item_timeout"])
    with Screen("tasks", len(tasks), quiet=as_json, pause=5) as screen, spreading as spread:
        how: dict[str, Any] = {"journal": journal, "told": lambda *_: screen.advance()}
        if spread is None:
            found = asyncio.run(validation.validate(tasks, box=sandbox, every=every, plugins=plugin, **how))
        else:
            asked = validation.TaskExamination(sandbox=sandbox, every=every, plugins=list(plugin))
            found = validation.validate_with(spread, tasks, asked, **how)
    if not as_json:
        rows_table(("task", "what is wrong", "seen by"), [[flaw.task, flaw.what, flaw.evidence] for flaw in found.flaws])
        sound, tried = found.as_json()["sound"], sum(found.attempts.values())
        paid = sum(flaw.what.startswith("paid") for flaw in found.flaws)
        write(f"{sound} of {counted(len(tasks), 'task')} sound")
        write(f"{counted(tried, 'cheat')} of {counted(len(KINDS), 'kind')}, {paid} paid")
        unknown = ", ".join(f"{kind} {number}" for kind, number in found.unknown.items() if number)
        write(*([f"not to be told: {unknown}"] if unknown else []), f"{found.cpu_seconds:.0f} s of CPU behind the walls")
    emit({"file": str(file), **found.as_json()}, as_json=as_json)
    return 0 if found.sound else 1


@command.command("stats")
@click.argument("file", type=click.Path(path_type=Path), metavar="FILE")
@json_option
def stats(file: Path, as_json: bool) -> None:
    """Say what a file of tasks holds, and why candidates fell when it was made.

    \b
    Example:
      journeyman tasks stats tasks.jsonl
    """
    from journeyman.tasks import repository

    tasks = repository.read(file)
    rows = repository.counts(tasks)
    if not as_json:
        names = ("category", "tasks", "held out", "functions or commits", "failing tests (median)")
        rows_table(names, [[category, *map(str, row.values())] for category, row in rows.items()])
    made = repository.made_of(file)
    if made and not as_json:
        _show_stats(made["categories"])
    emit({"file": str(file), "tasks": len(tasks), "categories": rows, "made": made}, as_json=as_json)


@command.command("show")
@click.argument("file", type=click.Path(path_type=Path), metavar="FILE")
@click.argument("task", metavar="TASK", default="")
@click.option("--reference", is_flag=True, help="And what is right.")
@json_option
def show(file: Path, task: str, reference: bool, as_json: bool) -> None:
    """List the tasks of a file, or show one: what is asked, what the tests are, and what was changed to make it.

    \b
    Examples:
      journeyman tasks show tasks.jsonl
      journeyman tasks show tasks.jsonl t-01a31e50191a --reference
    """
    from journeyman.tasks import repository

    tasks = repository.read(file)
    if not task:
        if not as_json:
            told = ((each, str(len(each.checks.fail_to_pass))) for each in tasks)
            rows = [[each.id, each.category, each.repository, each.source, each.split, failing] for each, failing in told]
            rows_table(("task", "category", "repository", "made of", "split", "failing"), rows)
        emit({"tasks": [each.id for each in tasks]}, as_json=as_json)
        return
    found = [each for each in tasks if each.id.startswith(task)]
    if len(found) != 1:
        said = "no task" if not found else counted(len(found), "task")
        raise InputError(f"{file} has {said} {task!r}; `journeyman tasks show {file}` lists them")
    if not as_json:
        _show_task(found[0], reference=reference)
    emit(found[0].as_json(), as_json=as_json)


def _show_task(task: "RepositoryTask", *, reference: bool) -> None:
    write(f"{task.id}  {task.category} of {task.repository}, {task.split}", f"made of {task.source} by {task.made_by}")
    write("", task.statement, "", f"to pass: {', '.join(task.checks.fail_to_pass) or 'no test'}")
    write(f"to go on passing: {counted(len(task.checks.pass_to_pass), 'test')}")
    for path, text in task.reference.items() if reference else ():
        given, right = (task.base.get(path) or "").splitlines(keepends=True), (text or "").splitlines(keepends=True)
        write("", "".join(unified_diff(given, right, f"given/{path}", f"right/{path}")).rstrip())


def shared_out(categories: str, count: int, *, history: bool = True) -> dict[str, int]:
    """How many tasks of each category: those with a number have it, the others share what is left.

    Args:
        history: Whether there are commits that tasks can be made of; without any, none are asked for unless they are named.

    Raises:
        InputError: There is no such category, one is named twice, or the numbers come to more than `count`.
    """
    wanted: dict[str, int | None] = {}
    for part in filter(None, (each.strip() for each in categories.split(","))):
        match = re.fullmatch(r"([^=]+?)(?:\s*=\s*(\d+))?", part)
        if match is None:
            raise InputError(f"--categories: {part!r} is no category with a number; write bug_fix=30")
        name = match[1].strip()
        if not registry.known("generators", name) and not registry.is_class(name):
            raise InputError(f"--categories: {registry.unknown('generators', name, more='module:Class of your own')}")
        if name in wanted:
            raise InputError(f"--categories: {name} is named twice")
        wanted[name] = int(match[2]) if match[2] else None
    if not wanted:
        wanted = dict.fromkeys(name for name in registry.names("generators") if history or name != "commits")
    named = sum(number or 0 for number in wanted.values())
    without = [name for name, number in wanted.items() if number is None]
    left = max(0, count - named)
    for place, name in enumerate(without):
        wanted[name] = left // len(without) + (place < left % len(without))
    return {name: number for name, number in wanted.items() if number}


def _prepared(source: Path, given: Mapping[str, Any]) -> "TaskSource":
    from journeyman.experiments.task_generation.generate import prepare

    return asyncio.run(prepare(source, _options(given), said=say))


def _options(given: Mapping[str, Any]) -> "EnvironmentOptions":
    from journeyman.experiments.task_generation.generate import EnvironmentOptions

    return EnvironmentOptions(
        commit=given["commit"], extra=given["extra"], python=given["python"], plugins=given["plugin"], sandbox=given["sandbox"]
    )


def _show_stats(stats: Mapping[str, Mapping[str, Any]]) -> None:
    rows = []
    for category, each in stats.items():
        fell = ", ".join(f"{reason} {number}" for reason, number in each["fell"].items())
        share = f"{each['made'] / each['tried']:.0%}" if each["tried"] else "none tried"
        rows.append([category, f"{each['made']} of {each['wanted']}", str(each["tried"]), share, fell])
    rows_table(("category", "made", "tried", "yield", "why the others fell"), rows)
