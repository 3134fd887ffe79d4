"""Everything that writes and says that it has written: how a number is written, and which numbers are not there afterwards.

A number counts as acknowledged when `write` has returned. Whatever is done to the process, the disk, the clock or the server,
it must be there afterwards, whole, in a store that opens without complaint.
"""

import asyncio
import hashlib
import json
import os
import sqlite3
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import TimeoutError as TooSlow
from contextlib import AbstractContextManager, closing, contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path

from benchmarks.soak_readers import store_file
from journeyman.core.candidate import Candidate, Kind
from journeyman.core.errors import StoreError
from journeyman.core.feedback import Feedback, TargetKind
from journeyman.core.playbook import Add, Batch, Bullet, Playbook
from journeyman.core.policy import Choice
from journeyman.core.score import Reward, Score
from journeyman.core.task import Split
from journeyman.core.trace import Message, ModelCall, ToolCall, Trace
from journeyman.optimizers.playbook import files as playbook_files
from journeyman.optimizers.playbook import journal
from journeyman.optimizers.router import decisions
from journeyman.serving.gateway.feedback import FeedbackConfig, FeedbackKeeper
from journeyman.stores import AttemptRecord, EvaluationRecord, RunRecord, RunState, open_store
from journeyman.stores.artifacts import Artifacts
from journeyman.stores.rollouts import open_rollouts
from journeyman.stores.traces import open_traces
from journeyman.stores.traces.base import Query, TraceStore

Write = Callable[[int], None]
_PAYLOAD = "x" * 400
_LOOKED_AT = "the same held-out tasks"


@dataclass(frozen=True, slots=True, kw_only=True)
class Place:
    """Where it is written."""

    folder: Path
    url: str = ""
    """Of a server; else the store is a file in the folder."""

    @property
    def store(self) -> str | Path:
        if self.url:
            return self.url
        path = self.folder / "journeyman.db"
        if not path.exists():
            path.write_bytes(store_file())
        return path


@dataclass(frozen=True, slots=True, kw_only=True)
class Writer:
    name: str
    opened: Callable[[Place], AbstractContextManager[Write]]
    missing: Callable[[Place, Sequence[int]], Sequence[str]]
    """A word for each of the acknowledged numbers that is not there, or not whole."""
    on_server: bool = False
    """Whether it can write to PostgreSQL as well."""


def trace(id: str, task: str = "t") -> Trace:
    call = ModelCall(
        id="c", model="m", prompt="user: Hi", reply=f"{id} {_PAYLOAD}", messages=(Message(role="user", text="Hi"),)
    )
    tool = ToolCall(id="t", tool="add", arguments="{}", result="3", parent="c")
    return Trace(id=id, task_id=task, candidate_id="base", started_at=datetime.now(UTC), steps=(call, tool))


# Traces, their labels and rewards.


@contextmanager
def _traces(place: Place) -> Iterator[Write]:
    with open_traces(place.store) as store:

        def write(number: int) -> None:
            store.add([trace(f"t{number:06}-{part}") for part in range(3)])
            store.label(f"t{number:06}-0", True, who="me", at=datetime.now(UTC))
            store.reward(f"t{number:06}-1", [Reward(name="exact", value=1.0)], by="soak", at=datetime.now(UTC))

        yield write


def _no_traces(place: Place, numbers: Sequence[int]) -> list[str]:
    _check_file(place)
    with open_traces(place.store) as store:
        listed = _listed(store)
        wrong = [f"{id} is listed {listed.count(id)} times" for id in set(listed) if listed.count(id) > 1]
        known, found = set(listed), {each.id: each for each in store.traces(Query())}
        labels = {label.trace_id for label in store.labels()}
        for number in numbers:
            ids = [f"t{number:06}-{part}" for part in range(3)]
            wrong += [
                f"trace {id}"
                for id in ids
                if id not in known or len(found[id].steps) != 2 or _PAYLOAD not in found[id].calls[0].reply
            ]
            wrong += [] if ids[0] in labels else [f"the label of {ids[0]}"]
            wrong += [] if [given.reward.value for given in store.rewards(ids[1])] == [1.0] else [f"the reward of {ids[1]}"]
    return wrong


def _listed(store: TraceStore) -> list[str]:
    """The ids that the pages show, one after the other."""
    found, after = list[str](), None
    while True:
        page = store.page(Query(), limit=200, after=after)
        found += [line.id for line in page.lines]
        if (after := page.next) is None:
            return found


def _check_file(place: Place) -> None:
    if not place.url:
        with closing(sqlite3.connect(place.store)) as connection:
            (said,) = connection.execute("pragma integrity_check").fetchone()
        if said != "ok":
            raise StoreError(f"the file of the store is damaged: {said}")


# Spans, by the way that the gateway uses.


