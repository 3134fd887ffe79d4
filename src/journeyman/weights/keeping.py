"""Adapters as artifacts, and back."""

from pathlib import Path

from journeyman.candidate import Candidate, Kind
from journeyman.learn.weights.adapters import pack as packed
from journeyman.learn.weights.adapters import unpack
from journeyman.stores.artifacts import Artifacts


def keep(folder: Path, artifacts: Artifacts) -> Candidate:
    """Put an adapter among the artifacts; what can be evaluated and released."""
    return Candidate(kind=Kind.ADAPTER, body=artifacts.put(packed(folder)))


def restore(candidate: Candidate, artifacts: Artifacts, folder: Path) -> Path:
    """Bring a kept adapter back into a folder."""
    folder.mkdir(parents=True, exist_ok=True)
    unpack(artifacts.get(candidate.body), folder)
    return folder
