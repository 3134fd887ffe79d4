"""Quantised by llama.cpp itself, in this process."""

import ctypes
from collections.abc import Mapping
from pathlib import Path

import llama_cpp

from journeyman.learn.weights.gguf.engine import refused

FILE_TYPES: Mapping[str, int] = {
    "Q2_K": llama_cpp.LLAMA_FTYPE_MOSTLY_Q2_K,
    "Q3_K_M": llama_cpp.LLAMA_FTYPE_MOSTLY_Q3_K_M,
    "Q4_0": llama_cpp.LLAMA_FTYPE_MOSTLY_Q4_0,
    "Q4_K_M": llama_cpp.LLAMA_FTYPE_MOSTLY_Q4_K_M,
    "Q5_K_M": llama_cpp.LLAMA_FTYPE_MOSTLY_Q5_K_M,
    "Q6_K": llama_cpp.LLAMA_FTYPE_MOSTLY_Q6_K,
    "Q8_0": llama_cpp.LLAMA_FTYPE_MOSTLY_Q8_0,
}


def quantise(source: Path, target: Path, kind: str, *, threads: int | None = None) -> None:
    """Write `source` anew with its matrices as `kind`, one of `FILE_TYPES`.

    Raises:
        InputError: llama.cpp would not.
    """
    parameters = llama_cpp.llama_model_quantize_default_params()
    parameters.ftype = FILE_TYPES[kind]
    parameters.nthread = threads or 0
    if llama_cpp.llama_model_quantize(bytes(source), bytes(target), ctypes.byref(parameters)):
        raise refused(f"write {source.name} as {kind}")
