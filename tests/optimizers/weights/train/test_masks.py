"""Only what the agent said is learned from, whatever the chat template looks like."""

from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from journeyman.core.errors import InputError

pytest.importorskip("trl", reason="needs the extra: pip install 'journeyman[weights]'")

from transformers import AutoTokenizer

from journeyman.models import WEIGHTS
from journeyman.optimizers.weights.train.masks import RowEncoder, Tokens

pytestmark = pytest.mark.training

TEMPLATES = Path("tests/data/chat_templates")
SPECIAL = (
    *("<|start_header_id|>", "<|end_header_id|>", "<|eot_id|>", "<|begin_of_text|>"),
    *("[INST]", "[/INST]", "[TOOL_CALLS]", "[TOOL_RESULTS]", "[/TOOL_RESULTS]"),
    *("<start_of_turn>", "<end_of_turn>", "<|user|>", "<|assistant|>", "<|system|>", "<|end|>"),
)
END = {"headers": "<|eot_id|>", "inst": "<|im_end|>", "turns": "<end_of_turn>", "phi": "<|end|>\n<|im_end|>"}
"""What ends the last turn, where it is not the token of the embedded model."""
WITH_TOOLS = ("chatml", "chatml_marked", "headers", "inst")
ALL = (*WITH_TOOLS, "turns", "phi", "embedded")
WEATHER = {"type": "function", "function": {"name": "weather", "description": "", "parameters": {"type": "object"}}}

AGENT = st.text("abcde é語\n{}\"'", min_size=1, max_size=20)
PERSON = st.text("UVWXYZ \n?", min_size=1, max_size=20)
TOOL = st.text("0123456789 \n", min_size=1, max_size=20)


def tokenizer(shape: str) -> Any:
    found = AutoTokenizer.from_pretrained(WEIGHTS / "small")
    if shape != "embedded":
        found.add_special_tokens({"bos_token": "<|begin_of_text|>", "extra_special_tokens": ["<|im_start|>", *SPECIAL]})
        found.chat_template = (TEMPLATES / f"{shape}.jinja").read_text().replace("\n{%", "{%").strip()
    return found


MADE = {shape: tokenizer(shape) for shape in (*ALL, "forgetful")}


def own(shape: str, tokens: Tokens) -> str:
    ids = [token for token, mine in zip(tokens.completion, tokens.own, strict=True) if mine]
    return str(MADE[shape].decode(ids))


def person(text: str) -> dict[str, Any]:
    return {"role": "user", "content": text}


def agent(text: str) -> dict[str, Any]:
    return {"role": "assistant", "content": text}


def call(text: str, city: str) -> dict[str, Any]:
    function = {"name": "weather", "arguments": '{"city": "' + city + '"}'}
    return {**agent(text), "tool_calls": [{"id": "1", "type": "function", "function": function}]}


def tool(text: str) -> dict[str, Any]:
    return {"role": "tool", "tool_call_id": "1", "name": "weather", "content": text}


@pytest.mark.parametrize("shape", ALL)
@given(asked=PERSON, said=AGENT)
def test_an_answer_is_learned_to_its_end_and_nothing_else(shape: str, asked: str, said: str) -> None:
    tokens = RowEncoder(MADE[shape]).encode((person(asked),), (agent(said),))
    assert tokens is not None
    written = {"headers": said.strip(), "turns": said.strip(), "inst": f" {said}"}.get(shape, said)
    assert own(shape, tokens) == written + END.get(shape, "<|im_end|>")
    assert list(tokens.prompt) == RowEncoder(MADE[shape]).prompt((person(asked),))


@pytest.mark.parametrize("shape", ALL)
@given(turns=st.lists(st.tuples(PERSON, AGENT), min_size=1, max_size=3), history=st.tuples(PERSON, AGENT))
def test_what_people_say_between_two_answers_is_read_and_not_learned(
    shape: str, turns: list[tuple[str, str]], history: tuple[str, str]
) -> None:
    prompt = (person(history[0]), agent(history[1]), person(turns[0][0]))
    completion = [agent(turns[0][1])]
    for asked, said in turns[1:]:
        completion += [person(asked), agent(said)]
    tokens = RowEncoder(MADE[shape]).encode(prompt, tuple(completion))
    assert tokens is not None
    learned = own(shape, tokens)
    assert not set(learned) & set("UVWXYZ?")
    at = 0
    for _, said in turns:
        at = learned.index(said.strip(), at) + len(said.strip())
    read = MADE[shape].decode([*tokens.prompt, *tokens.completion])
    assert read.count(history[1].strip()) >= 1


