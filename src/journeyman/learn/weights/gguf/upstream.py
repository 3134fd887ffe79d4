"""llama.cpp's own converter, for architectures that are not known here.

It is looked for as `convert_hf_to_gguf.py` on PATH, and in the folder that the environment variable LLAMA_CPP names.
"""

import os
import shutil
import subprocess
import sys
from pathlib import Path

from journeyman.errors import InputError

SCRIPT = "convert_hf_to_gguf.py"
VARIABLE = "LLAMA_CPP"
_LONGEST = 4 * 3600
"""Seconds."""


def converter() -> Path | None:
    """Where it is; `None` when it is not installed."""
    folder = os.environ.get(VARIABLE)
    if folder and (Path(folder) / SCRIPT).is_file():
        return Path(folder) / SCRIPT
    script = shutil.which(SCRIPT)
    return Path(script) if script else None


def convert(folder: Path, target: Path, architecture: str, kind: str) -> None:
    """Write the model in `folder` as a file of the type `kind`, F32, F16 or BF16.

    Raises:
        InputError: The converter is not installed, or does not know the architecture either.
    """
    script = converter()
    if script is None:
        raise InputError(
            f"{architecture} is none of the architectures that are converted here: install llama.cpp, set {VARIABLE} to its "
            f"folder, and its own {SCRIPT} is used"
        )
    command = [sys.executable, str(script), str(folder), "--outfile", str(target), "--outtype", kind.lower()]
    try:
        run = subprocess.run(command, capture_output=True, text=True, timeout=_LONGEST, check=False)
    except (OSError, subprocess.TimeoutExpired) as error:
        raise InputError(f"{script} did not come to an end: {error}") from None
    if run.returncode or not target.is_file():
        errors = [line for line in run.stderr.splitlines() if line.strip()] or ["it said nothing"]
        raise InputError(f"{script} could not convert {folder}, a {architecture}: {errors[-1].strip()}")
