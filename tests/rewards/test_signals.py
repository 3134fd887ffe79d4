"""Signals of traces say only what labels confirm, and schemas forbid only what they say."""

import json
import os
import random
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from benchmarks import bench_signals
from journeyman.core.reward import Reward, Source
from journeyman.core.trace import Message, ModelCall, ToolCall, Trace
from journeyman.rewards import signals
from journeyman.rewards.signal_examination import MIN_LABELS, SignalReport, SignalVote, may_vote, measure, refusal, votes
from journeyman.rewards.signals import SIGNALS, declared_faults
from journeyman.stores.traces.base import Label
from journeyman.tracing.base import NO_TIME
from journeyman.tracing.evidence import CallEvidence, ToolDefinition, evidence_of
from journeyman.tracing.importers import Problem, read
from tests.rewards import test_bfcl as bfcl
from tests.support.examples import examples

SAMPLE = Path(__file__).parents[1] / "data" / "tau-bench" / "gpt-4o-airline-sample.jsonl"
DATA = os.environ.get("JOURNEYMAN_DATA", "")
needs_data = pytest.mark.skipif(not DATA, reason="set JOURNEYMAN_DATA to the folder of the data sets")


def attempt(
    id: str,
    *calls: ToolCall,
    task: str = "",
    good: bool | None = None,
    said: Sequence[str] = ("book it",),
    rewards: tuple[Reward, ...] = (),
    agent: str = "desk",
) -> Trace:
    """An attempt in which a user says something, and the agent answers and uses tools."""
    steps = [
        ModelCall(id=f"m{place}", model="m", prompt="", reply="Done.", messages=(Message(role="user", text=text),))
        for place, text in enumerate(said)
    ]
    return Trace(
        id=id,
        task_id=task or id,
        candidate_id="base",
        started_at=NO_TIME,
        steps=(*steps, *calls),
        label=good,
        labelled_by=None if good is None else "ada",
        rewards=rewards,
        agent=agent,
    )


def used(tool: str, *, ok: bool = True, **arguments: Any) -> ToolCall:
    return ToolCall(tool=tool, arguments=json.dumps(arguments), result="fine" if ok else "Error: no", ok=ok)


def measured(traces: Sequence[Trace], **how: Any) -> SignalReport:
    return measure(map(evidence_of, traces), **how)


def with_errors(counts: Sequence[int], good: Sequence[bool | None]) -> list[Trace]:
    """Attempts at tasks of their own, with so many refused calls each."""
    return [
        attempt(f"t{place}", *(used("find", ok=False, n=number) for number in range(count)), good=right)
        for place, (count, right) in enumerate(zip(counts, good, strict=True))
    ]


# -- how well a signal tells


@given(st.lists(st.tuples(st.integers(0, 4), st.booleans()), min_size=2, max_size=30))
def test_the_auc_is_the_share_of_pairs_in_which_the_failure_has_the_higher_value(rows: list[tuple[int, bool]]) -> None:
    failed, right = [count for count, good in rows if not good], [count for count, good in rows if good]
    assume(failed and right and len({count for count, _ in rows}) > 1)
    found = measured(with_errors(*zip(*rows, strict=True))).finding("tool_errors")
    assert found is not None
    assert found.auc is not None
    pairs = [(high > low) + (high == low) / 2 for high in failed for low in right]
    assert found.auc.value == pytest.approx(sum(pairs) / len(pairs))
    assert 0 <= found.auc.low <= found.auc.high <= 1
    fired = [not good for count, good in rows if count]
    if fired:
        assert found.fail_if_fires is not None
        assert found.fail_if_fires.value == pytest.approx(sum(fired) / len(fired))
        assert found.fail_if_fires.low <= found.fail_if_fires.value <= found.fail_if_fires.high


@examples(0.3)
@given(st.integers(0, 10_000))
def test_of_labels_that_were_dealt_out_by_chance_a_signal_says_nothing(seed: int) -> None:
    chance = random.Random(seed)
    counts = [chance.randrange(4) for _ in range(200)]
    good = [chance.random() < 0.6 for _ in range(200)]
    found = measured(with_errors(counts, good), seed=seed).finding("tool_errors")
    assert found is not None
    assert found.auc is not None
    assert abs(found.auc.value - 0.5) < 0.2
    assert found.auc.low - 0.1 < 0.5 < found.auc.high + 0.1
    assert not found.votes