@pytest.mark.parametrize("shape", WITH_TOOLS)
@given(
    asked=PERSON,
    said=AGENT,
    cities=st.lists(st.text("fgh", min_size=1, max_size=5), min_size=1, max_size=3),
    answer=TOOL,
    last=AGENT,
)
def test_calls_are_learned_and_what_tools_answer_is_not(
    shape: str, asked: str, said: str, cities: list[str], answer: str, last: str
) -> None:
    completion: list[dict[str, Any]] = []
    for city in cities:
        completion += [call(said, city), tool(answer)]
    tokens = RowEncoder(MADE[shape]).encode((person(asked),), (*completion, agent(last)), (WEATHER,))
    assert tokens is not None
    learned = own(shape, tokens)
    assert not set(learned) & set("0123456789UVWXYZ?")
    assert learned.count('"weather"') == len(cities)
    for city in cities:
        assert f'"city": "{city}"' in learned
    assert last.strip() in learned
    assert answer.strip() in MADE[shape].decode(tokens.completion)


@given(prompt=st.text(min_size=1, max_size=40), completion=st.text(min_size=1, max_size=40))
def test_plain_text_is_what_the_model_reads_and_writes(prompt: str, completion: str) -> None:
    made = MADE["embedded"]
    tokens = RowEncoder(made).encode(prompt, completion)
    assert tokens is not None
    assert list(tokens.prompt) == made(prompt)["input_ids"]
    assert made.decode(tokens.completion).removesuffix("<|im_end|>") == completion.removesuffix("<|im_end|>")
    assert tokens.completion[-1] == made.eos_token_id
    assert all(tokens.own)


def test_a_template_with_marks_and_one_without_agree() -> None:
    said = ((person("Where?"),), (call("So:", "Oslo"), tool("4 degrees"), agent("Cold.")))
    marked, found = (RowEncoder(MADE[shape]).encode(*said) for shape in ("chatml_marked", "chatml"))
    assert marked is not None
    assert found is not None
    assert own("chatml_marked", marked) == own("chatml", found)


def test_a_prompt_keeps_its_end() -> None:
    whole = RowEncoder(MADE["embedded"]).encode((person("one two three four"),), (agent("five"),))
    cut = RowEncoder(MADE["embedded"], max_prompt=5).encode((person("one two three four"),), (agent("five"),))
    assert whole is not None
    assert cut is not None
    assert cut.prompt == whole.prompt[-5:]
    assert cut.completion == whole.completion


def test_a_completion_keeps_the_turns_that_fit_whole() -> None:
    said = ((person("Where?"),), (call("So:", "Oslo"), tool("4 degrees"), agent("It is cold there.")))
    whole = RowEncoder(MADE["chatml"]).encode(*said)
    assert whole is not None
    cut = RowEncoder(MADE["chatml"], max_completion=len(whole.completion) - 1).encode(*said)
    assert cut is not None
    assert cut.completion == whole.completion[: len(cut.completion)]
    assert own("chatml", cut).endswith("</tool_call><|im_end|>")
    assert cut.own[-1]
    assert RowEncoder(MADE["chatml"], max_completion=5).encode(*said) is None


@pytest.mark.parametrize(
    ("shape", "completion", "says"),
    [
        ("forgetful", (agent("<think>a</think>b"), person("U"), agent("c")), "message 2 otherwise when others follow it"),
        ("turns", (call("a", "b"), tool("c"), agent("d")), "cannot say this conversation: only people and the model"),
        ("phi", (call("a", "b"), tool("c"), agent("d")), "leaves out tool calls .'weather'"),
        ("embedded", (person("a"),), "must begin with what the agent said"),
    ],
)
def test_a_template_that_does_not_tell_whose_words_are_whose_is_refused(
    shape: str, completion: tuple[dict[str, Any], ...], says: str
) -> None:
    with pytest.raises(InputError, match=says):
        RowEncoder(MADE[shape]).encode((person("U"),), completion)


def test_a_conversation_needs_a_template() -> None:
    plain = AutoTokenizer.from_pretrained(WEIGHTS / "small")
    plain.chat_template = None
    with pytest.raises(InputError, match="no chat template: give rows of plain text"):
        RowEncoder(plain).encode((person("U"),), (agent("a"),))
    assert RowEncoder(plain).encode("U", "a") is not None
