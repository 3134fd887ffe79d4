"""What is installed here as files that pip installs elsewhere without a network."""

import zipfile
from importlib.metadata import Distribution, distribution
from pathlib import Path

import pytest

TO_TEST = ("pytest", "pluggy", "iniconfig", "packaging", "pygments", "coverage")
"""What runs tests and measures lines, with all that it needs."""


def wheelhouse(folder: Path, names: tuple[str, ...] = TO_TEST) -> Path:
    """A folder with a wheel of each."""
    folder.mkdir(parents=True, exist_ok=True)
    for name in names:
        _wheel(distribution(name), folder)
    return folder


def without_network(monkeypatch: pytest.MonkeyPatch, folder: Path) -> None:
    """Have pip install from these files alone."""
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    monkeypatch.setenv("PIP_FIND_LINKS", str(wheelhouse(folder)))
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
