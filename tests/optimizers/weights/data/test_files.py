"""Files of rows: what is written comes back, and what cannot be used is said with its place."""

import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from journeyman.core.errors import InputError
from journeyman.optimizers.weights.data import read, write
from journeyman.optimizers.weights.rows import CompletionGroup, LabelledCompletion, Row, normalised
from tests.support.examples import examples

CALL = {"type": "function", "id": "c1", "function": {"name": "order", "arguments": {"sku": "mug", "n": None}}}
TALK: tuple[dict[str, Any], ...] = ({"role": "system", "content": "reply"}, {"role": "user", "content": "a mug"})
DONE: tuple[dict[str, Any], ...] = (
    {"role": "assistant", "content": "", "tool_calls": [CALL]},
    {"role": "tool", "tool_call_id": "c1", "content": "ok"},
    {"role": "assistant", "content": "Ordered."},
)
SUFFIXES = (".jsonl", ".parquet")

_text = st.text(st.characters(exclude_categories=["Cs"]), max_size=12)
_json = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**60), 2**60) | st.floats(allow_nan=False, allow_infinity=False) | _text,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(_text, inner, max_size=3),
    max_leaves=5,
)
_object = st.dictionaries(_text, _json, max_size=3)
_call = st.builds(lambda name, given: {"type": "function", "function": {"name": name, "arguments": given}}, _text, _object)
_answer = st.builds(
    lambda text, calls: {"role": "assistant", "content": text} | ({"tool_calls": calls} if calls else {}),
    _text,
    st.lists(_call, max_size=2),
)
_heard = st.builds(lambda role, text: {"role": role, "content": text}, st.sampled_from(("user", "tool")), _text)
_talk = st.builds(lambda before, last: (*before, last), st.lists(_answer | _heard, max_size=2), _heard)
_done = st.builds(lambda first, rest: (first, *rest), _answer, st.lists(_answer | _heard, max_size=3))
_source = st.dictionaries(st.sampled_from(("trace", "task", "agent", "domain")), _text)
_tools = st.lists(_object, max_size=2).map(tuple)
_score = st.floats(0, 1)


def _labelled(prompt: st.SearchStrategy[Any], completion: st.SearchStrategy[Any]) -> st.SearchStrategy[Row]:
    return st.builds(
        LabelledCompletion, prompt=prompt, completion=completion, label=st.booleans(), tools=_tools, source=_source
    )


@st.composite
def _group(draw: st.DrawFn, prompt: st.SearchStrategy[Any], completion: st.SearchStrategy[Any]) -> Row:
    completions = tuple(draw(st.lists(completion, min_size=1, max_size=3)))
    scores = tuple(draw(st.lists(_score, min_size=len(completions), max_size=len(completions))))
    probability = st.none() | st.lists(st.floats(-50, 0), max_size=3).map(tuple)
    logprobs = draw(st.just([]) | st.lists(probability, min_size=len(completions), max_size=len(completions)))
    return CompletionGroup(
        prompt=draw(prompt),
        completions=completions,
        rewards=normalised(scores),
        scores=scores,
        logprobs=tuple(logprobs),
        tools=draw(_tools),
        source=draw(_source),
    )


_KINDS = (_labelled(_text, _text), _labelled(_talk, _done), _group(_text, _text), _group(_talk, _done))
_rows = st.one_of([st.lists(kind, max_size=4) for kind in _KINDS])


@pytest.mark.parametrize("suffix", SUFFIXES)
@given(rows=_rows)
@examples(one_fixture=True)
def test_rows_come_back_as_they_were_written(tmp_path: Path, suffix: str, rows: list[Row]) -> None:
    path = tmp_path / f"rows{suffix}"
    assert write(path, rows) == len(rows)
    assert list(read(path)) == rows


@pytest.mark.parametrize("suffix", SUFFIXES)
@given(
    written=st.binary(max_size=200)
    | st.lists(_json, max_size=3).map(lambda values: "\n".join(map(json.dumps, values)).encode())
)
@examples(3, one_fixture=True)
def test_any_bytes_are_rows_or_one_sentence(tmp_path: Path, suffix: str, written: bytes) -> None:
    path = tmp_path / f"any{suffix}"
    path.write_bytes(written)
    try:
        assert all(isinstance(row, LabelledCompletion | CompletionGroup) for row in read(path))
    except InputError as error:
        assert str(path) in str(error)  # noqa: PT017 - either is right


@pytest.mark.parametrize("suffix", SUFFIXES)
def test_the_same_rows_give_the_same_bytes(tmp_path: Path, suffix: str) -> None:
    rows = [
        LabelledCompletion(prompt=TALK, completion=DONE, label=True),
        LabelledCompletion(prompt=TALK, completion=DONE[:1], label=False),
    ]
    for name in ("a", "b"):
        write(tmp_path / f"{name}{suffix}", rows)
    assert (tmp_path / f"a{suffix}").read_bytes() == (tmp_path / f"b{suffix}").read_bytes()


