"""What all commands speak alike: data for programs on stdout, words for people on stderr."""

import json
import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import wraps
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple, TypeVar

import click

from journeyman.cli.console import Column, head, named_columns, number, plain, say, table
from journeyman.core.errors import InputError, ReleaseError, SettingError
from journeyman.core.format import counted
from journeyman.core.task import Split

if TYPE_CHECKING:
    from journeyman.core.evaluation import Totals
    from journeyman.core.gate import BetterOnHeldOut
    from journeyman.core.playbook import Bullet
    from journeyman.experiments.compare import EvaluationReport
    from journeyman.experiments.place import StorePlace
    from journeyman.experiments.settings import RecordSettings
    from journeyman.io.config import Config
    from journeyman.serving.releases.control import Person
    from journeyman.tracing.importers.source import FileChoice

_Made = TypeVar("_Made", bound=Callable[..., Any])
_Settings = TypeVar("_Settings", bound="Config")


def together(*several: Callable[[_Made], _Made]) -> Callable[[_Made], _Made]:
    """Some options that commands share, as one."""

    def give(command: _Made) -> _Made:
        for each in reversed(several):
            command = each(command)
        return command

    return give


def json_option(command: _Made) -> _Made:
    """Gives a command `--json`, as the argument `as_json`."""
    return click.option("--json", "as_json", is_flag=True, help="Print one JSON object as the last line of stdout.")(command)


@contextmanager
def options_named() -> Iterator[None]:
    """What is wrong with a setting names the option of this command that it was given with."""
    try:
        yield
    except SettingError as error:
        options = (each.opts[0] for each in click.get_current_context().command.params if each.name == error.setting)
        raise InputError(error.said.replace("{}", next(options, error.setting), 1)) from error


def emit(result: Mapping[str, Any], *, as_json: bool) -> None:
    """Print the result as one line of JSON, if that was asked for. Its fields are a promise."""
    if as_json:
        click.echo(json.dumps(result, default=str))


def warn_of_few(held_out: int, least: int) -> None:
    """Say before anything is spent that the gate will not be able to decide."""
    if held_out < least:
        say(
            f"{held_out} held-out tasks, and the gate needs {least}: nothing can pass. "
            "Give a file with --held-out-input, or more questions."
        )


# Options that several commands have, and what they mean.

resume_option = click.option(
    "--resume", is_flag=False, flag_value="", metavar="[RUN]", help="Go on with a run: the newest unfinished, or RUN."
)
format_option = click.option(
    "--format", "format_name", metavar="NAME", help="What the files are.  [default: recognised by what they hold]"
)
success_value_option = click.option(
    "--success-value", metavar="USD,SECONDS", help="What one more success is worth to you, in money and in time."
)

workers_option = together(
    click.option(
        "--workers",
        default="here",
        show_default=True,
        metavar="NAME",
        help="Who computes: here, local, local:4, ray, ray:ADDRESS or postgres:URL.",
    ),
    click.option(
        "--item-timeout",
        type=click.FloatRange(min=0, min_open=True),
        metavar="SECONDS",
        help="What takes a worker longer is given up.  [default: no limit]",
    ),
)


def worth_of(success_value: str | None) -> tuple[float | None, float | None]:
    """`0.002,30` is two tenths of a cent and half a minute for one more success; either may be left out.

    Raises:
        InputError: It is no such pair.
    """
    money, _, time = (success_value or "").partition(",")
    try:
        dollars, seconds = (float(part) if part.strip() else None for part in (money, time))
    except ValueError:
        raise InputError(
            f"--success-value {success_value!r} is not USD,SECONDS, such as 0.002,30; leave one out as in ,30"
        ) from None
    return dollars, seconds


PLANS_AT_ONCE = 4
"""While planners learn and are examined live."""


def settled(kind: type[_Settings], options: Mapping[str, Any]) -> _Settings:
    """The options as settings of a training; those not given are the project's, or their defaults."""
    from journeyman.experiments import settings
    from journeyman.models import KEY

    project = settings.load()
    # A server that the user types is sent the usual key, one that a file names only what the file names.
    key = KEY if "base_url" in options else project.settings.models.key_env
    return settings.configured(kind, {"key_env": key, **options}, project)


def with_dataset(given: Mapping[str, Any]) -> Mapping[str, Any]:
    """What was typed, with the name of the data set that a file is, where a file was named and no data set."""
    from journeyman.tasks import questions

    path = given.get("input_path") or given.get("held_out_path")
    if "dataset_name" in given or not path:
        return given
    own = any(given.get(name) for name in ("question_column", "answer_column", "domain_column"))
    return {**given, "dataset_name": "custom" if own else questions.guessed(path)}