def test_the_interval_of_the_auc_holds_the_truth_about_as_often_as_it_says() -> None:
    inside = 0
    for seed in range(40):
        chance = random.Random(seed)
        good = [chance.random() < 0.5 for _ in range(120)]
        # A failure has an error in 6 of 10 cases and a success in 3 of 10: the AUC is .65.
        counts = [int(chance.random() < (0.3 if right else 0.6)) for right in good]
        found = measured(with_errors(counts, good), seed=seed).finding("tool_errors")
        assert found is not None
        assert found.auc is not None
        inside += found.auc.low <= 0.65 <= found.auc.high
    assert inside >= 34


def test_attempts_at_one_task_are_one_piece_of_evidence() -> None:
    tasks = [(n % 3 == 0, n % 2 == 0) for n in range(20)]
    alone = with_errors([count for count, _ in tasks], [good for _, good in tasks])
    copied = [replace(trace, id=f"{trace.id}.{copy}", task_id=f"task of {trace.id}") for trace in alone for copy in range(10)]
    one, ten = (measured(traces).finding("tool_errors") for traces in (alone, copied))
    assert one is not None and ten is not None and one.auc is not None and ten.auc is not None  # noqa: PT018
    assert ten.auc.value == one.auc.value
    assert ten.auc.high - ten.auc.low == pytest.approx(one.auc.high - one.auc.low, abs=0.03)


def test_what_is_everywhere_the_same_has_no_auc_and_no_vote() -> None:
    report = measured([attempt(f"t{n}", good=n % 2 == 0) for n in range(100)])
    assert {each.signal.name for each in report.findings if each.votes} == set()
    stopped = report.finding("stopped")
    assert stopped is not None
    assert (stopped.auc, stopped.votes, stopped.reason) == (None, False, "it fires in none of 100 attempts")


def test_without_labels_it_says_how_often_signals_fire_and_nothing_else() -> None:
    report = measured(with_errors([0, 1, 2, 0], [None] * 4))
    found = report.finding("tool_errors")
    assert found is not None
    assert (found.fires, found.known, found.auc, found.fail_if_fires) == (2, 4, None, None)
    assert report.silence == "of no attempt is known whether it was right"
    assert measured([]).silence == "there are no attempts"
    assert measured([attempt("a", good=True)]).silence == "all 1 attempt of which anything is known were right"
    json.dumps(report.json())


def test_nothing_is_learned_from_held_out_tasks_and_users_opinions_are_no_truth() -> None:
    held_out = replace(attempt("h", good=True), raw={"split": "held_out"})
    thumb = attempt("u", rewards=(Reward(name="thumbs", value=1.0),))
    report = measured([held_out, thumb, attempt("a", good=False)])
    assert (report.attempts, report.held_out, report.labelled, report.failed) == (2, 1, 1, 1)


# -- votes


def test_every_signal_is_said_once_and_only_those_that_kept_their_sign_have_a_vote() -> None:
    assert len({signal.name for signal in SIGNALS}) == len(SIGNALS)
    assert all(0 <= signal.weight <= 1 and signal.why for signal in SIGNALS)
    assert {signal.name for signal in SIGNALS if signal.weight} == {
        "truth", "person", "check_failed", "check_passed", "schema_faults", "repaired", "stopped", "differs_from_right",
    }  # fmt: skip


def voted(trace: Trace, *others: Trace) -> list[SignalVote]:
    return list(votes(evidence_of(trace), measured([trace, *others])))