@contextmanager
def _spans(place: Place) -> Iterator[Write]:
    from tests.serving.ingest.test_writer import Start
    from tests.support.spans import call, rows

    place.store  # noqa: B018 - makes it
    with closing(Start(place.folder)()) as intake:

        def write(number: int) -> None:
            try:
                intake.spans(rows(call(number + 1, 1), call(number + 1, 2))).result(20)
            except TooSlow:
                raise StoreError("the intake takes no spans now") from None

        yield write


def _no_spans(place: Place, numbers: Sequence[int]) -> list[str]:
    from tests.serving.ingest.test_writer import Start

    ids = [f"{number + 1:032x}" for number in numbers]
    with closing(Start(place.folder)()) as intake:
        if not intake.flush(30):
            return ["the intake that was opened afterwards does not come to an end"]
    _check_file(place)
    with open_traces(place.store) as store:
        made = {each.id: len(each.calls) for each in store.traces()}
    return [f"spans of {id}" for id in ids if made.get(id) != 2]


# Feedback, by the way that the gateway uses.


def _keeper(place: Place) -> FeedbackKeeper:
    url = place.url or f"sqlite:///{place.store}"
    return FeedbackKeeper(FeedbackConfig(store_url=url, spill=place.folder / "spill" / "feedback"))


@contextmanager
def _feedback(place: Place) -> Iterator[Write]:
    with closing(_keeper(place)) as keeper, asyncio.Runner() as runner:

        def write(number: int) -> None:
            target = f"s{number:06}"
            word = Feedback(id=target, target_kind=TargetKind.SESSION, target=target, value=1.0, at=datetime.now(UTC))
            runner.run(keeper.keep([word]))

        yield write


def _no_feedback(place: Place, numbers: Sequence[int]) -> list[str]:
    """What waited on the disk is stored by whoever opens it next."""
    wanted, deadline = [f"s{number:06}" for number in numbers], time.monotonic() + 30
    with closing(_keeper(place)), open_rollouts(place.store) as store:
        while True:
            found = [word.target for word in store.feedback_of((TargetKind.SESSION, each) for each in wanted)]
            missing = sorted(set(wanted) - set(found))
            if not missing or time.monotonic() > deadline:
                break
            time.sleep(0.1)
    _check_file(place)
    return [f"feedback on {each}" for each in missing] + [f"{each} twice" for each in found if found.count(each) > 1]


# The registry: runs, candidates, evaluations with their attempts, looks.


@contextmanager
def _registry(place: Place) -> Iterator[Write]:
    with open_store(place.store) as store:

        def write(number: int) -> None:
            at, run = datetime.now(UTC), f"run-{number:06}"
            if store.run(run) is None:
                store.add_run(RunRecord(id=run, kind="soak", config={"seed": number}, started_at=at))
            candidate = Candidate(kind=Kind.PLAYBOOK, body=f"learned {number}")
            store.add_candidate(candidate)
            if store.evaluation(f"{run}/1") is None:
                store.add_evaluation(
                    EvaluationRecord(
                        id=f"{run}/1", candidate_id=candidate.id, baseline_id="base", held_out_id=_LOOKED_AT, passed=True,
                        reason="gain", report={"number": number}, at=at,
                    ),
                    [_attempt(run, f"{run}-a{at}") for at in range(4)],
                )  # fmt: skip
            store.record_look(_LOOKED_AT, candidate.id, at, f"{run}/1")
            store.mark_run(run, RunState.FINISHED, at, {"number": number})

        yield write


def _attempt(run: str, id: str) -> AttemptRecord:
    score = Score(trace_id=id, rewards=(Reward(name="exact", value=1.0),))
    return AttemptRecord(run_id=run, split=Split.HELD_OUT, trace=trace(id, task=id), score=score)


def _no_registry(place: Place, numbers: Sequence[int]) -> list[str]:
    _check_file(place)
    wrong = list[str]()
    with open_store(place.store) as store:
        for evaluation in store.evaluations():
            if (count := len(list(store.attempts(run_id=evaluation.run_id)))) != 4:
                wrong.append(f"{evaluation.id} stands on {count} attempts of 4")
        for number in numbers:
            run, id = store.run(f"run-{number:06}"), Candidate(kind=Kind.PLAYBOOK, body=f"learned {number}").id
            if run is None or run.state != RunState.FINISHED or run.result != {"number": number}:
                wrong.append(f"run {number}")
            if store.candidate(id) is None or store.evaluation(f"run-{number:06}/1") is None:
                wrong.append(f"the candidate or evaluation of run {number}")
        if store.looks(_LOOKED_AT) < len(numbers):
            wrong.append(f"{len(numbers) - store.looks(_LOOKED_AT)} looks")
    return wrong


# Files.


@contextmanager
def _journal(place: Place) -> Iterator[Write]:
    path = place.folder / "journal.jsonl"
    held = journal.Journal(path) if path.exists() else journal.Journal.create(path)

    def write(number: int) -> None:
        bullet = Bullet(id=f"b-{number}", content=f"Bullet {number} {_PAYLOAD}")
        held.append(Batch(id=f"batch {number}", at=datetime.now(UTC).isoformat(), deltas=(Add(bullet=bullet),)))

    yield write


