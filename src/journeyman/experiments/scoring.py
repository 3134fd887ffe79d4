"""Scoring many traces: in parallel, and each only once."""

import hashlib
import json
import sqlite3
from collections import Counter, defaultdict, deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, closing
from dataclasses import dataclass, fields, is_dataclass, replace
from itertools import islice
from pathlib import Path
from typing import Any, TypeVar

from pydantic import BaseModel, ConfigDict, ValidationError

from journeyman.agents.coder import READING
from journeyman.core import extension, registry
from journeyman.core.errors import InputError, StoreError, TraceError, boundary
from journeyman.core.reward import Verdict, decide
from journeyman.core.score import Score
from journeyman.core.task import Split, Task
from journeyman.core.trace import ModelCall, Trace, average
from journeyman.io.executors import Here, Spread, Workers
from journeyman.io.executors.jobs import JobItem
from journeyman.io.files import read_json, read_text
from journeyman.rewards import DEFAULTS
from journeyman.rewards.base import BROKEN, UNREACHABLE, RewardFunction, RewardResult, judged, soft, unknown
from journeyman.rewards.checks import Check
from journeyman.rewards.code_execution import wait
from journeyman.rewards.development import (
    WEIGHTS,
    ChecksReward,
    Development,
    DevelopmentReward,
    DevelopmentWork,
    code_measures,
    components,
    examine,
    work_of,
)
from journeyman.rewards.engine import RECORDED, RewardEngine, Verdicts
from journeyman.rewards.weight_fitting import Scored
from journeyman.sandbox.base import Sandbox
from journeyman.tasks.rows import Complaints, FileRow, read
from journeyman.tracing import importers
from journeyman.tracing.base import NO_TIME, RecordedTrace
from journeyman.tracing.importers.jsonl import line, parse

_CHUNK = 64
"""Traces that cross to a worker together, at most; fewer where there are few, so that all workers have some."""
RECORDED_WEIGHT = 2.0
"""As much as that code runs."""

Results = dict[str, RewardResult]
"""By the reward's name."""
Keys = Mapping[str, str]
"""What a verdict is kept under, beside the digest of its trace: name and version, by the reward's name."""


def read_traces(paths: Iterable[Path | str], format: str | None = None) -> list[RecordedTrace]:
    """The traces of files, in all formats of `tracing.importers`, each by the id that its record gives it, else by where it
    stands.

    Args:
        format: What the files are; recognised by what they hold when there is none.

    Raises:
        InputError: A file cannot be read, or lines in it are no traces; they are named at once.
    """
    bad = Complaints("these lines are no traces, and nothing was scored; mend or remove them")
    found = []
    for path in paths:
        for one in importers.read(path, format):
            if isinstance(one, importers.Problem):
                bad.add(one.where, one.why)
            else:
                # What is said of a trace is looked up by the id that its record has, also where that is not unique.
                id = one.name or one.where
                found.append(replace(one, trace=replace(one.trace, id=id)))
    bad.check()
    return found


class ScoreCache:
    """What rewards said before, in a file of SQLite: by the content of the trace and the version of the reward.

    May be used by several processes at once. It may be deleted at any time: all it costs is to score again.
    """

    def __init__(self, path: Path) -> None:
        """Open the file, or make it.

        Raises:
            StoreError: It cannot be opened, or is something else.
        """
        self.path = path
        self.found = 0
        """How many verdicts were known."""
        with self._named():
            path.parent.mkdir(parents=True, exist_ok=True)
            self._db = sqlite3.connect(path, timeout=60, isolation_level=None)
            self._db.execute("pragma journal_mode = wal")
            self._db.execute("pragma synchronous = normal")
            self._db.execute(
                "create table if not exists verdict (trace blob, reward text, result text, primary key (trace, reward)) "
                "without rowid"
            )

    def get(self, trace: bytes, keys: Keys) -> Results:
        """What is known of a trace, by its digest."""
        with self._named():
            known = dict(self._db.execute("select reward, result from verdict where trace = ?", (trace,)))
            results = {name: _of_row(json.loads(known[key])) for name, key in keys.items() if key in known}
        self.found += len(results)
        return results

    def add(self, found: Iterable[tuple[bytes, str, RewardResult]]) -> None:
        """Keep verdicts by digest and key, all or none. One that a failure kept from being reached is not kept: it may be
        reached next time."""
        rows = [(trace, key, json.dumps(_row(result))) for trace, key, result in found if not result.details.get(UNREACHABLE)]
        with self._named(), self._db:
            self._db.execute("begin immediate")
            self._db.executemany("insert or replace into verdict values (?, ?, ?)", rows)

    def _named(self) -> AbstractContextManager[None]:
        return boundary(StoreError, f"the cache of scores {self.path} cannot be used; delete it")

    def close(self) -> None:
        self._db.close()


