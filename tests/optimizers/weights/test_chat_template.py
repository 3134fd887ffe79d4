from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("jinja2", reason="needs the extra: pip install 'journeyman[gguf]'")

from hypothesis import given
from hypothesis import strategies as st

from journeyman.models import WEIGHTS
from journeyman.optimizers.weights.gguf import tokenizer
from journeyman.optimizers.weights.gguf.tokenizer import GoTemplate, translate
from tests.support.ggufs import CHATML
from tests.support.go_templates import render

_TRL = find_spec("trl")
FOLDER = Path(_TRL.submodule_search_locations[0]) / "chat_templates" if _TRL and _TRL.submodule_search_locations else None
REAL = {path.stem: path for path in sorted(FOLDER.glob("*.jinja"))} if FOLDER else {}
"""Of real models, as TRL carries them."""
EOS = "<|the end|>"
SYSTEM = {"role": "system", "content": "Be brief."}
TALK = [
    {"role": "user", "content": "Three blue mugs to {{ Oslo }}, please."},
    {"role": "assistant", "content": '{"tool": "order"}'},
    {"role": "user", "content": "And\n\ntwo red ones."},
]
TOOL = {"type": "function", "function": {"name": "order", "description": "Order goods.", "parameters": {"type": "object"}}}


def real(name: str) -> GoTemplate:
    if name not in REAL:
        pytest.skip("needs TRL's templates: pip install 'journeyman[weights]'")
    found = translate(REAL[name].read_text(), eos=EOS)
    assert found is not None
    return found


@pytest.mark.parametrize(
    "name",
    [
        "cohere",
        "deepseekv3",
        "gemma",
        "gemma3",
        "llama3",
        "llama3_1",
        "phi3",
        "phi3_5",
        "qwen2_5",
        "qwen3",
        "qwen3_instruct_2507",
    ],
)
@pytest.mark.parametrize("messages", [TALK[:1], TALK, [SYSTEM, *TALK]], ids=["one", "three", "system"])
def test_go_sets_a_conversation_as_the_models_own_template_does(name: str, messages: list[Any]) -> None:
    found = real(name)
    if messages[0] is SYSTEM and any("system" in note for note in found.notes):
        pytest.skip("the model's own template takes no system message")
    ask = tokenizer._Renderer(REAL[name].read_text(), bos="", eos=EOS)
    assert render(found.text, messages) == ask(messages, generation=True) == found.render(messages)


def test_the_embedded_models_template_is_carried_over() -> None:
    found = translate((WEIGHTS / "small" / "chat_template.jinja").read_text(), eos="<|im_end|>")
    assert found is not None
    assert found.notes == ()
    assert found.stop == ("<|im_end|>",)


@pytest.mark.parametrize("name", ["qwen2_5", "qwen3"])
def test_tools_and_their_calls_and_results_come_out_as_the_model_knows_them(name: str) -> None:
    found = real(name)
    call = {"type": "function", "function": {"name": "order", "arguments": {"item": "mug"}}}
    called = {"role": "assistant", "content": "", "tool_calls": [call, call]}
    messages: list[Any] = [SYSTEM, TALK[0], called, TALK[1] | {"role": "tool"}]
    ask = tokenizer._Renderer(REAL[name].read_text(), bos="", eos=EOS)
    expected = ask(messages, generation=True, tools=[TOOL, TOOL])
    # Go writes JSON without blanks.
    assert without_blanks(render(found.text, messages, [TOOL, TOOL])) == without_blanks(expected)


def test_ollama_can_read_from_the_template_how_the_model_writes_a_call() -> None:
    text = real("qwen2_5").text
    behind = text.partition("{{ if .ToolCalls }}")[2]
    assert behind.partition("{")[0].strip() == "<tool_call>"


def test_tools_that_are_not_recognised_are_said_to_be_missing() -> None:
    found = real("llama3_1")
    assert found.tools is None
    assert any(note.startswith("tools:") for note in found.notes)


def test_a_template_that_writes_the_date_says_that_it_will_grow_old() -> None:
    assert any(note.startswith("the date:") for note in real("llama3_2").notes)


@pytest.mark.parametrize(
    "jinja",
    [
        "{{ messages | length }}",
        "{% for m in messages %}{{ loop.index }}{{ m.content }}{% endfor %}",
        "{% for m in messages %}{{ m.content | upper }}{% endfor %}",
        "{{ raise_exception('no') }}",
        "{{ ().__class__.__mro__ }}",
        "{% if %}",
        "{% for i in range(10**9) %}x{% endfor %}",
    ],
)
def test_a_template_of_another_shape_is_given_up(jinja: str) -> None:
    assert translate(jinja) is None


@given(
    around=st.tuples(*[st.text('<|>{}"\\ab \n', max_size=6)] * 4),
    said=st.lists(st.text("{}%.\"'\\$ab\n", min_size=1, max_size=8), min_size=1, max_size=4),
)
def test_what_stands_around_messages_is_found_whatever_it_is(around: tuple[str, ...], said: list[str]) -> None:
    names = ("u0", "u1", "a0", "a1")
    jinja = (
        "{% for m in messages %}{% if m.role == 'user' %}{{ u0 }}{{ m.content }}{{ u1 }}"
        "{% else %}{{ a0 }}{{ m.content }}{{ a1 }}{% endif %}{% endfor %}{% if add_generation_prompt %}{{ a0 }}{% endif %}"
    )
    for name, text in zip(names, around, strict=True):
        jinja = jinja.replace("{{ " + name + " }}", "{{ " + repr(text) + " }}")
    found = translate(jinja)
    assert found is not None
    messages = [{"role": ("user", "assistant")[n % 2], "content": text} for n, text in enumerate(said)]
    assert found.render(messages) == tokenizer._Renderer(jinja, bos="", eos="")(messages, generation=True)


@pytest.mark.parametrize("text", ["{{", "a{", '{{"\\', "}}", "{{/* */}}", "`{{`"])
def test_go_does_not_take_a_models_braces_for_its_own(text: str) -> None:
    jinja = CHATML.replace("<|im_end|>", "{{ '" + text.replace("\\", "\\\\").replace("'", "\\'") + "' }}")
    found = translate(jinja)
    assert found is not None
    assert render(found.text, TALK) == found.render(TALK)


def without_blanks(text: str) -> str:
    return text.replace(": ", ":").replace(", ", ",")
