"""A chat template as Ollama takes it, in Go: what stands around the parts of a conversation.

Go's templates: https://pkg.go.dev/text/template; the names in them: Ollama's documentation of TEMPLATE.
"""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

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
            turns.append(("assistant", assistant + _calls(self.tools) + _go(self.assistant[1])))
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


def _calls(tools: ToolTemplate) -> str:
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
