"""What a user names when something learned is to be exported or served, found on the disk.

A run's id or folder, the folder of an adapter, of a merged model, or a GGUF file. What lies in a run's folder is that run's,
and knows what the gate said.
"""

import json
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from enum import StrEnum
from pathlib import Path
from typing import Any

from journeyman.core.errors import InputError
from journeyman.optimizers.weights.adapters import read_object


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
