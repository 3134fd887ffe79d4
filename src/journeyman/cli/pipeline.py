"""`journeyman pipeline`: several commands as the stages of one file, each carried out once."""

import json
import tomllib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict
from datetime import datetime, timedelta
from difflib import get_close_matches
from importlib.resources import files as package_files
from pathlib import Path
from typing import Any

import click

from journeyman.cli.console import Screen, duration, named_columns, number, say, table, write
from journeyman.cli.lazy import LazyGroup
from journeyman.cli.shared import emit, json_option, project_folder
from journeyman.core.errors import InputError
from journeyman.experiments.pipeline.runner import PipelineFolder, RunOptions
from journeyman.experiments.pipeline.stages import Budget, Found, Pipeline, PipelineRun, Stage, StagePlan, StageRecord

FILE = "pipeline.toml"
FOLDER = "pipelines"
COMMANDS = {
    "collect": "collect all",
    "tasks": "tasks generate",
    "label": "traces autolabel",
    "reward": "rewards fit",
    "train": "train playbook",
    "evaluate": "evaluate",
    "gate": "",
    "deploy": "deploy llamacpp",
    "release": "releases start",
    "monitor": "monitor",
}
"""What the tables of usual names carry out, unless they say another command."""
_ENDLESS = ("serve", "pipeline", "demo", "orchestrate")
_ALWAYS: Mapping[str, Mapping[str, Any]] = {
    "monitor": {"once": True},
    "deploy llamacpp": {"detach": True, "port": 0},
}
"""Without these a command would not come to an end, or two pipelines would want one port."""
_ACCEPTED = dict.fromkeys(("monitor", "traces autolabel", "rewards fit", "evaluate", "evaluate agent"), (0, 1))
"""Exit codes that are an answer: a rollout is held, a labeler is silent, a candidate is no better, of which a gate makes a
reason."""
_OWN = ("command", "arguments", "after", "accepts", "settings")
_WRITTEN = ("out", "output", "output_playbook_path", "output_metrics_path", "environments", "store", "log")
"""Options that name what is written, or what is only a place."""
_BUDGET = ("cost", "cpu_seconds", "wall_seconds")


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


file_argument = click.argument("file", metavar="[FILE]", default=FILE, type=click.Path(dir_okay=False, path_type=Path))
set_option = click.option(
    "--set", "sets", multiple=True, metavar="STAGE.KEY=VALUE", help="Another value than the file's; may be repeated."
)
quick_option = click.option("--quick", is_flag=True, help="A short run of every stage that can be short.")
from_option = click.option("--from", "begin", metavar="STAGE", default="", help="Carry out anew from this stage on.")
only_option = click.option("--only", metavar="STAGE", default="", help="This stage alone, over what is there.")
trust_option = click.option("--trust", is_flag=True, help="Take files that were changed since they were made as they are.")


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
    from journeyman.experiments.pipeline.foreign import tables_of

    tables, accounts = tables_of(file)
    if as_json:
        emit({"pipeline": tables, "keys": [asdict(each) for each in accounts]}, as_json=True)
        return
    write(*_toml(tables))
    say(*(f"{each.key}: {each.fate}: {each.became}" for each in accounts))


@command.command("plan")
@file_argument
@set_option
@quick_option
@from_option
@only_option
@trust_option
@json_option
def plan(file: Path, as_json: bool, *, begin: str, only: str, trust: bool, **given: Any) -> None:
    """Say what is there already, what would be carried out and why, and what that will take.

    Times and costs are those of earlier runs of the same stages: the middle one, and the least and the most.

    \b
    Examples:
      journeyman pipeline plan
      journeyman pipeline plan mine.toml --set train.max_steps=20 --json
    """
    folder = _folder(read(file, **given))
    plans = folder.plan(RunOptions(begin=begin, only=only, trust=trust))
    if not as_json:
        _show_plan(plans, folder.pipeline.budget)
    emit({"pipeline": folder.pipeline.name, "stages": [_planned(each) for each in plans]}, as_json=as_json)


@command.command("run")
@file_argument
@set_option
@quick_option
@from_option
@only_option
@trust_option
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
    folder = _folder(read(file, **given))
    with _StageScreen(folder, quiet=as_json, debug=debug) as screen:
        try:
            done = folder.run(screen, options)
        except KeyboardInterrupt:
            say(f"interrupted; go on with: journeyman pipeline run {file}")
            raise
    if not as_json:
        _show_run(folder, done)
    if done.reason:
        say(f"stopped: {done.reason}", f"go on with: journeyman pipeline run {file}")
    emit({**done.json(), "results": _results(folder, done)}, as_json=as_json)
    return done.exit_code