def data_lines(there_are: Mapping["Split", int], gate: "BetterOnHeldOut", *, held_out: int) -> Iterator[str]:
    """What a data set holds, and what so many held-out tasks of it can show at all."""
    from journeyman.core.gate import PlannedEvaluation

    train, validation, kept = (there_are.get(split, 0) for split in Split)
    apart = f", {validation:,} kept to choose by" if validation else ""
    yield f"{counted(sum(there_are.values()), 'task')}: {train:,} to learn from{apart}, {kept:,} held out"
    if held_out >= gate.min_tasks:
        least = PlannedEvaluation(changed=0.5, gate=gate).least_gain(held_out)
        seen = "hardly any gain" if least is None else f"a gain of {least:+.2f} or more, four times in five"
        some = f" of the {kept:,}" if held_out < kept else ""
        yield f"{held_out:,}{some} held-out tasks show {seen}; more on this: journeyman evaluate power"


def listed(names: str | None) -> list[str]:
    """What stands between commas."""
    return [name.strip() for name in (names or "").split(",") if name.strip()]


# Commands that do one of several things, each said by an option.


class OptionForm(NamedTuple):
    """What one of them needs, and what else it takes."""

    needs: tuple[str, ...]
    takes: tuple[str, ...]


def form_of(given: Mapping[str, Any], forms: Mapping[str, OptionForm]) -> str:
    """
    Raises:
        InputError: Not one form is meant, or it is not given what it needs, and nothing else.
    """
    meant = [form for form in forms if given[form]]
    if len(meant) != 1:
        raise InputError(
            f"one of {', '.join(map(_spelled, forms))} says what is to be done, not {len(meant) or 'none'} of them"
        )
    (form,) = meant
    needs, takes = forms[form]
    for name in needs:
        if not (given[name] or "").strip():
            raise InputError(f"{_spelled(form)} needs {', '.join(map(_spelled, needs))}; {_spelled(name)} is missing")
    strange = [name for name, value in given.items() if value not in (None, False, ()) and name not in (form, *needs, *takes)]
    if strange:
        took = ", ".join(map(_spelled, needs + takes))
        raise InputError(f"{_spelled(strange[0])} is not for {_spelled(form)}, which takes {took}")
    return form


def _spelled(option: str) -> str:
    return f"--{option.replace('_', '-')}"


# A comparison on held-out tasks, in words.


def report_lines(report: "EvaluationReport") -> Iterator[str]:
    """A small table and the gate's sentence."""
    evaluation = report.evaluation
    if report.baseline is not None and report.candidate is not None and report.gain is not None:
        alike = report.tasks - evaluation.wins - evaluation.losses
        yield f"baseline   {report.baseline:.4f}"
        yield f"candidate  {report.candidate:.4f}"
        yield f"gain      {report.gain:+.4f}   95 % interval {report.low:+.4f} to {report.high:+.4f}"
        yield f"tasks      {report.tasks}   {evaluation.wins} better, {evaluation.losses} worse, {alike} alike"
    if report.unknown:
        sides = (("baseline", evaluation.only_baseline), ("candidate", evaluation.only_candidate))
        only = ", ".join(f"{len(tasks)} only in the {side}" for side, tasks in sides if tasks)
        yield f"unknown    {report.unknown}{f'   {only}' if only else ''}"
    if evaluation.spent_baseline.attempts:
        before, after = _spent(evaluation.spent_baseline), _spent(evaluation.spent_candidate)
        yield f"spent      {before} by the baseline, {after} by the candidate"
    yield f"{'passed' if report.passed else 'not passed'}: {report.reason}"


def shares(report: "EvaluationReport", *, begun_with: bool = False) -> str:
    """How many held-out tasks went well on both sides, in words. `begun_with`: the baseline had a playbook as well."""
    if report.baseline is None or report.candidate is None:
        return "none could be compared"
    if begun_with:
        return f"{report.baseline:.1%} with the playbook it began with, {report.candidate:.1%} with the new one"
    return f"{report.baseline:.1%} without the playbook, {report.candidate:.1%} with it"


def _spent(totals: "Totals") -> str:
    if totals.input_tokens is None or totals.output_tokens is None:
        tokens = "unknown tokens"
    else:
        tokens = f"{_least(totals.calls_without_usage)}{totals.input_tokens:,} + {totals.output_tokens:,} tokens"
    cost = "cost unknown" if totals.cost is None else f"{_least(totals.calls_without_price)}${totals.cost:.4f}"
    calls = max(totals.calls_without_usage, totals.calls_without_price)
    left_out = f", {counted(calls, 'call')} not counted" if calls and "at least" in tokens + cost else ""
    return f"{tokens} ({cost}{left_out})"


