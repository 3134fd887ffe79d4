"""The weights in a model's folder, read one at a time: there is never a second copy of the model in memory."""

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from gguf.utility import LocalTensor, SafetensorsLocal

from journeyman.errors import InputError
from journeyman.learn.weights.gguf.settings import read_json

INDEX = "model.safetensors.index.json"
SINGLE = "model.safetensors"
_TYPES = {"F32": np.dtype("<f4"), "F16": np.dtype("<f2"), "BF16": np.dtype("<u2")}


@dataclass(frozen=True, slots=True)
class Tensors:
    """The tensors of a folder by name, in the order of their names. Nothing is read before it is asked for."""

    by_name: dict[str, LocalTensor]

    @property
    def kind(self) -> str:
        """The type of most of the weights: F32, F16 or BF16."""
        sizes = dict.fromkeys(_TYPES, 0)
        for tensor in self.by_name.values():
            sizes[tensor.dtype] += tensor.data_range.size
        return max(sizes, key=lambda name: sizes[name])

    @property
    def parameters(self) -> int:
        return sum(int(np.prod(tensor.shape)) for tensor in self.by_name.values())

    @property
    def size(self) -> int:
        """In bytes."""
        return sum(tensor.data_range.size for tensor in self.by_name.values())

    def shape(self, name: str) -> tuple[int, ...]:
        return tuple(self.by_name[name].shape)

    def load(self, name: str) -> np.ndarray:
        """A tensor as float32, of its shape."""
        tensor = self.by_name[name]
        try:
            raw: np.ndarray = tensor.mmap_bytes().view(_TYPES[tensor.dtype]).reshape(tensor.shape)
        except (OSError, ValueError) as error:
            raise InputError(f"{tensor.data_range.filename} is broken at {name}: {error}") from None
        if tensor.dtype == "BF16":
            # bfloat16 is the upper half of a float32.
            raw = (raw.astype(np.uint32) << 16).view(np.float32)
        exact: np.ndarray = raw.astype(np.float32)
        return exact


def open_tensors(folder: Path) -> Tensors:
    """The weights of the model in a folder.

    Raises:
        InputError: There are none as safetensors, or they are of a type that no model is trained in.
    """
    tensors: dict[str, LocalTensor] = {}
    for path in _files(folder):
        try:
            tensors.update(SafetensorsLocal(path).tensors)
        except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
            raise InputError(f"{path} is no file of safetensors: {error}") from None
    for name, tensor in tensors.items():
        if tensor.dtype not in _TYPES:
            raise InputError(f"{folder}: {name} is of type {tensor.dtype}; only {', '.join(_TYPES)} can be converted")
    return Tensors(dict(sorted(tensors.items())))


def _files(folder: Path) -> Iterator[Path]:
    if (folder / INDEX).is_file():
        weights = read_json(folder / INDEX).get("weight_map")
        if not isinstance(weights, dict):
            raise InputError(f"{folder / INDEX} has no weight_map")
        for name in sorted({str(name) for name in weights.values()}):
            # A file of this folder, and of no other.
            if Path(name).name != name or not (folder / name).is_file():
                raise InputError(f"{folder / INDEX} names {name!r}, and there is no such file beside it")
            yield folder / name
        return
    if not (folder / SINGLE).is_file():
        raise InputError(
            f"{folder} has no {SINGLE}: weights in another form are not read; load and save the model with transformers"
        )
    yield folder / SINGLE
