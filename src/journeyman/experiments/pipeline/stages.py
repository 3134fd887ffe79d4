"""Stages of a pipeline as values: what each is asked, what its key is made of, and what it made."""

import hashlib
import json
import os
import re
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass, field, fields
from functools import cache
from graphlib import CycleError, TopologicalSorter
from importlib.metadata import version
from pathlib import Path
from typing import Any, Literal

from journeyman.core.errors import InputError
from journeyman.io.files import read_object, sha256
from journeyman.io.processes import is_gone, start_time

FOLDER = "pipelines"
"""In the folder of a project: a folder for each pipeline."""
OUT = "out"
_REFERENCE = re.compile(r"\{([a-z][a-z0-9_]*)((?:\.[A-Za-z0-9_-]+)*)\}")
_SERVING = ("releases", "deploy", "monitor", "serve")
"""Commands whose source includes what serves; all others are below it."""
_GROWING = ("log", "folder", "store")
"""What a command names and goes on writing to, which is nothing that it has made."""
_WEIGHTS = ("*.safetensors", "*.gguf")

_REMEMBERED = 10
"""Runs of one stage with the same key of which it is kept what they took."""

Taken = Literal["seconds", "cpu_seconds", "cost"]
State = Literal["running", "done", "refused", "failed", "stopped"]
Found = Literal["running", "cached", "done", "refused", "failed", "stopped", "not reached", "left out"]


@dataclass(frozen=True, slots=True, kw_only=True)
class PipelineStage:
    """One command of a pipeline; in its arguments `{train.run_id}` is what the stage `train` said, `{out}` its own folder."""

    name: str
    command: tuple[str, ...]
    """As it is typed; empty for the gate, which runs nothing."""
    arguments: tuple[str, ...] = ()
    files: tuple[str, ...] = ()
    """Those of the arguments that name a file or folder to read."""
    after: tuple[str, ...] = ()
    """Stages that come before it without being named in its arguments."""
    accepts: tuple[int, ...] = (0,)
    """Exit codes that are no failure."""
    settings: Mapping[str, str] = field(default_factory=dict)
    """Environment variables of settings of the project that are others for this stage."""
    resumes: bool = False
    """Its command goes on with `--resume RUN`."""
    bounded: bool = False
    """Its command takes `--max-cost`."""

    @property
    def is_gate(self) -> bool:
        return not self.command

    def needs(self, names: Sequence[str]) -> tuple[str, ...]:
        """The stages that it hangs on."""
        named = [match[1] for text in self.arguments for match in _REFERENCE.finditer(text)]
        return tuple(name for name in dict.fromkeys([*self.after, *named]) if name in names and name != self.name)


@dataclass(frozen=True, slots=True, kw_only=True)
class Budget:
    """What a run may spend; `None` for no bound. What cached stages cost once is not counted again."""

    cost: float | None = None
    cpu_seconds: float | None = None
    wall_seconds: float | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Pipeline:
    """Stages in an order in which each comes after what it hangs on."""

    name: str
    stages: tuple[PipelineStage, ...]
    budget: Budget = Budget()

    @classmethod
    def of(cls, name: str, stages: Sequence[PipelineStage], budget: Budget = Budget()) -> "Pipeline":
        """
        Raises:
            InputError: They hang on each other in a circle.
        """
        by_name = {stage.name: stage for stage in stages}
        needs = {stage.name: stage.needs(list(by_name)) for stage in stages}
        try:
            TopologicalSorter(needs).prepare()
        except CycleError as error:
            raise InputError(f"the stages {' → '.join(error.args[1])} wait for each other; one of them must not") from None
        found: list[PipelineStage] = []
        while len(found) < len(stages):
            there = {stage.name for stage in found}
            found.append(next(stage for stage in stages if stage.name not in there and there.issuperset(needs[stage.name])))
        return cls(name=name, stages=tuple(found), budget=budget)


