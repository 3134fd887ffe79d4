"""The program, as `journeyman` and as `python -m journeyman`."""

import atexit
import gc
import os
import sys


def main() -> int:
    """The command's exit code. To be interrupted while everything is still being loaded ends as any interruption does."""
    # Nearly all that a short command makes is what it loads, and no garbage: to look for it took a quarter of the whole.
    gc.set_threshold(10_000, 20, 20)
    try:
        from journeyman.cli import main as run

        return run()
    except KeyboardInterrupt:
        return 130


def program() -> int:
    """`main`, as all that its process is for: that ends at once when the command has."""
    ended: list[int] = []
    # What was registered before would not be heard.
    if not atexit._ncallbacks():
        atexit.register(_leave, ended)
    ended.append(main())
    return ended[0]


def _leave(ended: list[int]) -> None:
    """Let the system free at once what Python frees piece by piece, a tenth of all that a short command takes.

    The first that was registered is the last that is called: threads have ended, and what else is done on the way out is done.
    """
    try:
        sys.stdout.flush()
        sys.stderr.flush()
    except (AttributeError, OSError, ValueError):
        # Python tells it.
        return
    if ended:
        os._exit(ended[0])


if __name__ == "__main__":
    sys.exit(program())