@command.command("show")
@click.argument("run_id", metavar="[RUN]", default="")
@json_option
def show(run_id: str, as_json: bool) -> None:
    """Show what a run took and made: the newest, or RUN by as much of its id as tells it apart.

    \b
    Example:
      journeyman pipeline show
    """
    folder, found = _found(run_id)
    if not as_json:
        _show_run(folder, found)
        if found.reason:
            write(f"stopped: {found.reason}")
    emit({**found.json(), "results": _results(folder, found)}, as_json=as_json)


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
    (folder, before), (other, after) = _found(first), _found(second)
    differences = dict(_differences((folder, before), (other, after)))
    if not as_json:
        for stage, lines in differences.items():
            write(*(f"{stage}: {line}" for line in lines))
        if not differences:
            write("nothing differs")
    emit({"first": before.id, "second": after.id, "differences": differences}, as_json=as_json)
    return 1 if differences else 0


# A file of stages, read.


def read(file: Path, *, sets: Sequence[str] = (), quick: bool = False) -> Pipeline:
    """A pipeline as its file says, over it what was said by `--set`.

    Raises:
        InputError: The file cannot be used: with its line, and what was probably meant.
    """
    text, tables = _tables(file)
    for each in sets:
        _set(tables, each)
    head = tables.pop("pipeline", {})
    if strange := sorted(set(head) - {"name", "stages", "budget"}):
        raise _unknown(file, text, "pipeline", strange[0], ["name", "stages", "budget"])
    names = head.get("stages", list(tables))
    if missing := [name for name in names if name not in tables and name != "gate"]:
        raise InputError(f"{file} names the stage {missing[0]}, and has no table [{missing[0]}]")
    stages, before = [], ""
    for name in names:
        stages.append(_stage(file, text, name, tables.get(name, {}), before, quick=quick))
        before = name
    if not stages:
        raise InputError(f"{file} has no stages: a table each, as in `journeyman pipeline init`")
    name = str(head.get("name", file.stem))
    if not name or not all(letter.isalnum() or letter in "-_" for letter in name):
        raise InputError(f"{file}: the pipeline's name is {name!r}, and must be of letters, digits, - and _")
    return Pipeline.of(name, stages, _budget(file, text, head.get("budget", {})))


def _tables(file: Path) -> tuple[str, dict[str, Any]]:
    if file.suffix in (".yaml", ".yml"):
        from journeyman.experiments.pipeline.foreign import tables_of

        return "", dict(tables_of(file)[0])
    try:
        text = file.read_text(encoding="utf-8")
        found = tomllib.loads(text)
    except FileNotFoundError:
        raise InputError(f"there is no {file}; begin one with: journeyman pipeline init --preset desk > {file}") from None
    except OSError as error:
        raise InputError(f"{file} cannot be read: {error.strerror}") from None
    except ValueError as error:
        raise InputError(f"{file} is no TOML: {error}") from None
    if loose := [name for name, value in found.items() if not isinstance(value, dict)]:
        raise InputError(f"{file}, line {_line(text, '', loose[0])}: {loose[0]} stands outside of a table such as [train]")
    return text, found


def _set(tables: dict[str, Any], said: str) -> None:
    path, equals, value = said.partition("=")
    stage, dot, key = path.strip().partition(".")
    if not (equals and dot and stage and key):
        raise InputError(f"--set {said!r} is not STAGE.KEY=VALUE, such as train.max_steps=20")
    if stage not in tables:
        raise InputError(f"--set {said!r}: there is no table [{stage}]; there are {', '.join(tables)}")
    try:
        tables[stage][key] = tomllib.loads(f"value = {value}")["value"]
    except ValueError:
        tables[stage][key] = value


def _budget(file: Path, text: str, said: Mapping[str, Any]) -> Budget:
    if strange := sorted(set(said) - set(_BUDGET)):
        raise _unknown(file, text, "pipeline.budget", strange[0], _BUDGET)
    for name, value in said.items():
        if isinstance(value, bool) or not isinstance(value, int | float) or not value > 0:
            raise InputError(f"{file}: the budget's {name} is {value!r}, and must be a number above 0")
    return Budget(**{name: float(value) for name, value in said.items()})


