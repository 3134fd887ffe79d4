"""Values of somebody's program, as text. Nothing here raises, whatever their own code does."""

import json
from collections.abc import Mapping
from dataclasses import asdict, is_dataclass
from typing import Any

MOST = 200_000
"""Characters of one text."""


def told(value: Any) -> str:
    """A text as it is, and anything else as JSON; what JSON does not know is written as its `repr`."""
    if isinstance(value, str):
        return value if len(value) <= MOST else _cut(value)
    if value is None:
        return ""
    try:
        return _cut(json.dumps(value, ensure_ascii=False, default=_plain))
    except Exception:  # noqa: BLE001 - the host's own code runs here, and recording must not stop it
        return _cut(_repr(value))


def _plain(value: Any) -> Any:
    if is_dataclass(value) and not isinstance(value, type):
        return asdict(value)
    if hasattr(value, "model_dump"):
        return value.model_dump(mode="json")
    if isinstance(value, Mapping):
        return dict(value)
    if isinstance(value, set | frozenset | tuple):
        return list(value)
    return _repr(value)


def _repr(value: Any) -> str:
    try:
        return repr(value)
    except Exception:  # noqa: BLE001 - the host's own code runs here
        return f"<{type(value).__name__} that cannot be shown>"


def _cut(text: str) -> str:
    return text if len(text) <= MOST else f"{text[:MOST]}… [{len(text) - MOST} characters more]"


def failure(error: BaseException) -> str:
    """An exception as `ErrorName: message`."""
    try:
        message = str(error)
    except Exception:  # noqa: BLE001 - the host's own code runs here
        message = "a message that cannot be shown"
    return _cut(f"{type(error).__name__}: {message}")