def _least(left_out: int) -> str:
    return "at least " if left_out else ""


# What the test of a rollout has come to, in words.


def show_evidence(summary: Mapping[str, Any]) -> None:
    """As a table, with its numbers: of each metric the sessions that it is known of, then what it came to.

    Where it is known of no session of an arm there is no difference, and no 0.
    """
    metrics = dict(_metrics((), summary))
    head(*((".".join(path), _cell(value)) for path, value in _others((), summary)))
    columns = {
        **{"canary": "of canary", "production": "of production", "mean_canary": "canary", "mean_production": "production"},
        **{name: name.replace("_", " ") for name in ("difference", "low", "high", "e_harm", "e_promote")},
    }
    rows = []
    for path, each in metrics.items():
        known = {**each, **({} if each["canary"] and each["production"] else {"difference": None})}
        rows.append((".".join(path), *(_cell(known.get(name)) for name in columns)))
    if rows:
        table(named_columns("metric", *columns.values()), rows)


def show_shadow(told: Mapping[str, Any] | None) -> None:
    """What requests that were mirrored have come to; nothing where none ever were."""
    if told is None:
        return
    sides = ("candidate", "production")
    rows = [(name, *(_cell(told[f"{name}_{side}"]) for side in sides)) for name in ("seconds", "cost", "tokens")]
    head(
        ("mirrored", f"{counted(told['pairs'], 'session')}, {counted(told['requests'], 'request')}"),
        ("failed", f"{told['failed']:,}"),
    )
    head(("spent", f"${told['spent']:.4g} of ${told['budget']:g}"), ("cost unknown", f"{told['unpriced']:,}"))
    head(("ended", told["ended"]))
    table(named_columns("mean of a request", *sides), rows)
    for name, each in told["rewards"].items():
        within = f"{_cell(each['from'])} to {_cell(each['to'])} whenever one looks"
        head((name, f"{_cell(each['mean'])} beside production, {within} ({counted(each['sessions'], 'session')})"))


_Path = tuple[str, ...]


def _metrics(path: _Path, told: Mapping[str, Any]) -> Iterator[tuple[_Path, Mapping[str, Any]]]:
    """What stands in a summary as `ArmEvidence`, wherever it does."""
    for name, each in told.items():
        if isinstance(each, Mapping):
            if "difference" in each:
                yield (*(part for part in path if part != "metrics"), name), each
            else:
                yield from _metrics((*path, name), each)


def _others(path: _Path, told: Mapping[str, Any]) -> Iterator[tuple[_Path, Any]]:
    for name, each in told.items():
        if not isinstance(each, Mapping):
            yield (*path, name), each
        elif "difference" not in each:
            yield from _others((*path, name), each)


def _cell(value: Any) -> str:
    if isinstance(value, float):
        return number(value, ".4g")
    return "-" if value is None else str(value)


# Where the tokens of our servers come from.


def tokens_in(variable: str, of: str = "--token-env") -> tuple[str, ...]:
    """The tokens in an environment variable. They are in nothing that is said."""
    tokens = tuple(os.environ.get(variable, "").split())
    if not tokens:
        raise InputError(f"the environment variable {variable} of {of} is empty: put the token there")
    if not all(token.isascii() and len(token) >= 16 for token in tokens):
        raise InputError(f"a token in {variable} is too short: use 16 ASCII characters or more, as of `openssl rand -hex 16`")
    return tokens


# Whose word it is.


def acting(reason: str) -> "Person":
    """Who does something to what is released: a person, by name, for a reason.

    Raises:
        InputError: It is not known who it is.
    """
    from journeyman.experiments import settings
    from journeyman.serving.releases.control import Person

    if (name := settings.person()) is None:
        raise InputError("it is not known who you are, and what is released is done by somebody; set JOURNEYMAN_USER")
    return Person(f"person:{name}", reason)


def person(named: str | None) -> str:
    """Whose word it is.

    Raises:
        InputError: Nobody can be named, or it is the name that stands for no person.
    """
    from journeyman.experiments import settings
    from journeyman.experiments.place import USER_VARIABLE
    from journeyman.stores.traces.base import AUTO

    who = (named or "").strip() or settings.person()
    if not who:
        raise InputError(f"who says so is not known; name them (--who, --rater), or set {USER_VARIABLE}")
    if who == AUTO:
        raise InputError(f"{AUTO}: that name stands for what no person said; write another")
    return who


