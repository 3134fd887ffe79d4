"""Statistics are what a plain loop over the traces adds up, also where they come from digests."""

import tempfile
from collections.abc import Callable, Iterator
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path

import numpy as np
import pytest
import sqlalchemy as sa
from hypothesis import given

from journeyman.core.reward import Reward
from journeyman.core.trace import ModelCall, ToolCall, Trace
from journeyman.stores.traces import digests, statistics
from journeyman.stores.traces.base import AUTO, MOST_STEPS, Query, StatisticsGroup, TraceStore
from journeyman.stores.traces.tables import DIGEST_BLOCK
from tests.stores.traces.test_reading import NOON, World, queries
from tests.support.examples import examples
from tests.support.trace_stores import KINDS, opened


@pytest.fixture(scope="module", params=KINDS)
def world(request: pytest.FixtureRequest) -> Iterator[World]:
    with tempfile.TemporaryDirectory() as folder, opened(request.param, Path(folder)) as store:
        yield World(store)


def same(
    found: StatisticsGroup, traces: list[Trace], labels: list[bool | None], calls: list[ModelCall], times: list[float]
) -> None:
    rewards = [reward.value for trace in traces for reward in trace.rewards if reward.value is not None]
    tools = [call for trace in traces for call in trace.tool_calls]
    assert found.traces == len(traces)
    assert (found.good, found.bad) == (labels.count(True), labels.count(False))
    assert (found.tool_calls, found.failed_tool_calls) == (len(tools), sum(not call.ok for call in tools))
    assert found.mean_reward == (pytest.approx(np.mean(rewards)) if rewards else None)
    assert found.model_calls == len(calls)
    uncounted = bool(calls) and all(call.input_tokens is None for call in calls)
    assert found.output_tokens == (None if uncounted else 5 * len(calls))
    assert found.input_tokens == (None if uncounted else sum(call.input_tokens or 0 for call in calls))
    assert (found.uncounted, found.unpriced) == (
        sum(call.input_tokens is None for call in calls),
        sum(call.cost is None for call in calls),
    )
    unpriced = bool(calls) and all(call.cost is None for call in calls)
    assert found.cost == (None if unpriced else pytest.approx(sum(call.cost or 0 for call in calls)))
    exact = np.quantile(times, (0.5, 0.95, 0.99)) if times else (None, None, None)
    assert [found.median_seconds, found.p95_seconds, found.p99_seconds] == [pytest.approx(each) for each in exact]


@examples(0.5)
@given(query=queries)
def test_every_number_is_that_of_a_plain_loop(world: World, query: Query) -> None:
    meant = [each for each in world.known if each.holds(query)]
    found = world.store.statistics(query)

    def check(group: StatisticsGroup, which: Callable[[Trace], bool], model: str | None = None) -> None:
        some = [each for each in meant if which(each.trace)]
        traces = [each.trace for each in some]
        by_trace = [[call for call in trace.calls if model in (None, call.model)] for trace in traces]
        timed = [[call.seconds for call in calls if call.seconds is not None] for calls in by_trace]
        times = [sum(each) for each in timed if each] if model else [t.seconds for t in traces if t.seconds is not None]
        same(group, traces, [each.label for each in some], [call for calls in by_trace for call in calls], times)

    check(found.all, lambda trace: True)
    for group in found.by_agent:
        check(group, lambda trace, name=group.name: (trace.agent or "") == name)  # type: ignore[misc]
    for group in found.by_day:
        check(group, lambda trace, name=group.name: f"{trace.started_at:%Y-%m-%d}" == name)  # type: ignore[misc]
    if found.every != timedelta(days=1):
        assert sum(group.traces for group in found.by_time) == len(meant)
        assert len(found.by_time) <= MOST_STEPS
    for group in found.by_time:
        begin = datetime.fromisoformat(group.name).replace(tzinfo=UTC)
        check(group, lambda trace, begin=begin: begin <= trace.started_at < begin + found.every)  # type: ignore[misc]
    for group in found.by_model:
        check(group, lambda trace, name=group.name: name in {call.model for call in trace.calls}, group.name)  # type: ignore[misc]
    for group in found.by_candidate:
        check(group, lambda trace, name=group.name: name in trace.candidate_ids)  # type: ignore[misc]
    traces = [each.trace for each in meant]
    assert {group.name for group in found.by_agent} == {trace.agent or "" for trace in traces}
    assert [group.name for group in found.by_day] == sorted({f"{trace.started_at:%Y-%m-%d}" for trace in traces})
    assert {group.name for group in found.by_model} == {call.model for trace in traces for call in trace.calls}
    uses = {use.tool: use for use in found.tools}
    for name in {call.tool for trace in traces for call in trace.tool_calls} | set(uses):
        calls = [call for trace in traces for call in trace.tool_calls if call.tool == name]
        assert (uses[name].calls, uses[name].failures) == (len(calls), sum(not call.ok for call in calls))
        assert uses[name].mean_seconds == pytest.approx(np.mean([call.seconds for call in calls]))


def small(number: int) -> Trace:
    call = ModelCall(model="small", prompt="", reply="", input_tokens=3, output_tokens=1, cost=0.5, response_id=f"r{number}")
    return Trace(
        id=f"t{number}",
        task_id="t",
        candidate_id="base",
        started_at=NOON + timedelta(minutes=number),
        ended_at=NOON + timedelta(minutes=number, seconds=number % 7),
        steps=(call,),
        agent=f"agent-{number % 3}",
    )


ADDED = (1 << DIGEST_BLOCK) + 8


def again(store: TraceStore) -> None:
    first = small(1)
    tool = ToolCall(tool="find", arguments="", result="", seconds=1.0)
    store.add([replace(first, steps=(replace(first.calls[0], model="large"), tool), agent="other")])