def _stage(file: Path, text: str, name: str, said: Mapping[str, Any], before: str, *, quick: bool) -> Stage:
    typed = str(said.get("command", COMMANDS.get(name, "?")))
    if typed == "?":
        raise InputError(
            f'{file}: the stage {name} does not say which command it is; add command = "train weights", or another'
        )
    after = tuple(_texts(said.get("after", [before] if before else [])))
    if name == "gate" and not typed:
        if strange := sorted(set(said) - {"after"}):
            raise _unknown(file, text, name, strange[0], ["after"])
        return Stage(name=name, command=(), after=after)
    found = _command(file, name, typed)
    options = {_python(opt): param for param in found.params for opt in param.opts if opt[0] == "-"}
    given = {**_ALWAYS.get(typed, {}), **{key: value for key, value in said.items() if key not in _OWN}}
    if quick and "quick" in options:
        given["quick"] = True
    arguments: list[str] = []
    reads: list[str] = []
    for key, value in given.items():
        if (param := options.get(_python(key))) is None or key in ("json", "help", "resume"):
            raise _unknown(file, text, name, key, [each for each in options if each not in ("json", "help", "resume")])
        arguments += _typed(param, value)
        if _python(key) not in _WRITTEN:
            reads += [each for each in _texts(value) if _is_read(param, each)]
    words = _texts(said.get("arguments", []))
    reads += [each for each in words if Path(each).exists()]
    return Stage(
        name=name,
        command=tuple(typed.split()),
        arguments=(*arguments, *words),
        files=tuple(reads),
        after=after,
        accepts=tuple(said.get("accepts", _ACCEPTED.get(typed, (0,)))),
        settings={
            f"JOURNEYMAN_{section}__{key}".upper(): value if isinstance(value, str) else json.dumps(value)
            for section, table_ in said.get("settings", {}).items()
            for key, value in table_.items()
        },
        resumes="resume" in options,
        bounded="max_cost" in options and "max_cost" not in given,
    )


def _command(file: Path, stage: str, typed: str) -> click.Command:
    from journeyman.cli import root

    context = click.Context(root, info_name="journeyman")
    found: click.Command = root
    for word in typed.split():
        below = found.get_command(context, word) if isinstance(found, click.Group) else None
        if below is None:
            names = found.list_commands(context) if isinstance(found, click.Group) else []
            near = get_close_matches(word, names, n=1)
            hint = f"; did you mean {near[0]}?" if near else ""
            raise InputError(f"{file}: the stage {stage} names the command {typed!r}, and there is none{hint}")
        found = below
    if typed.split()[0] in _ENDLESS:
        raise InputError(f"{file}: the stage {stage} cannot be {typed!r}, which does not end by itself")
    if not any("--json" in param.opts for param in found.params):
        raise InputError(f"{file}: the stage {stage} cannot be {typed!r}, which has no --json to say what it made")
    return found


def _typed(param: click.Parameter, value: Any) -> list[str]:
    """An option as it is typed."""
    name = next(opt for opt in param.opts if opt.startswith("--"))
    if isinstance(value, bool):
        off = next((opt for opt in param.secondary_opts), None)
        return [name] if value else [off] if off else []
    if getattr(param, "is_flag", False):
        raise InputError(f"{name} is yes or no, and is said as true or false, not {value!r}")
    if isinstance(value, Mapping):
        return [name, ",".join(f"{key}={each}" for key, each in value.items())]
    if isinstance(value, list):
        several = getattr(param, "multiple", False)
        return [word for each in value for word in (name, str(each))] if several else [name, ",".join(map(str, value))]
    return [name, str(value)]


def _is_read(param: click.Parameter, name: str) -> bool:
    if "{" in name:
        return False
    return Path(name).expanduser().exists() or bool(getattr(param.type, "exists", False))


def _texts(value: Any) -> list[str]:
    if isinstance(value, list | tuple):
        return [str(each) for each in value]
    return [value] if isinstance(value, str) else []


def _python(option: str) -> str:
    from journeyman.cli import spelled

    return spelled(option.lstrip("-")).replace("-", "_")


