"""The Reflector: what models write is parsed tolerantly, repaired once, and counted when it stays unusable."""

import json
from contextlib import suppress
from datetime import UTC, datetime

import pytest
from hypothesis import given
from hypothesis import strategies as st

from journeyman.core.errors import ModelBusy
from journeyman.core.playbook import Bullet
from journeyman.core.score import Experience, Reward, Score
from journeyman.core.task import Task
from journeyman.core.trace import ModelCall, Trace
from journeyman.models.base import Dialect, ModelRequest, Reply
from journeyman.optimizers.playbook import reflector as reflecting
from journeyman.optimizers.playbook.reflector import parse, reflect

BULLET = Bullet(id="b-1", content="Read twice.")
GOOD = json.dumps(
    {
        "insights": [{"verdict": "Helpful", "content": "Write units.", "about": None}],
        "shown": [{"id": "b-1", "verdict": "harmful"}, {"id": "b-99", "verdict": "helpful"}],
    }
)


class Scribe:
    """Says its lines one after the other; an exception among them is raised."""

    name = "scribe"
    deterministic = True

    def __init__(self, *lines: str | Exception, dialect: Dialect = "full") -> None:
        self.lines = list(lines)
        self.dialect: Dialect = dialect
        self.requests: list[ModelRequest] = []

    async def complete(self, request: ModelRequest) -> Reply:
        self.requests.append(request)
        line = self.lines.pop(0)
        if isinstance(line, Exception):
            raise line
        return Reply(text=line, model="scribe")

    async def close(self) -> None:
        pass


def experience(value: float | None, evidence: str = "expected 4, got 5", number: int = 0) -> Experience:
    task = Task(id="t", question="2 + 2?", answer="4", domain="sums")
    step = ModelCall(model="m", prompt="p", reply="it is 5", shown=("b-1",))
    trace = Trace(
        id=f"r/{number}", task_id="t", candidate_id="base", started_at=datetime(2026, 1, 1, tzinfo=UTC), steps=(step,)
    )
    return Experience(task, trace, Score(trace_id=trace.id, rewards=(Reward(name="x", value=value, evidence=evidence),)))


async def test_insights_and_tags_carry_their_task_and_traces() -> None:
    found = await reflect(Scribe(GOOD), [experience(0.0), experience(1.0, number=1)], [BULLET])
    written, tag = found.insights
    assert (written.content, written.section, written.about, written.domain) == ("Write units.", "helpful", "", "sums")
    assert (written.task_ids, written.trace_ids) == (("t",), ("r/0", "r/1"))
    assert (tag.content, tag.section, tag.concerns) == ("", "harmful", ("b-1",))
    assert not found.unusable


async def test_the_prompt_holds_both_attempts_their_outcomes_and_the_verifiers_words() -> None:
    model = Scribe(GOOD)
    await reflect(model, [experience(0.0), experience(1.0, evidence="", number=1)], [BULLET])
    text = model.requests[0].text
    assert "ATTEMPT 1 (wrong)" in text
    assert "ATTEMPT 2 (right)" in text
    assert "VERIFIER: expected 4, got 5" in text
    assert "[b-1] Read twice." in text


async def test_one_repair_is_asked_for_and_its_reply_is_used() -> None:
    model = Scribe("I think the agent should write units.", f"Sorry:\n```json\n{GOOD}\n```")
    found = await reflect(model, [experience(0.0)], [BULLET])
    assert len(found.insights) == 2
    assert len(found.calls) == 2
    assert "no JSON object" in model.requests[1].messages[-1].content


async def test_what_stays_unusable_is_reported_and_paid_for() -> None:
    found = await reflect(Scribe("no", "still no"), [experience(0.0)], [])
    assert found.insights == ()
    assert found.unusable
    assert len(found.calls) == 2


async def test_a_model_that_cannot_be_reached_is_no_error() -> None:
    found = await reflect(Scribe(ModelBusy("busy")), [experience(0.0)], [])
    assert found.unusable == "busy"


async def test_the_terse_reflector_reads_a_failure_and_names_what_each_rule_is_about() -> None:
    model = Scribe("- dates: day first, with dots\n- prices: in cents\n- dates: day first, with dots", dialect="terse")
    found = await reflect(model, [experience(0.0)], [])
    assert [(insight.about, insight.content) for insight in found.insights] == [
        ("dates", "dates: day first, with dots"),
        ("prices", "prices: in cents"),
    ]
    assert model.requests[0].messages[1].content == "2 + 2?\nexpected 4, got 5"


async def test_the_terse_reflector_has_nothing_to_say_to_a_success() -> None:
    model = Scribe(dialect="terse")
    assert (await reflect(model, [experience(1.0)], [])).insights == ()
    assert model.requests == []


@pytest.mark.parametrize(
    "text",
    [
        GOOD,
        f"Here it is: {GOOD} I hope it helps {{really}}.",
        f"```json\n{GOOD}\n```",
        '{"thoughts": {"a": 1}} ' + GOOD,
        json.dumps(json.loads(GOOD)["insights"]),
        GOOD[:-4],
    ],
)
def test_prose_fences_bare_lists_and_a_cut_off_end_are_tolerated(text: str) -> None:
    assert [insight.content for insight in parse(text).insights] == ["Write units."]


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("", "no JSON object"),
        (GOOD[:50], "no JSON object"),
        ('{"insights": [{"verdict": "helpful"}]}', "insights.0.content"),
        ('{"insights": [{"verdict": "great", "content": "Write units."}]}', "insights.0.verdict"),
    ],
)
def test_what_cannot_be_used_says_why(text: str, why: str) -> None:
    with pytest.raises(ValueError, match=why):
        parse(text)


@given(st.text(alphabet='{}[]":,\\ abintsg', max_size=60))
def test_any_text_is_parsed_or_refused(text: str) -> None:
    with suppress(ValueError):
        parse(text)


@pytest.mark.parametrize(
    "text",
    [
        "[" * 20_000,
        '{"a": ' * 3000,
        '{"a": ' * 20_000,
        "{x" * 500_000,
        '["' * 20_000,
        "[1," * 900 + "1," * 20_000,
        "[1" * 99_999,
    ],
    ids=["deep", "objects", "very deep", "many", "quotes", "long", "numbers"],
)
def test_brackets_that_never_close_are_read_a_bounded_number_of_times(text: str, monkeypatch: pytest.MonkeyPatch) -> None:
    class Counting(json.JSONDecoder):
        """Says how many characters it has read; one that goes too deep reads no more than the recursion limit lets it."""

        read = 0

        def raw_decode(self, s: str, idx: int = 0) -> tuple[object, int]:
            assert len(s) <= reflecting._LONGEST_REPLY
            try:
                value, end = super().raw_decode(s, idx)
            except json.JSONDecodeError as error:
                Counting.read += error.pos - idx + 1
                raise
            Counting.read += end - idx
            return value, end

    monkeypatch.setattr(reflecting, "_JSON", Counting(strict=False))
    with pytest.raises(ValueError, match="no JSON object"):
        parse(text)
    assert Counting.read <= reflecting._MOST_READ + 2 * reflecting._LONGEST_REPLY


def test_a_long_reply_is_read_at_its_end_and_past_brackets_in_prose() -> None:
    text = "\\frac{1}{2} [see {above] " * 5000 + GOOD
    assert [insight.content for insight in parse(text).insights] == ["Write units."]


def test_half_a_character_in_a_reply_is_a_fault_that_the_model_is_told() -> None:
    with pytest.raises(ValueError, match=r"insights\.0\.content"):
        parse('{"insights": [{"content": "Write \\ud800 units."}]}')
