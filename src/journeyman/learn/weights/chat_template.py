"""A model's chat template, which is Jinja, as one of Ollama, which is Go's.

Ollama knows the templates of some models by heart; to any other it sends the bare prompt, and a tuned model answers nonsense.
So the template is asked how it sets a few conversations, what stands around their parts is written down in Go, and the two are
compared on longer conversations. What could not be carried over is said.
"""

import json
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from jinja2 import TemplateError
from jinja2.ext import Extension, loopcontrols
from jinja2.sandbox import ImmutableSandboxedEnvironment

from journeyman.learn.weights.go_template import GoTemplate, Message, ToolTemplate

_S, _U, _A, _T = "Qsystem0Q", "Quser{}Q", "Qassistant{}Q", "Qresult0Q"
"""Words that no template holds."""


def translate(jinja: str, *, bos: str = "", eos: str = "") -> GoTemplate | None:
    """The same template for Ollama; `None` when it is of a shape that cannot be carried over.

    Args:
        bos: What the template may write as the first token; empty where the server sets it itself.
    """
    try:
        render = _Renderer(jinja, bos=bos, eos=eos)
        template = _plain(render)
    except _FAILURES:
        return None
    notes: tuple[str, ...] = template.notes
    tools = None
    try:
        tools = _tools(render, template)
        if tools is None and not render.ignores_tools():
            notes += (_NO_TOOLS,)
    except _FAILURES:
        notes += (_NO_TOOLS,)
    notes += (_DATED,) if "strftime_now" in jinja else ()
    return replace(template, tools=tools, notes=notes)


_FAILURES = (TemplateError, ValueError, TypeError, LookupError, AttributeError, ArithmeticError, RecursionError)
"""What a template that came with a file may end in."""
_NO_TOOLS = "tools: the template has them in a form that was not recognised, so Ollama will say that the model takes none"
_NO_SYSTEM = "system messages: the template takes none"
_DATED = "the date: the template writes that of the day, Ollama's will keep the one of its making"
_WHOLE = "the template asks for whole objects"
_TOOLS = tuple(
    {
        "type": "function",
        "function": {
            "name": f"Qtool{n}Q",
            "description": f"Qabout{n}Q",
            "parameters": {"type": "object", "properties": {"Qkey": {"type": "string"}}, "required": ["Qkey"]},
        },
    }
    for n in (0, 1)
)


class _Renderer:
    """A Jinja template, rendered as Hugging Face's tokenizers do. It comes with the file: the environment is a sandbox."""

    def __init__(self, jinja: str, *, bos: str, eos: str) -> None:
        environment = ImmutableSandboxedEnvironment(
            trim_blocks=True, lstrip_blocks=True, extensions=[_Generation, loopcontrols]
        )
        environment.filters["tojson"] = _json
        environment.globals["raise_exception"] = _raise_exception
        environment.globals["strftime_now"] = _now
        self._template = environment.from_string(jinja)
        self._tokens = {"bos_token": bos, "eos_token": eos}

    def __call__(self, messages: Sequence[Message], *, generation: bool = False, tools: Sequence[Any] = ()) -> str:
        return self._template.render(
            messages=messages, tools=list(tools) or None, add_generation_prompt=generation, **self._tokens
        )

    def unended(self, text: str, longer: str) -> str:
        """Without the end-of-text token that some templates set only behind the last turn."""
        return text if longer.startswith(text) else text.removesuffix(self._tokens["eos_token"])

    def ignores_tools(self) -> bool:
        return self([_user(0)], tools=_TOOLS) == self([_user(0)])


def _plain(render: _Renderer) -> GoTemplate:
    """The parts of conversations without tools.

    Raises:
        ValueError: They are not set one after the other, or some conversation comes out otherwise.
    """
    start_and_user, user_end = _split(render([_user(0)]), _U.format(0))
    opened = _split(render([_user(0)], generation=True), _U.format(0))[1]
    user_end = render.unended(user_end, opened)
    generation = _without_prefix(opened, user_end)
    _, middle, second, _ = _split(render([_user(0), _assistant(0), _user(1)]), _U.format(0), _A.format(0), _U.format(1))
    assistant_end = render.unended(_split(render([_user(0), _assistant(0)]), _A.format(0))[1], second)
    assistant, user = _without_prefix(middle, user_end), _without_prefix(second, assistant_end)
    template = GoTemplate(
        system=("", ""),
        start=_without_suffix(start_and_user, user),
        user=(user, user_end),
        assistant=(assistant, assistant_end),
        generation=generation,
    )
    _check_same(render, template, system=False)
    try:
        before, after, _ = _split(render([_system(), _user(0)]), _S, _U.format(0))
    except (TemplateError, ValueError):
        return replace(template, system=(template.start, ""), notes=(_NO_SYSTEM,))
    merged = not after.endswith(user)
    with_system = replace(template, system=(before, after if merged else _without_suffix(after, user)), merged=merged)
    _check_same(render, with_system, system=False)
    _check_same(render, with_system, system=True)
    return with_system


