"""GGUF files made in the test: a header by hand, as the format describes it, and few or no weights."""

import struct
from collections.abc import Mapping
from pathlib import Path
from typing import Any

CHATML = (
    "{% for message in messages %}<|im_start|>{{ message['role'] }}\n{{ message['content'] }}<|im_end|>\n{% endfor %}"
    "{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}"
)
TINY = {
    "general.architecture": "qwen2",
    "general.name": "tiny",
    "general.license": "apache-2.0",
    "general.file_type": 7,
    "qwen2.context_length": 2048,
    "qwen2.block_count": 28,
    "qwen2.embedding_length": 1536,
    "qwen2.attention.head_count": 12,
    "qwen2.attention.head_count_kv": 2,
    "tokenizer.ggml.model": "gpt2",
    "tokenizer.ggml.tokens": ("<|endoftext|>", "<|im_start|>", "<|im_end|>"),
    "tokenizer.ggml.eos_token_id": 2,
    "tokenizer.chat_template": CHATML,
}
"""Shaped as Qwen2.5 1.5B."""


def gguf(path: Path, values: Mapping[str, Any] = TINY, weights: bytes = b"") -> Path:
    """A file with these values, and `weights` behind them as they are."""
    head = b"GGUF" + struct.pack("<IQQ", 3, 0, len(values))
    path.write_bytes(head + b"".join(_text(key) + _value(value) for key, value in values.items()) + weights)
    return path


def _value(value: Any) -> bytes:
    match value:
        case bool():
            return struct.pack("<I?", 7, value)
        case int():
            return struct.pack("<Iq", 11, value)
        case float():
            return struct.pack("<Id", 12, value)
        case str():
            return struct.pack("<I", 8) + _text(value)
        case _:
            kind = 8 if isinstance(value[0], str) else 5
            each = (_text(one) if kind == 8 else struct.pack("<i", one) for one in value)
            return struct.pack("<IIQ", 9, kind, len(value)) + b"".join(each)


def _text(text: str) -> bytes:
    encoded = text.encode()
    return struct.pack("<Q", len(encoded)) + encoded
