"""What is read of a trace store is what a plain filter in Python would let through, whatever is asked for."""

import random
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from journeyman.core.errors import InputError, StoreError
from journeyman.core.reward import Reward
from journeyman.core.trace import AgentCall, ModelCall, ToolCall, Trace, total
from journeyman.stores.traces import fulltext
from journeyman.stores.traces.base import AGENTS, AUTO, RECORDER, Query, SpanRow, TraceSession, TraceStore
from tests.support.examples import examples
from tests.support.trace_stores import KINDS, opened

NOON = datetime(2026, 3, 5, 12, tzinfo=UTC)
SAID = ("alpha beta", "beta alpha", "Crème brûlée, 3.50 €", "x_get_user(1)", "漢字", "", "long " * 300 + "needle in")
ASKED = (
    "alpha",
    '"alpha beta"',
    "creme",
    "bru",
    "get_user",
    "needle",
    '"long long" needle',
    "3",
    "漢",
    "nowhere",
    "!!!",
    'a "',
)


@dataclass(frozen=True)
class Known:
    """A trace that was kept, and what was said of it since."""

    trace: Trace
    seq: int
    label: bool | None = None
    by: str | None = None
    duplicate: bool = False

    @property
    def texts(self) -> Iterator[str]:
        yield from (self.trace.id, self.trace.task_id, self.trace.session or "", self.trace.agent or "", self.trace.error or "")
        for step in self.trace.steps:
            names = ("model", "prompt", "reply", "tool", "arguments", "result", "agent", "input", "output", "error")
            yield from (found for name in names if isinstance(found := getattr(step, name, None), str))

    @property
    def failed(self) -> bool:
        steps = (getattr(step, "error", None) is not None or not getattr(step, "ok", True) for step in self.trace.steps)
        return self.trace.error is not None or any(steps)

    @property
    def ended_in_error(self) -> bool:
        """Its own error, or that of a call, which a list shows for it."""
        return self.trace.error is not None or any(getattr(step, "error", None) is not None for step in self.trace.steps)

    @property
    def reward(self) -> float | None:
        values = [reward.value for reward in self.trace.rewards]
        return sum(values) / len(values) if values and None not in values else None  # type: ignore[arg-type]

    def holds(self, query: Query) -> bool:
        trace = self.trace
        same = ("agent", "session", "task_id", "domain")
        person = self.label is not None and self.by != AUTO
        low, high = query.min_reward, query.max_reward
        return not self.duplicate and all(
            (
                all(getattr(query, name) in (None, getattr(trace, name)) for name in same),
                query.source in (None, trace.source) or (query.source == AGENTS and trace.source != "run"),
                query.model in (None, *(call.model for call in trace.calls)),
                query.tool in (None, *(call.tool for call in trace.tool_calls)),
                query.candidate_id in (None, *trace.candidate_ids),
                query.label in (None, self.label),
                query.labelled in (None, person),
                low is None or (self.reward is not None and self.reward >= low),
                high is None or (self.reward is not None and self.reward <= high),
                query.failed in (None, self.failed),
                query.ended_in_error in (None, self.ended_in_error),
                query.scored in (None, self.reward is not None),
                query.since is None or trace.started_at >= query.since,
                query.until is None or trace.started_at < query.until,
                self._says(query.text),
            )
        )

    def _says(self, text: str | None) -> bool:
        if text is None or not text.strip():
            return True
        wanted = fulltext.phrases(text)
        return bool(wanted) and all(any(fulltext.matches(said, [each]) for said in self.texts) for each in wanted)


