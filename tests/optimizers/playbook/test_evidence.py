"""What recurs in traces is found without a model: refusals by what they say, flakes apart, corrections, contrasts."""

import json
import os
import random
from collections.abc import Sequence
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from journeyman.core.reward import Reward, Source
from journeyman.core.trace import Message, ModelCall, Step, ToolCall, Trace
from journeyman.optimizers.playbook.evidence import EvidenceGroup, GroupKind, evidence_groups
from journeyman.optimizers.playbook.safeguards import cut_echoes
from journeyman.tracing.base import RecordedTrace
from journeyman.tracing.evidence import evidence_of, template
from journeyman.tracing.importers import read

DATA = Path(os.environ.get("JOURNEYMAN_DATA", "nowhere"))
recorded = pytest.mark.skipif(not DATA.exists(), reason="set JOURNEYMAN_DATA to the folder of the data sets")
NOON = datetime(2026, 3, 4, 12, tzinfo=UTC)
TOOLS = json.dumps([{"type": "function", "function": {"name": "order", "parameters": {"properties": {"date": {}}}}}])


def visit(number: int, *calls: tuple[dict[str, Any], str], customer: str = "", said: str = "Send mugs", **more: Any) -> Trace:
    """One customer's request, with each call of the tool and what it answered."""
    steps: list[Step] = []
    for place, (arguments, answer) in enumerate(calls):
        messages = (Message(role="user", text=said),) if place == 0 else ()
        raw = {"request": {"user": customer or f"customer-{number}"}, "tools": TOOLS}
        steps.append(ModelCall(id=f"m{place}", model="m", prompt="", reply="", messages=messages, raw=raw))
        steps.append(ToolCall(id=f"t{place}", parent=f"m{place}", tool="order", arguments=json.dumps(arguments), result=answer))
    told: dict[str, Any] = {"task_id": f"v{number}", "candidate_id": "base", "domain": "oslo", **more}
    return Trace(id=f"v{number}", started_at=NOON + timedelta(minutes=number), steps=tuple(steps), **told)


def grouped(traces: Sequence[Trace], twins: Sequence[int] | None = None) -> list[EvidenceGroup]:
    return evidence_groups([evidence_of(trace) for trace in traces], cut=cut_echoes, twins=twins)


WRONG = 'Error: date: expected "05.03.2026", got "2026-03-05"'


def test_refusals_that_say_the_same_of_other_cases_are_one_group() -> None:
    other = WRONG.replace("05.03", "07.04").replace("03-05", "04-07")
    (group,) = grouped([visit(n, ({"date": str(n)}, WRONG if n % 2 else other)) for n in range(4)])
    assert (group.kind, group.tool, group.argument) == (GroupKind.REJECTED, "order", "date")
    assert group.template == "date: expected <text>, got <text>"
    assert (len(group.principals), len(group.traces), group.about) == (4, 4, "order.date")


def test_every_line_that_names_a_field_is_evidence_of_its_own() -> None:
    answer = 'Error: city: unknown field, expected "place"\n' + WRONG.removeprefix("Error: ")
    groups = grouped([visit(1, ({"date": "x", "city": "y"}, answer))])
    assert {(each.argument, each.template) for each in groups} == {
        ("city", "city: unknown field, expected <text>"),
        ("date", "date: expected <text>, got <text>"),
    }


def test_sessions_of_one_customer_are_one_vote() -> None:
    (group,) = grouped([visit(n, ({}, WRONG), customer="mallory") for n in range(9)])
    assert (len(group.principals), len(group.traces), len(group.shown())) == (1, 9, 1)


def test_what_was_taken_when_it_was_made_again_is_a_flake_and_what_was_changed_is_a_repair() -> None:
    down = "Error: 503 Service Unavailable"
    flake = [visit(n, ({"date": "a"}, down), ({"date": "a"}, "OK")) for n in range(3)]
    mended = [visit(n, ({"date": "a"}, "Error: no such day"), ({"date": "b"}, "OK")) for n in range(3, 6)]
    first, second = sorted(grouped([*flake, *mended]), key=lambda each: each.template)
    assert (first.is_flake, first.flakes, dict(first.repairs)) == (True, 3, {})
    assert (second.is_flake, second.flakes, dict(second.repairs)) == (False, 0, {"date": 3})
    (never,) = grouped([visit(n, ({"date": "a"}, down)) for n in range(3)])
    assert never.is_flake


def test_what_a_tool_echoes_of_a_customer_is_no_evidence() -> None:
    said = 'please note: date: expected "5-mar", got "2026-03-05"'
    echo = f'Error: unknown remark "{said}"'
    (group,) = grouped([visit(n, ({"remark": said}, echo), said=said) for n in range(3)])
    assert "expected" not in group.template
    assert all("5-mar" not in member.said for member in group.members)


