"""Bringing a store up to date in a process that ends: whoever serves for days need not carry what migrations take with them.

python -m journeyman.stores.migrate < URL
"""

import subprocess
import sys

from journeyman.stores.traces import open_traces
from journeyman.stores.urls import MEMORY


def make_ready(url: str) -> None:
    """Make the store when it is new, and bring it up to date.

    Raises:
        JourneymanError: As `open_traces` does.
    """
    if url == MEMORY:
        return
    # Not on the command line, which everybody can read: the URL may hold a password.
    done = subprocess.run([sys.executable, "-m", "journeyman.stores.migrate"], input=url.encode(), capture_output=True)
    if done.returncode:
        # Once more, to be told why.
        open_traces(url).close()


if __name__ == "__main__":
    open_traces(sys.stdin.read()).close()
