"""A labeler proposes only where it is sure, says that it was the one, and asks for what it would learn most from."""

import random
from collections.abc import Iterator
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from journeyman.core.trace import ModelCall, ToolCall, Trace
from journeyman.rewards import auto_labeler as autolabel
from journeyman.rewards.auto_labeler import AutoLabeler
from journeyman.rewards.calibration import Guarantee
from journeyman.stores.traces import open_traces
from journeyman.stores.traces.base import AUTO, Query, TraceStore
from journeyman.stores.traces.labels import proposed, said, to_audit

pytestmark = pytest.mark.training
NOW = datetime(2026, 1, 1, tzinfo=UTC)


def run(number: int, *, errors: int) -> Trace:
    """An attempt whose tools failed so often."""
    chance = random.Random(number)
    tools = tuple(
        ToolCall(
            tool="search", arguments=f'{{"q": {place}}}', result="Error: no" if place < errors else "fine", ok=place >= errors
        )
        for place in range(6)
    )
    call = ModelCall(model="m", prompt="user: do it", reply="done " * chance.randint(1, 40), seconds=chance.random())
    return Trace(
        id=f"t{number:04}",
        task_id=f"task{number}",
        candidate_id="base",
        started_at=NOW + timedelta(seconds=number),
        steps=(*tools, call),
    )


def good(trace: Trace) -> bool:
    """What a person would say."""
    return sum(not call.ok for call in trace.tool_calls) < 3


RUNS = [run(number, errors=random.Random(number * 7).choice([0, 1, 5, 6])) for number in range(160)]


@pytest.fixture
def store(tmp_path: Path) -> Iterator[TraceStore]:
    with open_traces(tmp_path / "store.db") as opened:
        opened.add(RUNS)
        yield opened


def label(store: TraceStore, traces: list[Trace], who: str = "ann") -> None:
    for trace in traces:
        store.label(trace.id, good(trace), who=who, at=NOW)


def test_it_is_silent_until_people_have_labelled_enough_and_says_how_many_it_needs(store: TraceStore) -> None:
    label(store, RUNS[:8])
    labeler = autolabel.teach(store)
    assert labeler.silence is not None
    assert "it takes 5 of each, and 22 at least that it is right about" in labeler.silence
    assert list(autolabel.propose(labeler, RUNS)) == []
    label(store, RUNS[:21])
    labeler = autolabel.teach(store)
    assert labeler.selection is None
    assert labeler.needed is not None
    assert labeler.needed >= 22
    assert f"it needs about {labeler.needed} labels" in str(labeler.silence)
    assert autolabel.apply(store, labeler, at=NOW).good == 0


def test_labels_that_chance_gave_never_let_it_speak(store: TraceStore) -> None:
    chance = random.Random(3)
    for trace in RUNS[:60]:
        store.label(trace.id, chance.random() < 0.5, who="ann", at=NOW)
    labeler = autolabel.teach(store)
    assert "more labels alone are not likely to" in str(labeler.silence)


def test_what_it_labels_is_right_is_marked_as_its_own_and_never_a_persons(store: TraceStore) -> None:
    label(store, RUNS[:50])
    labeler = autolabel.teach(store)
    assert labeler.silence is None
    assert labeler.upper is not None
    assert labeler.upper <= 0.1
    applied = autolabel.apply(store, labeler, at=NOW)
    assert applied.good + applied.bad >= 55
    lines = {line.id: line for line in store.page(Query(), limit=1000).lines}
    for trace in RUNS[:50]:
        assert lines[trace.id].labelled_by == "ann"
    own = [trace for trace in RUNS[50:] if lines[trace.id].label is not None]
    assert {lines[trace.id].labelled_by for trace in own} == {AUTO}
    assert sum(lines[trace.id].label == good(trace) for trace in own) >= 0.95 * len(own)
    # Those that it labelled still wait for a person.
    assert {line.id for line in store.unlabelled(1000)} == {trace.id for trace in RUNS[50:]}


