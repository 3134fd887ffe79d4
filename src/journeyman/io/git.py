"""`git`, asked about a repository that is not to be trusted."""

import subprocess
from collections.abc import Iterable
from pathlib import Path

from journeyman.core.errors import InputError


def command(repository: Path, arguments: Iterable[str]) -> list[str]:
    """What asks `git` about a repository. What its own settings name as programs is not run."""
    quiet = ("-c", "core.fsmonitor=false", "-c", "log.showSignature=false", "-c", "core.pager=cat")
    return ["git", "--no-pager", "--no-optional-locks", *quiet, "-C", str(repository), *arguments]


def run(repository: Path, *arguments: str) -> "subprocess.CompletedProcess[bytes]":
    """
    Raises:
        InputError: `git` is not installed.
    """
    try:
        return subprocess.run(command(repository, arguments), capture_output=True, check=False)
    except FileNotFoundError:
        raise InputError("git is not installed, which reads the history") from None
