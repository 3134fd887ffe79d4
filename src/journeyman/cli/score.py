"""`journeyman score`: what were these attempts worth?"""

import json
import os
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import ExitStack, closing
from dataclasses import dataclass, replace
from importlib.metadata import version
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from journeyman.cli import console
from journeyman.cli.console import Column, bar, number, say
from journeyman.cli.shared import emit, format_option, json_option, store_url, workers_option
from journeyman.core.errors import InputError
from journeyman.core.format import counted
from journeyman.core.reward import Reward, Source, Verdict
from journeyman.core.score import Score
from journeyman.core.task import Split
from journeyman.core.trace import Trace
from journeyman.io.atomic import write_text
from journeyman.io.files import check_writable

if TYPE_CHECKING:
    from journeyman.experiments.scoring import ScoreCache
    from journeyman.rewards.base import RewardFunction
    from journeyman.rewards.engine import RewardEngine, Verdicts
    from journeyman.sandbox.base import Sandbox
    from journeyman.stores.traces.base import TraceStore

CACHE = Path(".journeyman/scores.db")
_BY = "journeyman"
"""Begins the name under which rewards are kept with a trace."""
_FILE = click.Path(path_type=Path)


@click.command()
@click.argument("traces", nargs=-1, type=_FILE)
@format_option
@click.option(
    "--store",
    metavar="URL",
    is_flag=False,
    flag_value="",
    help="Score what is in a store, recorded and attempted; in the project's own, without a URL.",
)
@click.option("--task", "task_path", type=_FILE, help="Score one answer: the task, a JSON file.")
@click.option("--output", "output_path", type=_FILE, help="Score one answer: what the agent gave, text or JSON.")
@click.option("--rewards", metavar="A,B", help="Which rewards.  [default: the six that need no model]")
@click.option("--weights", type=_FILE, help="Weights that `journeyman rewards fit` has written.  [default: each reward's own]")
@click.option("--sandbox", metavar="NAME", help="Where code runs.  [default: the strongest there is]")
@click.option("--unsafe-local", is_flag=True, help="Run code without walls: only for code of your own.")
@click.option(
    "--tokens", type=click.FloatRange(min=1), help="Budget of tokens for efficiency.  [default: the median of a task]"
)
@click.option("--calls", type=click.FloatRange(min=1), help="Budget of calls for efficiency.  [default: the median of a task]")
@workers_option
@click.option("--no-cache", is_flag=True, help="Score anew what was scored before.")
@click.option("--out", type=_FILE, metavar="FILE", help="Write a JSON object for each trace, as `journeyman compare` reads it.")
@click.option("--keep", is_flag=True, help="Keep the rewards with the traces of the store, where the pages show them.")
@json_option
def command(as_json: bool, **given: Any) -> int:
    """Score what agents did, from files of traces, a store, or one answer.

    Files are of any format that `journeyman collect` takes: traces of Journeyman, {"messages": [...]} as chat APIs write them,
    results of tau-bench, logs of Inspect, exports of Langfuse and more, recognised by what they hold.
    A reward that cannot tell says so, and is left out of the mean. Whether an attempt was good is what ground truth says, else
    a person, a check, an end user, a judge, heuristics, in this order. What was scored before is not scored again. With --task
    the exit code is 1 when the answer is not a good one. It is 1, too, when a reward of your own failed on some traces, and 2
    when it failed on all.

    \b
    Examples:
      journeyman score traces.jsonl --rewards tool_success,task_completion
      journeyman score --store --out scores.jsonl
      journeyman score --store --keep
      journeyman score --task task.json --output output.json --json
    """
    result, code = _score(given, quiet=as_json)
    emit(result, as_json=as_json)
    return code


@dataclass(frozen=True, slots=True)
class _Open:
    """Makes a sandbox by name, in whichever process it is needed."""

    name: str

    def __call__(self) -> "Sandbox":
        from journeyman import sandbox

        return sandbox.load(self.name)


@dataclass(frozen=True, slots=True)
class _Stored:
    id: str
    """What it is called among the traces of the store."""
    trace: Trace
    score: Score
    """What was said of it: by the checks of its own run, by its recorder, by people."""
    split: Split | None = None
    """`None` for what was recorded: it is of no set of tasks."""


def _score(given: Mapping[str, Any], *, quiet: bool) -> tuple[dict[str, Any], int]:
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
        found = _many(given, engine, stack, quiet=quiet)
        failed = max((row["broken"] for row in found["rewards"].values()), default=0)
        return found, 0 if not failed else 2 if failed == found["traces"] else 1