BAD: tuple[tuple[object, str], ...] = (
    ([], "is no object of JSON"),
    ({"completion": "x", "label": True}, 'has no "prompt"'),
    ({"prompt": "x"}, 'neither "completion"'),
    ({"prompt": "x", "chosen": "y", "rejected": "z"}, "pair of preference"),
    ({"prompt": "x", "completion": "y"}, '"label" that is true or false'),
    ({"prompt": "x", "completion": "y", "label": 1}, '"label" that is true or false'),
    ({"prompt": "x", "completion": [{"role": "assistant", "content": "y"}], "label": True}, "the other a conversation"),
    ({"prompt": [], "completion": [], "label": True}, "neither text nor a list of messages"),
    ({"prompt": [{"role": "bot", "content": ""}], "completion": [], "label": True}, "no message: its role"),
    ({"prompt": [{"role": "system", "content": ""}], "completion": [], "label": True}, "nobody asks for an answer"),
    ({"prompt": [*TALK], "completion": [{"role": "user", "content": ""}], "label": True}, "not with the answer"),
    ({"prompt": [{"role": "user", "content": [{"type": "text"}]}], "completion": [], "label": True}, "list of parts"),
    ({"prompt": [{"role": "user"}], "completion": [], "label": True}, '"content" is no text'),
    (
        {
            "prompt": [*TALK],
            "completion": [{"role": "assistant", "tool_calls": [{"function": {"name": "f", "arguments": "{"}}]}],
            "label": True,
        },
        '"arguments" are no object',
    ),
    ({"prompt": "x", "completions": ["y"]}, 'no "rewards"'),
    ({"prompt": "x", "completions": [], "rewards": []}, "at least one completion"),
    ({"prompt": "x", "completions": ["y"], "rewards": [1, 2]}, "for each of its 1 completions"),
    ({"prompt": "x", "completions": ["y"], "rewards": ["1"]}, "a finite number"),
    ({"prompt": "x", "completions": ["y"], "rewards": [0.0], "scores": [2.0]}, "between 0 and 1"),
    ({"prompt": "x", "completions": ["y"], "rewards": [0.0], "logprobs": [["a"]]}, "logprobs[0]"),
    ({"prompt": "x", "completion": "y", "label": True, "tools": "f"}, '"tools" that are no list'),
)


@pytest.mark.parametrize(("row", "said"), BAD)
def test_a_row_that_cannot_be_used_is_named_by_file_and_line(tmp_path: Path, row: object, said: str) -> None:
    path = tmp_path / "rows.jsonl"
    good = {"prompt": [*TALK], "completion": [*DONE], "label": True}
    path.write_text(f"{json.dumps(good)}\n\n{json.dumps(row)}\n")
    with pytest.raises(InputError) as raised:
        list(read(path))
    assert str(raised.value).startswith(f"{path}:3 ")
    assert said in str(raised.value)


@pytest.mark.parametrize("suffix", SUFFIXES)
def test_a_file_holds_one_kind_and_one_form(tmp_path: Path, suffix: str) -> None:
    plain = LabelledCompletion(prompt="x", completion="y", label=True)
    others: tuple[Row, ...] = (
        LabelledCompletion(prompt=TALK, completion=DONE, label=True),
        CompletionGroup(prompt="x", completions=("y",), rewards=(0.0,)),
    )
    for other in others:
        with pytest.raises(InputError, match=r"row 2 .* a file holds one"):
            write(tmp_path / f"rows{suffix}", [plain, other])
    assert list(tmp_path.iterdir()) == []


def test_what_stood_there_stays_when_a_row_cannot_be_written(tmp_path: Path) -> None:
    path = tmp_path / "rows.jsonl"
    write(path, [LabelledCompletion(prompt="x", completion="y", label=True)])
    for broken in ("\ud800", "\udfff"):
        with pytest.raises(InputError, match="surrogate"):
            write(path, [LabelledCompletion(prompt="x", completion=broken, label=True)])
    with pytest.raises(InputError, match="row 1 cannot be written"):
        write(path, [CompletionGroup(prompt="x", completions=("y",), rewards=(float("nan"),))])
    assert [row.prompt for row in read(path)] == ["x"]
    assert list(tmp_path.iterdir()) == [path]


def test_half_a_surrogate_pair_is_named_where_it_stands(tmp_path: Path) -> None:
    path = tmp_path / "rows.jsonl"
    path.write_bytes(b'{"prompt": "\\ud800", "completion": "y", "label": true}\n')
    with pytest.raises(InputError, match=r"rows\.jsonl:1: text in it is not valid Unicode"):
        list(read(path))


def test_arguments_in_openai_s_text_become_the_object_that_templates_want(tmp_path: Path) -> None:
    path = tmp_path / "rows.jsonl"
    call = {"id": "c1", "type": "function", "function": {"name": "order", "arguments": '{"sku": "mug"}'}}
    row = {"prompt": [*TALK], "completion": [{"role": "assistant", "content": None, "tool_calls": [call]}], "label": False}
    path.write_text(json.dumps(row))
    (found,) = read(path)
    assert isinstance(found, LabelledCompletion)
    message = found.completion[0]
    assert isinstance(message, dict)
    assert message["content"] == ""
    assert message["tool_calls"][0]["function"]["arguments"] == {"sku": "mug"}


def test_rewards_that_were_never_normalised_are(tmp_path: Path) -> None:
    path = tmp_path / "rows.jsonl"
    path.write_text(
        '{"prompt": "x", "completions": ["a", "b"], "rewards": [1, 0]}\n'
        '{"prompt": "x", "completions": ["a", "b"], "rewards": [30, 10]}\n'
        '{"prompt": "x", "completions": ["a"], "rewards": [0.87], "scores": [1]}\n'
    )
    raw, wide, part = (row for row in read(path) if isinstance(row, CompletionGroup))
    assert (raw.rewards, raw.scores) == ((1.0, -1.0), (1.0, 0.0))
    assert (wide.rewards, wide.scores) == ((1.0, -1.0), ())
    assert (part.rewards, part.scores) == ((0.87,), (1.0,))


def test_a_file_that_is_not_there_is_one_sentence(tmp_path: Path) -> None:
    for suffix in SUFFIXES:
        with pytest.raises(InputError, match="is not there"):
            list(read(tmp_path / f"no{suffix}"))
