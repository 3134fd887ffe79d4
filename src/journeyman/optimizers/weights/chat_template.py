"""A model's chat template, which is Jinja, as one of Ollama, which is Go's.

Ollama knows the templates of some models by heart; to any other it sends the bare prompt, and a tuned model answers nonsense.
So the template is asked how it sets a few conversations, what stands around their parts is written down in Go, and the two are
compared on longer conversations. What could not be carried over is said.
"""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from jinja2 import TemplateError
from jinja2.ext import Extension, loopcontrols
from jinja2.sandbox import ImmutableSandboxedEnvironment

# A chat template as Ollama takes it, in Go: what stands around the parts of a conversation.
#
# Go's templates: https://pkg.go.dev/text/template; the names in them: Ollama's documentation of TEMPLATE.

Message = Mapping[str, Any]


@dataclass(frozen=True, slots=True, kw_only=True)
class ToolTemplate:
    """What stands around tools, their calls and their results."""

    with_system: tuple[str, str]
    """Before the system message, and between it and the first tool."""
    without_system: str
    """Before the first tool."""
    between: str
    after: str
    """From the last tool to the first turn."""
    bare: bool
    """Only what stands under `function`, not the whole object."""
    call: tuple[str, str, str, str]
    """Before a name, between it and its arguments, between two calls, and after the last."""
    result: tuple[str, str]


@dataclass(frozen=True, slots=True, kw_only=True)
class GoTemplate:
    """Written once, and rendered here as Ollama would."""

    system: tuple[str, str]
    """Around the system message, up to the first turn; to the first user's words where it is `merged`."""
    start: str
    """What stands there without one."""
    user: tuple[str, str]
    assistant: tuple[str, str]
    generation: str
    """What makes the model speak."""
    merged: bool = False
    """The system message stands within the first user's turn."""
    tools: ToolTemplate | None = None
    notes: tuple[str, ...] = ()
    """What is not carried over, each a sentence."""

    @property
    def stop(self) -> tuple[str, ...]:
        """What ends a turn of the model."""
        ending = self.assistant[1].strip()
        return (ending,) if ending else ()

    def render(self, messages: Sequence[Message]) -> str:
        """A conversation without tools, and what makes the model speak: what `text` says, in Python."""
        system = "\n\n".join(str(message["content"]) for message in messages if message["role"] == "system")
        opening = self.system[0] + system + self.system[1] if system else self.start
        first_user = opening if system else opening + self.user[0]
        out, first = ("", True) if self.merged else (opening, False)
        for message in messages:
            if message["role"] == "user":
                out += (first_user if first else self.user[0]) + str(message["content"]) + self.user[1]
                first = False
            elif message["role"] == "assistant":
                out += self.assistant[0] + str(message["content"]) + self.assistant[1]
        return out + self.generation

    @property
    def text(self) -> str:
        """The template in Go."""
        assistant = _go(self.assistant[0]) + "{{ .Content }}"
        turns = [("user", self._user() + "{{ .Content }}" + _go(self.user[1]))]
        if self.tools is None:
            turns.append(("assistant", assistant + _go(self.assistant[1])))
        else:
            turns.append(("assistant", assistant + _calls_go_template(self.tools) + _go(self.assistant[1])))
            turns.append(("tool", _go(self.tools.result[0]) + "{{ .Content }}" + _go(self.tools.result[1])))
        chosen = "{{ else ".join(f'if eq .Role "{role}" }}}}{turn}' for role, turn in turns)
        return self._opening() + _each(".Messages", "{{ " + chosen + "{{ end }}") + _go(self.generation)

    def _opening(self) -> str:
        if self.merged:
            return "{{ $first := true }}"
        plain = _if(".System", _around("{{ .System }}", self.system), _go(self.start))
        if self.tools is None:
            return plain
        tools = self.tools
        one = "{{ .Function }}" if tools.bare else '{"type": "function", "function": {{ .Function }}}'
        opened = _if(".System", _around("{{ .System }}", tools.with_system), _go(tools.without_system))
        listed = _each("$i, $tool := .Tools", _if("$i", _go(tools.between)) + one)
        return _if(".Tools", opened + listed + _go(tools.after), plain)

    def _user(self) -> str:
        """Up to the user's words."""
        if not self.merged:
            return _go(self.user[0])
        opening = _if("$.System", _around("{{ $.System }}", self.system), _go(self.start + self.user[0]))
        return _if("$first", opening + "{{ $first = false }}", _go(self.user[0]))


def _calls_go_template(tools: ToolTemplate) -> str:
    """The calls of a turn. Ollama reads here how the model writes one: by the first words in the condition, up to a brace."""
    opening, middle, between, after = tools.call
    one = _if("$i", _go(between)) + "{{ .Function.Name }}" + _go(middle) + "{{ .Function.Arguments }}"
    return _if(".ToolCalls", _go(opening) + _each("$i, $call := .ToolCalls", one) + _go(after))


def _if(condition: str, then: str, otherwise: str = "") -> str:
    return "{{ if " + condition + " }}" + then + ("{{ else }}" + otherwise if otherwise else "") + "{{ end }}"


def _each(named: str, then: str) -> str:
    return "{{ range " + named + " }}" + then + "{{ end }}"


def _around(value: str, text: tuple[str, str]) -> str:
    return _go(text[0]) + value + _go(text[1])


def _go(text: str) -> str:
    """As it is; quoted, where Go would take it for its own."""
    return "{{ " + json.dumps(text, ensure_ascii=False) + " }}" if "{{" in text or text.endswith("{") else text


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
