"""Adapters as artifacts: a folder in one file, the same bytes for the same content, and back."""

import io
import tarfile
from pathlib import Path

from journeyman.candidate import Candidate, Kind
from journeyman.errors import InputError
from journeyman.stores.artifacts import Artifacts

KEPT = ("adapter_config.json", "adapter_model.safetensors")
"""What an adapter is. Whatever else lies beside it tells how it was made."""


def packed(folder: Path) -> bytes:
    """The files of an adapter as a tar archive without times and owners, so that the same adapter has the same digest.

    Raises:
        InputError: It is no adapter.
    """
    out = io.BytesIO()
    with tarfile.open(fileobj=out, mode="w", format=tarfile.USTAR_FORMAT) as archive:
        for name in KEPT:
            path = folder / name
            if not path.is_file():
                raise InputError(f"{folder} holds no adapter: it has no {name}")
            entry = tarfile.TarInfo(name)
            entry.size = path.stat().st_size
            with path.open("rb") as file:
                archive.addfile(entry, file)
    return out.getvalue()


def keep(folder: Path, artifacts: Artifacts) -> Candidate:
    """Put an adapter among the artifacts; what can be evaluated and released."""
    return Candidate(kind=Kind.ADAPTER, body=artifacts.put(packed(folder)))


def restore(candidate: Candidate, artifacts: Artifacts, folder: Path) -> Path:
    """Bring a kept adapter back into a folder."""
    folder.mkdir(parents=True, exist_ok=True)
    with tarfile.open(fileobj=io.BytesIO(artifacts.get(candidate.body))) as archive:
        for name in KEPT:
            member = archive.extractfile(name)
            if member is None:
                raise InputError(f"the artifact {candidate.body} is no adapter")
            (folder / name).write_bytes(member.read())
    return folder
