"""What was learned about who follows whom in a file: safetensors, with the embedder's name in its header."""

import json
from pathlib import Path

import numpy as np
from safetensors import SafetensorError, safe_open
from safetensors.numpy import save_file

from journeyman.errors import InputError
from journeyman.io.atomic import atomic_write
from journeyman.learn.planner.edge_features import Draft
from journeyman.learn.planner.edges import Edges

FORMAT = "journeyman-edges-1"
_METADATA = "journeyman"
_AXES = {
    "request_mean": ("vector",),
    "request_axes": ("vector", "request axes"),
    "text_mean": ("vector",),
    "text_axes": ("vector", "text axes"),
    "pair_in": ("pair bags", "pair features", "pair hidden"),
    "pair_in_bias": ("pair bags", "pair hidden"),
    "pair_out": ("pair bags", "pair hidden", "1"),
    "pair_out_bias": ("pair bags", "1"),
    "plan_in": ("plan bags", "plan features", "plan hidden"),
    "plan_in_bias": ("plan bags", "plan hidden"),
    "plan_out": ("plan bags", "plan hidden", "3"),
    "plan_out_bias": ("plan bags", "3"),
}
"""Axes of one name have one length, and those that are numbers have that."""


def save(edges: Edges, path: Path) -> None:
    """Write it whole or not at all. The same edges make the same bytes.

    Raises:
        InputError: It cannot be written.
    """
    metadata = json.dumps({"format": FORMAT, "embedder": edges.embedder}, sort_keys=True, ensure_ascii=False)
    with atomic_write(path) as part:
        save_file({name: np.ascontiguousarray(array) for name, array in edges.arrays.items()}, part, {_METADATA: metadata})


def load(path: Path) -> Edges:
    """What `save` wrote.

    Raises:
        InputError: It is not there, or is no such file.
    """
    try:
        with safe_open(path, framework="numpy") as file:
            metadata = json.loads((file.metadata() or {})[_METADATA])
            arrays = {name: np.asarray(file.get_tensor(name), np.float32) for name in file.keys()}  # noqa: SIM118
        if metadata["format"] != FORMAT:
            raise ValueError(f"it is of the format {metadata['format']!r}, not {FORMAT!r}")
        edges = Edges(embedder=str(metadata["embedder"]), arrays=arrays)
        _check(edges)
        return edges
    except FileNotFoundError:
        raise InputError(f"{path} is not there; it is made by learning from plans who follows whom") from None
    except (SafetensorError, OSError, KeyError, TypeError, ValueError) as error:
        raise InputError(f"{path} does not say who follows whom ({error}); check that it is the right file") from None


def _check(edges: Edges) -> None:
    arrays = edges.arrays
    if set(arrays) != set(_AXES):
        raise ValueError(f"it lacks, or has too many: {', '.join(sorted(set(arrays) ^ set(_AXES)))}")
    lengths: dict[str, int] = {"1": 1, "3": 3}
    for name, axes in _AXES.items():
        array, fits = arrays[name], arrays[name].ndim == len(axes)
        if not fits or any(lengths.setdefault(axis, size) != size for axis, size in zip(axes, array.shape, strict=True)):
            raise ValueError(f"{name} has the shape {array.shape}, which does not fit the others")
        if not np.isfinite(array).all():
            raise ValueError(f"{name} holds what is no number")
    # Files of a time when other features were looked at.
    vectors = np.zeros((3, lengths["vector"]), np.float32)
    pairs, plan = edges.rows(Draft(instruction="", texts=("", ""), vector=vectors[0], vectors=vectors[1:]))
    if (pairs.shape[1], len(plan)) != (lengths["pair features"], lengths["plan features"]):
        raise ValueError("it was learned from other features than are looked at here; learn it anew")