def _many(given: Mapping[str, Any], engine: "RewardEngine", stack: ExitStack, *, quiet: bool) -> dict[str, Any]:
    from journeyman.experiments import scoring
    from journeyman.io import executors
    from journeyman.rewards.weight_fitting import load

    out: Path | None = given["out"]
    if out is not None:
        check_writable(out)
    stored = [] if given["store"] is None else _stored(given["store"])
    traces = [one.trace for one in stored or scoring.read_traces(given["traces"], given["format_name"])]
    if not traces:
        raise InputError("there are no traces to score")
    cache = None if given["no_cache"] else _cache(stack)
    pool = executors.Spread(stack.enter_context(executors.load(given["workers"])), given["item_timeout"])
    if pool.plain and _where(given):
        raise InputError("workers on PostgreSQL run code in the strongest sandbox of their machines; leave out --sandbox")
    began = time.monotonic()
    with bar("traces", len(traces), quiet=quiet) as done:
        verdicts = scoring.score_all(traces, engine, workers=pool, cache=cache, by_task=True, done=done)
    kept = _keep(given["store"], stored, verdicts) if given["keep"] else None
    if any(one.score.rewards for one in stored):
        verdicts = scoring.with_recorded(
            verdicts, [one.score for one in stored], load(given["weights"]) if given["weights"] else None
        )
    found = {
        **scoring.summary(engine, verdicts),
        "cached": cache.found if cache else 0,
        "seconds": round(time.monotonic() - began, 3),
    }
    if kept is not None:
        found["kept"] = kept
    if out is not None:
        splits = [{"split": one.split.value} if one.split else {} for one in stored] or [{}] * len(traces)
        rows = ({**row, **split} for row, split in zip(scoring.reports(traces, verdicts, engine), splits, strict=True))
        write_text(out, "".join(f"{json.dumps(row, ensure_ascii=False)}\n" for row in rows))
    if not quiet:
        _show_summary(found)
    _warn(verdicts, cached=found["cached"])
    return found


def _one(given: Mapping[str, Any], stack: ExitStack, *, quiet: bool) -> tuple[dict[str, Any], int]:
    from journeyman.experiments import scoring
    from journeyman.rewards import answers
    from journeyman.rewards.base import BROKEN

    if not (given["task_path"] and given["output_path"]):
        raise InputError("one answer needs both: --task task.json and --output output.json")
    task, check, work = scoring.read_task(given["task_path"])
    trace, files = scoring.read_output(given["output_path"], task)
    own: list[RewardFunction] = []
    if task.answer:
        own.append(answers.AnswerReward(answers.load(check, _opening(given, stack)), [task]))
    if work:
        own += scoring.development_rewards(given["task_path"], work, files, _opening(given, stack))
    engine = stack.enter_context(closing(_engine(given, own)))
    verdicts = engine.verdicts(trace)
    found = engine.decide(verdicts)
    if not quiet:
        _show_verdicts(verdicts, found)
    broken = any(result.details.get(BROKEN) for result in verdicts.results.values())
    return scoring.report(trace, verdicts, found), 2 if broken else 1 if found.good is False else 0


def _opening(given: Mapping[str, Any], stack: ExitStack) -> "Callable[[], Sandbox]":
    """Makes a sandbox that is closed in the end."""
    from journeyman import sandbox
    from journeyman.rewards.code_execution import wait

    def opened() -> "Sandbox":
        box = sandbox.load(_where(given) or "auto")
        stack.callback(lambda: wait(box.close()))
        return box

    return opened


def _where(given: Mapping[str, Any]) -> str | None:
    """The name of the sandbox that was asked for, if one was."""
    named: str | None = "unsafe-local" if given["unsafe_local"] else given["sandbox"]
    return None if named == "auto" else named


def _engine(given: Mapping[str, Any], own: "Sequence[RewardFunction]") -> "RewardEngine":
    from journeyman import rewards, sandbox
    from journeyman.rewards.engine import RewardEngine
    from journeyman.rewards.weight_fitting import load

    where = _where(given)
    options: dict[str, dict[str, Any]] = {"efficiency": {"tokens": given["tokens"], "calls": given["calls"]}}
    if where is not None:
        # A wrong name is said now, and not after the first thousand traces.
        sandbox.load(where)
        options["code_execution"] = {"sandbox": _Open(where)}
    known = {reward.name for reward in own}
    wanted = given["rewards"].split(",") if given["rewards"] else rewards.DEFAULTS
    names = [name for name in wanted if name.strip() not in known]
    chosen = [*own, *(rewards.load(name, **options.get(name.strip().replace("-", "_"), {})) for name in names)]
    return RewardEngine(chosen, weights=load(given["weights"]) if given["weights"] else None)


def _cache(stack: ExitStack) -> "ScoreCache | None":
    """What was scored before; `None`, said in one line, where nothing can be kept."""
    from journeyman.experiments import scoring

    try:
        check_writable(CACHE)
        if CACHE.exists() and not os.access(CACHE, os.W_OK):
            raise InputError(f"{CACHE} is not yours to write to")
    except InputError as error:
        say(f"scores are not kept for the next time: {error}")
        return None
    return stack.enter_context(scoring.cached(CACHE))


