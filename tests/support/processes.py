"""Who is whose child, and who is still there."""

from pathlib import Path


def below(pid: int) -> list[int]:
    """All descendants of a process. One that ends while it is looked at has none."""
    found = []
    waiting = [pid]
    while waiting:
        for task in Path(f"/proc/{waiting.pop()}/task").glob("*/children"):
            try:
                mine = [int(each) for each in task.read_text().split()]
            except OSError:
                continue
            found += mine
            waiting += mine
    return found


def is_alive(pid: int) -> bool:
    """A zombie is not."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False
