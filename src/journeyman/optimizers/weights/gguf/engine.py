"""llama.cpp in this process: it quantises a model in a file, makes its tokens, and says what it predicts."""

import ctypes
import math
import os
import tempfile
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import llama_cpp
import numpy as np

from journeyman.core.errors import InputError
from journeyman.optimizers.weights.gguf.contents import Cost

CONTEXT = 512
_F32 = 0
_ERROR = 4
_errors: deque[str] = deque(maxlen=4)


@llama_cpp.llama_log_callback  # type: ignore[untyped-decorator]
def _collect_errors(level: int, text: bytes, _: ctypes.c_void_p) -> None:
    if level == _ERROR:
        _errors.append(text.decode(errors="replace").strip())


# It speaks to stderr at length of what is in the report anyway. Why it would not do a thing, it says nowhere else.
llama_cpp.llama_log_set(_collect_errors, ctypes.c_void_p(0))


def llama_cpp_error(doing: str) -> InputError:
    """That llama.cpp would not, and the first thing that it said of it."""
    why = _errors[0] if _errors else "it did not say why"
    _errors.clear()
    return InputError(f"llama.cpp could not {doing}: {why}")


def _half_of_the_cores() -> int:
    # Its threads wait for each other awake: beside other work, one for each core is many times slower than fewer.
    return max(1, len(os.sched_getaffinity(0)) // 2 if hasattr(os, "sched_getaffinity") else (os.cpu_count() or 2) // 2)


@contextmanager
def running(path: Path, *, threads: int | None = None, context: int = CONTEXT) -> Iterator[Any]:
    """The model in a file, as llama.cpp runs it here (`llama_cpp.Llama`), with nothing rounded besides its weights.

    Raises:
        InputError: llama.cpp does not load it.
    """
    _errors.clear()
    try:
        model = llama_cpp.Llama(
            str(path),
            n_ctx=context,
            n_batch=context,
            n_ubatch=context,
            n_threads=threads or _half_of_the_cores(),
            n_threads_batch=threads or _half_of_the_cores(),
            logits_all=True,
            # By default what was attended to is kept in 16 bits.
            type_k=_F32,
            type_v=_F32,
            verbose=False,
        )
    except (ValueError, AssertionError, RuntimeError):
        raise llama_cpp_error(f"load {path.name}") from None
    try:
        yield model
    finally:
        model.close()


@contextmanager
def vocabulary_tokenizer(path: Path) -> Iterator[Callable[[str], list[int]]]:
    """What makes tokens of a text, special ones among them, with only the vocabulary of a file in memory.

    Raises:
        InputError: llama.cpp does not load it.
    """
    _errors.clear()
    parameters = llama_cpp.llama_model_default_params()
    parameters.vocab_only = True
    model = llama_cpp.llama_model_load_from_file(bytes(path), parameters)
    if not model:
        raise llama_cpp_error(f"load the vocabulary of {path.name}")
    vocabulary = llama_cpp.llama_model_get_vocab(model)

    def tokens(text: str) -> list[int]:
        raw = text.encode()
        # A byte is one token at most, and before and behind there may be one each.
        room = (llama_cpp.llama_token * (len(raw) + 8))()
        count = llama_cpp.llama_tokenize(vocabulary, raw, len(raw), room, len(room), True, True)
        return list(room[: max(0, count)])

    try:
        yield tokens
    finally:
        llama_cpp.llama_model_free(model)


def quantise(source: Path, target: Path, kind: str, *, threads: int | None = None) -> None:
    """Write `source` anew with its matrices as `kind`, one of `QUANTISED`.

    Raises:
        InputError: llama.cpp would not.
    """
    parameters = llama_cpp.llama_model_quantize_default_params()
    parameters.ftype = getattr(llama_cpp, f"LLAMA_FTYPE_MOSTLY_{kind}")
    parameters.nthread = threads or 0
    if llama_cpp.llama_model_quantize(bytes(source), bytes(target), ctypes.byref(parameters)):
        raise llama_cpp_error(f"write {source.name} as {kind}")


# What a type costs: how far a quantised model's predictions are from those of the original, token by token.
#
# For each text and each position the probabilities of all tokens are compared: P of the original, Q of the file.
#     perplexity   exp of the mean of -ln Q(the token that follows)
#     divergence   the mean of KL(P || Q) = sum of P ln(P / Q), in nats (Kullback & Leibler 1951)
#     agreement    the share of positions at which both think the same token the likeliest
# as llama.cpp's own perplexity tool has them, here on the texts that the model is for.

TOTAL = 2048
"""Tokens of all texts: with a vocabulary of 150,000 the original's predictions are a file of 1.2 GB for that time."""
REPLY = 64
"""Tokens that the original says at most."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TextSample:
    """A text to predict."""

    text: str
    open: bool = False
    """It ends where the model is to speak: the original's reply, the likeliest token each time, belongs to the text."""


class Yardstick:
    """What the original predicts on some texts. A file is held against it with `cost`.

    The predictions lie in a temporary file, so that two models need not be in memory at once. Use it as a context.
    """

    def __init__(
        self, original: Path, texts: Sequence[TextSample], *, threads: int | None = None, context: int = CONTEXT
    ) -> None:
        """`context` is the longest text that the model can take; of a longer one the beginning counts.

        Raises:
            InputError: No text has two tokens, or llama.cpp does not load the original.
        """
        self._threads, self._context = threads, min(context, CONTEXT)
        self._file = tempfile.TemporaryFile()  # noqa: SIM115 - closed by __exit__
        with running(original, threads=threads, context=self._context) as model:
            self._vocabulary: int = model.n_vocab()
            self._texts = _tokens(model, texts, self._context)
            for text in self._texts:
                self._file.write(_log_probabilities(model, text).tobytes())
        if not self._texts:
            raise InputError("there is nothing to measure on: every text has fewer than two tokens")

    def __enter__(self) -> "Yardstick":
        return self

    def __exit__(self, *error: object) -> None:
        self._file.close()

    def cost(self, path: Path) -> Cost:
        """The cost of a file of the same model and vocabulary."""
        self._file.seek(0)
        with running(path, threads=self._threads, context=self._context) as model:
            parts = [self._compared(model, text) for text in self._texts]
        divergence, surprise, before, agreed = (np.concatenate(each) for each in zip(*parts, strict=True))
        return Cost(
            tokens=divergence.size,
            perplexity=_exp(surprise),
            original=_exp(before),
            divergence=float(divergence.mean()),
            worst=float(np.quantile(divergence, 0.99)),
            agreement=float(agreed.mean()),
        )

    def _compared(self, model: Any, text: Sequence[int]) -> tuple[np.ndarray, ...]:
        p = np.frombuffer(self._file.read(len(text) * self._vocabulary * 4), dtype=np.float32).reshape(len(text), -1)
        q = _log_probabilities(model, text)
        # The last position predicts what is not there to be compared with.
        nexts = (np.arange(len(text) - 1), np.asarray(text[1:]))
        divergence = np.array([_divergence(a, b) for a, b in zip(p[:-1], q[:-1], strict=True)])
        return divergence, -q[nexts], -p[nexts], p[:-1].argmax(axis=1) == q[:-1].argmax(axis=1)


def _tokens(model: Any, texts: Sequence[TextSample], most: int) -> list[list[int]]:
    """The texts' tokens, cut, until there are enough."""
    tokens: list[list[int]] = []
    for sample in texts:
        ids = model.tokenize(sample.text.encode(), add_bos=True, special=True)[:most]
        if sample.open:
            ids += _reply(model, ids, min(REPLY, most - len(ids)))
        if sum(map(len, tokens)) + len(ids) > TOTAL:
            break
        if len(ids) > 1:
            tokens.append(ids)
    return tokens


def _reply(model: Any, prompt: Sequence[int], most: int) -> list[int]:
    reply: list[int] = []
    model.reset()
    model.eval(prompt)
    while len(reply) < most and model.token_eos() not in reply:
        reply.append(int(model.scores[model.n_tokens - 1].argmax()))
        model.eval(reply[-1:])
    return reply


def _log_probabilities(model: Any, text: Sequence[int]) -> np.ndarray:
    """Positions x vocabulary, float32."""
    model.reset()
    model.eval(text)
    logits: np.ndarray = np.array(model.scores[: len(text)])
    for row in logits:
        exact = row.astype(np.float64) - row.max()
        row[:] = exact - np.log(np.exp(exact).sum())
    return logits


def _divergence(p: np.ndarray, q: np.ndarray) -> float:
    p, q = p.astype(np.float64), q.astype(np.float64)
    return max(0.0, float((np.exp(p) * (p - q)).sum()))


def _exp(surprise: np.ndarray) -> float:
    return math.exp(float(surprise.astype(np.float64).mean()))