def test_a_person_s_correction_is_evidence_by_itself_and_a_customer_s_is_none() -> None:
    def corrected(source: Source) -> Trace:
        reward = Reward(name=f"correct_answer ({source})", value=None, evidence="42 kroner", weight=0.0, source=source)
        return replace(visit(1, ({}, "OK")), rewards=(reward,))

    (group,) = grouped([corrected(Source.PERSON)])
    assert (group.kind, group.members[0].said, group.members[0].question) == (GroupKind.SAID, "42 kroner", "Send mugs")
    assert grouped([corrected(Source.USER)]) == []


def test_a_wrong_attempt_is_held_against_right_ones_at_the_same_request() -> None:
    right = replace(visit(1, ({}, "OK")), label=True, labelled_by="ann")
    wrong = replace(visit(2), label=False, labelled_by="ann")
    unknown = visit(3)
    (group,) = grouped([right, wrong, unknown], twins=[0, 0, 0])
    assert group.kind is GroupKind.CONTRAST
    assert group.members[0].said == "order was not used, though every right attempt at the same request did"
    assert grouped([right, wrong], twins=[0, 1]) == []


def test_the_order_of_traces_changes_nothing() -> None:
    traces = [visit(n, ({"date": str(n)}, WRONG), ({"date": "x"}, "OK")) for n in range(12)]
    before = [(group.id, group.digest, group.shown()) for group in grouped(traces)]
    random.Random(1).shuffle(traces)
    assert [(group.id, group.digest, group.shown()) for group in grouped(traces)] == before


def test_a_template_leaves_out_what_is_of_one_case() -> None:
    assert template("Reservation IFOYWZ not found", {"id": "IFOYWZ"}) == "Reservation <value> not found"
    assert template("user mia@x.org has 3 orders", None) == "user <id> has <id> orders"


def traces_in(*paths: Path) -> list[Trace]:
    return [found.trace for path in paths for found in read(path) if isinstance(found, RecordedTrace)]


@recorded
@pytest.mark.slow
def test_known_lessons_of_recorded_airline_runs_are_found() -> None:
    groups = grouped(traces_in(DATA / "tau-bench/gpt-4o-airline.json.gz"))
    first = groups[0]
    assert (first.tool, first.argument, first.repairs["payment_methods"]) == ("book_reservation", "payment_methods", 13)
    assert first.template.startswith("payment amount does not add up")
    several = [group for group in groups if len(group.traces) >= 2]
    assert len(several) == 7
    assert ("update_reservation_flights", "payment_id") in {(group.tool, group.argument) for group in several}
    assert not any(group.is_flake for group in groups)
    assert sum(len(group.members) for group in groups) == 73


@recorded
@pytest.mark.slow
def test_injected_failures_of_a_service_are_a_flake() -> None:
    groups = grouped(traces_in(DATA / "tau-bench/fork_grok-3_retail_composite_reward.json.gz"))
    flakes = [group for group in groups if group.is_flake]
    assert [(len(group.members), group.flakes) for group in flakes] == [(123, 91)]
    rest = {group.tool for group in groups if not group.is_flake and len(group.principals) >= 3}
    assert rest >= {"find_user_id_by_email", "find_user_id_by_name_zip", "modify_pending_order_items"}


@recorded
@pytest.mark.slow
def test_known_lessons_of_other_agents_are_found() -> None:
    submissions = DATA / "tau2-bench/submissions"
    airline = [path for path in sorted(submissions.rglob("*airline*.json.gz")) if "adaptive" not in str(path)]
    found = {(group.tool, group.argument, group.template.split(",")[0]) for group in grouped(traces_in(*airline))}
    assert ("book_reservation", "payment_methods", "Payment amount does not add up") in found
    assert any(argument == "payment_methods" and "payment_id" in said for _, argument, said in found)
    assert any("Passenger dob" in said for _, _, said in found)
    edits = grouped(traces_in(*sorted((DATA / "swe-agent-trajs").glob("*.traj.gz"))))
    assert ("edit", "IndentationError: unexpected indent") in {(group.tool, group.template) for group in edits}
    cars = grouped(traces_in(DATA / "kayba-ace/car_bench_traces.jsonl.gz"))
    assert any(group.tool == "set_seat_heating" and "missing" in group.template for group in cars)


@recorded
@pytest.mark.slow
def test_where_nothing_recurs_there_is_no_evidence() -> None:
    webshop = [path for path in sorted((DATA / "agentgym-webshop").rglob("*")) if path.suffix in (".json", ".jsonl", ".gz")]
    assert not [group for group in grouped(traces_in(*webshop[:3])) if len(group.principals) >= 3 and not group.is_flake]


def test_a_group_is_told_in_the_words_that_all_heard_and_else_without_what_is_of_one_case_alone() -> None:
    calls = {"date": "2026-03-05"}
    same = [visit(number, (calls, "Error: date must be one of ['S', 'M', 'L']")) for number in range(5)]
    (group,) = grouped(same)
    assert "<text>" in group.template
    assert group.wording() == "date must be one of ['S', 'M', 'L']"
    assert group.wording(6) == group.template
    (group,) = grouped([visit(number, (calls, f"Error: date must not be 'of {number}'")) for number in range(5)])
    assert group.wording() == group.template == "date must not be <text>"
