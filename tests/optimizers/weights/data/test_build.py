"""What rows are made of traces, what is left out, and that it is always the same."""

import json
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from statistics import fmean, pstdev
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from journeyman.agents import answer as prompts
from journeyman.agents import coder
from journeyman.agents.answer import call_of
from journeyman.core.errors import InputError, SettingError
from journeyman.core.playbook import Bullet
from journeyman.core.reward import Reward, Source, label
from journeyman.core.score import Experience, Score
from journeyman.core.task import Split, Task
from journeyman.core.trace import ModelCall, Trace
from journeyman.models.base import ModelRequest, Reply
from journeyman.optimizers.weights.data import DatasetCard, DatasetConfig, JudgedTrace, build, read
from journeyman.optimizers.weights.rows import CompletionGroup, LabelledCompletion
from tests.optimizers.weights.data.attempts import FIND, ONE, TALK, answered, asks, attempt, judged, said
from tests.support.examples import examples

AUTO = "auto-labeler"
KTO = DatasetConfig(method="kto")
GRPO = DatasetConfig(method="grpo")


def kto(path: Path, traces: Sequence[JudgedTrace], config: DatasetConfig = KTO) -> tuple[list[LabelledCompletion], DatasetCard]:
    sheet = build(traces, path / "rows.jsonl", config)
    return [row for row in read(path / "rows.jsonl") if isinstance(row, LabelledCompletion)], sheet


def grpo(path: Path, traces: Sequence[JudgedTrace], config: DatasetConfig = GRPO) -> tuple[list[CompletionGroup], DatasetCard]:
    sheet = build(traces, path / "rows.jsonl", config)
    return [row for row in read(path / "rows.jsonl") if isinstance(row, CompletionGroup)], sheet


def graded(value: float) -> Reward:
    return Reward(name="grade", value=value, source=Source.JUDGE)


def messages(said: object) -> list[dict[str, Any]]:
    assert isinstance(said, tuple)
    return list(said)


def test_a_conversation_keeps_its_tool_calls_and_begins_with_the_answer(tmp_path: Path) -> None:
    ((row,), sheet) = kto(tmp_path, judged(attempt("a", reward=1.0, agent="desk", domain="shop")))
    assert messages(row.prompt) == [*TALK[:2]]
    asked, found, answer = messages(row.completion)
    assert asked["tool_calls"][0]["function"] == {"name": "find", "arguments": {"id": 7}}
    assert (found, answer) == (TALK[3], TALK[4])
    assert (row.label, row.tools) == (True, (FIND,))
    assert row.source == {"trace": "a", "task": "t", "agent": "desk", "domain": "shop", "label": "the check r says good"}
    assert (sheet.good, sheet.bad, sheet.left_out) == (1, 0, {})


def test_plain_rows_are_the_question_and_the_last_answer(tmp_path: Path) -> None:
    ((row,), sheet) = kto(tmp_path, judged(attempt("a", reward=0.0)), replace(KTO, form="plain"))
    assert (row.prompt, row.completion, row.label) == ("User: Where is order 7?", "In Oslo.", False)
    assert sheet.left_out == {"tool calls, which plain text has no place for": 1}


def test_a_person_s_word_goes_before_the_reward_and_that_before_the_auto_labeler_s(tmp_path: Path) -> None:
    traces = [
        JudgedTrace(trace=answered("a", "1"), said=(label(True, "ada"), graded(0.0), label(False, AUTO))),
        JudgedTrace(trace=answered("b", "2"), said=(graded(0.7), label(False, AUTO))),
        JudgedTrace(trace=answered("c", "3"), said=(graded(0.69), label(True, AUTO))),
        JudgedTrace(trace=answered("d", "4"), said=(label(True, AUTO),)),
        JudgedTrace(trace=answered("e", "5")),
    ]
    unknown = "traces of which nobody knows what they were worth: left out"
    rows, sheet = kto(tmp_path, traces, replace(KTO, threshold=0.7))
    assert [(row.source["trace"], row.label) for row in rows] == [("a", True), ("b", True), ("c", False)]
    assert sheet.left_out == {unknown: 2}
    rows, sheet = kto(tmp_path, traces, replace(KTO, threshold=0.7, auto_labels=True))
    assert [row.label for row in rows] == [True, True, False, True]
    assert sheet.left_out == {unknown: 1}
    assert sheet.labelled_by == {"person": 1, "auto-labeler": 1, "judge": 2}


