"""The work behind `journeyman score`, apart from its options."""

import json
import os
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack, closing
from dataclasses import dataclass, replace
from functools import partial
from importlib.metadata import version
from pathlib import Path
from typing import Any, TypeVar

import click
from pydantic import BaseModel, ConfigDict, ValidationError
from rich.console import Console
from rich.table import Table

from journeyman import rewards, sandbox
from journeyman.cli.console import bar
from journeyman.cli.shared import console
from journeyman.core.errors import InputError, MissingExtra, TraceError
from journeyman.core.reward import Reward
from journeyman.core.score import Score
from journeyman.core.task import Split, Task
from journeyman.core.trace import ModelCall, Trace
from journeyman.experiments import scoring, settings, wiring
from journeyman.io import executors
from journeyman.io.atomic import write_text
from journeyman.io.files import check_writable
from journeyman.models import embedders
from journeyman.rewards import answers, development, weight_fitting
from journeyman.rewards.base import UNREACHABLE, RewardFunction
from journeyman.rewards.checks import Check
from journeyman.rewards.code_execution import wait
from journeyman.rewards.development import (
    WEIGHTS,
    Development,
    DevelopmentReward,
    DevelopmentWork,
    components,
    examine,
    work_of,
)
from journeyman.rewards.development import code_measures as profiles
from journeyman.rewards.development.code_measures import Architecture
from journeyman.rewards.engine import RewardEngine, Verdicts
from journeyman.rewards.learned import LearnedModel
from journeyman.sandbox.base import Sandbox
from journeyman.stores import engine as schema
from journeyman.stores import open_store
from journeyman.stores.traces import open_traces
from journeyman.stores.traces.attempts import as_trace
from journeyman.stores.traces.base import TraceStore
from journeyman.stores.urls import MEMORY, as_url, redacted
from journeyman.tasks.rows import Complaints, FileRow, read
from journeyman.tracing.base import NO_TIME
from journeyman.tracing.importers.jsonl import parse

CACHE = Path(".journeyman/scores.db")
_BY = "journeyman"
"""Begins the name under which rewards are kept with a trace."""
_REPLY = ("output", "reply", "answer", "response", "text")
_TASK = frozenset({"id", "question", "answer", "check", "domain", "instructions"})
_DEVELOPING = frozenset({"files", "checks", "setup", "development"})
"""Fields of a task of development work."""


@dataclass(frozen=True, slots=True)
class _Open:
    """Makes a sandbox by name, in whichever process it is needed."""

    name: str

    def __call__(self) -> Sandbox:
        return sandbox.load(self.name)


@dataclass(frozen=True, slots=True)
class _Stored:
    id: str
    """What it is called among the traces of the store."""
    trace: Trace
    score: Score
    """What its own run, or its recorder, found it worth."""
    split: Split | None = None
    """`None` for what was recorded: it is of no set of tasks."""


def run(given: Mapping[str, Any], *, quiet: bool) -> tuple[dict[str, Any], int]:
    """Score what the options name; the summary, and the exit code. Tables go to stdout, progress to stderr."""
    paths, store = given["traces"], given["store"]
    if given["keep"] and store is None:
        raise InputError("--keep is for the traces of a store; name it with --store, or --out FILE for files of traces")
    single = given["task_path"] or given["output_path"]
    if sum((bool(paths), store is not None, bool(single))) != 1:
        raise InputError("name what is to be scored: files of traces, --store, or --task with --output; one of the three")
    with ExitStack() as stack:
        if single:
            return _one(given, stack, quiet=quiet)
        engine = stack.enter_context(closing(_engine(given, [])))
        return _many(given, engine, stack, quiet=quiet), 0


