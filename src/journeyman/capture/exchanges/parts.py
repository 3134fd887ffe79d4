"""The parts of a message's content, as text: what is not text is named in brackets."""

from typing import Any

from journeyman.capture.exchanges.loose import base64_size, string, word
from journeyman.capture.fields import mapping, objects

_TEXTS = ("text", "input_text", "output_text", "summary_text", "reasoning_text")
_SILENT = ("thinking", "redacted_thinking", "reasoning")
"""Kept as reasoning, not as what was said."""


def text(content: Any, *, between: str = "\n") -> str:
    """The text of a content that is a string or a list of parts."""
    if isinstance(content, str):
        return content
    if isinstance(content, dict):
        content = [content]
    if not isinstance(content, list):
        return ""
    found = (part if isinstance(part, str) else one(part) for part in content if isinstance(part, str | dict))
    return between.join(each for each in found if each)


def one(part: dict[str, Any]) -> str:
    """The text of one part."""
    kind = string(part.get("type"))
    if kind in _TEXTS or (not kind and "text" in part):
        return string(part.get("text"))
    if kind == "refusal":
        return string(part.get("refusal"))
    if kind in _SILENT:
        return ""
    if kind in ("search_result", "web_search_result"):
        return text(part.get("content")) or f"[{kind} {string(part.get('title'))}]"
    return named(part, kind)


def named(part: dict[str, Any], kind: str) -> str:
    """A picture, a sound or a file, in brackets."""
    source = mapping(part.get("source"))
    if string(source.get("type")) in ("text", "content"):
        return string(source.get("data")) or text(source.get("content"))
    inner = mapping(part.get(kind))
    name = word(part.get("filename")) or word(inner.get("filename")) or word(part.get("title"))
    data, where, media = _where(part, inner, source)
    what = media or kind.removeprefix("input_").removesuffix("_url") or "part"
    said = " ".join(each for each in (what, name or where) if each)
    return f"[{said}, {base64_size(data)}]" if data else f"[{said}]"


def _where(part: dict[str, Any], inner: dict[str, Any], source: dict[str, Any]) -> tuple[str, str, str]:
    """Base64 data, address or id, and media type: as far as each is there."""
    link = string(part.get("image_url")) or string(inner.get("url")) or string(source.get("url"))
    link = link or string(part.get("file_url")) or string(part.get("url"))
    data = string(inner.get("data")) or string(inner.get("file_data")) or string(source.get("data"))
    data = data or string(part.get("file_data")) or string(part.get("data"))
    media = string(source.get("media_type"))
    if fmt := string(inner.get("format")):
        media = f"audio/{fmt}"
    for url in (link, data):
        if url.startswith("data:"):
            head, _, data = url.partition(",")
            media = head[5:].partition(";")[0]
            link = "" if url is link else link
    where = link or string(part.get("file_id")) or string(inner.get("file_id")) or string(source.get("file_id"))
    return data, where[:200], media


def thoughts(content: Any) -> tuple[str, ...]:
    """The reasoning that stands among the parts of a content."""
    found = []
    for part in objects(content):
        if part.get("type") in _SILENT:
            inner = part.get("thinking") or part.get("reasoning") or part.get("summary") or part.get("content")
            found.append(text(inner))
    return tuple(each for each in found if each)