def test_nobody_learns_from_tasks_that_are_held_out_or_chosen_by(tmp_path: Path) -> None:
    traces = [
        *judged(answered("a", "1", reward=1.0), answered("b", "2", reward=1.0, raw={"split": "held_out"})),
        JudgedTrace(trace=answered("c", "3"), said=(graded(1.0),), split=Split.HELD_OUT),
        JudgedTrace(trace=answered("d", "4"), said=(graded(1.0),), split=Split.VALIDATION),
    ]
    rows, sheet = kto(tmp_path, traces)
    assert [row.source["trace"] for row in rows] == ["a"]
    assert sheet.left_out == {
        "attempts at held-out tasks, from which nobody may learn: left out": 2,
        "attempts at validation tasks, which are to choose by: left out": 1,
    }


def test_an_experience_gives_a_row(tmp_path: Path) -> None:
    task, trace = Task(id="t", question="2+2?"), answered("a", "4", reward=1.0)
    experience = Experience(task, trace, Score(trace_id="a", rewards=trace.rewards))
    ((row,), _) = kto(tmp_path, [JudgedTrace.of_experience(experience)])
    assert row.label


def test_a_completion_stands_there_once_and_the_greater_number_of_verdicts_decides(tmp_path: Path) -> None:
    rewards = {"a": 1.0, "b": 0.0, "c": 1.0}
    traces = [answered(id, "4", reward=reward) for id, reward in rewards.items()]
    split = [answered(id, "5", reward=reward) for id, reward in {"d": 1.0, "e": 0.0}.items()]
    ((row,), sheet) = kto(tmp_path, judged(*traces, *split))
    assert (row.label, row.source["trace"]) == (True, "a")
    assert sheet.left_out == {
        "rows that were called good as often as bad: left out": 2,
        "rows whose prompt and completion were there already: left out": 2,
    }
    ((row, other), _) = kto(
        tmp_path, [*judged(*traces, *split), JudgedTrace(trace=answered("f", "5"), said=(label(False, "ada"),))]
    )
    assert (row.label, other.label) == (True, False)


def test_groups_are_attempts_at_one_task_with_rewards_normalised_among_them(tmp_path: Path) -> None:
    traces = [answered(f"{at}", f"{at}", reward=reward) for at, reward in enumerate((1.0, 0.0, 0.5, 0.5))]
    traces += [answered("alone", "9", task_id="other", question="3+6?", reward=1.0)]
    ((group,), sheet) = grpo(tmp_path, judged(*traces))
    assert group.scores == (1.0, 0.0, 0.5, 0.5)
    assert group.rewards == pytest.approx((2**0.5, -(2**0.5), 0, 0))
    assert fmean(group.rewards) == pytest.approx(0)
    assert pstdev(group.rewards) == pytest.approx(1)
    assert [messages(each)[0]["content"] for each in group.completions] == ["0", "1", "2", "3"]
    assert (sheet.groups, sheet.flat_groups) == (1, 0)
    assert sheet.left_out == {"attempts that no other can be compared with: left out": 1}


def test_attempts_at_one_task_with_several_prompts_share_one_baseline(tmp_path: Path) -> None:
    traces = [
        answered("a", "4", question="2+2?", reward=1.0),
        answered("b", "5", question="What is 2+2?", reward=0.0),
        answered("c", "6", question="2+2?", reward=0.0),
        answered("d", "four", question="2 and 2?", reward=1.0),
    ]
    rows, sheet = grpo(tmp_path, judged(*traces))
    assert [row.rewards for row in rows] == [(1.0, -1.0), (-1.0,), (1.0,)]
    assert [row.scores for row in rows] == [(1.0, 0.0), (0.0,), (1.0,)]
    assert (sheet.rows, sheet.groups, sheet.completions) == (3, 1, 4)


def test_two_sets_of_tasks_with_the_same_ids_are_told_apart_by_their_instructions(tmp_path: Path) -> None:
    def of(id: str, system: str, reward: float) -> Trace:
        talk = (said("system", system), said("user", "hi"), said("assistant", id))
        return attempt(id, talk, reward=reward, task_id="0")

    rows, _ = grpo(
        tmp_path, judged(of("a", "airline", 1.0), of("b", "airline", 0.0), of("c", "shop", 1.0), of("d", "shop", 1.0))
    )
    assert [row.rewards for row in rows] == [(1.0, -1.0), (0.0, 0.0)]


