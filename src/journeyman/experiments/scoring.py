"""Scoring many traces: in parallel, and each only once."""

import hashlib
import json
import sqlite3
import time
from collections import Counter, defaultdict, deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, closing
from dataclasses import dataclass, fields, is_dataclass, replace
from functools import lru_cache
from itertools import islice
from math import inf
from multiprocessing.util import Finalize
from pathlib import Path
from typing import Annotated, Any, TypeVar

from pydantic import BaseModel, ConfigDict, Strict, ValidationError

from journeyman.agents.coder import READING
from journeyman.core import extension, registry
from journeyman.core.errors import InputError, StoreError, TraceError, boundary
from journeyman.core.reward import Verdict, decide
from journeyman.core.score import Score
from journeyman.core.task import Split, Task
from journeyman.core.trace import ModelCall, Trace, average
from journeyman.io.batch import BatchSize
from journeyman.io.executors import Here, Spread, Workers
from journeyman.io.executors.jobs import JobItem
from journeyman.io.files import read_json, read_text
from journeyman.rewards import DEFAULTS, STATIC
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
_MOMENT = 0.25
"""Seconds that they take it, about: many times what it costs to hand them over, and not much to do again."""
_HAND_OVER, _PATIENCE = 0.001, 0.25
"""Seconds of CPU to hand a trace over as JSON and to read it, about; and what is spent before that is compared."""
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


@dataclass(frozen=True, slots=True, kw_only=True)
class _Asked:
    """A trace, and what is asked of it."""

    place: int
    """Where it stands among all of them."""
    trace: Trace
    rewards: tuple[RewardFunction, ...]
    """As they measure within its group."""
    keys: Keys
    digest: bytes
    known: Results

    @property
    def open(self) -> tuple[RewardFunction, ...]:
        """Those that are still to be asked."""
        return tuple(reward for reward in self.rewards if reward.name not in self.known)


