"""How much of what a coding agent wrote is still there: what people kept is evidence that nobody had to give."""

import json
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path, PurePosixPath
from typing import Any

from journeyman.core.errors import InputError
from journeyman.core.trace import ToolCall, Trace
from journeyman.io import git
from journeyman.rewards.base import RewardResult, soft, unknown, version

_PATH = ("file_path", "filePath", "path", "filename")
_OLD = ("old_string", "oldString", "old_str")
_NEW = ("new_string", "newString", "new_str", "content", "file_text")
_SHORT = 4
"""Characters below which a line says nothing: brackets, `else:` and the like are everywhere."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SurvivalReward:
    """The share of the lines that an attempt wrote which are in the repository's HEAD some days later; soft, 0 to 1.

    Lines are those of edits and whole files that went well, without what stood there before, blank ones and very short ones; a
    line counts as often as it was written and as it is there. Unknown where nothing was written, where the session's folder is
    in no repository here, and until HEAD is younger than the attempt by `days`. The repository is read by `git`, and nothing
    of it is run.

    Its weight is 0: it decides nothing until labels show that it may (`journeyman rewards judge`). What was thrown away for
    other reasons than being wrong did not survive either.
    """

    name: str = "survival"
    weight: float = 0.0
    days: float = 7.0

    @property
    def version(self) -> str:
        return version(1, self.days)

    def compute(self, trace: Trace) -> RewardResult:
        written = _written(trace)
        if not written:
            return unknown("no file was written", is_binary=False)
        cwd = trace.raw.get("cwd")
        if not isinstance(cwd, str) or not Path(cwd).is_dir():
            return unknown("the folder that was worked in is not here", is_binary=False)
        try:
            return self._found(trace, Path(cwd), written)
        except InputError as error:
            return unknown(str(error), is_binary=False)

    def _found(self, trace: Trace, cwd: Path, written: Mapping[str, Counter[str]]) -> RewardResult:
        told = git.run(cwd, "log", "-1", "--format=%H %ct", "HEAD")
        root = git.run(cwd, "rev-parse", "--show-toplevel")
        if told.returncode or root.returncode:
            return unknown(f"{cwd} is in no repository with commits", is_binary=False)
        head, seconds = told.stdout.decode().split()
        at, top = datetime.fromtimestamp(int(seconds), UTC), Path(root.stdout.decode().strip())
        if at < (trace.ended_at or trace.started_at) + timedelta(days=self.days):
            return unknown(f"HEAD is not yet {self.days:g} days younger than the attempt", is_binary=False)
        lines, kept = 0, 0
        for name, wrote in written.items():
            if (path := _inside(top, cwd, name)) is None:
                continue
            blob = git.run(top, "cat-file", "blob", f"{head}:{path}")
            there = _lines(blob.stdout.decode(errors="replace")) if blob.returncode == 0 else Counter()
            lines += wrote.total()
            kept += (wrote & there).total()
        if not lines:
            return unknown(f"nothing was written in {top}", is_binary=False)
        return soft(kept / lines, f"{kept} of {lines} written lines are in HEAD ({head[:12]})", lines=lines, kept=kept)


def _written(trace: Trace) -> dict[str, Counter[str]]:
    """By path as it was named: the lines that came anew, with how often."""
    found: dict[str, Counter[str]] = {}
    for step in trace.steps:
        if isinstance(step, ToolCall) and step.ok:
            for path, lines in _edits(step):
                found[path] = found.get(path, Counter()) + lines
    return {path: lines for path, lines in found.items() if lines}


def _edits(call: ToolCall) -> Iterator[tuple[str, Counter[str]]]:
    try:
        told = json.loads(call.arguments)
    except (ValueError, RecursionError):
        return
    if not isinstance(told, dict) or (path := _first(told, _PATH)) is None:
        return
    edits = told.get("edits")
    for each in edits if isinstance(edits, list) else [told]:
        if isinstance(each, dict) and (new := _first(each, _NEW)) is not None:
            yield path, _lines(new) - _lines(_first(each, _OLD) or "")


def _first(told: Mapping[str, Any], names: tuple[str, ...]) -> str | None:
    return next((told[name] for name in names if isinstance(told.get(name), str)), None)


def _lines(text: str) -> Counter[str]:
    return Counter(line.strip() for line in text.splitlines() if len(line.strip()) >= _SHORT)


def _inside(top: Path, cwd: Path, name: str) -> PurePosixPath | None:
    """A path as git has it; `None` outside of the repository."""
    try:
        return PurePosixPath((cwd / name).resolve().relative_to(top.resolve()))
    except (OSError, ValueError):
        return None