@dataclass(frozen=True, slots=True)
class _Job:
    """Some traces for one engine."""

    engine: RewardEngine
    places: tuple[int, ...]
    """Where they stand among all of them."""
    traces: tuple[Trace, ...]
    keys: Keys
    digests: tuple[bytes, ...]
    known: tuple[Results, ...]

    @property
    def work(self) -> list[tuple[Trace, tuple[RewardFunction, ...]]]:
        """What is left to be asked."""
        return [
            (trace, tuple(reward for reward in self.engine.rewards if reward.name not in known))
            for trace, known in zip(self.traces, self.known, strict=True)
        ]


def score_all(
    traces: Sequence[Trace],
    engine: RewardEngine,
    *,
    workers: Workers | Spread | None = None,
    cache: ScoreCache | None = None,
    by_task: bool = False,
    done: Callable[[int], None] = lambda _: None,
) -> list[Verdicts]:
    """What every reward says of every trace, in the order of the traces.

    Args:
        workers: Who computes it; this process, where nothing is said. Verdicts on traces that took them longer than they may,
            or lost their worker each time, are unknown.
        cache: Verdicts that are kept, and need not be computed.
        by_task: Several attempts at one task are a group, for the rewards that measure an attempt by the others.
        done: Told how many more are scored, for a progress bar.
    """
    found: list[Verdicts | None] = [None] * len(traces)
    waiting: list[_Job] = []

    def jobs() -> Iterator[list[tuple[Trace, tuple[RewardFunction, ...]]]]:
        for job in _jobs(traces, engine, cache, by_task):
            waiting.append(job)
            yield job.work

    for computed in _computed(workers or Here(), jobs()):
        job = waiting.pop(0)
        if cache is not None:
            cache.add(_new(job, computed))
        for place, trace, known, new in zip(job.places, job.traces, job.known, computed, strict=True):
            found[place] = job.engine.gathered(trace, {r.name: {**known, **new}[r.name] for r in job.engine.rewards})
        done(len(job.places))
    return [verdicts for verdicts in found if verdicts is not None]