def _tools(render: _Renderer, template: GoTemplate) -> ToolTemplate | None:
    """What stands around tools; `None` when the template ignores them.

    Raises:
        ValueError: They stand where they cannot be put in Go.
    """
    if render.ignores_tools() or template.merged:
        return None
    with_system = render([_system(), _user(0)], tools=_TOOLS)
    bare = _json(_TOOLS[0]) not in with_system
    first, second = (_json(tool["function"] if bare else tool) for tool in _TOOLS)
    before, to_tools, between, after, _ = _split(with_system, _S, first, second, _U.format(0))
    without, _, after_too, _ = _split(render([_user(0)], tools=_TOOLS), first, second, _U.format(0))
    if after != after_too:
        raise ValueError(_WHOLE)
    # Not as the last turn: some templates set that one otherwise, as the place where the model thinks.
    called = render([_user(0), _calls(2), _user(1)], tools=_TOOLS).partition(_U.format(0))[2]
    name, middle, more, middle_too, to_user, _ = _split(
        called, "Qtool0Q", _ARGUMENTS[0], "Qtool1Q", _ARGUMENTS[1], _U.format(1)
    )
    if middle != middle_too:
        raise ValueError(_WHOLE)
    opening, end = _without_prefix(name, template.user[1]), _without_suffix(to_user, template.user[0])
    talk = [_user(0), _calls(1), _result(), _assistant(0), _user(1)]
    _, to_result, to_answer, _ = _split(render(talk, tools=_TOOLS), _ARGUMENTS[0], _T, _A.format(0))
    return ToolTemplate(
        with_system=(before, to_tools),
        without_system=without,
        between=between,
        after=_without_suffix(after, template.user[0]),
        bare=bare,
        call=(_without_prefix(opening, template.assistant[0]), middle, more, _without_suffix(end, template.assistant[1])),
        result=(_without_prefix(to_result, end), _without_suffix(to_answer, template.assistant[0])),
    )


def _check_same(render: _Renderer, template: GoTemplate, *, system: bool) -> None:
    """Whether conversations come out as Jinja sets them."""
    opening = [_system()] if system else []
    turns = [_user(0), _assistant(0), _user(1), _assistant(1), _user(2)]
    for length in (1, 3, 5):
        messages = [*opening, *turns[:length]]
        if render(messages, generation=True) != template.render(messages):
            raise ValueError("a conversation comes out otherwise")


def _split(text: str, *parts: str) -> list[str]:
    """What stands before, between and behind `parts`, which must follow each other."""
    pieces = []
    for part in parts:
        before, separator, text = text.partition(part)
        if not separator:
            raise ValueError(f"{part} is not where it should be")
        pieces.append(before)
    return [*pieces, text]


def _without_prefix(text: str, start: str) -> str:
    if not text.startswith(start):
        raise ValueError(f"{text!r} does not begin with {start!r}")
    return text[len(start) :]


def _without_suffix(text: str, end: str) -> str:
    if not text.endswith(end):
        raise ValueError(f"{text!r} does not end with {end!r}")
    return text[: len(text) - len(end)]


_ARGUMENTS = tuple(f'{{"Qkey": "Qvalue{n}Q"}}' for n in (0, 1))


def _system() -> Message:
    return {"role": "system", "content": _S}


def _user(number: int) -> Message:
    return {"role": "user", "content": _U.format(number)}


def _assistant(number: int) -> Message:
    return {"role": "assistant", "content": _A.format(number)}


def _calls(count: int) -> Message:
    calls = [
        {"type": "function", "id": f"call{n}", "function": {"name": f"Qtool{n}Q", "arguments": {"Qkey": f"Qvalue{n}Q"}}}
        for n in range(count)
    ]
    return {"role": "assistant", "content": "", "tool_calls": calls}


def _result() -> Message:
    return {"role": "tool", "content": _T, "name": "Qtool0Q", "tool_call_id": "call0"}


def _json(value: Any, ensure_ascii: bool = False, **more: Any) -> str:
    """As Hugging Face's tokenizers write JSON: without HTML's escapes."""
    return json.dumps(value, ensure_ascii=ensure_ascii, **more)


def _raise_exception(message: str) -> None:
    raise TemplateError(message)


def _now(form: str) -> str:
    from datetime import datetime

    return datetime.now().strftime(form)


class _Generation(Extension):
    """`{% generation %}`, by which templates mark what is trained on, means nothing here."""

    tags = {"generation"}  # noqa: RUF012 - as Jinja declares it

    def parse(self, parser: Any) -> Any:
        next(parser.stream)
        return parser.parse_statements(("name:endgeneration",), drop_needle=True)
