"""The store's tables, and what was kept by versions before this one."""

import gzip
import hashlib
import json
import sqlite3
from collections.abc import Callable, Iterable, Iterator
from contextlib import closing
from dataclasses import asdict
from pathlib import Path
from typing import Any

import pytest

from journeyman.core.feedback import TargetKind
from journeyman.stores import Store, TraceStore, open_store, open_traces
from journeyman.stores.alerts import open_alerts
from journeyman.stores.documents import open_documents
from journeyman.stores.rollouts import open_rollouts
from journeyman.stores.traces.base import Query

KEPT = Path(__file__).parent / "kept"
BEFORE = sorted(path.name for path in KEPT.glob("store-*.db.gz"))
"""Stores that versions wrote, by the step of their schema: a training of a playbook with its evaluation, traces that came in by
themselves with labels, rewards and raw spans; from 0008 on a rollout with sessions, words, a document and an alert, and in 0009
one whose requests were mirrored. They are never renewed: one of another step joins them."""


def test_a_new_store_has_the_tables_that_it_had(golden: Callable[[str, str], None], tmp_path: Path) -> None:
    open_store(tmp_path / "journeyman.db").close()
    with closing(sqlite3.connect(tmp_path / "journeyman.db")) as database:
        found = database.execute("select name, sql from sqlite_master where name not like 'sqlite_%' order by type desc, name")
        golden("schema.sql", "".join(f"-- {name}\n{sql}\n\n" for name, sql in found))


def line(what: str, /, **fields: Any) -> str:
    return f"{what} {json.dumps(fields, sort_keys=True, default=str, ensure_ascii=False)}"


def digest(values: Iterable[object]) -> str:
    return hashlib.sha256("\n".join(map(repr, values)).encode()).hexdigest()[:16]


def kept(store: Store) -> Iterator[str]:
    """Everything that a store of runs answers."""
    for run in store.runs():
        yield line("run", **asdict(run))
    for attempt in store.attempts():
        trace, score = attempt.trace, attempt.score
        yield line(
            "attempt",
            run=attempt.run_id,
            task=trace.task_id,
            candidate=trace.candidate_id,
            domain=trace.domain,
            split=attempt.split,
            tokens=attempt.tokens,
            total=score.total,
            cost=trace.cost,
            at=trace.started_at,
            calls=digest((call.prompt, call.reply) for call in trace.calls),
            rewards=[(reward.name, reward.value, reward.evidence, reward.weight) for reward in score.rewards],
        )
    for candidate in store.candidates():
        yield line("candidate", id=candidate.id, kind=candidate.kind, parents=candidate.parents, body=digest([candidate.body]))
    for evaluation in store.evaluations():
        yield line("evaluation", **asdict(evaluation))
    for release in store.releases():
        yield line("release", **asdict(release), stage=release.stage)


def looks(file: Path) -> Iterator[str]:
    with closing(sqlite3.connect(file)) as database:
        rows = database.execute("select held_out_id, number, candidate_id, evaluation_id, at from looks order by seq")
        names = [column for column, *_ in rows.description]
        yield from (line("look", **dict(zip(names, row, strict=True))) for row in rows)


def released(file: Path) -> Iterator[str]:
    """Everything that a store of rollouts answers, and what else is kept beside traces."""
    with open_rollouts(file) as store:
        for rollout in store.rollouts():
            yield line("rollout", **rollout.told())
            units = [f"unit-{number}" for number in range(4)]
            for unit, session in sorted(store.served_sessions(rollout.id, units).items()):
                yield line("session", unit=unit, told=repr(session))
            yield line("assignments", told=[repr(each) for each in store.assignments(rollout.id)])
            yield line("mirrored", told=[repr(each) for each in store.mirrored_pairs(rollout.id)])
        for said in store.feedback_of([(TargetKind.REQUEST, "call-1"), (TargetKind.SESSION, "session-2")]):
            yield line("feedback", **asdict(said))
        for record in store.audit():
            yield line("audit", told=repr(record))
        assert store.verify() is None, "the chain of the audit is broken"
    with open_documents(file) as documents:
        for document in documents.documents():
            yield line("document", **asdict(document))
    with open_alerts(file) as alerts:
        for alert in alerts.history():
            yield line("alert", **alert.as_json())


def rounded(value: Any) -> Any:
    """Without the last digits of numbers, in which processors differ."""
    if isinstance(value, dict):
        return {name: rounded(each) for name, each in value.items()}
    if isinstance(value, list | tuple):
        return [rounded(each) for each in value]
    return float(f"{value:.12g}") if isinstance(value, float) else value


def watched(store: TraceStore) -> Iterator[str]:
    """Everything that a store of traces answers."""
    for trace in store.traces():
        if trace.source != "run":  # an attempt of a run is told above
            yield line("trace", **asdict(trace))
        yield line("line", **asdict(found)) if (found := store.line(trace.id)) else f"{trace.id} has no line"
        for given in store.rewards(trace.id):
            yield line("reward", trace=trace.id, **asdict(given))
        for row in store.spans([trace.id]).get(trace.id, ()):
            yield line("span", **{name: value for name, value in row._asdict().items() if name != "packed"})
    for label in store.labels():
        yield line("label", **asdict(label))
    yield line("found", words=[found.id for found in store.page(Query(text="plums pears"), limit=200).lines])
    yield line("statistics", **rounded(asdict(store.statistics())))
    yield line("sessions", sessions=[asdict(session) for session in store.sessions()[0]])
    yield line("pending", ids=store.pending())


@pytest.mark.parametrize("name", BEFORE)
def test_a_store_of_a_version_before_opens_and_has_lost_nothing(
    golden: Callable[[str, str], None], tmp_path: Path, name: str
) -> None:
    file = tmp_path / "journeyman.db"
    file.write_bytes(gzip.decompress((KEPT / name).read_bytes()))
    with open_store(file) as store:
        lines = [*kept(store), *looks(file)]
    with open_traces(file) as traces:
        lines += watched(traces)
    lines += released(file)
    golden(name.replace(".db.gz", ".jsonl"), "\n".join(lines) + "\n")