def some_trace(number: int, chance: random.Random) -> Trace:
    calls = tuple(
        ModelCall(
            model=chance.choice(("small", "large")),
            prompt="zeta",
            reply=chance.choice(SAID),
            input_tokens=chance.choice((None, 10)),
            output_tokens=5,
            cost=chance.choice((None, 0.25)),
            seconds=chance.choice((None, 1.5)),
            id=f"c{at}",
            response_id=f"r{number}.{at}",
        )
        for at in range(chance.randrange(3))
    )
    tool = ToolCall(
        tool=chance.choice(("find", "book")), arguments="{}", result="done", ok=chance.random() < 0.7, seconds=chance.random()
    )
    agent = AgentCall(agent="helper", error=chance.choice((None, None, "Oops: no")))
    value = chance.choice((None, 0.0, 0.5, 1.0))
    return Trace(
        id=f"{chance.choice('ab')}{number:03}",
        task_id=chance.choice(("t1", "t2")),
        candidate_id=chance.choice(("base", "book")),
        other_candidates=chance.choice(((), ("policy",))),
        started_at=NOON + timedelta(hours=chance.randrange(-30, 30)),
        ended_at=chance.choice((None, NOON + timedelta(hours=40))),
        steps=(*calls, *(tool,) * chance.randrange(2), *(agent,) * chance.randrange(2)),
        error=chance.choice((None, None, "Broken: pipe")),
        domain=chance.choice(("oslo", "rome")),
        session=chance.choice((None, "s1", "s2", "s.3")),
        agent=chance.choice((None, "desk", "o'brien")),
        label=chance.choice((None, None, True)),
        rewards=chance.choice(((), (Reward(name="tests", value=value),))),
        source=("run", chance.choice(("otlp", "hook")))[number % 5 > 0],
    )


def filled(store: TraceStore, count: int = 50) -> list[Known]:
    """Traces with labels; some were reported twice. In the order of their `seq`."""
    chance = random.Random(7)
    traces = [some_trace(number, chance) for number in range(count)]
    known = [Known(trace, at, trace.label, RECORDER if trace.label is not None else None) for at, trace in enumerate(traces)]
    twice = [each.trace for each in known if each.trace.calls][:5]
    copies = [replace(trace, id=f"copy{at}", steps=trace.calls, agent="shadow", label=None) for at, trace in enumerate(twice)]
    # Of two that tell the same with as many steps, the later is the duplicate.
    known += [Known(trace, count + at, duplicate=True) for at, trace in enumerate(copies)]
    store.add(traces)
    store.add(copies)
    for at, each in enumerate(known[:count:4]):
        who, good = (AUTO, "ada")[at % 2], at % 3 > 0
        store.label(each.trace.id, good, who=who, at=NOON)
        if who == "ada" or each.label is None:
            known[each.seq] = replace(each, label=good, by=who)
    return known


class World:
    """A store, and what it should know."""

    def __init__(self, store: TraceStore) -> None:
        self.store = store
        self.known = filled(store)


@pytest.fixture(scope="module", params=KINDS)
def world(request: pytest.FixtureRequest) -> Iterator[World]:
    with tempfile.TemporaryDirectory() as folder, opened(request.param, Path(folder)) as store:
        yield World(store)


def maybe(*values: object) -> st.SearchStrategy[object]:
    return st.one_of(st.none(), st.none(), st.none(), st.sampled_from(values))


times = st.one_of(st.none(), st.none(), st.integers(-31, 31).map(lambda hours: NOON + timedelta(hours=hours)))
queries = st.builds(
    Query,
    agent=maybe("desk", "o'brien", "shadow"),
    model=maybe("small", "large", "other"),
    tool=maybe("find", "book"),
    task_id=maybe("t1"),
    session=maybe("s1", "s.3"),
    domain=maybe("oslo"),
    source=maybe("otlp", AGENTS),
    candidate_id=maybe("base", "policy"),
    label=maybe(True, False),
    labelled=maybe(True, False),
    min_reward=maybe(0.0, 0.5),
    max_reward=maybe(0.5, 1.0),
    failed=maybe(True, False),
    ended_in_error=maybe(True, False),
    scored=maybe(True, False),
    text=maybe(*ASKED),
    since=times,
    until=times,
)


def ids(known: list[Known], query: Query) -> list[str]:
    """Newest first; of those that began together, the one that was added later."""
    ordered = sorted(known, key=lambda each: (each.trace.started_at, each.seq), reverse=True)
    return [each.trace.id for each in ordered if each.holds(query)]


def through(store: TraceStore, query: Query, limit: int) -> list[str]:
    found: list[str] = []
    after: str | None = None
    for _ in range(200):
        page = store.page(query, limit=limit, after=after)
        assert len(page.lines) == limit or page.next is None
        found += [line.id for line in page.lines]
        if (after := page.next) is None:
            return found
    raise AssertionError("the pages do not end")


# In memory it is the same SQLite.
BOTH = pytest.mark.parametrize("world", KINDS[1:], indirect=True)