def test_truth_told_later_decides_alone_and_people_who_disagree_say_nothing() -> None:
    said = (Reward(name="outcome", value=0.0, source=Source.TRUTH), Reward(name="answer", value=1.0))
    (only,) = voted(attempt("a", good=True, rewards=said))
    assert (only.good, only.source, only.weight) == (False, Source.TRUTH, 1.0)
    bob = Reward(name="bob", value=0.0, source=Source.PERSON)
    assert voted(attempt("b", good=True, rewards=(bob,))) == []
    assert [(vote.good, vote.signal) for vote in voted(attempt("c", good=True))] == [(True, "person")]
    checks = (Reward(name="answer", value=1.0), Reward(name="unit_tests", value=0.5))
    assert [(vote.good, vote.weight) for vote in voted(attempt("d", rewards=checks))] == [(True, 0.8), (False, 1.0)]


def test_a_call_that_was_repaired_with_another_argument_is_a_contrast_and_a_flake_is_none() -> None:
    repaired = attempt("a", used("book", ok=False, seat=1), used("book", seat=2))
    assert [(vote.good, vote.place, vote.granularity.value) for vote in voted(repaired)] == [
        (False, 1, "call"),
        (True, 2, "call"),
    ]
    assert voted(attempt("b", used("book", ok=False, seat=1), used("book", seat=1))) == []
    assert voted(attempt("c", used("book", ok=False, seat=1))) == []


def test_what_an_attempt_known_to_be_right_did_votes_on_others_at_the_same_request_and_never_on_itself() -> None:
    right = attempt("a", used("book", seat=1), used("get_seats"), task="q", good=True)
    same = attempt("b", used("list_planes"), used("book", seat=1), task="q")
    other = attempt("c", used("book", seat=2), task="q")
    elsewhere = attempt("d", used("book", seat=2), task="r")
    everyone = [right, same, other, elsewhere]
    told = {trace.id: [(v.good, v.weight, v.signal) for v in voted(trace, *everyone)] for trace in (same, other, elsewhere)}
    assert told == {"b": [(True, 0.8, "differs_from_right")], "c": [(False, 0.8, "differs_from_right")], "d": []}
    assert [vote.signal for vote in voted(right, same, other)] == ["person"]


def test_a_vote_that_an_examination_refutes_is_not_given() -> None:
    # On each task one is right, one did the same and is wrong, and one did something else and is right: the signal misleads.
    traces = [
        attempt(f"{task}.{kind}", used("book", seat=1 + (kind == "c")), task=f"q{task}", good=kind != "b")
        for task in range(30)
        for kind in "abc"
    ]
    asked = attempt("new", used("book", seat=7), task="q1")
    report = measured([*traces, asked])
    found = report.finding("differs_from_right")
    assert found is not None
    assert found.examined
    assert not found.votes
    assert "does not hold here" in found.reason
    assert list(votes(evidence_of(asked), report)) == []


def opinions(count: int, agrees: float, *, by: Source = Source.TRUTH, agent: str = "desk") -> list[Trace]:
    """Sessions that a judge agrees with the truth on so often."""
    chance = random.Random(count)
    found = []
    for place in range(count):
        right = place % 2 == 0
        said = right if chance.random() < agrees else not right
        rewards = (
            Reward(name="strict", value=float(said), source=Source.JUDGE),
            Reward(name="x", value=float(right), source=by),
        )
        found.append(attempt(f"{agent}{place}", rewards=rewards, agent=agent))
    return found


@pytest.mark.parametrize(
    ("traces", "why"),
    [
        (opinions(MIN_LABELS - 1, 1.0), "49 sessions with its opinion"),
        (opinions(200, 0.5), "does not exclude 0.5"),
        (opinions(60, 0.68), "not good enough to teach"),
        (opinions(200, 1.0, by=Source.CHECK), "0 sessions with its opinion"),
    ],
)
def test_a_judge_has_no_vote_before_it_earned_one(traces: list[Trace], why: str) -> None:
    report = measured(traces)
    (judge,) = report.judges
    assert not may_vote(judge)
    assert why in str(refusal(judge))
    asked = attempt("new", rewards=(Reward(name="strict", value=1.0, source=Source.JUDGE),))
    assert list(votes(evidence_of(asked), report)) == []