def twice(store: TraceStore) -> None:
    whole = small(2)
    store.add([replace(whole, id="whole", steps=(*whole.steps, ToolCall(tool="find", arguments="", result="")))])


CHANGES: dict[str, Callable[[TraceStore], object]] = {
    "another trace": lambda store: store.add([small(ADDED)]),
    "the same trace with other calls": again,
    "a trace that tells what another tells": twice,
    "a person's label": lambda store: store.label("t3", True, who="ada", at=NOON),
    "a label taken back": lambda store: store.label("t3", None, who="ada", at=NOON),
    "an auto-labeler's label": lambda store: store.label("t4", False, who=AUTO, at=NOON),
    "a reward": lambda store: store.reward("t5", [Reward(name="tests", value=0.5)], by="x", at=NOON),
    "old ones forgotten": lambda store: store.prune(before=NOON + timedelta(minutes=7), keep_labelled=False),
}


@pytest.mark.service
@pytest.mark.parametrize("kind", KINDS)
def test_no_change_is_overlooked(kind: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with opened(kind, tmp_path) as store:
        store.add(small(number) for number in range(ADDED))
        assert store.statistics().all.traces == ADDED
        for name, change in CHANGES.items():
            before = store.statistics()
            change(store)
            after = store.statistics()
            with monkeypatch.context() as patched:
                # Digests of another format are as good as none: all is read from the tables.
                patched.setattr(digests, "_FORMAT", -1)
                patched.setattr(statistics, "make", lambda database: None)
                assert store.statistics() == after, name
            assert after != before, name
            # Nothing is filtered: the digests that are known tell how many there are.
            assert store.count(Query(), most=1_000_000) == after.all.traces, name


def test_full_blocks_are_read_from_digests_and_not_from_the_tables(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with opened("sqlite", tmp_path) as store:
        store.add(small(number) for number in range(ADDED))
        counted = store.statistics()
        looked_up: list[int] = []
        plain = digests.body_of

        def noted(connection: sa.Connection, block: int) -> bytes:
            looked_up.append(block)
            return plain(connection, block)

        monkeypatch.setattr(statistics, "body_of", noted)
        assert store.statistics() == counted
        assert looked_up == [1]


def test_a_block_has_its_digest_as_soon_as_it_is_full(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with opened("sqlite", tmp_path) as store:
        for first in range(0, 3 * ADDED, 400):
            store.add(small(number) for number in range(first, min(first + 400, 3 * ADDED)))
        monkeypatch.setattr(digests, "_make", lambda database, block: pytest.fail(f"block {block} had no digest"))
        assert store.statistics().all.traces == 3 * ADDED


def test_a_digest_is_read_once_until_one_of_its_traces_changes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with opened("sqlite", tmp_path) as store, opened("sqlite", tmp_path) as another:
        store.add(small(number) for number in range(2 * ADDED))
        read: list[bytes] = []
        plain = statistics._unpacked

        def noted(body: bytes) -> statistics.Columns:
            read.append(body)
            return plain(body)

        monkeypatch.setattr(statistics, "_unpacked", noted)
        counted = store.statistics()
        full = len(read)
        assert full > 1
        assert store.statistics() == counted
        assert store.statistics(Query(label=True)).all.traces == counted.all.good
        assert len(read) == full
        # Another process may write; what one process knows is no other's.
        another.label(small(3).id, True, who="ana", at=NOON)
        assert store.statistics().all.good == counted.all.good + 1
        # That block, and the newest, which has no digest.
        assert len(read) == full + 2


@pytest.mark.parametrize("reach", [40, 1 << 40])
def test_rows_and_steps_are_found_alike_where_numbers_are_dense_and_where_they_are_far_apart(reach: int) -> None:
    chance = np.random.default_rng(reach)
    numbers = np.unique(chance.integers(1, reach, 30))
    wanted = numbers[chance.integers(0, len(numbers), 100)]
    assert (numbers[statistics._rows_of(numbers, wanted)] == wanted).all()
    steps, step = statistics._steps_of(wanted, 3)
    assert (steps == np.unique(wanted // 3)).all()
    assert (steps[step] == wanted // 3).all()
    nothing = np.zeros(0, np.int64)
    assert len(statistics._rows_of(nothing, nothing)) == len(statistics._steps_of(nothing, 3)[0]) == 0


@pytest.mark.parametrize(
    ("hours", "every"),
    [(1, timedelta(minutes=5)), (30, timedelta(hours=1)), (70, timedelta(hours=3)), (24 * 38, timedelta(days=1)),
     (24 * 90, timedelta(weeks=1)), (24 * 1000, timedelta(weeks=4)), (24 * 4000, timedelta(weeks=4))],
)  # fmt: skip
def test_few_steps_of_time_hold_all_traces(tmp_path: Path, hours: int, every: timedelta) -> None:
    traces = [
        Trace(id=f"t{n}", task_id="k", candidate_id="base", started_at=NOON - timedelta(hours=hours * n / 50))
        for n in range(51)
    ]
    with opened("memory", tmp_path) as store:
        store.add([*traces, Trace(id="untimed", task_id="k", candidate_id="base", started_at=datetime.fromtimestamp(0, UTC))])
        found = store.statistics()
    assert found.every == every
    begins = {group.name: datetime.fromisoformat(group.name).replace(tzinfo=UTC) for group in found.by_time}
    for group in found.by_time:
        begin = begins[group.name]
        if group.name != "1970-01-01":
            assert group.traces == sum(begin <= trace.started_at < begin + every for trace in traces)
            assert every < timedelta(weeks=1) or begin.weekday() == 0
    assert sum(group.traces for group in found.by_time if group.name != "1970-01-01") == len(traces)