@BOTH
@examples(0.5)
@given(query=queries, limit=st.integers(4, 40))
def test_pages_put_together_are_all_that_a_plain_filter_lets_through(world: World, query: Query, limit: int) -> None:
    store, known = world.store, world.known
    wanted = ids(known, query)
    assert through(store, query, limit) == wanted
    assert store.count(query) == len(wanted)
    assert store.count(query, most=3) == min(3, len(wanted))
    assert [trace.id for trace in store.traces(query)] == wanted[::-1]
    assert store.statistics(query).all.traces == len(wanted)
    open_ones = ids(known, replace(query, labelled=False)) if query.labelled is None else None
    if open_ones is not None:
        assert [line.id for line in store.unlabelled(4, query)] == open_ones[:4]


@pytest.mark.parametrize("query", [Query(), Query(agent="desk"), Query(text="alpha"), Query(agent="nobody")])
def test_neighbours_are_what_stands_beside_in_the_list(world: World, query: Query) -> None:
    store, known = world.store, world.known
    listed = ids(known, query)
    for at, id in enumerate(listed):
        newer = listed[at - 1] if at else None
        assert store.neighbours(id, query) == (newer, listed[at + 1] if at + 1 < len(listed) else None)
    assert store.neighbours("unheard-of", query) == (None, None)


@BOTH
@given(text=st.one_of(st.text(max_size=40), st.text("ab\"*^(){}:+-~!&|<>\\'. ANDORNT\0\ud800é漢", max_size=30)))
def test_no_text_is_a_wrong_search(world: World, text: str) -> None:
    store, known = world.store, world.known
    query = Query(text=text)
    assert through(store, query, 50) == ids(known, query)
    assert store.count(query) == len(ids(known, query))