def _many(given: Mapping[str, Any], engine: RewardEngine, stack: ExitStack, *, quiet: bool) -> dict[str, Any]:
    out: Path | None = given["out"]
    if out is not None:
        check_writable(out)
    stored = [] if given["store"] is None else _stored(given["store"])
    traces = [one.trace for one in stored or scoring.read_traces(given["traces"])]
    if not traces:
        raise InputError("there are no traces to score")
    cache = None if given["no_cache"] else _cache(stack)
    pool = stack.enter_context(executors.load(given["workers"]))
    began = time.monotonic()
    with bar("traces", len(traces), quiet=quiet) as done:
        verdicts = scoring.score_all(traces, engine, workers=pool, cache=cache, by_task=True, done=done)
    kept = _keep(given["store"], stored, verdicts) if given["keep"] else None
    if any(one.score.rewards for one in stored):
        verdicts = scoring.with_recorded(verdicts, [one.score for one in stored], _weights(given["weights"]))
    found = {**scoring.summary(engine, verdicts), "seconds": round(time.monotonic() - began, 3)}
    if kept is not None:
        found["kept"] = kept
    if out is not None:
        splits = [{"split": one.split.value} if one.split else {} for one in stored] or [{}] * len(traces)
        rows = ({**row, **split} for row, split in zip(scoring.reports(traces, verdicts, engine), splits, strict=True))
        write_text(out, "".join(f"{json.dumps(row, ensure_ascii=False)}\n" for row in rows))
    if not quiet:
        _tell(found)
    _warn(verdicts)
    return found


def _one(given: Mapping[str, Any], stack: ExitStack, *, quiet: bool) -> tuple[dict[str, Any], int]:
    if not (given["task_path"] and given["output_path"]):
        raise InputError("one answer needs both: --task task.json and --output output.json")
    task, check, work = _task(given["task_path"])
    trace, files = _output(given["output_path"], task)
    own: list[RewardFunction] = []
    if task.answer:
        own.append(answers.AnswerReward(answers.load(check, _opening(given, stack)), [task]))
    if work:
        own.append(reward(given["task_path"], work, files, _opening(given, stack)))
    engine = stack.enter_context(closing(_engine(given, own)))
    verdicts = engine.verdicts(trace)
    label = engine.label(verdicts)
    if not quiet:
        _tell_one(verdicts, label)
    return scoring.report(trace, verdicts, label), 1 if label is False else 0


def _opening(given: Mapping[str, Any], stack: ExitStack) -> Callable[[], Sandbox]:
    """Makes a sandbox that is closed in the end."""

    def opened() -> Sandbox:
        box = sandbox.load(_where(given) or "auto")
        stack.callback(lambda: wait(box.close()))
        return box

    return opened


def _where(given: Mapping[str, Any]) -> str | None:
    """The name of the sandbox that was asked for, if one was."""
    named: str | None = "unsafe-local" if given["unsafe_local"] else given["sandbox"]
    return None if named == "auto" else named


def _engine(given: Mapping[str, Any], own: Sequence[RewardFunction]) -> RewardEngine:
    where = _where(given)
    options: dict[str, dict[str, Any]] = {"efficiency": {"tokens": given["tokens"], "calls": given["calls"]}}
    if where is not None:
        # A wrong name is said now, and not after the first thousand traces.
        sandbox.load(where)
        options["code_execution"] = {"sandbox": _Open(where)}
    known = {reward.name for reward in own}
    asked = given["rewards"].split(",") if given["rewards"] else rewards.DEFAULTS
    names = [name for name in asked if name.strip() not in known]
    chosen = [*own, *(rewards.load(name, **options.get(name.strip().replace("-", "_"), {})) for name in names)]
    return RewardEngine(chosen, weights=_weights(given["weights"]))


def _weights(path: Path | None) -> Mapping[str, float] | None:
    if path is None:
        return None
    from journeyman.rewards import weight_fitting as weights

    return weights.load(path)


def _cache(stack: ExitStack) -> scoring.ScoreCache | None:
    """What was scored before; `None`, said in one line, where nothing can be kept."""
    try:
        check_writable(CACHE)
        if CACHE.exists() and not os.access(CACHE, os.W_OK):
            raise InputError(f"{CACHE} is not yours to write to")
    except InputError as error:
        console().print(f"scores are not kept for the next time: {error}", markup=False, soft_wrap=True)
        return None
    return stack.enter_context(scoring.cached(CACHE))


def _url(url: str) -> str:
    """A store's; with none, that of the project's."""
    return as_url(url) if url else settings.load().store_url


def _stored(url: str) -> list[_Stored]:
    """The attempts of training, and what was recorded or collected beside them."""
    where = _url(url)
    if where == MEMORY or schema.step_of(where) is None:
        raise InputError(f"there is no store at {redacted(where)}; name one: --store URL")
    with open_store(where) as store:
        attempts = list(store.attempts())
    # Attempts are among the traces, too.
    found = [_Stored(as_trace(one).id, one.trace, one.score, one.split) for one in attempts]
    known = {one.id for one in found}
    with open_traces(where) as watched:
        others = (trace for trace in watched.traces() if trace.id not in known)
        return [*found, *(_Stored(trace.id, trace, _recorded(watched, trace)) for trace in others)]


