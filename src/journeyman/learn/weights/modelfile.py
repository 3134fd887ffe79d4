"""A model as Ollama is told of it: what stands in a Modelfile, and the same as a request of its REST API."""

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from journeyman.errors import InputError

_PART = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.-]{0,79}")
"""Of a name: what Ollama takes as a namespace, a model or a tag."""

Value = str | int | float


@dataclass(frozen=True, slots=True, kw_only=True)
class Modelfile:
    """https://docs.ollama.com/modelfile"""

    weights: str
    """The GGUF file's name."""
    template: str = ""
    """In Go; without one Ollama looks whether it knows the model's own."""
    system: str = ""
    licence: str = ""
    parameters: Mapping[str, Value | tuple[str, ...]] = field(default_factory=dict)

    def __post_init__(self) -> None:
        for name in ("template", "system", "licence"):
            if '"""' in getattr(self, name):
                raise InputError(f'the {name} has """ in it, which no Modelfile can hold: leave them out')

    @property
    def text(self) -> str:
        """As `ollama create -f` takes it, from the folder in which the weights lie."""
        lines = [f"FROM ./{self.weights}"]
        texts = {"TEMPLATE": self.template, "SYSTEM": self.system, "LICENSE": self.licence}
        lines += [f'{keyword} """{text}"""' for keyword, text in texts.items() if text]
        for name, value in self.parameters.items():
            several = value if isinstance(value, tuple) else (value,)
            for one in several:
                lines.append(f"PARAMETER {name} {_quoted(one)}")
        return "\n".join(lines) + "\n"

    def request(self, name: str, digest: str) -> dict[str, Any]:
        """The body of POST /api/create, the weights being a blob of that digest."""
        body = {"template": self.template, "system": self.system, "license": self.licence, "parameters": dict(self.parameters)}
        return {"model": name, "files": {self.weights: f"sha256:{digest}"}} | {
            key: value for key, value in body.items() if value
        }


def check_name(name: str) -> str:
    """The name, if Ollama takes it: `[host/][namespace/]model[:tag]`.

    Raises:
        InputError: It does not.
    """
    where, _, tag = name.rpartition(":") if ":" in name.rpartition("/")[2] else (name, "", "latest")
    *before, model = where.split("/")
    host, namespace = ([""] * 2 + before)[-2:] if len(before) <= 2 else ("?", "?")
    fine = _PART.fullmatch(model) and _PART.fullmatch(tag) and (not namespace or _PART.fullmatch(namespace))
    if not fine or (host and not re.fullmatch(r"[A-Za-z0-9_.:-]+", host)) or "" in before:
        raise InputError(
            f"Ollama takes no model called {name!r}: letters, digits, . _ and -, as in toolbox-agent or me/desk:v2"
        )
    return name


def _quoted(value: Value) -> str:
    if not isinstance(value, str):
        return str(value)
    return f'"""{value}"""' if '"' in value or "\n" in value else f'"{value}"'
