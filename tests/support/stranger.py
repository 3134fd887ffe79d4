"""Another user of this machine, who cannot read the checkout: with a Python, and a copy of what he is to run."""

import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path

UID = 63999
NEEDED = ("click", "rich", "markdown_it", "mdurl", "pygments")
"""All that the command imports on its way to the sandbox; pure Python, so that they serve another one of the same version."""
SOURCE = Path(__file__).parents[2] / "src" / "journeyman"


@dataclass(frozen=True, slots=True)
class Stranger:
    """Runs things."""

    python: str
    folder: Path

    def run(self, arguments: Sequence[str], timeout: float = 300) -> subprocess.CompletedProcess[str]:
        """`python ARGUMENTS` as he, at home, with an environment of his own."""
        home = self.folder / "home"
        environment = {
            "PATH": "/usr/local/bin:/usr/bin:/bin",
            "HOME": str(home),
            "PYTHONPATH": str(self.folder / "lib"),
            "LOGNAME": "x",
        }
        return subprocess.run(
            [self.python, "-B", *arguments],
            user=UID, group=UID, extra_groups=[], cwd=home, env=environment,
            capture_output=True, text=True, timeout=timeout, check=False,
        )  # fmt: skip


@contextmanager
def stranger() -> Iterator[Stranger | None]:
    """`None` where we are not root, or there is no Python of our version that everybody may run."""
    python = _python()
    if os.geteuid() != 0 or python is None:
        yield None
        return
    folder = Path(tempfile.mkdtemp(prefix="journeyman-stranger-"))
    try:
        folder.chmod(0o755)
        shutil.copytree(SOURCE, folder / "lib" / "journeyman", ignore=shutil.ignore_patterns("__pycache__", "*.safetensors"))
        for name in NEEDED:
            spec = find_spec(name)
            assert spec is not None
            assert spec.submodule_search_locations is not None
            shutil.copytree(
                spec.submodule_search_locations[0], folder / "lib" / name, ignore=shutil.ignore_patterns("__pycache__")
            )
        (folder / "home").mkdir()
        os.chown(folder / "home", UID, UID)
        yield Stranger(python, folder)
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def _python() -> str | None:
    version = f"python{sys.version_info.major}.{sys.version_info.minor}"
    for found in (Path(sys.executable).resolve(), Path("/usr/bin") / version, Path("/usr/local/bin") / version):
        if found.exists() and all(place.stat().st_mode & 0o001 for place in (found, *found.resolve().parents)):
            return str(found)
    return None
