"""What is in a GGUF file: what its header says, read without its weights and without a library; and what an export tells.

The format is that of https://github.com/ggml-org/ggml/blob/master/docs/gguf.md, versions 2 and 3, little-endian.
"""

import struct
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, BinaryIO

from journeyman.core.errors import InputError

if TYPE_CHECKING:
    from journeyman.optimizers.weights.merge import Merged

_SCALARS = {0: "B", 1: "b", 2: "H", 3: "h", 4: "I", 5: "i", 6: "f", 7: "?", 10: "Q", 11: "q", 12: "d"}
"""The types of values that have one width, as `struct` names them."""
_STRING, _ARRAY = 8, 9
_FILE_TYPES = {
    0: "F32", 1: "F16", 2: "Q4_0", 3: "Q4_1", 7: "Q8_0", 8: "Q5_0", 9: "Q5_1", 10: "Q2_K", 11: "Q3_K_S", 12: "Q3_K_M",
    13: "Q3_K_L", 14: "Q4_K_S", 15: "Q4_K_M", 16: "Q5_K_S", 17: "Q5_K_M", 18: "Q6_K", 32: "BF16",
}  # fmt: skip
"""Values of `general.file_type`, as llama.cpp numbers them."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Header:
    """The metadata of a model. What the file does not tell is `None` or empty."""

    path: Path
    size: int
    """Bytes of the whole file."""
    values: Mapping[str, Any]

    @property
    def architecture(self) -> str:
        return str(self.values.get("general.architecture", ""))

    @property
    def name(self) -> str:
        return str(self.values.get("general.name", ""))

    @property
    def licence(self) -> str:
        """As the author wrote it, mostly a short name such as apache-2.0."""
        return str(self.values.get("general.license", ""))

    @property
    def quantization(self) -> str | None:
        """Of most of its weights."""
        return _FILE_TYPES.get(self.values.get("general.file_type", -1))

    @property
    def chat_template(self) -> str:
        """In Jinja."""
        return str(self.values.get("tokenizer.chat_template", ""))

    @property
    def context_length(self) -> int | None:
        """Tokens that the model was trained for."""
        return self._own("context_length")

    @property
    def vocabulary(self) -> int:
        """Tokens."""
        return len(self.values.get("tokenizer.ggml.tokens", ())) or self._own("vocab_size") or 0

    @property
    def cache_values(self) -> int | None:
        """Numbers that the key-value cache keeps of one token, over all layers: Σ heads × (key length + value length)."""
        layers, heads, width = self._own("block_count"), self._own("attention.head_count"), self._own("embedding_length")
        if layers is None or not heads or width is None:
            return None
        each = self.values.get(f"{self.architecture}.attention.head_count_kv")
        kv_heads = sum(each) if isinstance(each, tuple) else (self._own("attention.head_count_kv") or heads) * layers
        lengths = [self._own(f"attention.{kind}_length") or width // heads for kind in ("key", "value")]
        return int(kv_heads * sum(lengths))

    def token(self, kind: str) -> str:
        """The text of a special token, `bos` or `eos`; empty when there is none."""
        number, tokens = self.values.get(f"tokenizer.ggml.{kind}_token_id"), self.values.get("tokenizer.ggml.tokens", ())
        return str(tokens[number]) if isinstance(number, int) and 0 <= number < len(tokens) else ""

    @property
    def adds_bos(self) -> bool:
        """Whether llama.cpp sets the first token itself. Unless the file tells, it does so for SentencePiece alone."""
        spoken = self.values.get("tokenizer.ggml.add_bos_token")
        return bool(spoken) if spoken is not None else self.values.get("tokenizer.ggml.model") == "llama"

    def _own(self, key: str) -> int | None:
        value = self.values.get(f"{self.architecture}.{key}")
        return value if isinstance(value, int) else None


def read_header(path: Path) -> Header:
    """The metadata of a GGUF file.

    Raises:
        InputError: It is not there, it is none, or it ends too early.
    """
    if not path.is_file():
        raise InputError(f"there is no file {path}: export one with journeyman export gguf")
    size = path.stat().st_size
    with path.open("rb") as file:
        reader = _Reader(path, file, size)
        if file.read(4) != b"GGUF":
            raise InputError(f"{path} is no GGUF file")
        version = reader.scalar("I")
        if version not in (2, 3):
            raise InputError(f"{path} is GGUF of version {version}; versions 2 and 3 can be read: convert the model again")
        _tensors, count = reader.scalar("Q"), reader.scalar("Q")
        values = {}
        for _ in range(count):
            key = reader.string()
            values[key] = reader.value(reader.scalar("I"))
    return Header(path=path, size=size, values=values)


@dataclass(frozen=True, slots=True)
class _Reader:
    path: Path
    file: BinaryIO
    size: int

    def value(self, kind: int) -> Any:
        if kind == _STRING:
            return self.string()
        if kind == _ARRAY:
            return self.array()
        return self.scalar(self.width(kind))

    def array(self) -> tuple[Any, ...]:
        kind, count = self.scalar("I"), self.scalar("Q")
        if kind == _STRING:
            # Each has a length of eight bytes: a count that cannot be is noticed before anything is kept.
            self.check(8 * count)
            return tuple(self.string() for _ in range(count))
        width = self.width(kind)
        return struct.unpack(f"<{count}{width}", self.bytes(count * struct.calcsize(f"<{width}")))

    def width(self, kind: int) -> str:
        if kind not in _SCALARS:
            raise InputError(f"{self.path} holds a value of the kind {kind}, which GGUF does not have: the file is damaged")
        return _SCALARS[kind]

    def scalar(self, width: str) -> Any:
        return struct.unpack(f"<{width}", self.bytes(struct.calcsize(f"<{width}")))[0]

    def string(self) -> str:
        return self.bytes(self.scalar("Q")).decode("utf-8", "replace")

    def bytes(self, count: int) -> bytes:
        self.check(count)
        return self.file.read(count)

    def check(self, count: int) -> None:
        if count > self.size - self.file.tell():
            raise InputError(f"{self.path} ends in the middle of its header: copy or convert it again")


# How an export went.

Text = str | Sequence[Mapping[str, Any]]
"""A text, or a conversation of messages; where somebody else spoke last, the model's reply is part of what is measured."""
WRITTEN = ("F32", "F16", "BF16")
"""Types that need no llama.cpp."""
QUANTISED = ("Q8_0", "Q6_K", "Q5_K_M", "Q4_K_M", "Q4_0", "Q3_K_M", "Q2_K")
TYPES = (*WRITTEN, *QUANTISED)
"""From the most exact to the smallest."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Replaced:
    """Matrices that did not become what was asked for, as their rows do not fit it."""

    tensors: int
    width: int
    """Of their rows."""
    became: str
    """The type that llama.cpp gave them instead."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Contents:
    """What is in a file."""

    size: int
    """In bytes, of the whole file."""
    types: Mapping[str, int]
    """Matrices of each type."""
    replaced: tuple[Replaced, ...]
    """llama.cpp says nothing of these itself."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Cost:
    """How a file predicts, beside the original."""

    tokens: int
    """Positions that were compared."""
    perplexity: float
    original: float
    """The original's perplexity."""
    divergence: float
    """The mean Kullback-Leibler divergence of the file's predictions from the original's, in nats."""
    worst: float
    """The 99th percentile of the divergence at one position."""
    agreement: float
    """The share of positions at which both think the same token the likeliest."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ExportedFile:
    """One file."""

    path: Path
    type: str
    contents: Contents
    cost: Cost | None
    """`None` where it was not measured."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Export:
    """What was made of a model."""

    model: str
    """Its folder or the adapter's."""
    architecture: str
    parameters: int
    original: str
    """The type of the weights as they came: what the files are held against."""
    size: int
    """Of the weights as they came, in bytes."""
    merged: "Merged | None"
    """How well the merged model agrees with base and adapter; `None` where nothing was merged."""
    agreeing: int
    """Probe texts of which llama.cpp makes the same tokens as the model's own tokenizer."""
    probed: int
    """0 where llama.cpp is not installed."""
    notes: tuple[str, ...]
    """What whoever uses the files should know, a sentence each."""
    files: tuple[ExportedFile, ...]

    def json(self) -> dict[str, Any]:
        return asdict(self)
