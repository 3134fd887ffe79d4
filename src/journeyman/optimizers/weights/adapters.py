"""An adapter on the disk: what PEFT writes, made the same for the same weights, and `adapter.json` beside it.

adapter_config.json          PEFT's: rank, alpha, layers
adapter_model.safetensors    the weights
adapter.json                 what the words of `journeyman.core.candidate` say of it
(and the tokenizer's files, as servers look for them there)
"""

import hashlib
import io
import json
import shutil
import tarfile
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import fields
from pathlib import Path
from typing import Any

from journeyman.core.candidate import Adapter, Candidate, Kind
from journeyman.core.errors import InputError
from journeyman.stores.artifacts import Artifacts

CONTENT = ("adapter_config.json", "adapter_model.safetensors")
"""The files that make an adapter what it is."""
ELSEWHERE = "elsewhere"
"""The method of an adapter that was not trained here."""


@contextmanager
def whole_folder(folder: Path, *, replace: bool = False) -> Iterator[Path]:
    """Where to write what will be `folder` when all went well, and nothing of it otherwise.

    Args:
        replace: What lies in `folder` gives way.
    """
    folder.parent.mkdir(parents=True, exist_ok=True)
    part = Path(tempfile.mkdtemp(prefix=f".{folder.name}-", dir=folder.parent))
    old = folder.with_name(f".{folder.name}.old")
    try:
        yield part
        part.chmod(0o755)
        if replace:
            shutil.rmtree(old, ignore_errors=True)
            if folder.exists():
                folder.rename(old)
        part.rename(folder)
    finally:
        shutil.rmtree(part, ignore_errors=True)
    if replace:
        shutil.rmtree(old, ignore_errors=True)


def pack(folder: Path) -> bytes:
    """The files in `CONTENT` as one, a tar archive without times and owners: what is kept among artifacts.

    Raises:
        InputError: One is missing.
    """
    out = io.BytesIO()
    with tarfile.open(fileobj=out, mode="w", format=tarfile.USTAR_FORMAT) as archive:
        for name in CONTENT:
            path = folder / name
            if not path.is_file():
                raise InputError(f"{folder} holds no adapter: it has no {name}")
            entry = tarfile.TarInfo(name)
            entry.size = path.stat().st_size
            with path.open("rb") as file:
                archive.addfile(entry, file)
    return out.getvalue()


def unpack(content: bytes, folder: Path) -> None:
    """The files again, in a folder that is there."""
    with tarfile.open(fileobj=io.BytesIO(content)) as archive:
        for name in CONTENT:
            member = archive.extractfile(name)
            if member is None:
                raise InputError(f"what was kept is no adapter: it has no {name}")
            (folder / name).write_bytes(member.read())


def digest(folder: Path) -> str:
    """SHA-256 over the files in `CONTENT` as `pack`, in hexadecimal."""
    return hashlib.sha256(pack(folder)).hexdigest()


def read_adapter(folder: Path) -> Adapter:
    """The adapter in a folder. Of one that was not trained here, what PEFT's own files tell.

    Raises:
        InputError: There is none, or its files are not those that were written.
    """
    missing = next((name for name in CONTENT if not (folder / name).is_file()), None)
    if missing:
        raise InputError(f"{folder} holds no adapter: it has no {missing}")
    peft_fields, content = _peft(folder), digest(folder)
    if not (folder / "adapter.json").is_file():
        return Adapter(digest=content, method=ELSEWHERE, **peft_fields)
    metadata = read_object(folder / "adapter.json")
    if metadata.get("digest") != content:
        raise InputError(
            f"{folder} has changed since it was written: its digest is {content}, adapter.json says {metadata.get('digest')}"
        )
    known = {field.name for field in fields(Adapter)} - peft_fields.keys()
    try:
        return Adapter(**{**peft_fields, **{name: value for name, value in metadata.items() if name in known}})
    except TypeError as error:
        raise InputError(f"{folder / 'adapter.json'} is not what was written: {error}") from None


def _peft(folder: Path) -> dict[str, Any]:
    path = folder / "adapter_config.json"
    config = read_object(path)
    if config.get("peft_type") != "LORA":
        raise InputError(f"{path} describes no LoRA adapter: its peft_type is {config.get('peft_type')!r}")
    try:
        layers = config["target_modules"]
        return {
            "base_model": str(config.get("base_model_name_or_path") or ""),
            "rank": int(config["r"]),
            "alpha": int(config["lora_alpha"]),
            # One string is a pattern, and stays what it is.
            "target_modules": (layers,) if isinstance(layers, str) else tuple(sorted(layers)),
        }
    except (KeyError, TypeError, ValueError) as error:
        raise InputError(f"{path} is not an adapter's configuration: {type(error).__name__} {error}") from None


def read_object(path: Path) -> Mapping[str, Any]:
    """The object in a file of JSON that is there.

    Raises:
        InputError: It holds something else.
    """
    try:
        value = json.loads(path.read_text(encoding="utf-8"))
    except ValueError as error:
        raise InputError(f"{path} is not JSON: {error}") from None
    if not isinstance(value, dict):
        raise InputError(f"{path} is not a JSON object")
    return value


# Adapters as artifacts, and back.


def keep(folder: Path, artifacts: Artifacts) -> Candidate:
    """Put an adapter among the artifacts; what can be evaluated and released."""
    return Candidate(kind=Kind.ADAPTER, body=artifacts.put(pack(folder)))


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