def test_a_judge_that_earned_its_vote_has_its_own_weight_and_only_on_that_agent() -> None:
    report = measured([*opinions(200, 0.9), *opinions(10, 0.9, agent="other")])
    asked = attempt("new", rewards=(Reward(name="strict", value=0.0, source=Source.JUDGE),))
    (vote,) = votes(evidence_of(asked), report)
    assert (vote.good, vote.source, vote.signal) == (False, Source.JUDGE, "strict")
    assert vote.weight == pytest.approx(0.9, abs=0.07)
    assert list(votes(evidence_of(replace(asked, agent="other")), report)) == []


def test_where_two_people_disagree_nobody_knows() -> None:
    def word(trace_id: str, good: bool, who: str) -> Label:
        return Label(trace_id=trace_id, good=good, who=who, at=NO_TIME)

    traces = [attempt(id, good=True) for id in "abc"]
    truth = replace(attempt("d"), label=True, labelled_by="ground-truth")
    labels = [word("a", True, "ada"), word("a", False, "bob"), word("b", True, "ada"), word("b", False, "end-user"),
              word("d", False, "ada"), word("d", True, "bob")]  # fmt: skip
    known = list(signals.without_disputed([*traces, truth], labels))
    assert [(trace.id, trace.label) for trace in known] == [("a", None), ("b", True), ("c", True), ("d", True)]


# -- what a tool changes, and what its schema forbids


@pytest.mark.parametrize(
    "tool", ["get_user", "list_all_airports", "flights.search", "mcp__desk__find_order", "calculate", "getOrder"]
)
def test_what_only_looks_changes_nothing(tool: str) -> None:
    assert not signals.changes(tool)


@pytest.mark.parametrize("tool", ["book_reservation", "order", "api/update-user", "mcp__desk__send_mail", "returnItems", "x"])
def test_what_is_not_known_to_look_only_is_taken_for_a_change(tool: str) -> None:
    assert signals.changes(tool)


def test_handing_over_to_a_person_is_no_change() -> None:
    assert not signals.changes("transfer_to_human_agents")
    assert signals.changes("transfer_money")


def called(arguments: object, parameters: object) -> list[str]:
    definition = ToolDefinition(name="t", parameters=parameters)  # type: ignore[arg-type]
    found = arguments if isinstance(arguments, dict) else None
    return declared_faults(
        CallEvidence(
            id="c", trace_id="t", place=0, principal="p", tool="t", arguments=found, ok=None, answer="", definition=definition
        )
    )


DESK = {
    "type": "object",
    "properties": {
        "sku": {"type": "string"},
        "amount": {"type": "integer"},
        "rush": {"type": "string", "enum": ["high", "low"]},
        "parts": {"type": "array", "items": {"type": "object", "properties": {"n": {"type": "number"}}, "required": ["n"]}},
    },
    "required": ["sku", "amount"],
}


@pytest.mark.parametrize(
    ("arguments", "faults"),
    [
        ({"sku": "a", "amount": 2}, []),
        ({"sku": "a", "amount": 2.0, "rush": "low", "parts": [{"n": 1, "more": 2}]}, []),
        ({"sku": "a", "amount": 2, "rush": None}, []),
        ({"sku": "a"}, ["amount: required, and missing"]),
        ({"sku": "a", "amount": None}, ["amount: expected integer, got null"]),
        ({"sku": "a", "amount": True}, ["amount: expected integer, got boolean"]),
        ({"sku": "a", "amount": 2, "rush": "no"}, ["rush: not one of the 2 values that are allowed"]),
        ({"sku": "a", "amount": 2, "city": "Oslo"}, ["city: not declared"]),
        ({"sku": "a", "amount": 2, "parts": [{"n": "1"}, {}]},
         ["parts[0].n: expected number, got string", "parts[1].n: required, and missing"]),
        ("no object", ["the arguments are no JSON object"]),
    ],
)  # fmt: skip
def test_a_fault_is_what_the_requests_own_schema_forbids(arguments: object, faults: list[str]) -> None:
    assert called(arguments, DESK) == faults