def _jobs(traces: Sequence[Trace], engine: RewardEngine, cache: ScoreCache | None, by_task: bool) -> Iterator[_Job]:
    chunk = max(1, min(_CHUNK, len(traces) // 32))
    groups: dict[str, list[int]] = defaultdict(list)
    for place, trace in enumerate(traces):
        groups[trace.task_id if by_task else ""].append(place)
    for places in groups.values():
        group = engine.for_group([traces[place] for place in places]) if by_task and len(places) > 1 else engine
        kept = keys(group.rewards) if cache is not None else {}
        rest = iter(places)
        while some := tuple(islice(rest, chunk)):
            digests = tuple(digest(traces[place]) for place in some) if cache is not None else ()
            known = tuple(cache.get(name, kept) for name in digests) if cache is not None else tuple({} for _ in some)
            yield _Job(group, some, tuple(traces[place] for place in some), kept, digests, known)


_Pairs = list[tuple[Trace, tuple[RewardFunction, ...]]]


def _computed(workers: Workers | Spread, work: Iterator[_Pairs]) -> Iterator[list[Results]]:
    if not workers.plain:
        return workers.map(_compute, work, failed=_given_up)
    sent: deque[_Pairs] = deque()

    def items() -> Iterator[dict[str, Any]]:
        for each in work:
            sent.append(each)
            yield _item(each)

    def given_up(_: dict[str, Any], why: str) -> list[dict[str, Any]]:
        return [{name: _row(result) for name, result in results.items()} for results in _given_up(sent[0], why)]

    def read(rows: list[dict[str, Any]]) -> list[Results]:
        sent.popleft()
        return [{name: _of_row(row) for name, row in each.items()} for each in rows]

    return map(read, workers.map(score_item, items(), failed=given_up))


def _given_up(work: _Pairs, why: str) -> list[Results]:
    return [{reward.name: unknown(why, **{UNREACHABLE: True}) for reward in rewards} for _, rewards in work]


class _ScoreItem(JobItem):
    rewards: dict[str, dict[str, Any]]
    """Their options, by name."""
    rows: list[list[Any]]
    """Traces, and what is asked of each."""


def _item(work: _Pairs) -> dict[str, Any]:
    """Some work as JSON, for workers that take nothing else."""
    wanted = {reward.name: reward for _, rewards in work for reward in rewards}
    rows = [[json.loads(line(trace)), [reward.name for reward in rewards]] for trace, rewards in work]
    return _ScoreItem(rewards={name: _options(reward) for name, reward in wanted.items()}, rows=rows).json_item()


def _options(reward: RewardFunction) -> dict[str, Any]:
    """What makes the reward, beside its name.

    Raises:
        InputError: It is none that is known by its name alone.
    """
    named = reward.name in DEFAULTS and type(reward) is registry.load("rewards", reward.name)
    if named and is_dataclass(reward):
        return {each.name: getattr(reward, each.name) for each in fields(reward)}
    if not named or reward.version != registry.load("rewards", reward.name)().version:
        raise InputError(f"workers on PostgreSQL know {', '.join(DEFAULTS)}, and not {reward.name}; take local or ray")
    return {}


def score_item(item: dict[str, Any]) -> list[dict[str, Any]]:
    """What `score_all` sends to workers that take JSON alone: by trace, what each reward that is asked for says.

    Raises:
        InputError: It asks for another reward than the default ones, or holds what is no trace.
    """
    asked = _ScoreItem.read(item)
    if strange := sorted(set(asked.rewards) - set(DEFAULTS)):
        raise InputError(f"a worker knows no reward {strange[0]!r:.80}; there are {', '.join(DEFAULTS)}")
    made = {name: registry.load("rewards", name)(**options) for name, options in asked.rewards.items()}
    if strange := [name for name, options in asked.rewards.items() if options and not is_dataclass(made[name])]:
        raise InputError(f"a worker takes no options for {strange[0]}")
    work = [(parse(record, name="item").trace, tuple(made[name] for name in names)) for record, names in asked.rows]
    try:
        return [{name: _row(result) for name, result in results.items()} for results in _compute(work)]
    finally:
        RewardEngine(made.values()).close()


def _row(result: RewardResult) -> list[Any]:
    return [result.score, result.is_binary, dict(result.details)]


def _of_row(row: Sequence[Any]) -> RewardResult:
    score, is_binary, details = row
    return RewardResult(score=score, is_binary=is_binary, details=details)


def _compute(work: _Pairs) -> list[Results]:
    return [{reward.name: judged(reward, trace) for reward in rewards} for trace, rewards in work]


def _new(job: _Job, computed: Sequence[Results]) -> Iterator[tuple[bytes, str, RewardResult]]:
    for name, results in zip(job.digests, computed, strict=True):
        for reward, result in results.items():
            yield name, job.keys[reward], result


def digest(trace: Trace) -> bytes:
    """The same for the same content."""
    return hashlib.blake2b(line(trace).encode(), digest_size=16).digest()


def keys(rewards: Iterable[RewardFunction]) -> Keys:
    """Made once for many traces: a version may be the digest of a whole model, or of every task's goal."""
    return {reward.name: f"{reward.name} {_version(reward)}" for reward in rewards}


def _version(reward: RewardFunction) -> str:
    with extension.named("rewards", reward.name):
        return reward.version


def cached(path: Path) -> "closing[ScoreCache]":
    """The cache at a path, for a `with`."""
    return closing(ScoreCache(path))


def with_recorded(
    verdicts: Sequence[Verdicts], scores: Iterable[Score], weights: Mapping[str, float] | None = None
) -> list[Verdicts]:
    """The verdicts with what was said of the attempts before, first: by the checks of their run, their recorder, people.

    Unknown where that could not be told. What was only read, without checks, is no verdict.
    """
    weight = (weights or {}).get(RECORDED, RECORDED_WEIGHT)
    found = []
    for one, score in zip(verdicts, scores, strict=True):
        results = {RECORDED: _recorded(score), **one.results}
        found.append(Verdicts(one.trace_id, results, {RECORDED: weight, **one.weights}, score.rewards))
    return found


def _recorded(score: Score) -> RewardResult:
    names = ", ".join(reward.name for reward in score.rewards)
    if any(reward.name == READING for reward in score.rewards):
        return unknown("there were no checks: it was only read", is_binary=False)
    found = decide(score.rewards)
    if found.worth is None:
        return unknown(score.evidence or "its run has no verdict on it", is_binary=False, by=names)
    return soft(found.worth, score.evidence or f"{names}: {found.worth:g}", by=names)


def summary(engine: RewardEngine, verdicts: Sequence[Verdicts]) -> dict[str, Any]:
    """The mean of each reward and of what decided, each with how many traces it could not tell about."""
    decided = [engine.decide(one) for one in verdicts]
    labels = [one.good for one in decided]
    return {
        "traces": len(verdicts),
        **_mean([one.worth for one in decided]),
        "good": labels.count(True),
        "bad": labels.count(False),
        "unlabelled": labels.count(None),
        "rewards": {
            name: {
                **_mean([one.results[name].score for one in verdicts]),
                "weight": weight,
                "unreachable": _count(verdicts, name, UNREACHABLE),
                "broken": _count(verdicts, name, BROKEN),
            }
            for name, weight in (verdicts[0].weights if verdicts else engine.weights).items()
        },
    }


def _count(verdicts: Sequence[Verdicts], name: str, mark: str) -> int:
    return sum(bool(one.results[name].details.get(mark)) for one in verdicts)


def _mean(scores: Sequence[float | None]) -> Mapping[str, float | int | None]:
    known = [score for score in scores if score is not None]
    return {"mean": average(known), "known": len(known), "unknown": len(scores) - len(known)}


def reports(traces: Sequence[Trace], verdicts: Sequence[Verdicts], engine: RewardEngine) -> Iterator[dict[str, Any]]:
    """The verdicts as rows of JSON that `journeyman compare` reads; attempts at one task are numbered in their order."""
    trials: Counter[str] = Counter()
    for trace, one in zip(traces, verdicts, strict=True):
        yield report(trace, one, engine.decide(one), trial=trials[trace.task_id])
        trials[trace.task_id] += 1


def report(trace: Trace, verdicts: Verdicts, found: Verdict, *, trial: int = 0) -> dict[str, Any]:
    """One trace's verdicts as a row of JSON."""
    return {
        "trace_id": trace.id,
        "task_id": trace.task_id,
        "trial": trial,
        "score": found.worth,
        "label": found.good,
        "decided_by": found.source,
        "reason": found.reason,
        "combined": verdicts.combined,
        "rewards": {
            name: {"score": result.score, "binary": result.is_binary, "weight": verdicts.weights[name], **result.details}
            for name, result in verdicts.results.items()
        },
    }


# One answer: a task of a file, and what an agent gave.

_REPLY = ("output", "reply", "answer", "response", "text")
_TASK = frozenset({"id", "question", "answer", "check", "domain", "instructions"})
_WORK = frozenset({"files", "checks", "setup", "development"})
"""Fields of a task of development work."""


def read_task(path: Path) -> tuple[Task, str, dict[str, Any]]:
    """The task of a JSON file, the name of the check that goes with it, and what it says of development work."""
    given = read_json(path)
    if not isinstance(given, dict):
        raise InputError(f"{path}: a task is a JSON object with question, answer and check")
    extra = sorted(set(given) - _TASK - _WORK)
    if extra:
        raise InputError(f"{path}: a task has no field {extra[0]!r}; there are {', '.join(sorted(_TASK | _WORK))}")
    answer = given.get("answer", "")
    text = answer if isinstance(answer, str) else json.dumps(answer)
    task = Task(id=str(given.get("id", path.stem)), question=str(given.get("question", "")), answer=text)
    return task, str(given.get("check", "exact")), {name: given[name] for name in _WORK & set(given)}


def read_output(path: Path, task: Task) -> tuple[Trace, dict[str, str]]:
    """What an agent gave, as a trace, and the files that it left.

    It is a trace or a transcript, an object or string of JSON that holds the reply, or text.
    """
    given = read_json(path) if path.suffix == ".json" else read_text(path).removeprefix("\ufeff")
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
    # Files without a word are no empty reply: there is none that could be looked at.
    calls = (ModelCall(model="", prompt=task.question, reply=reply),) if isinstance(reply, str) else ()
    return Trace(id=task.id, task_id=task.id, candidate_id="base", started_at=NO_TIME, steps=calls), left


# Development work: the files that were there, the checks, and how their reward is made up.


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


class _Work(_Strict):
    files: dict[str, str] = {}
    """As the agent found them."""
    checks: list[_Check]
    setup: str = ""
    reference: dict[str, str] | None = None
    """The files as they are when the work is done right: what the tests say of these is what they say of anything."""
    development: _Settings = _Settings()


def development_rewards(
    path: Path, given: Mapping[str, Any], left: Mapping[str, str], sandbox: Callable[[], Sandbox]
) -> tuple[ChecksReward, DevelopmentReward]:
    """The rewards for the work that the task at `path` asks for: whether its checks passed, which run in the sandbox, and how
    well it is done.

    Args:
        given: The task's fields about development work.
        left: The files that the agent left, beside those that its trace shows it write.

    Raises:
        InputError: What the task says of the work cannot be used. Names every fault.
    """
    try:
        asked = _Work.model_validate(given)
    except ValidationError as error:
        faults = (f"{'.'.join(map(str, each['loc']))}: {each['msg']}" for each in error.errors())
        raise InputError(f"{path}: {'; '.join(faults)}") from None
    checks = [_check_of(path, number, each) for number, each in enumerate(asked.checks, start=1)]
    edges = {check.name for check, each in zip(checks, asked.checks, strict=True) if each.edge}

    found: dict[str, DevelopmentWork] = {}

    def find(trace: Trace) -> DevelopmentWork:
        if trace.id not in found:
            found[trace.id] = run(trace)
        return found[trace.id]

    def run(trace: Trace) -> DevelopmentWork:
        shown = work_of(trace)
        # What was not written anew is still there.
        work = replace(shown, before=asked.files, after={**asked.files, **shown.after, **left})
        return wait(examine(work, sandbox(), checks, edges=edges, setup=asked.setup, reference=asked.reference))

    return ChecksReward(find=find), DevelopmentReward(development=_development(asked.development), find=find)


def _check_of(path: Path, number: int, asked: _Check) -> Check:
    if (asked.shell is None) == (asked.pytest is None):
        raise InputError(f"{path}: check {number} needs either `shell` or `pytest`")
    name = asked.name or f"check {number}"
    if asked.shell is not None:
        return Check(name=name, kind="shell", text=asked.shell)
    return Check(name=name, kind="pytest", text=asked.pytest or "")


def _development(asked: _Settings) -> Development:
    architecture = code_measures.Architecture(profile=code_measures.load(asked.profile))
    return Development(
        components=tuple(architecture if each.name == architecture.name else each for each in components()),
        weights={**WEIGHTS, "innovation": 0.0, **asked.weights},
        penalty_multiplier=asked.penalty_multiplier,
        bonus_threshold=asked.bonus_threshold,
    )


# Rows of labelled attempts, of scores and of opinions, for what is learned of them.

_LABELS = ("label", "success")
_Made = TypeVar("_Made")


def read_rows(paths: Iterable[Path], complaint: str, make: Callable[[FileRow], _Made]) -> list[_Made]:
    """What `make` makes of each row; what it refuses is named at once."""
    bad = Complaints(complaint)
    found = []
    for path in paths:
        for row in read(path, bad):
            try:
                if row.value.get("split") == Split.HELD_OUT:
                    raise InputError("held out: nothing may be learned from it; leave such rows out")
                found.append(make(row))
            except (InputError, TraceError) as error:
                bad.add(row.where, str(error))
    bad.check()
    return found


def labelled_trace(row: FileRow) -> tuple[Trace, bool]:
    value = dict(row.value)
    inner = value.get("trace")
    labels = [value.pop(name) for name in _LABELS if name in value]
    recorded = parse(inner if isinstance(inner, dict) else value, name=row.where)
    if recorded.trace.held_out:
        raise InputError("held out: nothing may be learned from it; leave such rows out")
    label = labels[0] if labels else recorded.reward
    if label is None:
        raise InputError('no "label"; every row needs true or false, or 0 or 1')
    return recorded.trace, _share(label, "label") >= 0.5


def judge_opinion(row: FileRow) -> tuple[float | None, bool, str]:
    value = row.value.get("value")
    said = None if value is None else _share(value, "value")
    return said, _share(row.value.get("label"), "label") >= 0.5, str(row.value.get("task_id", row.where))


def scored_row(row: FileRow, *, labels: Mapping[str, float] | None, target: str) -> tuple[Scored | None, dict[str, float]]:
    """`None` where the labels' file says nothing of the trace; and the weights that the row tells."""
    verdicts = row.value.get("rewards")
    if not isinstance(verdicts, dict) or not verdicts:
        raise InputError('no "rewards"; a row is what `journeyman score --out` writes')
    values, defaults = {}, {}
    for name, verdict in verdicts.items():
        full = verdict if isinstance(verdict, dict) else {"score": verdict}
        values[name] = None if full.get("score") is None else _share(full["score"], f"the score of {name}")
        defaults[name] = _share(full.get("weight", 1.0), f"the weight of {name}", most=float("inf"))
    trace_id = str(row.value.get("trace_id", row.where))
    label = labels.get(trace_id) if labels is not None else _own_label(row.value, target)
    if label is None:
        return None, defaults
    return Scored(values=values, label=label, group=str(row.value.get("task_id", trace_id))), defaults


def is_scored(path: Path) -> bool:
    """Whether `journeyman score` wrote it: what it calls the label follows from the rewards."""
    first = next(iter(read(path, Complaints(""))), None)
    return first is not None and "score" in first.value and "rewards" in first.value


def _own_label(value: Mapping[str, Any], target: str) -> float:
    if target not in value:
        raise InputError(f"no {target!r}; name the field with --target, or give --labels")
    return _share(value[target], target)


def read_labels(path: Path, target: str) -> dict[str, float]:
    def made(row: FileRow) -> tuple[str, float]:
        if "trace_id" not in row.value:
            raise InputError('no "trace_id"')
        return str(row.value["trace_id"]), _share(row.value.get(target), target)

    return dict(read_rows([path], "these rows are no labels; mend or remove them", made))


def _share(value: Any, what: str, *, most: float = 1.0) -> float:
    if not isinstance(value, int | float) or not 0 <= value <= most:
        span = "0 to 1" if most == 1 else "0 on"
        raise InputError(f"{what} is {json.dumps(value, default=str)[:40]}; it must be a number from {span}, or true or false")
    return float(value)
