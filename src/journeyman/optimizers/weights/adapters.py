"""Weights on the disk: adapters, and whatever else a user names to be exported or served.

An adapter is what PEFT writes, made the same for the same weights, and `adapter.json` beside it:

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
from dataclasses import asdict, dataclass, fields
from datetime import UTC, datetime
from enum import StrEnum
from pathlib import Path
from typing import Any

from journeyman.core.candidate import Adapter, Candidate, Kind
from journeyman.core.errors import InputError
from journeyman.io.files import read_object
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
    except (KeyError, TypeError, ValueError, OverflowError) as error:
        raise InputError(f"{path} is not an adapter's configuration: {type(error).__name__} {error}") from None


# Adapters as artifacts, and back.


def save_adapter(model: Any, tokenizer: Any, folder: Path, adapter: Mapping[str, Any]) -> Adapter:
    """Write the adapter of a `PeftModel` in PEFT's form, whole or not at all; what lay in the folder is replaced.

    Args:
        model: Or the folder of a checkpoint of one.
        adapter: What the weights do not tell: `base_model`, `method` and `parent` of the `Adapter`, and whatever else is
            worth a line in adapter.json.
    """
    with whole_folder(folder, replace=True) as part:
        if isinstance(model, Path):
            for name in CONTENT:
                shutil.copyfile(model / name, part / name)
        else:
            model.save_pretrained(part, save_embedding_layers=False)
        tokenizer.save_pretrained(part)
        (part / "README.md").unlink(missing_ok=True)
        _normalise_config(part / "adapter_config.json", str(adapter["base_model"]))
        metadata = {"parent": None, **adapter, "digest": digest(part)}
        _write(part / "adapter.json", metadata)
        saved = read_adapter(part)
        _write(part / "adapter.json", {**metadata, **asdict(saved)})
    return saved


def _normalise_config(path: Path, base_model: str) -> None:
    # What PEFT writes depends on the order of a set, on its version and on where the base model lies.
    config = json.loads(path.read_text(encoding="utf-8"))
    config.pop("peft_version", None)
    config["base_model_name_or_path"] = base_model
    if isinstance(config["target_modules"], list):
        config["target_modules"] = sorted(config["target_modules"])
    _write(path, config)


def _write(path: Path, value: Mapping[str, Any]) -> None:
    path.write_text(json.dumps(value, indent=2, sort_keys=True, ensure_ascii=False) + "\n", encoding="utf-8")


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


# What a user names when something learned is to be exported or served, found on the disk.
#
# A run's id or folder, the folder of an adapter, of a merged model, or a GGUF file. What lies in a run's folder is that run's,
# and knows what the gate said.


class Form(StrEnum):
    """What weights are kept as."""

    ADAPTER = "adapter"
    """A folder with LoRA weights, to be merged into their base model."""
    MODEL = "model"
    """A folder that Hugging Face's loaders read."""
    GGUF = "gguf"
    """A file that llama.cpp reads."""


@dataclass(frozen=True, slots=True, kw_only=True)
class GateResult:
    """What a run's gate said."""

    passed: bool
    reason: str
    """Its sentence, or why it was not asked."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Artifact:
    """Weights on the disk."""

    path: Path
    form: Form
    run: Path | None = None
    """The folder of the training that they came from; `None` when they came from elsewhere."""

    @property
    def proof(self) -> GateResult | None:
        """What the gate said of them; `None` when they are of no run, and nobody asked.

        Raises:
            InputError: The run's result is not what was written.
        """
        if self.run is None:
            return None
        path = self.run / "result.json"
        if not path.is_file():
            return GateResult(passed=False, reason=f"the run {self.run.name} is not over, or was not proven on held-out tasks")
        result = read_object(path)
        return GateResult(passed=result.get("passed") is True, reason=str(result.get("reason") or "the gate gave no reason"))

    @property
    def name(self) -> str:
        """What a model made of them is called, where nobody says: as the run, the folder or the file."""
        return self.run.name if self.run is not None and self.form is not Form.GGUF else self.path.resolve().stem

    def gguf(self, quantization: str) -> Path:
        """Where they lie as a GGUF file of that type, once they are exported; themselves, when they are one."""
        if self.form is Form.GGUF:
            return self.path
        folder = self.path if self.run is None else self.run / "gguf"
        return folder / f"{self.name}-{quantization}.gguf"

    def note(self, deployed: Mapping[str, Any], *, force: bool) -> None:
        """Write down in the run, if they are of one, what became of them, and whether somebody insisted."""
        if self.run is None or (proof := self.proof) is None:
            return
        line = {"at": datetime.now(UTC).isoformat(timespec="seconds"), **deployed, "passed": proof.passed}
        line |= {"reason": proof.reason, "forced": force and not proof.passed}
        with (self.run / "deployments.jsonl").open("a", encoding="utf-8") as file:
            file.write(json.dumps(line, ensure_ascii=False) + "\n")


def find(named: str, runs: Path) -> Artifact:
    """The weights that `named` means: a path, or the id of a run in the folder `runs`.

    Raises:
        InputError: There is nothing of that name, or it holds no weights.
    """
    for path in (Path(named), runs / named):
        if path.is_file():
            return _file(path)
        if path.is_dir():
            return _folder(path)
    known = ", ".join(sorted(path.parent.name for path in runs.glob("*/run.json"))) or "none"
    raise InputError(
        f"there is no run, adapter, model or GGUF file {named!r}; runs of weights in {runs}: {known}. "
        "To train one: journeyman train weights"
    )


def _file(path: Path) -> Artifact:
    with path.open("rb") as file:
        if file.read(4) != b"GGUF":
            raise InputError(f"{path} is no GGUF file; name one, a run, or the folder of an adapter or model")
    return Artifact(path=path, form=Form.GGUF, run=_run_above(path))


def _folder(path: Path) -> Artifact:
    if (path / "run.json").is_file():
        adapter = path / "adapter"
        if not (adapter / "adapter_config.json").is_file():
            raise InputError(
                f"the run {path.name} has no adapter: it learned nothing yet, or was stopped before the first step"
            )
        return Artifact(path=adapter, form=Form.ADAPTER, run=path)
    if (path / "adapter_config.json").is_file():
        return Artifact(path=path, form=Form.ADAPTER, run=_run_above(path))
    if (path / "config.json").is_file() and any(path.glob("*.safetensors")):
        return Artifact(path=path, form=Form.MODEL, run=_run_above(path))
    raise InputError(f"{path} holds no weights: neither an adapter_config.json nor a model's config.json and .safetensors")


def _run_above(path: Path) -> Path | None:
    """The run in whose folder it lies."""
    return next((above for above in path.resolve().parents if (above / "run.json").is_file()), None)