def test_attempts_without_a_task_of_their_own_are_compared_where_their_prompt_is_the_same(tmp_path: Path) -> None:
    rows, sheet = grpo(tmp_path, judged(*(answered(id, id, task_id=id, reward=float(id == "a")) for id in "ab")))
    assert [row.rewards for row in rows] == [(1.0, -1.0)]
    assert sheet.groups == 1


def test_equal_completions_of_different_attempts_stay_in_a_group_and_a_trace_read_twice_does_not(tmp_path: Path) -> None:
    traces = [answered("a", "4", reward=1.0), answered("b", "4", reward=1.0), answered("c", "5", reward=0.0)]
    ((group,), sheet) = grpo(tmp_path, judged(*traces, traces[0]))
    assert group.scores == (1.0, 1.0, 0.0)
    assert sheet.left_out == {"traces that were there already: left out": 1}


def test_recorded_log_probabilities_go_into_the_group_where_all_were_told(tmp_path: Path) -> None:
    def with_logprobs(trace: Trace, told: object) -> Trace:
        (call,) = trace.calls
        return replace(trace, steps=(replace(call, raw={"logprobs": told}),))

    traces = [
        with_logprobs(answered("a", "4", reward=1.0), [-0.1, -0.2]),
        with_logprobs(answered("b", "5", reward=0.0), {"content": [{"token": "5", "logprob": -3}]}),
        answered("c", "6", reward=0.0),
        with_logprobs(answered("d", "7", reward=0.0), {"content": [{"token": "7"}]}),
    ]
    ((group,), _) = grpo(tmp_path, judged(*traces))
    assert group.logprobs == ((-0.1, -0.2), (-3.0,), None, None)
    many = attempt("e", reward=1.0)
    calls = [replace(step, raw={"logprobs": [-0.5]}) if isinstance(step, ModelCall) else step for step in many.steps]
    ((group,), _) = grpo(tmp_path, judged(replace(many, steps=tuple(calls)), attempt("f", reward=0.0)))
    assert group.logprobs == ()
    """Of the tokens of a tool call no provider tells."""


@pytest.mark.parametrize("dialect", ["full", "terse"])
def test_without_its_context_a_prompt_has_no_bullets_and_an_answer_no_citation(tmp_path: Path, dialect: Any) -> None:
    bullet = Bullet(id="b-1", content="Dates are written 5.3.")
    asked = prompts.answer(Task(id="t", question="When?"), [bullet], dialect)
    bare = prompts.answer(Task(id="t", question="When?"), (), dialect)
    reply = Reply(text="Used: b-1\nAnswer: 5.3.", model="m")
    call = call_of(ModelRequest(messages=asked), reply, shown=[bullet])
    trace = replace(answered("a", "x", reward=1.0), steps=(call,))
    ((row,), _) = kto(tmp_path, judged(trace))
    assert "5.3." in messages(row.prompt)[0]["content"]
    ((row,), _) = kto(tmp_path, judged(trace), replace(KTO, context="drop"))
    assert [(each["role"], each["content"]) for each in messages(row.prompt)] == [(each.role, each.content) for each in bare]
    assert messages(row.completion)[0]["content"] == "Answer: 5.3."


def test_rounds_of_our_own_coder_are_one_conversation(tmp_path: Path) -> None:
    first = ModelRequest(messages=coder.write(Task(id="t", question="Add."), (), "full"))
    second = ModelRequest(messages=coder.repair(first.messages, "a - b", "wrong"))
    steps = tuple(call_of(each, Reply(text=text, model="m")) for each, text in ((first, "a - b"), (second, "a + b")))
    ((row,), _) = kto(tmp_path, judged(replace(answered("a", "x", reward=1.0), steps=steps)))
    assert [each["role"] for each in messages(row.prompt)] == ["system", "user"]
    assert [(each["role"], each["content"]) for each in messages(row.completion)] == [
        ("assistant", "a - b"),
        ("user", second.messages[-1].content),
        ("assistant", "a + b"),
    ]


def test_a_prompt_whose_bullets_cannot_be_found_is_left_out_rather_than_kept(tmp_path: Path) -> None:
    trace = answered("a", "x", reward=1.0)
    (call,) = trace.calls
    heard = (replace(call.messages[0], role="system", text="Rules: be kind."), *call.messages)
    hidden = replace(trace, steps=(replace(call, shown=("b-1",), messages=heard),))
    with pytest.raises(InputError, match="1 conversations whose prompt had bullets in it that could not be found"):
        kto(tmp_path, judged(hidden), replace(KTO, context="drop"))