def _recorded(store: TraceStore, trace: Trace) -> Score:
    """What others found a trace worth: what was kept of an earlier scoring is no verdict of its own."""
    ours = _ours(store, trace.id)
    return Score(trace_id=trace.id, rewards=tuple(reward for reward in trace.rewards if reward not in ours))


def _ours(store: TraceStore, trace_id: str) -> Sequence[Reward]:
    return [each.reward for each in store.rewards(trace_id) if each.by.startswith(_BY)]


def _keep(url: str, stored: Sequence[_Stored], verdicts: Sequence[Verdicts]) -> int:
    """Keep with the traces of the store what could be told of them; how many rewards that are."""
    count, at = 0, wiring.now()
    with open_traces(_url(url)) as store:
        for one, said in zip(stored, verdicts, strict=True):
            # One that is unknown would make the trace's mean unknown: here it is left out of the mean, and so of the store.
            known = [reward for reward in said.score.rewards if reward.value is not None]
            new = [reward for reward in known if reward not in _ours(store, one.id)]
            store.reward(one.id, new, by=f"{_BY} {version('journeyman')}", at=at)
            count += len(known)
    return count


def _task(path: Path) -> tuple[Task, str, dict[str, Any]]:
    """The task of a JSON file, the name of the check that goes with it, and what it says of development work."""
    given = _json(path)
    if not isinstance(given, dict):
        raise InputError(f"{path}: a task is a JSON object with question, answer and check")
    strange = sorted(set(given) - _TASK - _DEVELOPING)
    if strange:
        raise InputError(f"{path}: a task has no field {strange[0]!r}; there are {', '.join(sorted(_TASK | _DEVELOPING))}")
    answer = given.get("answer", "")
    text = answer if isinstance(answer, str) else json.dumps(answer)
    task = Task(id=str(given.get("id", path.stem)), question=str(given.get("question", "")), answer=text)
    return task, str(given.get("check", "exact")), {name: given[name] for name in _DEVELOPING & set(given)}


def _output(path: Path, task: Task) -> tuple[Trace, dict[str, str]]:
    """What an agent gave, as a trace, and the files that it left.

    It is a trace or a transcript, an object or string of JSON that holds the reply, or text.
    """
    given = _json(path) if path.suffix == ".json" else _text(path)
    if isinstance(given, dict) and {"steps", "messages", "traj"} & set(given):
        try:
            return parse({"task_id": task.id, **given} if "messages" in given else given, name=task.id).trace, {}
        except TraceError as error:
            raise InputError(f"{path}: {error}") from None
    reply = next((given[key] for key in _REPLY if key in given), None) if isinstance(given, dict) else given
    files = given.get("files") if isinstance(given, dict) else None
    if not isinstance(reply, str) and not isinstance(files, dict):
        known = ", ".join(_REPLY)
        raise InputError(f"{path}: no reply in it; give a text, a trace, or an object with files or one of {known}")
    left = files if isinstance(files, dict) else {}
    if not all(isinstance(text, str) for text in left.values()):
        raise InputError(f"{path}: files is an object of texts, by path")
    call = ModelCall(model="", prompt=task.question, reply=reply if isinstance(reply, str) else "")
    return Trace(id=task.id, task_id=task.id, candidate_id="base", started_at=NO_TIME, steps=(call,)), left