@dataclass(frozen=True, slots=True, kw_only=True)
class StageRecord:
    """What a stage was asked, what it took, and what it made."""

    stage: str
    key: str
    command: tuple[str, ...]
    """The whole of it, with nothing left to fill in."""
    parts: Mapping[str, str]
    """What the key is made of, by name: digests and texts."""
    state: State
    began: str
    seconds: float = 0.0
    cpu_seconds: float = 0.0
    peak_memory: int | None = None
    """Bytes of the largest of its processes; `None` where the system does not say."""
    cost: float | None = None
    """In dollars; `None` where the command does not say."""
    exit_code: int | None = None
    result: Mapping[str, Any] = field(default_factory=dict)
    """What the command printed as JSON."""
    outputs: Mapping[str, str] = field(default_factory=dict)
    """The files that it made, by path, and their SHA-256."""
    reason: str = ""
    before: tuple[Mapping[str, float | None], ...] = ()
    """What runs of the same key took that came to their end before, the newest last."""

    @classmethod
    def read(cls, path: Path) -> "StageRecord":
        known = {each.name for each in fields(cls)}
        told = {name: value for name, value in read_object(path).items() if name in known}
        return cls(**{**told, "command": tuple(told["command"]), "before": tuple(told.get("before", ()))})

    @property
    def ended(self) -> tuple[Mapping[str, float | None], ...]:
        """What each run of its key took that came to its end, the newest last."""
        this = {"seconds": self.seconds, "cpu_seconds": self.cpu_seconds, "cost": self.cost}
        return (*self.before, *([this] if self.state == "done" else []))[-_REMEMBERED:]

    @classmethod
    def of(cls, folder: Path, stage: str, key: str) -> "StageRecord | None":
        """That of a stage with a key, in the folder of its pipeline."""
        path = place_of(folder, stage, key).with_suffix(".json")
        return cls.read(path) if path.is_file() else None

    def changed(self) -> str:
        """The first file that is no longer as it was made; empty where all are."""
        for name, digest in self.outputs.items():
            path = Path(name)
            if not path.is_file() or sha256(path) != digest:
                return name
        return ""

    @property
    def is_serving(self) -> bool:
        """What was left running answers for itself no more once its process is gone."""
        pid = self.result.get("pid")
        return not isinstance(pid, int) or start_time(pid) is not None