@pytest.mark.parametrize("place", ["alone", "behind the instructions", "before the question"])
def test_a_data_set_of_live_chats_is_made_without_what_was_put_into_them(tmp_path: Path, place: str) -> None:
    put = prompts.strategies([Bullet(id="b-1", content="Dates are written 5.3.")])
    trace = answered("a", "x", reward=1.0)
    (call,) = trace.calls
    (asked,) = call.messages
    told = replace(asked, role="system", text="Be kind.")
    heard, bare = {
        "alone": ((replace(told, text=put), asked), (asked,)),
        "behind the instructions": ((replace(told, text=f"Be kind.\n\n{put}"), asked), (told, asked)),
        "before the question": ((told, replace(asked, text=f"{put}\n\n{asked.text}")), (told, asked)),
    }[place]
    live = replace(trace, steps=(replace(call, shown=("b-1",), messages=heard),))
    ((row,), _) = kto(tmp_path, judged(live), replace(KTO, context="drop"))
    assert [(each["role"], each["content"]) for each in messages(row.prompt)] == [(each.role, each.text) for each in bare]


def test_thoughts_stand_beside_the_answer_or_are_dropped(tmp_path: Path) -> None:
    trace = attempt("a", (said("user", "2+2?"), said("assistant", "4", reasoning_content="Two and two.")), reward=1.0)
    ((row,), _) = kto(tmp_path, judged(trace))
    assert messages(row.completion) == [{"role": "assistant", "content": "4", "reasoning_content": "Two and two."}]
    ((row,), _) = kto(tmp_path, judged(trace), replace(KTO, reasoning="drop"))
    assert messages(row.completion) == [{"role": "assistant", "content": "4"}]


def test_what_the_assistant_said_and_no_model_wrote_belongs_to_the_prompt(tmp_path: Path) -> None:
    trace = attempt("a", (said("user", "hi"), said("assistant", "4")), reward=1.0)
    (call,) = trace.calls
    heard = (said("user", "hi"), said("assistant", "How can I help?"), said("user", "2+2?"))
    canned = replace(call, messages=tuple(replace(call.messages[0], role=each["role"], text=each["content"]) for each in heard))
    ((row,), _) = kto(tmp_path, judged(replace(trace, steps=(canned,))))
    assert messages(row.prompt) == list(heard)
    assert messages(row.completion) == [said("assistant", "4")]


def test_a_row_that_is_too_long_is_cut_behind_an_answer_and_never_elsewhere(tmp_path: Path) -> None:
    longer = (*TALK, said("user", "Thanks!"), said("assistant", "Bye."))
    whole = judged(attempt("a", longer, reward=1.0))
    lengths = set()
    for most in range(1, 140):
        config = replace(KTO, max_characters=most)
        sheet = build(whole, None, config)
        if not sheet.rows:
            assert sheet.left_out == {"rows longer than allowed with the first answer alone: left out": 1}
            continue
        ((row,), _) = kto(tmp_path, whole, config)
        completion = messages(row.completion)
        assert completion[-1]["role"] == "assistant"
        assert completion == messages(kto(tmp_path, whole)[0][0].completion)[: len(completion)]
        lengths.add(len(completion))
    assert lengths == {1, 3, 5}


def test_text_that_is_too_long_is_left_out(tmp_path: Path) -> None:
    traces = judged(answered("a", "4", reward=1.0), answered("b", "4" * 400, reward=1.0))
    rows, _ = kto(tmp_path, traces, replace(KTO, form="plain", max_tokens=50))
    assert [row.completion for row in rows] == ["4"]


def _many(good: int, bad: int) -> list[JudgedTrace]:
    return judged(*(answered(f"{at}", f"answer {at}", reward=float(at < good), minute=at) for at in range(good + bad)))