def test_it_learns_from_people_and_not_from_itself(store: TraceStore) -> None:
    label(store, RUNS[:50])
    first = autolabel.teach(store)
    autolabel.apply(store, first, at=NOW)
    second = autolabel.teach(store)
    assert (second.shown, second.least, second.audited) == (first.shown, first.least, first.audited)


def test_labelling_again_changes_nothing_and_a_dry_run_not_even_once(store: TraceStore) -> None:
    label(store, RUNS[:50])
    labeler = autolabel.teach(store)
    before = len(store.labels())
    would = autolabel.apply(store, labeler, at=NOW, dry_run=True)
    assert len(store.labels()) == before
    assert autolabel.apply(store, labeler, at=NOW) == would
    after = len(store.labels())
    assert autolabel.apply(store, labeler, at=NOW + timedelta(hours=1)) == would
    assert len(store.labels()) == after


def test_what_it_no_longer_stands_by_is_withdrawn_and_comes_back_by_undo(store: TraceStore) -> None:
    label(store, RUNS[:50])
    labeler = autolabel.teach(store)
    done = autolabel.apply(store, labeler, at=NOW)
    held = said(store.labels())[AUTO]
    silent = replace(labeler, guarantee=Guarantee(least=0.999))
    undone = autolabel.apply(store, silent, at=NOW + timedelta(hours=1))
    assert (undone.good, undone.bad, undone.withdrawn) == (0, 0, done.good + done.bad)
    assert {line.labelled_by for line in store.page(Query(labelled=False), limit=1000).lines} == {None}
    assert autolabel.undo(store, at=NOW + timedelta(hours=2)) == done.good + done.bad
    assert said(store.labels())[AUTO] == held
    autolabel.undo(store, at=NOW + timedelta(hours=3))
    assert AUTO not in said(store.labels()) or not said(store.labels())[AUTO]


