"""The program, as `journeyman` and as `python -m journeyman`."""

import sys


def main() -> int:
    """The command's exit code. To be interrupted while everything is still being loaded ends as any interruption does."""
    try:
        from journeyman.cli import main as run

        return run()
    except KeyboardInterrupt:
        return 130


if __name__ == "__main__":
    sys.exit(main())
