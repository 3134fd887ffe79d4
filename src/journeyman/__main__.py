"""The program, as `journeyman` and as `python -m journeyman`."""

import gc
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
    finally:
        gc.freeze()


if __name__ == "__main__":
    sys.exit(main())