@pytest.mark.parametrize(
    ("balance", "good", "bad"), [("none", 7, 3), ("weights", 7, 3), ("undersample", 3, 3), ("oversample", 7, 7)]
)
def test_labels_are_balanced_as_asked(tmp_path: Path, balance: Any, good: int, bad: int) -> None:
    rows, sheet = kto(tmp_path, _many(7, 3), replace(KTO, balance=balance))
    assert [row.label for row in rows].count(True) == sheet.good == good
    assert [row.label for row in rows].count(False) == sheet.bad == bad
    assert {row.source["trace"] for row in rows if not row.label} == {"7", "8", "9"}
    assert sheet.weights == ({"desirable_weight": 1.0, "undesirable_weight": 7 / 3} if balance == "weights" else None)


def test_one_side_cannot_be_balanced(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="all 4 rows are good: there is no bad one"):
        kto(tmp_path, _many(4, 0), replace(KTO, balance="undersample"))
    with pytest.raises(SettingError, match="none for grpo"):
        DatasetConfig(method="grpo", balance="oversample")


def test_an_agent_s_rows_stand_there_as_often_as_its_weight_says(tmp_path: Path) -> None:
    traces = [answered(f"{agent}{at}", f"{agent} {at}", reward=1.0, agent=agent) for agent in "xyz" for at in range(200)]
    config = replace(KTO, agent_weights={"x": 2.0, "y": 0.25, "z": 0.0})
    rows, sheet = kto(tmp_path, judged(*traces), config)
    assert sheet.agents["x"] == 400
    assert 30 <= sheet.agents["y"] <= 70
    assert "z" not in sheet.agents
    assert rows == kto(tmp_path, judged(*reversed(traces)), config)[0]
    with pytest.raises(InputError, match=r"no trace of an agent 'w' to weigh; there are those of x, y, z"):
        kto(tmp_path, judged(*traces), replace(KTO, agent_weights={"w": 2.0}))


_traces = st.lists(
    st.builds(
        lambda id, answer, question, reward, task, agent: answered(
            id, answer, question=question, reward=reward, task_id=task, agent=agent
        ),
        st.text(max_size=3),
        st.text(max_size=3),
        st.sampled_from(("2+2?", "3+3?", "\ud800")),
        st.none() | st.sampled_from((0.0, 0.5, 1.0)),
        st.sampled_from("ab"),
        st.sampled_from((None, "x", "y")),
    ),
    max_size=8,
)


@given(
    traces=_traces, config=st.sampled_from((KTO, GRPO, replace(KTO, form="plain", balance="oversample"))), order=st.randoms()
)
@examples(one_fixture=True)
def test_the_same_traces_give_the_same_bytes_in_any_order(
    tmp_path: Path, traces: list[Trace], config: DatasetConfig, order: Any
) -> None:
    shuffled = traces.copy()
    order.shuffle(shuffled)
    written = []
    for name, some in (("a", traces), ("b", shuffled)):
        path = tmp_path / name / "rows.jsonl"
        try:
            build(judged(*some), path, config)
        except InputError as error:
            written.append([str(error)])
            continue
        list(read(path))
        written.append([each.read_text() for each in sorted(path.parent.iterdir())])
        for each in path.parent.iterdir():
            each.unlink()
    assert written[0] == written[1]


def test_a_datasheet_says_what_is_in_the_file_and_what_is_not(tmp_path: Path) -> None:
    path = tmp_path / "rows.jsonl"
    sheet = build([*_many(3, 1), JudgedTrace(trace=answered("z", "?"))], path, KTO)
    told = json.loads((tmp_path / "rows.jsonl.sheet.json").read_text())
    assert told == json.loads(json.dumps(sheet.json()))
    assert told["rewards"] == {"known": 4, "mean": 0.75, "histogram": [1, *[0] * 8, 3]}
    assert told["lengths"]["prompt"] == {"least": 4, "median": 4, "of 95 in 100 at most": 4, "most": 4}
    text = (tmp_path / "rows.jsonl.sheet.md").read_text()
    for line in ("4 rows, 4 completions of 4 traces at 1 task; 3 good, 1 bad.", "| 0.9 to 1.0 | 3 |", sheet.sha256 or "no"):
        assert line in text
    assert "traces of which nobody knows what they were worth: left out | 1 |" in text