_Pairs = list[tuple[Trace, tuple[RewardFunction, ...]]]


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
        workers: Who computes what takes longer than to hand a trace over; this process, where nothing is said. Verdicts on
            traces that took them longer than they may, or lost their worker each time, are unknown.
        cache: Verdicts that are kept, and need not be computed.
        by_task: Several attempts at one task are a group, for the rewards that measure an attempt by the others.
        done: Told how many more are scored, for a progress bar.
    """
    found: dict[int, Verdicts] = {}
    spread = workers if isinstance(workers, Spread) else Spread(workers or Here())
    pieces, own = _asked(traces, engine, cache, by_task), _Own(spread.seconds)
    # Within the limit of one item by far: what is given up is the whole piece.
    moment = min(_MOMENT, (spread.seconds or inf) / 4)
    size = BatchSize(size=1, seconds=moment, largest=max(1, min(_CHUNK, len(traces) // 32)))
    away: deque[tuple[list[_Asked], list[Results]]] = deque()

    def finish(piece: list[_Asked], computed: Sequence[Results], seconds: float | None) -> None:
        if seconds is not None:
            size.learn(len(piece), seconds)
        if cache is not None:
            cache.add(_new(piece, computed))
        for asked, new in zip(piece, computed, strict=True):
            results = {**asked.known, **new}
            found[asked.place] = engine.gathered(asked.trace, {each.name: results[each.name] for each in asked.rewards})
        done(len(piece))

    def work() -> Iterator[_Pairs]:
        while piece := list(islice(pieces, size.size)):
            seconds, results = own.computed(piece)
            rest: _Pairs = [
                (asked.trace, tuple(each for each in asked.open if each.name not in here))
                for asked, here in zip(piece, results, strict=True)
            ]
            if any(rewards for _, rewards in rest):
                away.append((piece, results))
                yield rest
            else:
                finish(piece, results, seconds)

    for seconds, computed in _computed(spread, work()):
        piece, here = away.popleft()
        finish(piece, [{**one, **other} for one, other in zip(here, computed, strict=True)], seconds)
    return [found[place] for place in range(len(traces))]


def _asked(traces: Sequence[Trace], engine: RewardEngine, cache: ScoreCache | None, by_task: bool) -> Iterator[_Asked]:
    groups: dict[str, list[int]] = defaultdict(list)
    for place, trace in enumerate(traces):
        groups[trace.task_id if by_task else ""].append(place)
    alone = keys(engine.rewards) if cache is not None else {}
    for places in groups.values():
        group = engine.for_group([traces[place] for place in places]) if by_task and len(places) > 1 else engine
        kept = keys(group.rewards) if cache is not None and group is not engine else alone
        for place in places:
            name = digest(traces[place]) if cache is not None else b""
            known = cache.get(name, kept) if cache is not None else {}
            yield _Asked(place=place, trace=traces[place], rewards=group.rewards, keys=kept, digest=name, known=known)


class _Own:
    """What this process computes itself, whoever the workers are: static rewards, which run nothing, as long as a trace takes
    them less than it takes to hand it over."""

    def __init__(self, seconds: float | None) -> None:
        self._here = Spread(Here(), seconds)
        self._static = {name: registry.load("rewards", name) for name in STATIC}
        self._count, self._took = 0, 0.0

    def computed(self, piece: Sequence[_Asked]) -> "_Timed":
        """Seconds, and by trace what was computed; it may be nothing."""
        if self._took > _PATIENCE + _HAND_OVER * self._count:
            return None, [{} for _ in piece]
        work = [(asked.trace, tuple(each for each in asked.open if self._is_static(each))) for asked in piece]
        # They only compute, and to hand over takes as much longer as they do where there is much else to do.
        began = time.thread_time()
        ((seconds, results),) = self._here.map(_compute, [work], failed=_given_up)
        self._count, self._took = self._count + len(piece), self._took + time.thread_time() - began
        return seconds, results

    def _is_static(self, reward: RewardFunction) -> bool:
        return type(reward) is self._static.get(reward.name)


_Timed = tuple[float | None, list[Results]]
"""The seconds that it took, unknown where it was given up; and by trace what was said."""


def _computed(workers: Spread, work: Iterator[_Pairs]) -> Iterator[_Timed]:
    if not workers.plain:
        return workers.map(_compute, work, failed=_given_up)
    sent: deque[_Pairs] = deque()

    def items() -> Iterator[dict[str, Any]]:
        for each in work:
            sent.append(each)
            yield _item(each)

    def given_up(_: dict[str, Any], why: str) -> list[Any]:
        return _timed_row(_given_up(sent[0], why))

    def read(timed: list[Any]) -> _Timed:
        sent.popleft()
        seconds, rows = timed
        return seconds, [{name: _of_row(row) for name, row in each.items()} for each in rows]

    return map(read, workers.map(score_item, items(), failed=given_up))


def _given_up(work: _Pairs, why: str) -> _Timed:
    return None, [{reward.name: unknown(why, **{UNREACHABLE: True}) for reward in rewards} for _, rewards in work]


class _ScoreItem(JobItem):
    rewards: dict[str, dict[str, Any]]
    """Their options, by name; by name/NUMBER where the groups of several traces have each their own."""
    rows: list[Annotated[tuple[str, list[str]], Strict(False)]]
    """Traces as lines of JSON, and what is asked of each."""


def _item(work: _Pairs) -> dict[str, Any]:
    """Some work as JSON, for workers that take nothing else."""
    known: dict[int, str] = {}
    wanted: dict[str, dict[str, Any]] = {}
    for reward in (each for _, rewards in work for each in rewards):
        if id(reward) not in known:
            known[id(reward)] = f"{reward.name}/{len(wanted)}" if reward.name in wanted else reward.name
            wanted[known[id(reward)]] = _options(reward)
    return {"rewards": wanted, "rows": [[line(trace), [known[id(each)] for each in rewards]] for trace, rewards in work]}


def _options(reward: RewardFunction) -> dict[str, Any]:
    """What makes the reward, beside its name.

    Raises:
        InputError: It is none that is known by its name alone.
    """
    named = reward.name in DEFAULTS and type(reward) is registry.load("rewards", reward.name)
    if named and is_dataclass(reward):
        return {each.name: getattr(reward, each.name) for each in fields(reward)}
    if not named or reward.version != _of_process(reward.name).version:
        raise InputError(f"workers on PostgreSQL know {', '.join(DEFAULTS)}, and not {reward.name}; take local or ray")
    return {}


def score_item(item: dict[str, Any]) -> list[Any]:
    """What `score_all` sends to workers that take JSON alone: the seconds that it took, and by trace what each reward that is
    asked for says.

    Raises:
        InputError: It asks for another reward than the default ones, or holds what is no trace.
    """
    asked = _ScoreItem.read(item)
    names = {key: key.partition("/")[0] for key in asked.rewards}
    if strange := sorted(set(names.values()) - set(DEFAULTS)):
        raise InputError(f"a worker knows no reward {strange[0]!r:.80}; there are {', '.join(DEFAULTS)}")
    made = {}
    for key, options in asked.rewards.items():
        by_options = is_dataclass(registry.load("rewards", names[key]))
        if options and not by_options:
            raise InputError(f"a worker takes no options for {names[key]}")
        made[key] = registry.load("rewards", names[key])(**options) if by_options else _of_process(names[key])
    return _timed_row(_compute([(_trace_of(text), tuple(made[key] for key in keys)) for text, keys in asked.rows]))


@lru_cache(maxsize=len(DEFAULTS))
def _of_process(name: str) -> RewardFunction:
    """One for all items: what it has begun, such as a sandbox, costs more than an item."""
    reward: RewardFunction = registry.load("rewards", name)()
    # Workers of a pool do not run `atexit`.
    Finalize(None, RewardEngine([reward]).close, exitpriority=20)
    return reward


def _trace_of(text: str) -> Trace:
    try:
        return parse(json.loads(text), name="item").trace
    except ValueError:
        raise InputError("a trace in the item of a job is no JSON") from None


def _timed_row(timed: _Timed) -> list[Any]:
    return [timed[0], [{name: _row(result) for name, result in results.items()} for results in timed[1]]]


def _row(result: RewardResult) -> list[Any]:
    return [result.score, result.is_binary, dict(result.details)]


def _of_row(row: Sequence[Any]) -> RewardResult:
    score, is_binary, details = row
    return RewardResult(score=score, is_binary=is_binary, details=details)


def _compute(work: _Pairs) -> _Timed:
    began = time.monotonic()
    results = [{reward.name: judged(reward, trace) for reward in rewards} for trace, rewards in work]
    return time.monotonic() - began, results


def _new(piece: Sequence[_Asked], computed: Sequence[Results]) -> Iterator[tuple[bytes, str, RewardResult]]:
    for asked, results in zip(piece, computed, strict=True):
        for reward, result in results.items():
            yield asked.digest, asked.keys[reward], result


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