def test_a_person_is_asked_about_a_share_of_its_labels_and_all_fall_with_the_audit(store: TraceStore) -> None:
    label(store, RUNS[:50])
    labeler = autolabel.teach(store)
    autolabel.apply(store, labeler, at=NOW)
    drawn = to_audit(store.labels(), 0.1)
    own = said(store.labels())[AUTO]
    assert len(drawn) == -(-len(own) // 10)
    later = NOW + timedelta(hours=1)
    for id in drawn[:-1]:
        store.label(id, own[id], who="ann", at=later)
    found = autolabel.audit(store.labels(), autolabel.teach(store), 0.1)
    assert (found.answered, found.wrong, found.failed, found.waiting) == (len(drawn) - 1, 0, False, (drawn[-1],))
    # Whoever takes the labels for wrong, takes them all down: people say the opposite from now on.
    for id in (*drawn, *[id for id in own if id not in drawn][:20]):
        store.label(id, not own[id], who="ann", at=later + timedelta(minutes=1))
    found = autolabel.audit(store.labels(), autolabel.teach(store), 0.1)
    assert found.wrong == found.answered == len(drawn)
    assert found.failed
    assert autolabel.withdraw(store, at=later + timedelta(hours=1)) == len(own)
    assert not said(store.labels())[AUTO]


def test_labels_that_it_was_asked_to_account_for_do_not_open_its_mouth(store: TraceStore) -> None:
    """They are of traces that it was sure of, so that they look easier than the rest."""
    label(store, RUNS[:50])
    first = autolabel.teach(store)
    autolabel.apply(store, first, at=NOW)
    own = said(store.labels())[AUTO]
    for id in list(own)[:30]:
        store.label(id, own[id], who="ann", at=NOW + timedelta(hours=1))
    second = autolabel.teach(store)
    assert set(proposed(store.labels())) == set(list(own)[:30])
    assert second.shown is not None
    assert second.shown.said <= 50
    assert second.labels == 80


def test_nothing_is_learned_from_held_out_tasks(store: TraceStore) -> None:
    store.add(replace(trace, raw={"split": "held_out"}) for trace in RUNS[:100])
    label(store, RUNS[:100])
    assert autolabel.teach(store).labels == 0


def test_traces_on_which_people_disagree_teach_nothing(store: TraceStore) -> None:
    label(store, RUNS[:2])
    store.label(RUNS[0].id, not good(RUNS[0]), who="bob", at=NOW)
    store.label(RUNS[1].id, not good(RUNS[1]), who="bob", at=NOW)
    store.label(RUNS[1].id, None, who="bob", at=NOW + timedelta(seconds=1))
    assert autolabel.unanimous(store.labels()) == {RUNS[1].id: good(RUNS[1])}


def test_it_asks_first_for_what_it_is_least_sure_of(store: TraceStore) -> None:
    label(store, RUNS[:100])
    between = [run(1000 + number, errors=3) for number in range(3)]
    store.add(between)
    labeler = autolabel.teach(store)
    asked = autolabel.ask(store, labeler, 3)
    doubt = [abs(labeler.probability(trace) - 0.5) for trace in (*asked, *RUNS[100:])]
    assert min(doubt[:3]) == min(doubt)
    assert {trace.id for trace in asked} & {trace.id for trace in between}


def test_before_it_can_tell_anything_it_asks_for_traces_that_differ(store: TraceStore) -> None:
    labeler = autolabel.teach(store)
    asked = autolabel.ask(store, labeler, 8)
    assert len({trace.id for trace in asked}) == 8
    assert {good(trace) for trace in asked} == {True, False}
    assert autolabel.most_telling(labeler, [], [], 5) == []
    twins = [RUNS[0]] * 5 + [RUNS[1]]
    assert RUNS[1] in autolabel.most_telling(AutoLabeler(Guarantee(), 0, 0), [], twins, 2)


def seat(number: int, booked: int, task: str, *, label: bool | None = None) -> Trace:
    """An attempt at a request that recurs."""
    book = ToolCall(tool="book", arguments=f'{{"seat": {booked}}}', result="booked")
    return replace(run(number, errors=0), id=f"s{number}", task_id=task, steps=(book,), label=label)


def test_a_person_is_asked_first_where_attempts_at_one_request_did_different_things() -> None:
    agreed = [seat(number, 1, "agreed") for number in range(3)]
    mixed = [seat(10, 1, "mixed"), seat(11, 1, "mixed"), seat(12, 2, "mixed")]
    scattered = [seat(20 + number, number, "scattered") for number in range(3)]
    asked = autolabel.contested([], [*agreed, *scattered, *mixed])
    assert [trace.id for trace in asked[:2]] == ["s10", "s12"]
    assert {trace.id for trace in asked[2:]} == {"s20", "s21", "s22"}


def test_where_a_right_attempt_is_known_the_one_that_did_something_else_is_asked_for_at_once() -> None:
    known = [seat(30, 5, "known", label=True)]
    same, other = seat(31, 5, "known"), seat(32, 6, "known")
    asked = autolabel.contested(known, [seat(10, 1, "mixed"), seat(11, 1, "mixed"), seat(12, 2, "mixed"), same, other])
    assert [trace.id for trace in asked] == ["s32", "s10", "s12"]


def test_what_makes_a_contrast_and_what_is_telling_are_asked_for_by_turns_and_nothing_twice(store: TraceStore) -> None:
    store.add([seat(10, 1, "mixed"), seat(11, 1, "mixed"), seat(12, 2, "mixed")])
    asked = autolabel.ask(store, autolabel.teach(store), 10)
    assert {trace.id for trace in asked[:3]} & {"s10", "s11"}
    assert "s12" in {trace.id for trace in asked[:3]}
    assert {trace.id for trace in asked[:2]} & {trace.id for trace in RUNS}
    assert len({trace.id for trace in asked}) == 10
