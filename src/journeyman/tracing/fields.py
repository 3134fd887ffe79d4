"""Reading JSON of which nothing is certain: what is not what it should be is unknown, and stops nobody."""

import json
import re
from collections.abc import Mapping
from datetime import UTC, datetime
from math import isfinite
from typing import Any, TypeVar

from pydantic import BaseModel, ValidationError

from journeyman.core.errors import TraceError
from journeyman.core.reward import Reward

Model = TypeVar("Model", bound=BaseModel)
_MILLIS = 1e11
"""Numbers above it are milliseconds since 1970, below it seconds: until the year 5138."""


def time(value: Any) -> datetime | None:
    """A time from ISO 8601, or from seconds or milliseconds since 1970. Without a zone it is taken for UTC."""
    try:
        if isinstance(value, str):
            found = datetime.fromisoformat(value)
            return found if found.tzinfo else found.replace(tzinfo=UTC)
        if isinstance(value, int | float) and not isinstance(value, bool):
            return datetime.fromtimestamp(value / 1000 if value > _MILLIS else value, UTC)
    except (ValueError, OverflowError, OSError):
        pass
    return None


def count(value: Any) -> int | None:
    """A number of tokens, or an index; what is none, such as -1 or 3.5, is not known."""
    return value if type(value) is int and value >= 0 else None


def first_count(holder: Any, *names: str) -> int | None:
    """The first of these fields that is a count."""
    if isinstance(holder, Mapping):
        for name in names:
            if (value := count(holder.get(name))) is not None:
                return value
    return None


def number(value: Any) -> float | None:
    """A finite number that is not negative; what is none is not known."""
    if isinstance(value, bool) or not isinstance(value, int | float):
        return None
    try:
        found = float(value)
    except OverflowError:
        return None
    return found if isfinite(found) and found >= 0 else None


def seconds(start: datetime | None, end: datetime | None) -> float | None:
    """The time between; unknown where the end is before the start, or one of them is not known."""
    if start is None or end is None or end < start:
        return None
    return (end - start).total_seconds()


def flag(value: Any) -> bool | None:
    """True or false; anything else is not known."""
    return value if isinstance(value, bool) else None


def string(value: Any) -> str:
    """A text, or an empty one."""
    return value if isinstance(value, str) else ""


def word(value: Any) -> str | None:
    """A text that is not empty."""
    return value if isinstance(value, str) and value else None


def text(value: Any) -> str:
    """A text as it is, nothing for nothing, else JSON."""
    if isinstance(value, str):
        return value
    return "" if value is None else as_json(value)


def as_json(value: Any) -> str:
    """A value as JSON, as text is kept."""
    return json.dumps(value, ensure_ascii=False, default=str)


def parsed(body: bytes | str) -> Any:
    """The value that a text is, or `None` when it is no JSON."""
    try:
        return json.loads(body)
    except (ValueError, RecursionError):
        pass
    try:
        return json.loads(body.decode(errors="replace")) if isinstance(body, bytes) else None
    except (ValueError, RecursionError):
        return None


def parsed_if_json(value: Any) -> Any:
    """What a text holds that is a JSON object or list; anything else as it is."""
    if isinstance(value, str) and value[:1] in "{[" and value[-64:].rstrip()[-1:] in "}]":
        found = parsed(value)
        return value if found is None else found
    return value


def mapping(value: Any) -> dict[str, Any]:
    """An object, or an empty one."""
    return value if isinstance(value, dict) else {}


def objects(value: Any) -> list[dict[str, Any]]:
    """The objects of a list; what else is in it is left out."""
    return [each for each in value if isinstance(each, dict)] if isinstance(value, list) else []


_TOOLS = ("tools", "gen_ai.tool.definitions")
_OPENINFERENCE = re.compile(r"llm\.tools\.\d+\.tool\.json_schema")


def recorded_tools(raw: Mapping[str, Any]) -> list[dict[str, Any]]:
    """The definitions of the tools that a request declared, from what its recorder kept: objects, or these as one text; of
    spans what the GenAI conventions or OpenInference call so."""
    told = first(raw, *_TOOLS)
    found = objects(list(told) if isinstance(told, tuple) else parsed_if_json(told))
    return found or objects([parsed_if_json(value) for key, value in raw.items() if _OPENINFERENCE.fullmatch(key)])


def first(holder: Mapping[str, Any], *names: str) -> Any:
    """The value of the first of these fields that is there, and is not empty."""
    for name in names:
        value = holder.get(name)
        if value is not None and value not in ("", [], {}):
            return value
    return None


def without_empty(**told: Any) -> dict[str, Any]:
    """Those that say something."""
    return {name: value for name, value in told.items() if value not in (None, "", [], {})}


def fault(error: ValidationError, *where: object) -> str:
    """What is wrong first, behind its place: `steps.3.model: Field required`. `where` is the place of what was validated."""
    first = error.errors(include_url=False, include_input=False)[0]
    return f"{'.'.join(map(str, (*where, *first['loc'])))}: {first['msg']}"


def validated(model: type[Model], record: Mapping[str, Any]) -> Model:
    """A record as a pydantic model has it.

    Raises:
        TraceError: A field cannot be what it is; the message names the field.
    """
    try:
        return model.model_validate(record)
    except ValidationError as error:
        raise TraceError(fault(error)) from None


def reward(name: str, value: Any, evidence: str = "", *, weight: float = 1.0) -> Reward:
    """A recorder's verdict. What is outside 0 to 1 is brought to the nearer end, and the evidence says what was recorded."""
    if isinstance(value, bool):
        return Reward(name=name, value=float(value), evidence=evidence, weight=weight)
    if not isinstance(value, int | float) or value != value:
        said = "" if value is None else f"recorded as {value!r:.80}"
        return Reward(name=name, value=None, evidence="; ".join(filter(None, (said, evidence))), weight=weight)
    within = float(min(max(value, 0), 1))
    if within != value:
        evidence = "; ".join(filter(None, (f"recorded as {value!s:.40}", evidence)))
    return Reward(name=name, value=within, evidence=evidence, weight=weight)