# What must not be kept.


def cleaner(record: "RecordSettings") -> Callable[[str], str]:
    """Takes out of what is said what is not recorded either."""
    from journeyman.tracing.redaction import Redactor

    redactor = Redactor(record.redact)
    return redactor.text if record.content else lambda text: f"[{len(text)} characters]"


# Where things are kept.

store_option = click.option("--store", metavar="URL", help="Another store than the project's: a file, or postgresql://…")


def _place() -> "StorePlace":
    """Where the project's store is, and who says so; the settings are loaded where more than that is set."""
    from journeyman.experiments import place

    if (found := place.store_place()) is not None:
        return found
    from journeyman.experiments import settings

    project = settings.load()
    return place.StorePlace(url=project.store_url, origin=project.origins.get(("store", "url")))


def store_url(store: str | None) -> str:
    """The URL of the store that `--store` names, else of the project's."""
    from journeyman.stores.urls import as_url

    return as_url(store) if store else _place().url


def read_store_url(store: str | None) -> str:
    """The same, for a command that only reads: a project's own store may not be there yet, one that somebody has named must.

    Raises:
        InputError: It is not there.
    """
    from journeyman.experiments.place import StorePlace
    from journeyman.stores.urls import MEMORY, as_url, is_nowhere, redacted

    found = StorePlace(url=as_url(store), origin="--store") if store else _place()
    if found.origin and found.url != MEMORY and is_nowhere(found.url):
        mend = "name one that is there, or begin it with journeyman collect, serve or train"
        raise InputError(f"there is no store at {redacted(found.url)}, which {found.origin} names; {mend}")
    return found.url


def project_folder() -> Path:
    """Where the project of the working folder keeps its runs."""
    from journeyman.experiments import settings

    return settings.load().folder


# What moves, or looks at what moves.


def answering(act: Callable[..., dict[str, Any]]) -> Callable[..., int]:
    """Gives a command `--store` and `--json`. That something is refused is an answer: exit code 1, and the reason; and so is
    that what was looked at does not answer."""

    @wraps(act)
    def run(as_json: bool, **given: Any) -> int:
        try:
            with options_named():
                result = act(quiet=as_json, **given)
        except ReleaseError as error:
            say(f"journeyman: {error}")
            emit({"done": False, "reason": str(error)}, as_json=as_json)
            return 1
        emit(result, as_json=as_json)
        return int(result.get("answers") is False)

    return store_option(json_option(run))


choice_options = together(
    click.option("--include", multiple=True, metavar="GLOB", help="Of a folder, only files whose path in it is like this."),
    click.option("--exclude", multiple=True, metavar="GLOB", help="Of a folder, no files whose path in it is like this."),
)


def chosen(given: Mapping[str, Any]) -> "FileChoice":
    """Which files `choice_options` mean."""
    from journeyman.tracing.importers.source import FileChoice

    return FileChoice(include=given["include"], exclude=given["exclude"])


def show_bullets(bullets: Sequence["Bullet"], rivals: Mapping[str, Sequence[str]], title: str) -> None:
    """One row a bullet. A bullet that contradicts another names it; a retired one says why."""
    domains = {bullet.domain for bullet in bullets}
    stages = {bullet.stage for bullet in bullets}
    rows = []
    for bullet in bullets:
        marks = [f"retired: {bullet.retired}"] if bullet.retired else [f"held: {bullet.held}"] * bool(bullet.held)
        marks += ["locked"] * bullet.locked
        marks += [f"contradicts {other}" for other in rivals.get(bullet.id, ())]
        # What is the same for all is said once, below the table.
        section = [bullet.domain] * (len(domains) > 1) + [bullet.section] + [bullet.stage.value] * (len(stages) > 1)
        votes = f"+{bullet.helpful} -{bullet.harmful}\n{bullet.confidence:.2f}"
        strategy = "\n".join([plain(bullet.content), *(f"({mark})" for mark in marks)])
        rows.append((bullet.id, "\n".join(section), strategy, votes, str(bullet.shown)))
    columns = (
        Column(name="id", words=True),
        Column(name="section", words=True, wraps=True, least=12),
        Column(name="strategy", words=True, wraps=True, least=30),
        Column(name="votes", words=True),
        Column(name="shown"),
    )
    styles = ["dim" if b.retired else "magenta" if b.held else "yellow" if rivals.get(b.id) else None for b in bullets]
    table(columns, rows, title=title, styles=styles)
    same = [next(iter(values)) for values in (domains, stages) if len(values) == 1]
    click.echo(", ".join(["votes: helpful, harmful and confidence", *same]))