@pytest.mark.parametrize("kind", ["any", "tuple", "dict", "float", ["string", "null", "array", "object", "number"], None, 7])
def test_types_that_others_write_forbid_no_more_than_they_mean(kind: object) -> None:
    value = {"tuple": [1], "dict": {"a": 1}, "float": 1}.get(str(kind), "x")
    assert called({"x": value}, {"type": "dict", "properties": {"x": {"type": kind}}}) == []


ANYTHING = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(st.sampled_from(("type", "properties", "required", "enum", "items", "a", "b")), inner, max_size=4)
    ),
    max_leaves=12,
)


@given(ANYTHING, st.dictionaries(st.sampled_from(("a", "b")), ANYTHING), ANYTHING)
def test_no_schema_and_no_arguments_end_in_an_error(kind: object, arguments: dict[str, object], inner: object) -> None:
    for schema in (inner, {"type": kind}, {"properties": inner}, {"properties": {"a": inner, "b": kind}, "required": kind}):
        if isinstance(schema, dict):
            assert all(isinstance(fault, str) for fault in called(arguments, schema))


# -- recorded runs


def test_the_recorded_sample_shows_its_signals() -> None:
    runs = [found for found in read(SAMPLE) if not isinstance(found, Problem)]
    told = {run.name or run.trace.id: signals.values(evidence_of(run.trace)) for run in runs}
    assert [told[id]["stopped"] for id in ("13/1", "47/1", "44/3", "9/3")] == [0, 0, 0, 1]
    assert any(each["tool_errors"] for each in told.values())
    assert measured([run.trace for run in runs]).failed == 2
    assert evidence_of(runs[0].trace).calls
    assert all(not tool.startswith("get_") for run in runs for tool, _ in signals.writes(evidence_of(run.trace)))


@needs_data
@pytest.mark.slow
def test_the_recorded_sets_give_the_figures_that_another_program_found() -> None:
    for name, runs in bench_signals.recorded(Path(DATA)).items():
        attempts = [evidence_of(trace) for trace, _ in runs]
        whole = measure(bench_signals.with_last_word(each, last) for each, (_, last) in zip(attempts, runs, strict=True))
        rows = list(bench_signals.compared(name, measure(attempts), whole))
        assert {row["signal"]: row["off"] for row in rows if (row["off"] or 0) > bench_signals.TOLERANCE} == {}
        assert sum(row["off"] is not None for row in rows) == len(bench_signals.EXPECTED[name])


@needs_data
def test_of_four_recorded_judges_none_earned_a_vote_and_three_say_nothing() -> None:
    judges = bench_signals.judged(Path(DATA), 0.0)
    assert [may_vote(judge) for judge in judges] == [False] * 4
    assert sum(judge.standing.silence is not None for judge in judges) == 3


@needs_data
@pytest.mark.slow
def test_when_rewards_are_dealt_out_anew_no_vote_passes() -> None:
    airline = [trace for trace, _ in bench_signals.airline(Path(DATA))]
    assert sum(bool(bench_signals.passes(bench_signals.shuffled(airline, seed))) for seed in range(10)) <= 1


@needs_data
@pytest.mark.parametrize(
    ("category", "count", "most"), [("simple_python", 400, 2), ("parallel", 540, 0), ("parallel_multiple", 607, 8)]
)
def test_right_calls_of_a_leaderboard_are_rarely_against_their_schemas(category: str, count: int, most: int) -> None:
    tools = {
        row["id"]: {tool["name"]: tool for tool in row["function"]} for row in bfcl.rows(f"v4/BFCL_v4_{category}.jsonl.gz")
    }
    faults = [
        called(call.arguments, tools[row["id"]][call.name]["parameters"])
        for row in bfcl.rows(f"v4/possible_answer/BFCL_v4_{category}.jsonl.gz")
        for call in bfcl.right_calls(row["ground_truth"])
    ]
    assert (len(faults), sum(map(bool, faults))) == (count, most)


def test_a_signal_is_the_same_whichever_order_attempts_come_in() -> None:
    chance = np.random.default_rng(0)
    traces = with_errors(chance.integers(0, 3, 60).tolist(), (chance.random(60) < 0.5).tolist())
    assert measured(traces).json() == measured(traces[::-1]).json()
