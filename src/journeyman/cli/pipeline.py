"""`journeyman pipeline`: several commands as the stages of one file, each carried out once."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict
from datetime import datetime, timedelta
from importlib.resources import files as package_files
from pathlib import Path
from typing import Any

import click

from journeyman.cli.console import Screen, duration, named_columns, number, say, table, write
from journeyman.cli.lazy import LazyGroup
from journeyman.cli.pipeline_file import read, tables_of
from journeyman.cli.shared import emit, json_option, project_folder, together
from journeyman.core.errors import InputError
from journeyman.experiments.pipeline.runner import PipelineFolder, RunOptions
from journeyman.experiments.pipeline.stages import (
    FOLDER,
    Budget,
    Found,
    Pipeline,
    PipelineRun,
    StagePlan,
    StageRecord,
    Taken,
    expected_of_all,
    runs_in,
)
from journeyman.experiments.settings import toml_value

FILE = "pipeline.toml"
_TAKEN: tuple[Taken, ...] = ("seconds", "cpu_seconds", "cost")


@click.group(
    "pipeline",
    cls=LazyGroup,
    lines={"weights": "Learn in the weights, prove it, and serve it."},
    homes={"weights": "train_weights:weights"},
)
def command() -> None:
    """Do all steps from what was recorded to what is served.

    \b
    Examples:
      journeyman pipeline init --preset desk > pipeline.toml
      journeyman pipeline plan
      journeyman pipeline run
    """


_stages_meant = together(
    click.argument("file", metavar="[FILE]", default=FILE, type=click.Path(dir_okay=False, path_type=Path)),
    click.option(
        "--set", "sets", multiple=True, metavar="STAGE.KEY=VALUE", help="Another value than the file's; may be repeated."
    ),
    click.option("--quick", is_flag=True, help="A short run of every stage that can be short."),
    click.option("--from", "begin", metavar="STAGE", default="", help="Carry out anew from this stage on."),
    click.option("--only", metavar="STAGE", default="", help="This stage alone, over what is there."),
    click.option("--trust", is_flag=True, help="Take files that were changed since they were made as they are."),
)


@command.command("init")
@click.option(
    "--preset",
    "name",
    type=click.Choice(["desk", "repository", "traces"]),
    default="desk",
    show_default=True,
    help="What is learned from: a small world of its own, tasks of a repository, or recorded traces.",
)
def init(name: str) -> None:
    """Print a pipeline to begin with.

    \b
    Example:
      journeyman pipeline init --preset desk > pipeline.toml
    """
    click.echo(preset(name), nl=False)


@command.command("import")
@click.argument("file", type=click.Path(dir_okay=False, path_type=Path))
@json_option
def import_(file: Path, as_json: bool) -> None:
    """Print the configuration of an earlier system as a pipeline, and say what became of each key.

    FILE is YAML: sections model, training, data_collection and reward_system, or the settings of one training of weights. It
    may also be run as it is.

    \b
    Example:
      journeyman pipeline import configs/my_config.yaml > pipeline.toml
    """
    tables, accounts = tables_of(file)
    if as_json:
        emit({"pipeline": tables, "keys": [asdict(each) for each in accounts]}, as_json=True)
        return
    write(*_toml(tables))
    say(*(f"{each.key}: {each.fate}: {each.became}" for each in accounts))


@command.command("plan")
@_stages_meant
@json_option
def plan(file: Path, as_json: bool, *, begin: str, only: str, trust: bool, **given: Any) -> None:
    """Say what is there already, what would be carried out and why, and what that will take.

    Times and costs are those of earlier runs of the same stages, of the runs whose settings are most like these: the middle
    one, and the least and the most. The last line adds them up.

    \b
    Examples:
      journeyman pipeline plan
      journeyman pipeline plan mine.toml --set train.max_steps=20 --json
    """
    folder = _folder(_read(file, **given))
    plans = folder.plan(RunOptions(begin=begin, only=only, trust=trust))
    if not as_json:
        _show_plan(plans, folder.pipeline.budget)
    whole: dict[str, Any] = {what: expected_of_all(plans, what) for what in _TAKEN}
    emit({"pipeline": folder.pipeline.name, "stages": [_planned(each) for each in plans], **whole}, as_json=as_json)


@command.command("run")
@_stages_meant
@click.option("--resume/--no-resume", default=True, show_default=True, help="Go on within a stage that was broken off.")
@click.option("--profile", is_flag=True, help="Draw where each stage spends its time, as flame graphs (extra profile).")
@click.option("--debug", is_flag=True, envvar="DEBUG", help="Show what each stage is told, and what it says.")
@json_option
def run(file: Path, as_json: bool, *, debug: bool, profile: bool, **given: Any) -> int:
    """Carry out what is not there yet, in order, and stop where something refuses, fails or costs too much.

    A stage is carried out again when its settings, the files that it reads, what it hangs on or Journeyman's own source
    changed, and taken as it is otherwise. One that was killed goes on where it was. Exit code 0: all is there; 1: a gate
    refused, a stage failed or a budget was spent; 2: something could not be used.

    \b
    Examples:
      journeyman pipeline run
      journeyman pipeline run mine.toml --from train --quick
      journeyman pipeline run --set train.domain=lima --profile
    """
    options = RunOptions(
        begin=given.pop("begin"), only=given.pop("only"), resume=given.pop("resume"), trust=given.pop("trust"), profiled=profile
    )
    folder = _folder(_read(file, **given))
    with _StageScreen(folder, quiet=as_json, debug=debug) as screen:
        try:
            done = folder.run(screen, options)
        except KeyboardInterrupt:
            say(f"interrupted; go on with: journeyman pipeline run {file}")
            raise
    if not as_json:
        _show_run(done)
    if done.reason:
        say(f"stopped: {done.reason}", f"go on with: journeyman pipeline run {file}")
    emit({**done.json(), "results": _results(done)}, as_json=as_json)
    return done.exit_code or 0


@command.command("show")
@click.argument("run_id", metavar="[RUN]", default="")
@json_option
def show(run_id: str, as_json: bool) -> None:
    """Show what a run took and made: the newest, or RUN by as much of its id as tells it apart.

    \b
    Example:
      journeyman pipeline show
    """
    found = _found(run_id)
    if not as_json:
        _show_run(found)
        if found.reason:
            write(f"stopped: {found.reason}")
    emit({**found.json(), "results": _results(found)}, as_json=as_json)


@command.command("diff")
@click.argument("first", metavar="RUN")
@click.argument("second", metavar="[RUN]", default="")
@json_option
def diff(first: str, second: str, as_json: bool) -> int:
    """Say what differs between two runs, stage by stage: settings, files, source, results. Exit code 1 when something does.

    \b
    Example:
      journeyman pipeline diff 20261124-15 20261124-16
    """
    before, after = _found(first), _found(second)
    differences = dict(_differences(before, after))
    if not as_json:
        for stage, lines in differences.items():
            write(*(f"{stage}: {line}" for line in lines))
        if not differences:
            write("nothing differs")
    emit({"first": before.id, "second": after.id, "differences": differences}, as_json=as_json)
    return 1 if differences else 0


def preset(name: str) -> str:
    """The file to begin with."""
    return (package_files("journeyman.experiments.pipeline") / "presets" / f"{name}.toml").read_text(encoding="utf-8")


def _toml(tables: Mapping[str, Mapping[str, Any]]) -> Iterator[str]:
    for name, settings in tables.items():
        yield f"[{name}]"
        yield from (f"{key} = {toml_value(value)}" for key, value in settings.items())
        yield ""


# Where runs are kept.


def _read(file: Path, **given: Any) -> Pipeline:
    root = click.get_current_context().find_root().command
    assert isinstance(root, click.Group)
    return read(file, root, **given)


def _folder(pipeline: Pipeline) -> PipelineFolder:
    return PipelineFolder(project_folder() / FOLDER, pipeline, find_run=_begun_run)


def _begun_run(kind: str, began: str) -> str | None:
    """The run that a command began then, or next after it."""
    from journeyman.cli.shared import store_url
    from journeyman.stores import RunState, open_store

    since = datetime.fromisoformat(began) - timedelta(seconds=1)
    with open_store(store_url(None)) as store:
        found = [each for each in store.runs(kind) if each.started_at >= since and each.state is not RunState.FINISHED]
    return min(found, key=lambda each: each.started_at).id if found else None


def _found(run_id: str) -> PipelineRun:
    """A run of any pipeline of the project: the newest, or the one that is named."""
    home = project_folder() / FOLDER
    matches = [run for run in runs_in(home) if run.id.startswith(run_id)]
    if not matches:
        what = f"no run of a pipeline begins with {run_id}" if run_id else "no pipeline was run"
        raise InputError(f"{what} in {home}; `journeyman pipeline run` runs one")
    if run_id and len(matches) > 1:
        raise InputError(f"{run_id} begins several runs: {', '.join(run.id for run in matches[:3])}; say more of it")
    return matches[0]


def _records(run: PipelineRun) -> dict[str, StageRecord]:
    return run.records(project_folder() / FOLDER)


def _results(run: PipelineRun) -> dict[str, Any]:
    return {
        name: {"command": " ".join(record.command), "result": record.result, "outputs": record.outputs}
        for name, record in _records(run).items()
    }


def _differences(first: PipelineRun, second: PipelineRun) -> Iterator[tuple[str, list[str]]]:
    before, after = _records(first), _records(second)
    for name in dict.fromkeys([*first.stages, *second.stages]):
        one, other = before.get(name), after.get(name)
        if one is None or other is None:
            if one is not other:
                yield name, [f"only in {first.id if one else second.id}"]
            continue
        lines = [
            f"{part}: {_short(one.parts.get(part))} → {_short(other.parts.get(part))}"
            for part in dict.fromkeys([*one.parts, *other.parts])
            if one.parts.get(part) != other.parts.get(part)
        ]
        if dict(one.outputs) != dict(other.outputs) and sorted(one.outputs.values()) != sorted(other.outputs.values()):
            lines.append("other outputs")
        if lines:
            yield name, lines


def _short(part: str | None) -> str:
    if part is None:
        return "nothing"
    return part[:12] if len(part) == 64 and part.isalnum() else part


# For people.


class _StageScreen(Screen):
    """Says which stage is at work. Implements `runner.PipelineWatcher`."""

    def __init__(self, folder: PipelineFolder, *, quiet: bool, debug: bool) -> None:
        super().__init__("stages", len(folder.pipeline.stages), quiet=quiet)
        self._folder, self._debug = folder, debug
        self._read = 0

    def began(self, plan: StagePlan) -> None:
        self._read = 0
        shown = f" $ journeyman {' '.join(plan.command)}" if self._debug and plan.command else ""
        self.say(f"{plan.stage.name}: {plan.why}{shown}")

    def running(self, plan: StagePlan, seconds: float) -> None:
        if self._debug:
            self._follow(self._folder.place(plan).with_suffix(".log"))

    def ended(self, name: str, found: Found, record: StageRecord | None) -> None:
        if found in ("cached", "left out"):
            self.say(f"{name}: {'is there already' if found == 'cached' else 'left out'}")
        elif record is not None:
            said = record.reason or f"done in {duration(record.seconds)}"
            self.say(f"{name}: {said}")

    def _follow(self, log: Path) -> None:
        with log.open("rb") as file:
            file.seek(self._read)
            for line in file.read().decode(errors="replace").splitlines():
                self.say(f"  {line}")
            self._read = file.tell()


def _planned(plan: StagePlan) -> dict[str, Any]:
    return {
        "stage": plan.stage.name,
        "cached": plan.is_cached,
        "why": plan.why,
        "command": " ".join(plan.command),
        **{what: plan.expected(what) for what in _TAKEN},
    }


def _show_plan(plans: Sequence[StagePlan], budget: Budget) -> None:
    columns = [*named_columns("stage", "time", "CPU", "cost"), *named_columns("what becomes of it")]
    rows = []
    for plan in plans:
        told = [] if plan.is_cached or plan.stage.is_gate else [_span(plan.expected(what), what) for what in _TAKEN]
        told = told or [""] * len(_TAKEN)
        rows.append((plan.stage.name, *told, "is there already" if plan.is_cached else plan.why))
    if any(not plan.is_cached for plan in plans):
        rows.append(("all", *(_span(expected_of_all(plans, what), what) for what in _TAKEN), ""))
    table(columns, rows)
    for plan in plans:
        if not plan.is_cached and not plan.stage.is_gate:
            shown = " ".join([*plan.stage.command, *plan.command]) if plan.key is None else " ".join(plan.command)
            write(f"$ journeyman {shown}")
    bounds = [
        f"${budget.cost:g}" if budget.cost else "",
        f"{budget.cpu_seconds:g} s of CPU" if budget.cpu_seconds else "",
        f"{budget.wall_seconds:g} s" if budget.wall_seconds else "",
    ]
    if any(bounds):
        write(f"It stops at {' or '.join(filter(None, bounds))}.")


def _span(found: tuple[float, float, float] | None, what: Taken) -> str:
    """The middle of what it took, between the least and the most."""
    if found is None:
        return "unknown"
    low, middle, high = (f"${value:.4f}" if what == "cost" else duration(value) for value in found)
    return middle if low == high else f"{middle} ({low} to {high})"


def _show_run(run: PipelineRun) -> None:
    records = _records(run)
    columns = [*named_columns("stage", "time", "CPU", "memory", "cost"), *named_columns("what became of it")]
    rows = []
    for name, (found, _) in run.stages.items():
        record = records.get(name)
        told = ("", "", "", "")
        if record is not None and record.exit_code is not None:
            memory = "unknown" if record.peak_memory is None else f"{record.peak_memory / 2**20:.0f} MiB"
            cost = "unknown" if record.cost is None else f"${record.cost:.4f}"
            told = (duration(record.seconds), duration(record.cpu_seconds), memory, cost)
        rows.append((name, *told, f"{found}{f': {record.reason}' if record and record.reason else ''}"))
    write(f"run {run.id} of {run.pipeline}, {run.state}: {duration(run.seconds)}, {number(run.cpu_seconds, '.1f')} s of CPU")
    table(columns, rows)


# The same under the names of an earlier system.


@click.command("orchestrate")
@click.option("--full-pipeline", is_flag=True, help="Carry out all stages of --config.")
@click.option("--quick-train", is_flag=True, help="A short run of each of them, for --epochs.")
@click.option("--resume", is_flag=True, help="Go on with what was broken off.")
@click.option(
    "--config",
    "file",
    metavar="FILE",
    type=click.Path(path_type=Path),
    help="A pipeline, or YAML of sections model, training, data_collection and reward_system.  [default: pipeline.toml]",
)
@click.option("--epochs", type=click.IntRange(1), metavar="N", help="Times through the data.")
@click.option("--checkpoint", metavar="FILE", help="Taken for --resume's sake: the newest checkpoint is found by itself.")
@click.option("--profile", is_flag=True, help="Draw where each stage spends its time, as flame graphs (extra profile).")
@click.option("--debug", is_flag=True, envvar="DEBUG", help="Show what each stage is told, and what it says; so does DEBUG=1.")
@json_option
@click.pass_context
def orchestrate(  # noqa: PLR0913  # the options of one command
    context: click.Context,
    *,
    full_pipeline: bool,
    quick_train: bool,
    resume: bool,
    file: Path | None,
    epochs: int | None,
    checkpoint: str | None,
    profile: bool,
    debug: bool,
    as_json: bool,
) -> int:
    """Carry out a whole pipeline from one configuration.

    `journeyman pipeline` says more of its stages.

    \b
    Examples:
      journeyman orchestrate --full-pipeline --config configs/my_config.yaml
      journeyman orchestrate --quick-train --epochs 50
      journeyman orchestrate --resume --checkpoint checkpoints/latest.pth
    """
    if not (full_pipeline or quick_train or resume or profile):
        raise InputError("one of --full-pipeline, --quick-train and --resume says what is to be done")
    if checkpoint:
        say(f"{checkpoint} is not read: the stage that was broken off has a checkpoint of its own, and goes on from that")
    given = file or Path(FILE)
    if file is None and not given.exists():
        given.write_text(preset("desk"), encoding="utf-8")
        say(f"{given} was written: a small model that comes along learns a job; put your own stages there")
    sets = (f"train.num_epochs={epochs}",) if epochs else ()
    code: int = context.invoke(
        run, file=given, as_json=as_json, debug=debug, profile=profile, begin="", only="", resume=True, trust=False,
        sets=sets, quick=quick_train,
    )  # fmt: skip
    return code