def _text(path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8-sig")
    except (OSError, UnicodeDecodeError) as error:
        raise InputError(f"{path} could not be read: {error}") from None


def _json(path: Path) -> Any:
    try:
        return json.loads(_text(path))
    except (ValueError, RecursionError) as error:
        raise InputError(f"{path} is not JSON: {error}") from None


def _tell(found: Mapping[str, Any]) -> None:
    table = Table("reward", "weight", "mean", "known", "unknown")
    for name, row in found["rewards"].items():
        table.add_row(name, f"{row['weight']:g}", _number(row["mean"]), str(row["known"]), str(row["unknown"]))
    table.add_row("together", "", _number(found["mean"]), str(found["known"]), str(found["unknown"]), style="bold")
    out = Console(highlight=False, soft_wrap=True, markup=False)
    out.print(table)
    good, bad, open_ = found["good"], found["bad"], found["unlabelled"]
    out.print(f"{found['traces']} traces: {good} good, {bad} bad, {open_} undecided")


def _tell_one(verdicts: Verdicts, label: bool | None) -> None:
    table = Table("reward", "weight", "score", "evidence")
    for name, result in verdicts.results.items():
        table.add_row(name, f"{verdicts.weights[name]:g}", _number(result.score), str(result.details.get("evidence", "")))
    out = Console(highlight=False, soft_wrap=True, markup=False)
    out.print(table)
    word = {True: "good", False: "bad", None: "undecided"}[label]
    out.print(f"{word}: {_number(verdicts.combined)}")


def _warn(verdicts: Sequence[Verdicts]) -> None:
    """Say which verdicts a failure of ours has prevented, and the first reason."""
    for name in verdicts[0].results:
        lost = [one.results[name].details for one in verdicts if one.results[name].details.get(UNREACHABLE)]
        if lost:
            told = f"{name}: {len(lost)} verdicts were not reached; {lost[0]['evidence']}"
            console().print(told, markup=False, soft_wrap=True)


def _number(value: float | None) -> str:
    return "unknown" if value is None else f"{value:.3f}"


# Development work in `journeyman score --task`: the files that were there, the checks, and how their reward is made up.


class _Strict(BaseModel):
    model_config = ConfigDict(extra="forbid", strict=True)


class _Check(_Strict):
    name: str = ""
    shell: str | None = None
    pytest: str | None = None
    edge: bool = False
    """Whether it tries an edge case."""


class _Settings(_Strict):
    weights: dict[str, float] = {}
    """By component, for those that are not to weigh as documented."""
    penalty_multiplier: float = 0.5
    bonus_threshold: float = 0.8
    profile: str = "V2"
    """Of compliance: the name of a preset, or a file."""


class _Told(_Strict):
    files: dict[str, str] = {}
    """As the agent found them."""
    checks: list[_Check]
    setup: str = ""
    development: _Settings = _Settings()


def reward(path: Path, given: Mapping[str, Any], left: Mapping[str, str], opened: Callable[[], Sandbox]) -> DevelopmentReward:
    """The reward for the work that the task at `path` asks for; its checks run in the sandbox.

    Args:
        given: The task's fields about development work.
        left: The files that the agent left, beside those that its trace shows it write.

    Raises:
        InputError: What the task says of the work cannot be used. Names every fault.
    """
    try:
        told = _Told.model_validate(given)
    except ValidationError as error:
        faults = (f"{'.'.join(map(str, each['loc']))}: {each['msg']}" for each in error.errors())
        raise InputError(f"{path}: {'; '.join(faults)}") from None
    checks = [_check(path, number, each) for number, each in enumerate(told.checks, start=1)]
    edges = {check.name for check, each in zip(checks, told.checks, strict=True) if each.edge}

    def find(trace: Trace) -> DevelopmentWork:
        shown = work_of(trace)
        # What was not written anew is still there.
        work = replace(shown, before=told.files, after={**told.files, **shown.after, **left})
        return wait(examine(work, opened(), checks, edges=edges, setup=told.setup))

    return DevelopmentReward(development=_development(told.development), find=find)


def _check(path: Path, number: int, told: _Check) -> Check:
    if (told.shell is None) == (told.pytest is None):
        raise InputError(f"{path}: check {number} needs either `shell` or `pytest`")
    name = told.name or f"check {number}"
    if told.shell is not None:
        return Check(name=name, kind="shell", text=told.shell)
    return Check(name=name, kind="pytest", text=told.pytest or "")


def _development(told: _Settings) -> Development:
    architecture = Architecture(profile=profiles.load(told.profile))
    return Development(
        components=tuple(architecture if each.name == architecture.name else each for each in components()),
        weights={**WEIGHTS, "innovation": 0.0, **told.weights},
        penalty_multiplier=told.penalty_multiplier,
        bonus_threshold=told.bonus_threshold,
    )


# The work behind `journeyman rewards`, apart from its options.

_LABELS = ("label", "success")
_Made = TypeVar("_Made")


def listed(*, quiet: bool) -> dict[str, Any]:
    """Every reward by name, and the components of `development`."""
    known = [(reward.name, reward.weight, type(reward).__doc__) for reward in rewards.defaults()]
    known.append(("learned:FILE", 1.0, "The probability of a success, learned from labels"))
    known.append(("development", 1.0, "The components below together, for agents that develop software"))
    parts = [(part.name, development.WEIGHTS[part.name], type(part).__doc__) for part in development.components()]
    if not quiet:
        for title, rows in (("rewards", known), ("components of development", parts)):
            click.echo(title)
            for name, weight, doc in rows:
                click.echo(f"  {name:18} {weight:4}  {_first_line(doc)}")
    return {
        kind: [{"name": name, "weight": weight, "what": _first_line(doc)} for name, weight, doc in rows]
        for kind, rows in (("rewards", known), ("development", parts))
    }


def train(paths: Iterable[Path], output: Path, embedder: str, *, quiet: bool) -> dict[str, Any]:
    """Teach a reward and write it; the report of its examination."""
    check_writable(output)
    try:
        from journeyman.rewards.train_learned import LabelledAttempt
        from journeyman.rewards.train_learned import train as teach
    except ModuleNotFoundError as error:
        raise MissingExtra(f"{error.name} is missing: pip install 'journeyman[code]'") from error
    found = list(_gathered(paths, "these rows are no labelled traces, and nothing was learned; mend or remove them", _labelled))
    if not found:
        raise InputError("there are no labelled traces to learn from")
    examples = [LabelledAttempt(trace, success, trace.task_id) for trace, success in found]
    model = teach(examples, embedders.load(embedder) if embedder else None)
    write_text(output, json.dumps(model.json()) + "\n")
    if not quiet:
        click.echo(_told(model, output))
    return {"output": str(output), **model.report.json(), "silent": model.report.silence}


def fit(given: Mapping[str, Any], *, quiet: bool) -> dict[str, Any]:
    """Fit weights and write them; the comparison with the defaults."""
    output: Path | None = given["output"]
    if output is not None:
        check_writable(output)
    if not given["labels"] and given["target"] == "label" and _is_scored(given["scores"][0]):
        raise InputError(f"the labels in {given['scores'][0]} are the rewards' own; give the true ones: --labels FILE")
    labels = _labels(given["labels"], given["target"]) if given["labels"] else None
    complaint = "these rows are no scores with labels, and nothing was fitted; mend or remove them"
    found = list(_gathered(given["scores"], complaint, partial(_scored, labels=labels, target=given["target"])))
    rows = [row for row, _ in found if row is not None]
    result = weight_fitting.fit(rows, _defaults([defaults for _, defaults in found]))
    if output is not None:
        write_text(output, _weights_rewarding(result.weights, result.verdict, output))
    if not quiet:
        for name in sorted(result.defaults):
            click.echo(f"{name:22} {result.defaults[name]:8.3f} -> {result.weights[name]:8.3f}")
        click.echo(result.verdict)
    return {**result.json(), "unlabelled": len(found) - len(rows), "output": str(output) if output else None}


def judged(paths: Iterable[Path], *, quiet: bool) -> dict[str, Any]:
    """How the opinions in files stand up to the labels beside them."""
    from journeyman.rewards.learned import stand

    found = list(_gathered(paths, "these rows are no opinions with labels; mend or remove them", _opinion))
    useful = [(value, label, group) for value, label, group in found if value is not None]
    standing = stand([each[0] for each in useful], [each[1] for each in useful], [each[2] for each in useful])
    if not quiet:
        numbers = (
            f"agreement {standing.agreement}, kappa {standing.kappa}, AUC {standing.auc}" if standing.auc else "no numbers"
        )
        click.echo(f"{len(useful)} opinions, {len(found) - len(useful)} of no use: {numbers}")
        click.echo(f"it may not weigh in: {standing.silence}" if standing.silence else "it may weigh in, calibrated")
    return {**standing.json(), "useless": len(found) - len(useful)}


def _gathered(paths: Iterable[Path], complaint: str, made: Callable[[FileRow], _Made]) -> Iterator[_Made]:
    """What `made` makes of each row; what it refuses is named at once."""
    bad = Complaints(complaint)
    found = []
    for path in paths:
        for row in read(path, bad):
            try:
                if row.value.get("split") == Split.HELD_OUT:
                    raise InputError("held out: nothing may be learned from it; leave such rows out")
                found.append(made(row))
            except (InputError, TraceError) as error:
                bad.add(row.where, str(error))
    bad.check()
    yield from found


def _labelled(row: FileRow) -> tuple[Trace, bool]:
    value = dict(row.value)
    inner = value.get("trace")
    labels = [value.pop(name) for name in _LABELS if name in value]
    recorded = parse(inner if isinstance(inner, dict) else value, name=row.where)
    if recorded.trace.held_out:
        raise InputError("held out: nothing may be learned from it; leave such rows out")
    label = labels[0] if labels else recorded.reward
    if label is None:
        raise InputError('no "label"; every row needs true or false, or 0 or 1')
    return recorded.trace, _number_rewarding(label, "label") >= 0.5


def _opinion(row: FileRow) -> tuple[float | None, bool, str]:
    value = row.value.get("value")
    said = None if value is None else _number_rewarding(value, "value")
    return said, _number_rewarding(row.value.get("label"), "label") >= 0.5, str(row.value.get("task_id", row.where))


def _scored(
    row: FileRow, *, labels: Mapping[str, float] | None, target: str
) -> tuple[weight_fitting.Scored | None, dict[str, float]]:
    """`None` where the labels' file says nothing of the trace; and the weights that the row tells."""
    verdicts = row.value.get("rewards")
    if not isinstance(verdicts, dict) or not verdicts:
        raise InputError('no "rewards"; a row is what `journeyman score --out` writes')
    values, defaults = {}, {}
    for name, verdict in verdicts.items():
        full = verdict if isinstance(verdict, dict) else {"score": verdict}
        values[name] = None if full.get("score") is None else _number_rewarding(full["score"], f"the score of {name}")
        defaults[name] = _number_rewarding(full.get("weight", 1.0), f"the weight of {name}", most=float("inf"))
    trace_id = str(row.value.get("trace_id", row.where))
    label = labels.get(trace_id) if labels is not None else _own_label(row.value, target)
    if label is None:
        return None, defaults
    return weight_fitting.Scored(values=values, label=label, group=str(row.value.get("task_id", trace_id))), defaults


def _is_scored(path: Path) -> bool:
    """Whether `journeyman score` wrote it: what it calls the label follows from the rewards."""
    first = next(iter(read(path, Complaints(""))), None)
    return first is not None and "score" in first.value and "rewards" in first.value


def _own_label(value: Mapping[str, Any], target: str) -> float:
    if target not in value:
        raise InputError(f"no {target!r}; name the field with --target, or give --labels")
    return _number_rewarding(value[target], target)


def _labels(path: Path, target: str) -> dict[str, float]:
    def made(row: FileRow) -> tuple[str, float]:
        if "trace_id" not in row.value:
            raise InputError('no "trace_id"')
        return str(row.value["trace_id"]), _number_rewarding(row.value.get(target), target)

    return dict(_gathered([path], "these rows are no labels; mend or remove them", made))


def _defaults(told: Iterable[Mapping[str, float]]) -> dict[str, float]:
    """The weights that the scores were made with."""
    found: dict[str, float] = {}
    for each in told:
        found.update(each)
    return found


def _number_rewarding(value: Any, what: str, *, most: float = 1.0) -> float:
    if not isinstance(value, int | float) or not 0 <= value <= most:
        span = "0 to 1" if most == 1 else "0 on"
        raise InputError(f"{what} is {json.dumps(value, default=str)[:40]}; it must be a number from {span}, or true or false")
    return float(value)


def _weights_rewarding(found: Mapping[str, float], comment: str, output: Path) -> str:
    if output.suffix == ".json":
        return json.dumps({"rewards": {"weights": dict(found)}}, indent=2) + "\n"
    return weight_fitting.dumps(found, comment)


def _told(model: LearnedModel, output: Path) -> str:
    report = model.report
    counts = f"{report.successes} successes and {report.failures} failures of {report.groups} tasks"
    numbers = (
        f"on tasks not taught: AUC {report.auc}, calibration error {report.ece}, Brier {report.brier}" if report.auc else ""
    )
    verdict = f"it will not speak: {report.silence}" if report.silence else "it will speak"
    return "\n".join(line for line in (f"{output}: taught by {counts}", numbers, verdict) if line)


def _first_line(doc: str | None) -> str:
    return (doc or "").strip().partition("\n")[0].rstrip(".")