def test_nothing_to_learn_from_is_one_sentence_and_no_file(tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"nothing to learn from: 1 traces of which nobody knows .* journeyman traces label"):
        build(judged(answered("a", "4")), tmp_path / "rows.jsonl", KTO)
    with pytest.raises(InputError, match="there were no traces"):
        build([], tmp_path / "rows.jsonl", KTO)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    ("messages", "why"),
    [
        ((*ONE[:2], asks(arguments="{"), *TALK[3:]), "a tool call whose arguments are no object"),
        ((said("system", "x"), said("assistant", "y")), "in which nothing was asked"),
        ((said("assistant", "y"),), "in which nothing was asked"),
        ((said("narrator", "x"), said("user", "x"), said("assistant", "y")), "a message of a role that is not known"),
        ((said("user", "x"), said("tool", "Oslo", tool_call_id="c9"), said("assistant", "y")), "whose call was not recorded"),
        ((said("user", "x"),), "no model was called"),
    ],
)
def test_what_no_row_can_be_made_of_is_left_out_with_its_reason(messages: Sequence[dict[str, Any]], why: str) -> None:
    sheet = build(judged(attempt("a", messages, reward=1.0)), None, KTO)
    assert sheet.rows == 0
    assert [why in told for told in sheet.left_out] == [True]


def test_where_nobody_judged_a_refused_call_is_bad_and_what_was_taken_instead_is_good(tmp_path: Path) -> None:
    """At the same place: behind what had been said before the first of them."""
    refused = (*ONE[:3], said("tool", "Error: no order 7", tool_call_id="c1"))
    mended = (*refused, asks(id="c2", arguments='{"id": 8}'), said("tool", "Oslo", tool_call_id="c2"), TALK[-1])
    flake = (*refused, asks(id="c2"), said("tool", "Oslo", tool_call_id="c2"), TALK[-1])
    rows, sheet = kto(
        tmp_path, judged(attempt("a", mended), attempt("b", flake, minute=1)), DatasetConfig(method="kto", calls=True)
    )
    bad, good = sorted(rows, key=lambda row: row.label)
    assert (bad.label, good.label) == (False, True)
    assert messages(bad.prompt) == messages(good.prompt) == [*TALK[:2]]
    calls = [messages(row.completion)[0]["tool_calls"][0]["function"]["arguments"] for row in (bad, good)]
    assert calls == [{"id": 7}, {"id": 8}]
    assert bad.source["label"] == "find refused the call, and took it with other arguments"
    assert any("no tool took a call that it had refused" in line for line in sheet.left_out)


def corrected(text: str, source: Source = Source.PERSON) -> Reward:
    return Reward(name=f"correct_answer ({source})", value=None, evidence=text, weight=0.0, source=source)


def test_a_corrected_answer_is_the_wanted_one_and_says_that_another_was_wrong(tmp_path: Path) -> None:
    trace = replace(attempt("a", reward=1.0), rewards=(graded(1.0), corrected("In Bergen.")))
    (given_, wanted), sheet = kto(tmp_path, judged(trace))
    assert (given_.label, wanted.label) == (False, True)
    assert messages(wanted.completion) == [said("assistant", "In Bergen.")]
    assert messages(wanted.prompt) == [*messages(given_.prompt), *messages(given_.completion)[:-1]]
    assert given_.source["label"] == "the person says that something else should have been answered"
    assert wanted.source["label"] == "the person says that this should have been answered"
    assert (sheet.good, sheet.bad) == (1, 1)


def test_a_person_who_called_the_answer_good_is_believed_beside_the_correction(tmp_path: Path) -> None:
    trace = replace(answered("a", "4"), label=True, labelled_by="ada", rewards=(corrected("Four."),))
    rows, _ = kto(tmp_path, judged(trace))
    assert [row.label for row in rows] == [True, True]
    same, _ = kto(tmp_path, judged(replace(trace, label=None, rewards=(corrected(" 4 "),))))
    assert [(row.label, messages(row.completion)[0]["content"]) for row in same] == [(True, "4")]


def test_in_a_group_a_corrected_answer_only_judges_and_end_users_correct_nothing(tmp_path: Path) -> None:
    traces = judged(
        replace(answered("a", "5"), rewards=(corrected("4"),)), replace(answered("b", "4"), rewards=(corrected("4"),))
    )
    ((group,), sheet) = grpo(tmp_path, traces)
    assert (group.completions, group.scores) == (
        (({"role": "assistant", "content": "5"},), ({"role": "assistant", "content": "4"},)),
        (0.0, 1.0),
    )
    assert any("no attempt wrote them" in what for what in sheet.left_out)
    with pytest.raises(InputError, match="nothing to learn from"):
        kto(tmp_path, judged(replace(answered("c", "5"), rewards=(corrected("4", Source.USER),))))
