"""llama.cpp in this process: a model in a file, and what it says."""

import ctypes
import os
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import llama_cpp

from journeyman.errors import InputError

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