def _no_journal(place: Place, numbers: Sequence[int]) -> list[str]:
    batches = journal.replay(place.folder / "journal.jsonl").batches
    return [f"batch {number}" for number in numbers if f"batch {number}" not in batches]


@contextmanager
def _playbook(place: Place) -> Iterator[Write]:
    def write(number: int) -> None:
        bullets = tuple(Bullet(id=f"b-{at}", content=f"Bullet {at} of {number} {_PAYLOAD}") for at in range(20))
        playbook_files.save(Playbook(bullets=bullets), place.folder / "learned.json")

    yield write


def _no_playbook(place: Place, numbers: Sequence[int]) -> list[str]:
    """The last one holds, or one that was being written behind it."""
    found = playbook_files.load(place.folder / "learned.json")
    kept = int(found.bullets[0].content.split()[3])
    return [f"playbook {max(numbers)}"] if kept < max(numbers, default=0) or len(found.bullets) != 20 else []


@contextmanager
def _decisions(place: Place) -> Iterator[Write]:
    log = decisions.DecisionLog(place.folder / "decisions.jsonl")
    choice = Choice(worker="small", propensity=0.9, candidates=("large", "small"), policy="p")
    yield lambda number: _none(log.decided(choice, f"request {number} {_PAYLOAD}"))


def _no_decisions(place: Place, numbers: Sequence[int]) -> list[str]:
    found = {each.request for each in decisions.read(place.folder / "decisions.jsonl")}
    return [f"decision {number}" for number in numbers if f"request {number} {_PAYLOAD}" not in found]


def _content(number: int) -> bytes:
    return f"artifact {number} {_PAYLOAD}".encode() * 50


@contextmanager
def _artifacts(place: Place) -> Iterator[Write]:
    kept = Artifacts(place.folder / "artifacts")
    yield lambda number: _none(kept.put(_content(number)))


def _no_artifacts(place: Place, numbers: Sequence[int]) -> list[str]:
    kept = Artifacts(place.folder / "artifacts")
    return [
        f"artifact {number}" for number in numbers if kept.get(hashlib.sha256(_content(number)).hexdigest()) != _content(number)
    ]


def _none(_: object) -> None:
    """What is given is not asked for."""


# A command that stores.


@contextmanager
def _collect(place: Place) -> Iterator[Write]:
    from journeyman.cli import main

    store = str(place.store)

    def write(number: int) -> None:
        lines = [
            {
                "messages": [
                    {"role": "user", "content": f"number {number} part {part}"},
                    {"role": "assistant", "content": _PAYLOAD},
                ]
            }
            for part in range(60)
        ]
        # In memory: the disk may be full.
        with os.fdopen(os.memfd_create("log"), "wb", buffering=0) as file:
            try:
                file.write("".join(f"{json.dumps(line)}\n" for line in lines).encode())
            except OSError as error:
                raise StoreError(f"the log cannot be written: {error}") from None
            if code := main(["collect", f"/proc/self/fd/{file.fileno()}", "--store", store, "--json"]):
                raise StoreError(f"journeyman collect ended with {code}")

    yield write


def _no_collect(place: Place, numbers: Sequence[int]) -> list[str]:
    _check_file(place)
    with open_traces(place.store) as store:
        found = {each.query for each in store.traces()}
    return [f"number {n} part {part}" for n in numbers for part in range(60) if f"number {n} part {part}" not in found]


WRITERS = {
    writer.name: writer
    for writer in (
        Writer(name="traces", opened=_traces, missing=_no_traces, on_server=True),
        Writer(name="spans", opened=_spans, missing=_no_spans),
        Writer(name="feedback", opened=_feedback, missing=_no_feedback, on_server=True),
        Writer(name="registry", opened=_registry, missing=_no_registry, on_server=True),
        Writer(name="journal", opened=_journal, missing=_no_journal),
        Writer(name="playbook", opened=_playbook, missing=_no_playbook),
        Writer(name="decisions", opened=_decisions, missing=_no_decisions),
        Writer(name="artifacts", opened=_artifacts, missing=_no_artifacts),
        Writer(name="collect", opened=_collect, missing=_no_collect),
    )
}


@contextmanager
def _liar(place: Place) -> Iterator[Write]:
    waiting = list[int]()

    def write(number: int) -> None:
        waiting.append(number)
        if len(waiting) > 20:
            (place.folder / f"number-{waiting.pop(0)}").touch()
        time.sleep(0.001)

    yield write


LIAR = Writer(
    name="injected",
    opened=_liar,
    missing=lambda place, numbers: [f"{number}" for number in numbers if not (place.folder / f"number-{number}").exists()],
)
"""One that acknowledges before it writes."""