def test_a_common_word_and_a_rare_one_are_found_alike(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    store, known = world.store, world.known
    monkeypatch.setattr("journeyman.stores.traces.query._COMMON", 1)
    for text in ASKED:
        assert through(store, Query(text=text), 7) == ids(known, Query(text=text))


@BOTH
@pytest.mark.parametrize("scattered", [0, 2, 1000])
def test_what_is_found_does_not_hang_on_how_far_is_looked_first(
    world: World, monkeypatch: pytest.MonkeyPatch, scattered: int
) -> None:
    store, known = world.store, world.known
    monkeypatch.setattr("journeyman.stores.traces.query._FEWEST", 1)
    monkeypatch.setattr("journeyman.stores.traces.query._MORE", 3)
    monkeypatch.setattr("journeyman.stores.traces.query._SCATTERED", scattered)
    monkeypatch.setattr("journeyman.stores.traces.query._FEW", 1)
    for text in ASKED:
        for query in (Query(text=text), Query(text=text, agent="desk"), Query(text=text, failed=True, tool="find")):
            wanted = ids(known, query)
            assert through(store, query, 4) == wanted
            assert [store.count(query, most=most) for most in (1, 3, 100)] == [min(len(wanted), most) for most in (1, 3, 100)]


def test_a_blank_ends_a_word_and_two_letters_are_one(world: World) -> None:
    count = world.store.count
    assert count(Query(text="alp")) == count(Query(text="alpha")) > 0
    assert count(Query(text="alp ")) == count(Query(text="al")) == 0
    assert count(Query(text="alpha ")) == count(Query(text="alpha"))


def test_ids_are_found_by_how_they_begin(world: World) -> None:
    store, known = world.store, world.known
    every = sorted(each.trace.id for each in known)
    assert store.starting("", limit=1000) == every
    assert store.starting("a0", limit=3) == [id for id in every if id.startswith("a0")][:3]
    assert store.starting("%") == store.starting("a_") == []


@pytest.mark.parametrize("after", ["", "x", "1", "1.x", f"{10**30}.1"])
def test_a_mark_that_no_page_gave_is_refused(world: World, after: str) -> None:
    with pytest.raises(InputError, match="page"):
        world.store.page(Query(), after=after)


def test_a_time_without_a_zone_is_refused(world: World) -> None:
    with pytest.raises(StoreError, match="zone"):
        world.store.page(Query(since=datetime(2026, 1, 1)))


def test_sessions_come_with_the_latest_first_and_add_up(world: World) -> None:
    store, known = world.store, world.known
    found: list[TraceSession] = []
    after: str | None = None
    for _ in range(10):
        some, after = store.sessions(limit=1, after=after)
        found += some
        if after is None:
            break
    assert [each.id for each in found] == [each.id for each in store.sessions()[0]]
    assert [each.last_at for each in found] == sorted((each.last_at for each in found), reverse=True)
    for session in found:
        members = [each.trace for each in known if each.trace.session == session.id and not each.duplicate]
        assert session.traces == len(members)
        assert (session.started_at, session.last_at) == (
            min(trace.started_at for trace in members),
            max(trace.started_at for trace in members),
        )
        assert set(session.agents) == {trace.agent for trace in members if trace.agent}
        assert session.output_tokens == total(trace.output_tokens for trace in members)
    assert {each.id: each.output_tokens is None for each in found} == {"s1": True, "s2": False, "s.3": True}


def test_an_empty_store_has_nothing_to_say(tmp_path: Path) -> None:
    with opened("sqlite", tmp_path) as store:
        assert store.page(Query()).lines == ()
        assert store.sessions() == ([], None)
        found = store.statistics()
        assert (found.all.traces, found.all.mean_reward, found.all.median_seconds, found.by_agent, found.tools) == (
            0, None, None, (), (),
        )  # fmt: skip
        assert store.prune(before=NOON, keep_labelled=False).traces == 0


@pytest.fixture(params=KINDS)
def store(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[TraceStore]:
    with opened(request.param, tmp_path) as found:
        yield found


def test_forgetting_takes_spans_words_and_contents_along_and_leaves_the_rest(store: TraceStore) -> None:
    shared, own = "shared " * 400, "own " * 400
    old = Trace(
        id="old",
        task_id="t",
        candidate_id="base",
        started_at=NOON - timedelta(days=40),
        steps=(ModelCall(model="m", prompt="p", reply=shared), ModelCall(model="m", prompt="small", reply=own)),
    )
    young = replace(old, id="young", started_at=NOON, steps=old.steps[:1])
    store.add([old, young, replace(old, id="spared", steps=old.steps[:1], task_id="u")])
    store.label("spared", True, who="ada", at=NOON)
    store.add_spans([SpanRow(trace_id=id, span_id="1", at=NOON - timedelta(days=40), body=b"{}") for id in ("old", "lost")])
    before = NOON - timedelta(days=30)
    would = store.prune(before=before, keep_labelled=True, dry_run=True)
    assert store.count(Query()) == 3
    went = store.prune(before=before, keep_labelled=True)
    assert went == would
    assert (went.traces, went.spans) == (1, 2)
    assert went.bytes > 0
    assert [trace.id for trace in store.traces()] == ["spared", "young"]
    assert store.get("young") == young
    assert store.count(Query(text="own")) == store.count(Query(text="small")) == 0
    assert store.count(Query(text="shared")) == 2
    assert store.spans(["old", "lost"]) in ({}, {"old": [], "lost": []}, {"old": (), "lost": ()})
    assert store.prune(before=NOON + timedelta(days=1), keep_labelled=False).traces == 2
    store.add([old])
    assert store.count(Query(text="own small")) == 1


def test_forgetting_goes_by_batches_between_which_others_write_and_goes_on_where_it_was_broken_off(
    store: TraceStore,
) -> None:
    old = Trace(id="", task_id="t", candidate_id="base", started_at=NOON - timedelta(days=40), steps=())
    store.add([replace(old, id=f"old-{number}") for number in range(900)])
    heard = list[int]()

    def told(gone: int) -> None:
        heard.append(gone)
        if len(heard) == 2:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        store.prune(before=NOON, keep_labelled=False, told=told)
    left = store.count(Query())
    assert 0 < left == 900 - heard[1]
    store.add([replace(old, id="young", started_at=NOON)])
    assert store.prune(before=NOON, keep_labelled=False).traces == left
    assert [trace.id for trace in store.traces()] == ["young"]


def test_what_a_pruned_trace_told_twice_is_listed_again(store: TraceStore) -> None:
    calls = (ModelCall(model="m", prompt="p", reply="r", response_id="r1"),)
    tool = ToolCall(tool="find", arguments="{}", result="")
    whole = Trace(id="whole", task_id="t", candidate_id="base", started_at=NOON - timedelta(days=2), steps=(*calls, tool))
    store.add([whole, replace(whole, id="twice", steps=calls, started_at=NOON)])
    assert [line.id for line in store.page(Query()).lines] == ["whole"]
    store.prune(before=NOON - timedelta(days=1), keep_labelled=False)
    assert [line.id for line in store.page(Query()).lines] == ["twice"]
