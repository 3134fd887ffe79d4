"""Reading JSON of which nothing is certain. Nothing here raises."""

import json
from collections.abc import Mapping
from typing import Any

from journeyman.capture.fields import mapping, objects

_SHORT = 500
"""Characters of a message that is no JSON."""


def parsed(body: bytes | str) -> Any:
    """The value, or `None` when it is no JSON."""
    try:
        return json.loads(body)
    except (ValueError, RecursionError):
        pass
    try:
        return json.loads(body.decode(errors="replace")) if isinstance(body, bytes) else None
    except (ValueError, RecursionError):
        return None


def string(value: Any) -> str:
    return value if isinstance(value, str) else ""


def word(value: Any) -> str | None:
    """A text that is not empty."""
    return value if isinstance(value, str) and value else None


def dumped(value: Any) -> str:
    """Arguments as JSON: as the model wrote them, or written anew where the provider parsed them."""
    if isinstance(value, str):
        return value
    return json.dumps({} if value is None else value, ensure_ascii=False)


def beside(request: Mapping[str, Any], usage: Mapping[str, Any], *but: str) -> dict[str, Any]:
    """What is kept of an exchange beside its steps: the provider's own count of tokens, and the parameters of the request,
    which are everything `but` what is kept elsewhere. Of tools the names stay."""
    kept = {key: value for key, value in request.items() if key not in but and value is not None}
    for key in ("tools", "functions"):
        if key in kept:
            kept[key] = [_tool_name(tool) for tool in objects(kept[key])]
    return {"request": kept, "usage": usage} if usage else {"request": kept}


def _tool_name(tool: Mapping[str, Any]) -> str:
    return string(tool.get("name")) or string(mapping(tool.get("function")).get("name")) or string(tool.get("type"))


def complaint(body: Any, raw: bytes, status: int | None) -> str | None:
    """What an answer says went wrong, as `name: message`; `None` for one that does not complain."""
    said = mapping(body)
    told = said.get("error") or said.get("errors")
    bad = status is not None and status >= 400
    if not told and not bad:
        return None
    about = mapping(next(iter(objects(told)), None) if isinstance(told, list) else told)
    name = word(about.get("type")) or word(about.get("code")) or word(about.get("status")) or "error"
    message = word(about.get("message")) or word(told) or word(said.get("message")) or _detail(said)
    if message is None:
        message = dumped(told) if told else raw[:_SHORT].decode(errors="replace").strip() or "no reason was given"
    return f"{name}: {message}" + (f" (HTTP {status})" if bad else "")


def _detail(said: Mapping[str, Any]) -> str | None:
    detail = said.get("detail")
    return None if detail is None else dumped(detail)


def size(length: int) -> str:
    """Bytes, for a reader: "120 B", "3 kB", "1.2 MB"."""
    if length < 1000:
        return f"{length} B"
    return f"{length / 1000:.0f} kB" if length < 1_000_000 else f"{length / 1_000_000:.1f} MB"


def base64_size(data: str) -> str:
    return size(len(data) * 3 // 4)
