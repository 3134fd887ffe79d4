"""Is it well-formed? Read by a parser, never run."""

import json
import re
import shutil
import subprocess
import tempfile
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path

from journeyman.core.trace import Trace
from journeyman.rewards.base import UNREACHABLE, RewardResult, binary, short, unknown, version
from journeyman.rewards.blocks import last_blocks, parsed

_SECONDS = 10.0
_MODULE = re.compile(r"^\s*(?:import\b(?!\s*\()|export\b)", re.MULTILINE)


@dataclass(frozen=True, slots=True, kw_only=True)
class SyntaxValidationReward:
    """1 when every code block of the last reply that holds any can be parsed; binary.

    Python by `ast`, JSON by `json`, shell by `bash -n`, JavaScript by `node --check`. Unknown without blocks in these
    languages, and where the program that parses them is not installed.
    """

    name: str = "syntax_validation"
    weight: float = 1.0

    @property
    def version(self) -> str:
        return version(1)

    def compute(self, trace: Trace) -> RewardResult:
        found = last_blocks(trace, PARSERS)
        if not found:
            return unknown("no code block in a language that can be parsed")
        missing = {}
        for block in found:
            try:
                fault = PARSERS[block.language](block.code)
            except _CannotTell as error:
                missing[block.language] = str(error)
                continue
            if fault:
                return binary(
                    False, f"the {block.language} code is not well-formed: {short(fault, 200)}", language=block.language
                )
        if missing:
            return unknown("; ".join(missing.values()), **{UNREACHABLE: True})
        languages = ", ".join(sorted({block.language for block in found}))
        return binary(True, f"the code is well-formed ({languages})", blocks=len(found))


class _CannotTell(Exception):
    """Why nobody could look."""


def python_fault(code: str) -> str:
    """What is wrong with it as Python, or nothing."""
    try:
        parsed(code)
    except ValueError as error:
        return str(error)
    return ""


def json_fault(text: str) -> str:
    """What is wrong with it as JSON, or nothing."""
    try:
        json.loads(text)
    except (ValueError, RecursionError) as error:
        return str(error)
    return ""


def shell_fault(code: str) -> str:
    """What is wrong with it as a program for bash, or nothing."""
    return _asked("bash", ["--norc", "--noprofile", "-n"], code, given=True)


def javascript_fault(code: str) -> str:
    """What is wrong with it as JavaScript, or nothing."""
    with tempfile.TemporaryDirectory() as folder:
        # Only a module may import and export.
        file = Path(folder) / ("code.mjs" if _MODULE.search(code) else "code.cjs")
        file.write_text(code, encoding="utf-8", errors="replace")
        return _asked("node", ["--check", str(file)], "", given=False)


PARSERS: Mapping[str, Callable[[str], str]] = {
    "python": python_fault,
    "json": json_fault,
    "shell": shell_fault,
    "javascript": javascript_fault,
}


def _asked(program: str, arguments: list[str], code: str, *, given: bool) -> str:
    path = shutil.which(program)
    if path is None:
        raise _CannotTell(f"{program} is not installed")
    try:
        # With an empty environment: BASH_ENV and NODE_OPTIONS could have other code run.
        run = subprocess.run(
            [path, *arguments],
            input=code.encode(errors="replace") if given else b"",
            env={"LC_ALL": "C.UTF-8"},
            capture_output=True,
            timeout=_SECONDS,
            check=False,
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        raise _CannotTell(f"{program} could not be asked: {error}") from None
    if run.returncode == 0:
        return ""
    said = [line for line in run.stderr.decode(errors="replace").splitlines() if line.strip()]
    errors = [line for line in said if "Error" in line or "rror:" in line]
    return (errors or said or [f"{program} refused it"])[0]