def _stored(url: str) -> list[_Stored]:
    """The attempts of training, and what was recorded or collected beside them."""
    from journeyman.stores import engine as schema
    from journeyman.stores import open_store, open_traces
    from journeyman.stores.traces.attempts import as_trace
    from journeyman.stores.urls import MEMORY, redacted

    where = store_url(url)
    if where == MEMORY or schema.step_of(where) is None:
        raise InputError(f"there is no store at {redacted(where)}; name one: --store URL")
    with open_store(where) as store:
        attempts = {as_trace(one).id: one for one in store.attempts()}
    with open_traces(where) as watched:
        # Attempts are among the traces, too, with what people said of them.
        others, labels = list[_Stored](), dict[str, tuple[Reward, ...]]()
        for trace in watched.traces():
            if trace.id in attempts:
                labels[trace.id] = _others(replace(trace, rewards=()).said)
            else:
                others.append(_Stored(trace.id, trace, _said(watched, trace)))
    found = (
        _Stored(id, one.trace, replace(one.score, rewards=(*one.score.rewards, *labels.get(id, ()))), one.split)
        for id, one in attempts.items()
    )
    return [*found, *others]


def _said(store: "TraceStore", trace: Trace) -> Score:
    """What others said of a trace: what was kept of an earlier scoring is no verdict of its own."""
    ours = _ours(store, trace.id)
    return Score(trace_id=trace.id, rewards=_others(reward for reward in trace.said if reward not in ours))


def _others(said: Iterable[Reward]) -> tuple[Reward, ...]:
    """Without what our own labeler proposes."""
    return tuple(reward for reward in said if reward.told_by is not Source.LABELER)


def _ours(store: "TraceStore", trace_id: str) -> Sequence[Reward]:
    return [each.reward for each in store.rewards(trace_id) if each.by.startswith(_BY)]


def _keep(url: str, stored: Sequence[_Stored], verdicts: "Sequence[Verdicts]") -> int:
    """Keep with the traces of the store what could be told of them; how many rewards that are."""
    from journeyman.experiments import wiring
    from journeyman.stores import open_traces

    count, at = 0, wiring.now()
    with open_traces(store_url(url)) as store:
        for one, verdict in zip(stored, verdicts, strict=True):
            # One that is unknown would make the trace's mean unknown: here it is left out of the mean, and so of the store.
            known = [reward for reward in verdict.score.rewards if reward.value is not None]
            ours = _ours(store, one.id)
            new = [reward for reward in known if reward not in ours]
            for source in {reward.source for reward in known}:
                # Whose word it is, where the name does not say: see `stores.traces.labels.reward_of`.
                by = f"{_BY} {version('journeyman')}{f' ({source})' if source else ''}"
                store.reward(one.id, [reward for reward in new if reward.source == source], by=by, at=at)
            count += len(known)
    return count


def _show_summary(found: Mapping[str, Any]) -> None:
    rows = [(name, f"{row['weight']:g}", *_counts(row)) for name, row in found["rewards"].items()]
    columns = [Column(name="reward", words=True), *(Column(name=name) for name in ("weight", "mean", "known", "unknown"))]
    console.table(columns, [*rows, ("together", "", *_counts(found))], styles=[*[None] * len(rows), "bold"])
    good, bad, open_ = found["good"], found["bad"], found["unlabelled"]
    click.echo(f"{counted(found['traces'], 'trace')}: {good} good, {bad} bad, {open_} undecided")


def _counts(row: Mapping[str, Any]) -> tuple[str, str, str]:
    return number(row["mean"]), str(row["known"]), str(row["unknown"])


def _show_verdicts(verdicts: "Verdicts", found: Verdict) -> None:
    rows = [
        (name, f"{verdicts.weights[name]:g}", number(result.score), str(result.details.get("evidence", "")))
        for name, result in verdicts.results.items()
    ]
    columns = [Column(name="reward", words=True), Column(name="weight"), Column(name="score")]
    console.table([*columns, Column(name="evidence", words=True, wraps=True)], rows)
    word = {True: "good: ", False: "bad: ", None: ""}[found.good]
    click.echo(f"{word}{found.reason}")


def _warn(verdicts: "Sequence[Verdicts]", *, cached: int) -> None:
    """Say which verdicts a failure has prevented, with the first reason, and how many were not computed anew."""
    from journeyman.rewards.base import UNREACHABLE

    if cached:
        say(f"{counted(cached, 'verdict')} from before, kept in {CACHE}; --no-cache scores anew")
    for name in verdicts[0].results:
        lost = [one.results[name].details for one in verdicts if one.results[name].details.get(UNREACHABLE)]
        if lost:
            say(f"{name}: {counted(len(lost), 'verdict')} not reached; {lost[0]['evidence']}")
