"""OpenAI's embeddings. The numbers are not kept; how many there were is."""

from typing import Any

from journeyman.capture.exchanges.reading import Reading, beside
from journeyman.capture.fields import count, mapping, objects, string, word
from journeyman.core.messages import Turn, Usage


def read(request: dict[str, Any], answer: dict[str, Any], error: str | None) -> Reading:
    """Raises nothing, whatever the two hold."""
    usage = mapping(answer.get("usage"))
    sent = count(usage.get("prompt_tokens"))
    sent = count(usage.get("total_tokens")) if sent is None else sent
    return Reading(
        model=word(answer.get("model")) or string(request.get("model")),
        turns=tuple(Turn("user", text) for text in _inputs(request.get("input"))),
        reply=Turn("assistant", _shape(objects(answer.get("data")))),
        # Numbers come back instead of tokens: none is known here, not unknown.
        usage=Usage(input=sent, output=None if sent is None else 0),
        response_id=word(answer.get("id")),
        error=error,
        raw=beside(request, usage, "input", "model"),
    )


def _inputs(given: Any) -> list[str]:
    if isinstance(given, str):
        return [given]
    if not isinstance(given, list) or not given:
        return []
    if all(isinstance(each, int) for each in given):
        return [f"[{len(given)} tokens]"]
    return [each if isinstance(each, str) else f"[{len(each)} tokens]" for each in given if isinstance(each, str | list)]


def _shape(data: list[dict[str, Any]]) -> str:
    if not data:
        return ""
    first = data[0].get("embedding")
    numbers = len(first) if isinstance(first, list) else len(string(first)) * 3 // 4 // 4
    return f"[{len(data)} × {numbers} numbers]"
