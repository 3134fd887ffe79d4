"""Adapters as artifacts, and back."""

from pathlib import Path

from journeyman.candidate import Candidate, Kind
from journeyman.learn.weights.adapters import pack as packed
from journeyman.learn.weights.adapters import unpack
from journeyman.stores.artifacts import Artifacts


def keep(folder: Path, artifacts: Artifacts) -> Candidate:
    """Put an adapter among the artifacts; what can be evaluated and released."""
    return Candidate(kind=Kind.ADAPTER, body=artifacts.put(packed(folder)))


TRAINED_ON = "trained_on.txt"
"""In the folder of a run, and beside an adapter: the fingerprints of what it was trained on, one a line."""


def write_trained_on(folder: Path, found: frozenset[str]) -> None:
    """Say in a folder what was trained on: `task.fingerprint`s."""
    (folder / TRAINED_ON).write_text("".join(f"{each}\n" for each in sorted(found)), encoding="utf-8")


def read_trained_on(folder: Path) -> frozenset[str]:
    """What an adapter's folder, or that of its run, says; nothing where neither says it."""
    for place in (folder / TRAINED_ON, folder.resolve().parent / TRAINED_ON):
        if place.is_file():
            return frozenset(place.read_text(encoding="utf-8").split())
    return frozenset()


def restore(candidate: Candidate, artifacts: Artifacts, folder: Path) -> Path:
    """Bring a kept adapter back into a folder."""
    folder.mkdir(parents=True, exist_ok=True)
    unpack(artifacts.get(candidate.body), folder)
    return folder
