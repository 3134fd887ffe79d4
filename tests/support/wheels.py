"""What is installed here as files that pip installs elsewhere without a network."""

import zipfile
from functools import cache
from importlib.metadata import Distribution, distribution
from pathlib import Path

import pytest

from tests.support.shared import shared

TO_TEST = ("pytest", "pluggy", "iniconfig", "packaging", "pygments", "coverage")
"""What runs tests and measures lines, with all that it needs."""


@cache
def _made() -> str:
    return shared("wheels", _wheelhouse, lambda _: None)


def _wheelhouse(folder: Path) -> str:
    """A folder with a wheel of each."""
    for name in TO_TEST:
        _wheel(distribution(name), folder)
    return str(folder)


def without_network(monkeypatch: pytest.MonkeyPatch, folder: Path) -> None:
    """Have pip install from these files alone, and from a folder of one's own."""
    folder.mkdir(parents=True, exist_ok=True)
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    monkeypatch.setenv("PIP_FIND_LINKS", f"{_made()} {folder}")
    monkeypatch.setenv("PIP_CONFIG_FILE", "/dev/null")


def _wheel(found: Distribution, folder: Path) -> None:
    told = found.read_text("WHEEL") or ""
    tag = next(line.partition(": ")[2] for line in told.splitlines() if line.startswith("Tag: "))
    name = f"{found.metadata['Name'].replace('-', '_')}-{found.version}-{tag}.whl"
    with zipfile.ZipFile(folder / name, "w") as packed:
        for file in found.files or ():
            # Scripts lie outside, and caches are made anew.
            if not str(file).startswith("..") and file.suffix != ".pyc" and file.name not in ("INSTALLER", "REQUESTED"):
                packed.write(str(found.locate_file(file)), str(file))


def program(folder: Path, name: str, code: str) -> None:
    """A wheel of one module with a function `main`, and a script of the same name that calls it."""
    module, about = name.replace("-", "_"), f"{name.replace('-', '_')}-1.0.dist-info"
    files = {
        f"{module}.py": code,
        f"{about}/METADATA": f"Metadata-Version: 2.1\nName: {name}\nVersion: 1.0\n",
        f"{about}/WHEEL": "Wheel-Version: 1.0\nGenerator: tests\nRoot-Is-Purelib: true\nTag: py3-none-any\n",
        f"{about}/entry_points.txt": f"[console_scripts]\n{name} = {module}:main\n",
    }
    files[f"{about}/RECORD"] = "".join(f"{path},,\n" for path in files)
    with zipfile.ZipFile(folder / f"{module}-1.0-py3-none-any.whl", "w") as packed:
        for path, text in files.items():
            packed.writestr(path, text)