@dataclass(frozen=True, slots=True, kw_only=True)
class StagePlan:
    """What would become of a stage now."""

    stage: PipelineStage
    key: str | None
    """`None` where it hangs on what is yet to be made."""
    command: tuple[str, ...]
    parts: Mapping[str, str]
    record: StageRecord | None
    """Of this key."""
    why: str
    """Why it is to be carried out; empty where it is not."""
    earlier: tuple[StageRecord, ...] = ()
    """Those of the same command that came to an end, the newest last."""

    @property
    def is_cached(self) -> bool:
        return not self.why

    def expected(self, what: Taken) -> tuple[float, float, float] | None:
        """Low, middle, high of what it took in those earlier runs whose settings are most like these; `None` where nobody
        knows."""
        away = [len(self._words ^ _words(each.parts.get("command", ""))) for each in self.earlier]
        alike = [each for each, words in zip(self.earlier, away, strict=True) if words == min(away)]
        taken = sorted(value for each in alike for one in each.ended if (value := one[what]) is not None)
        return (taken[0], taken[len(taken) // 2], taken[-1]) if taken else None

    @property
    def _words(self) -> frozenset[str]:
        return _words(self.parts.get("command") or " ".join([*self.stage.command, *self.command]))


def _words(command: str) -> frozenset[str]:
    """Of a command without what is yet to be filled in."""
    return frozenset(word for word in command.split() if "{" not in word)


def expected_of_all(plans: Sequence[StagePlan], what: Taken) -> tuple[float, float, float] | None:
    """Low, middle, high of what all stages take that would be carried out, each as `StagePlan.expected` has it; `None` where
    nobody knows of one."""
    found = [plan.expected(what) for plan in plans if not plan.is_cached and not plan.stage.is_gate]
    known = [each for each in found if each is not None]
    if not found or len(known) < len(found):
        return None
    return sum(each[0] for each in known), sum(each[1] for each in known), sum(each[2] for each in known)


@dataclass(frozen=True, slots=True, kw_only=True)
class PipelineRun:
    """Which stages a run took, and how it ended."""

    id: str
    pipeline: str
    began: str
    stages: Mapping[str, tuple[Found, str]]
    """By name: what became of it, and its key."""
    seconds: float = 0.0
    cpu_seconds: float = 0.0
    cost: float | None = None
    reason: str = ""
    """Why it did not come to its end; empty where it did."""
    exit_code: int | None = None
    """`None` until it has ended."""
    process: Mapping[str, Any] = field(default_factory=dict)
    """Which process carries it out, as `io.processes.this_process` says."""

    @property
    def state(self) -> Literal["running", "finished", "stopped"]:
        """What was killed has stopped, too."""
        if self.exit_code is None:
            return "stopped" if is_gone(self.process) else "running"
        return "stopped" if self.exit_code else "finished"

    @classmethod
    def read(cls, path: Path) -> "PipelineRun":
        told = read_object(path)
        return cls(**{**told, "stages": {name: (found, key) for name, (found, key) in told["stages"].items()}})

    def json(self) -> dict[str, Any]:
        return asdict(self)

    def records(self, home: Path) -> dict[str, StageRecord]:
        """What its stages were asked and made, of those that were begun."""
        found = {name: StageRecord.of(home / self.pipeline, name, key) for name, (_, key) in self.stages.items() if key}
        return {name: record for name, record in found.items() if record is not None}


def place_of(folder: Path, stage: str, key: str) -> Path:
    """The own folder of a stage with a key, in that of its pipeline; its record and its log lie beside it."""
    return folder / f"{stage}-{key[:12]}"


def run_files(home: Path) -> list[Path]:
    """Where all runs of all pipelines of a project are kept, the newest first."""
    return sorted(home.glob("*/runs/*.json"), key=lambda path: path.name, reverse=True)


def runs_in(home: Path) -> list[PipelineRun]:
    """All runs of all pipelines of a project, the newest first."""
    return [PipelineRun.read(path) for path in run_files(home)]


def parts_of(stage: PipelineStage, made: Mapping[str, StageRecord]) -> dict[str, str]:
    """What a stage's key is made of. Its own folder is not: that is named by the key."""
    filled = [fill(text, stage, made, f"{{{OUT}}}") for text in stage.arguments]
    parts = {"command": " ".join([*stage.command, *filled]) or "gate", "code": code_digest(serving=_serves(stage))}
    for name, record in made.items():
        # Not where it lies nor how long it took: what comes out the same again costs nothing further on.
        parts[f"stage {name}"] = digest_of(
            {str(number): digest for number, digest in enumerate(sorted(record.outputs.values()))}
            or {"result": json.dumps(record.result, sort_keys=True)}
        )
    for text in stage.files:
        parts[f"file {text}"] = _content(fill(text, stage, made, f"{{{OUT}}}"), stage)
    return parts


def _serves(stage: PipelineStage) -> bool:
    return bool(stage.command) and stage.command[0] in _SERVING


def _content(name: str, stage: PipelineStage) -> str:
    path = Path(name).expanduser()
    if path.is_file():
        return sha256(path)
    if path.is_dir():
        inside = sorted(each for each in path.rglob("*") if each.is_file() and ".git" not in each.parts)
        return digest_of({str(each.relative_to(path)): sha256(each) for each in inside})
    raise InputError(f"the stage {stage.name} reads {name}, and there is no such file")


def digest_of(parts: Mapping[str, str]) -> str:
    return hashlib.sha256(json.dumps(parts, sort_keys=True).encode()).hexdigest()


def difference(now: Mapping[str, str], before: Mapping[str, str]) -> str:
    """What makes the key another one than it was, in words."""
    changed = [name for name in (*now, *(before.keys() - now.keys())) if now.get(name) != before.get(name)]
    if changed[:1] == ["command"]:
        old, new = before.get("command", "").split(), now.get("command", "").split()
        gone = [word for word in old if word not in new]
        fresh = [word for word in new if word not in old]
        return f"other settings: {' '.join(gone) or 'nothing'} → {' '.join(fresh) or 'nothing'}"
    said = changed[0] if changed else "something"
    return "Journeyman's own source changed" if said == "code" else f"{said} changed"


@cache
def code_digest(*, serving: bool) -> str:
    """Of the version and the source that a command runs: what lies below the commands, what serves only where it does, and not
    what is read here."""
    root = Path(__file__).parents[2]
    left_out = {"cli", "compat"} | (set() if serving else {"serving"})
    digest = hashlib.sha256(version("journeyman").encode())
    for path in sorted(root.rglob("*.py")):
        relative = path.relative_to(root)
        if relative.parts[0] not in left_out and relative.parts[:2] != ("experiments", "pipeline"):
            digest.update(f"{relative}\0".encode() + path.read_bytes())
    return digest.hexdigest()


def fill(text: str, stage: PipelineStage, made: Mapping[str, StageRecord], place: str) -> str:
    """A text with what other stages said put in."""

    def value(match: re.Match[str]) -> str:
        name, steps = match[1], [step for step in match[2].split(".") if step]
        if name == OUT and not steps:
            return place
        if name not in made:
            return match[0]
        found: Any = made[name].result
        for step in steps:
            try:
                found = found[int(step)] if isinstance(found, list) else found[step]
            except (KeyError, IndexError, ValueError, TypeError):
                said = ", ".join(made[name].result) or "nothing"
                raise InputError(f"the stage {stage.name} asks for {match[0]}, and {name} said {said}") from None
        if found is None or isinstance(found, Mapping | list):
            raise InputError(f"the stage {stage.name} asks for {match[0]}, which is {json.dumps(found)[:80]}: no text")
        return str(found)

    return _REFERENCE.sub(value, text)


def files_of(result: Mapping[str, Any], place: Path) -> Iterator[Path]:
    """The files that a stage made: those in its own folder, those that it names, and the weights in folders that it names."""
    seen = set[Path]()
    for path in (*sorted(place.rglob("*")), *_named(result)):
        inside = [path] if path.is_file() else [each for form in _WEIGHTS for each in sorted(path.glob(form))]
        for each in inside:
            if each.resolve() not in seen:
                seen.add(each.resolve())
                yield each


def _named(value: Any) -> Iterator[Path]:
    if isinstance(value, Mapping):
        for name, each in value.items():
            if name not in _GROWING:
                yield from _named(each)
    elif isinstance(value, list):
        for each in value:
            yield from _named(each)
    elif isinstance(value, str) and os.sep in value and len(value) < 4096 and "\n" not in value:
        with suppress(OSError, ValueError):
            if (path := Path(value)).exists():
                yield path


def verdict_of(result: Mapping[str, Any]) -> Mapping[str, Any]:
    """Where a command says whether the gate let it pass: at the top, or in its evaluation."""
    evaluation = result.get("evaluation")
    return result if "passed" in result or not isinstance(evaluation, Mapping) else evaluation


def cost_of(result: Mapping[str, Any]) -> float | None:
    """What a command says that it cost, in dollars: in a word of its own, or as the sum over slots, roles and the two sides of
    an examination. `None` where it says nothing, and where one of these is not known."""
    for each in (result, result.get("metrics"), result.get("spent")):
        if isinstance(each, Mapping) and isinstance(each.get("cost"), int | float):
            return float(each["cost"])
    slots = result.get("slots")
    parts = slots if isinstance(slots, list) else list(_paid(result))
    costs = [None if each.get("calls_without_price") else each.get("cost") for each in parts]
    known = [float(cost) for cost in costs if isinstance(cost, int | float)]
    return sum(known) if len(known) == len(costs) and (costs or slots is not None) else None


def _paid(result: Mapping[str, Any]) -> Iterator[Mapping[str, Any]]:
    """The roles of a training, and both sides of an examination."""
    told = {name: found for name in ("metrics", "evaluation") if isinstance(found := result.get(name), Mapping)}
    for each in (told.get("metrics", {}).get("roles"), *(said.get("spent") for said in (result, told.get("evaluation", {})))):
        yield from (part for part in (each or {}).values() if isinstance(part, Mapping))
