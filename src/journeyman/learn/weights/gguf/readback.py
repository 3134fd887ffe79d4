"""What llama.cpp really did, read back from the file that it wrote."""

from collections import Counter
from pathlib import Path

from gguf import GGUFReader

from journeyman.learn.weights.gguf.report import WRITTEN, Contents, Replaced

BLOCK = 256
"""The weights that a K-type packs together: a row must be a multiple of that."""


def contents(path: Path, kind: str) -> Contents:
    """What is in a file that was written as `kind`."""
    matrices = [
        (tensor.tensor_type.name, int(tensor.shape[0]))
        for tensor in GGUFReader(path).tensors
        if len(tensor.shape) > 1 and not tensor.name.endswith("_norm.weight")
    ]
    # The K-types mix among themselves by design: Q4_K_M has some matrices of Q6_K, and so has Q4_0.
    replaced = Counter(
        (width, name) for name, width in matrices if kind not in WRITTEN and width % BLOCK and name != kind and "_K" not in name
    )
    return Contents(
        size=path.stat().st_size,
        types=dict(sorted(Counter(name for name, _ in matrices).items())),
        replaced=tuple(Replaced(tensors=count, width=width, became=name) for (width, name), count in sorted(replaced.items())),
    )
