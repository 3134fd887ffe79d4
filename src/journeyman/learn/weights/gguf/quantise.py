"""Quantised by llama.cpp itself, in this process."""

import ctypes
from pathlib import Path

import llama_cpp

from journeyman.learn.weights.gguf.engine import llama_cpp_error


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
