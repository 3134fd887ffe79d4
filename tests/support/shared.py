"""What one process starts and all processes of a test run use: whoever comes first starts it, whoever leaves last stops it."""

import atexit
import os
import shutil
import tempfile
from collections.abc import Callable
from pathlib import Path

from filelock import FileLock

from tests.support.processes import is_alive


def shared(name: str, start: Callable[[Path], str], stop: Callable[[Path], None]) -> str:
    """What `start` said of it, here or in another process of this run.

    Args:
        start: Starts it with a folder for its files, in a session of its own: it may outlive this process.
        stop: Stops what was started with the folder, which is removed afterwards.
    """
    run = os.environ.get("PYTEST_XDIST_TESTRUNUID") or str(os.getpid())
    # Short, as the path of a socket may not be long.
    folder = Path(tempfile.gettempdir()) / f"journeyman-{name}-{run[:16]}"
    users, said = folder / "users", folder / "said"

    def leave() -> None:
        with FileLock(f"{folder}.lock"):
            (users / str(os.getpid())).unlink(missing_ok=True)
            if not any(is_alive(int(user.name)) for user in users.iterdir()):
                try:
                    stop(folder)
                finally:
                    shutil.rmtree(folder, ignore_errors=True)
                    Path(f"{folder}.lock").unlink(missing_ok=True)

    with FileLock(f"{folder}.lock"):
        if not said.exists():
            shutil.rmtree(folder, ignore_errors=True)
            users.mkdir(parents=True)
            said.write_text(start(folder))
        (users / str(os.getpid())).touch()
        atexit.register(leave)
        return said.read_text()