def _unknown(file: Path, text: str, table_name: str, key: str, known: Sequence[str]) -> InputError:
    near = get_close_matches(key, known, n=1, cutoff=0.5)
    hint = f"did you mean {near[0]}?" if near else f"there are {', '.join(sorted(known))}"
    at = f", line {line}" if (line := _line(text, table_name, key)) else ""
    return InputError(f"{file}{at}: [{table_name}] has no {key}; {hint}")


def _line(text: str, table_name: str, key: str) -> int | None:
    """Where a key stands, which the reader of TOML does not say."""
    here = ""
    for at, line in enumerate(text.splitlines(), 1):
        stripped = line.strip()
        if stripped.startswith("["):
            here = stripped.strip("[] ")
        elif here == table_name and stripped.split("=")[0].strip(" \"'") == key:
            return at
    return None


def preset(name: str) -> str:
    """The file to begin with."""
    return (package_files("journeyman.experiments.pipeline") / "presets" / f"{name}.toml").read_text(encoding="utf-8")


def _toml(tables: Mapping[str, Mapping[str, Any]]) -> Iterator[str]:
    for name, settings in tables.items():
        yield f"[{name}]"
        yield from (f"{key} = {_value(value)}" for key, value in settings.items())
        yield ""


def _value(value: Any) -> str:
    if isinstance(value, Mapping):
        return f"{{ {', '.join(f'{key} = {_value(each)}' for key, each in value.items())} }}"
    return json.dumps(value)


# Where runs are kept.


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


def _found(run_id: str) -> tuple[PipelineFolder, PipelineRun]:
    """A run of any pipeline of the project: the newest, or the one that is named."""
    home = project_folder() / FOLDER
    paths = sorted(home.glob("*/runs/*.json"), key=lambda path: path.name)
    matches = [path for path in paths if path.stem.startswith(run_id)]
    if not matches:
        what = f"no run of a pipeline begins with {run_id}" if run_id else "no pipeline was run"
        raise InputError(f"{what} in {home}; `journeyman pipeline run` runs one")
    if run_id and len(matches) > 1:
        raise InputError(f"{run_id} begins several runs: {', '.join(path.stem for path in matches[-3:])}; say more of it")
    found = PipelineRun.read(matches[-1])
    return PipelineFolder(home, Pipeline(name=found.pipeline, stages=()), find_run=_begun_run), found


def _records(folder: PipelineFolder, run: PipelineRun) -> dict[str, StageRecord]:
    kept = {name: folder.record(name, key) for name, (_, key) in run.stages.items() if key}
    return {name: record for name, record in kept.items() if record is not None}


def _results(folder: PipelineFolder, run: PipelineRun) -> dict[str, Any]:
    return {
        name: {"command": " ".join(record.command), "result": record.result, "outputs": record.outputs}
        for name, record in _records(folder, run).items()
    }


def _differences(
    first: tuple[PipelineFolder, PipelineRun], second: tuple[PipelineFolder, PipelineRun]
) -> Iterator[tuple[str, list[str]]]:
    before, after = _records(*first), _records(*second)
    for name in dict.fromkeys([*first[1].stages, *second[1].stages]):
        one, other = before.get(name), after.get(name)
        if one is None or other is None:
            if one is not other:
                yield name, [f"only in {first[1].id if one else second[1].id}"]
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
        **{what: plan.expected(what) for what in ("seconds", "cpu_seconds", "cost")},
    }


def _show_plan(plans: Sequence[StagePlan], budget: Budget) -> None:
    columns = [*named_columns("stage", "time", "CPU", "cost"), *named_columns("what becomes of it")]
    rows = []
    for plan in plans:
        told = ("", "", "") if plan.is_cached else (_span(plan, "seconds"), _span(plan, "cpu_seconds"), _span(plan, "cost"))
        rows.append((plan.stage.name, *told, "is there already" if plan.is_cached else plan.why))
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


def _span(plan: StagePlan, what: Any) -> str:
    """The middle of what it took, between the least and the most."""
    if plan.stage.is_gate:
        return ""
    if (found := plan.expected(what)) is None:
        return "unknown"
    low, middle, high = (f"${value:.4f}" if what == "cost" else duration(value) for value in found)
    return middle if low == high else f"{middle} ({low} to {high})"


def _show_run(folder: PipelineFolder, run: PipelineRun) -> None:
    records = _records(folder, run)
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
    write(f"run {run.id} of {run.pipeline}: {duration(run.seconds)}, {number(run.cpu_seconds, '.1f')} s of CPU")
    table(columns, rows)
