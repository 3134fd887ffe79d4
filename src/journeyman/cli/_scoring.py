"""The work behind `journeyman score`, apart from its options."""

import json
import os
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack, closing
from dataclasses import dataclass
from importlib.metadata import version
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.table import Table

from journeyman import app, config, rewards, sandbox, scoring, workers
from journeyman.capture.base import NO_TIME
from journeyman.capture.jsonl import parse
from journeyman.cli._bar import bar
from journeyman.cli._shared import console
from journeyman.errors import InputError, TraceError
from journeyman.learn.playbook.files import check_writable, write_text
from journeyman.reward import Reward
from journeyman.rewards import answers
from journeyman.rewards.base import RewardFunction
from journeyman.rewards.blocking import wait
from journeyman.rewards.engine import RewardEngine, Verdicts
from journeyman.rewards.verdict import UNREACHABLE
from journeyman.sandbox.base import Sandbox
from journeyman.score import Score
from journeyman.stores import open_store, schema
from journeyman.stores.traces import open_traces
from journeyman.stores.traces.attempts import as_trace
from journeyman.stores.traces.base import TraceStore
from journeyman.stores.urls import MEMORY, as_url, redacted
from journeyman.task import Split, Task
from journeyman.trace import ModelCall, Trace

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
    pool = stack.enter_context(workers.load(given["workers"]))
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
        from journeyman.cli import _developing

        own.append(_developing.reward(given["task_path"], work, files, _opening(given, stack)))
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
    from journeyman.rewards import weights

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
    return as_url(url) if url else config.load().store_url


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
    count, at = 0, app.now()
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
