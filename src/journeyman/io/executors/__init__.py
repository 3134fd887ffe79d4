"""Who does the work, by name.

here       this process, one after the other
local      a process for each core; local:4 takes four
ray        a Ray cluster; ray:ADDRESS joins that one
"""

from journeyman.core.errors import InputError, MissingExtra
from journeyman.io.executors.local import Here, Processes, Workers

__all__ = ["Here", "Processes", "Workers", "load"]

NAMES = ("here", "local", "ray")


def load(name: str = "here") -> Workers:
    """The workers called `here`, `local`, `local:PROCESSES`, `ray` or `ray:ADDRESS`.

    Raises:
        InputError: There are none of that name.
        MissingExtra: Ray is not installed.
    """
    kind, _, rest = name.partition(":")
    if kind not in NAMES or (kind == "here" and rest):
        raise InputError(f"no workers {name!r}; there are {', '.join(NAMES)}")
    if kind == "here":
        return Here()
    if kind == "local":
        if rest and not (rest.isascii() and rest.isdigit() and int(rest)):
            raise InputError(f"{name!r} needs a number of processes, such as local:4")
        return Processes(int(rest) if rest else None)
    try:
        from journeyman.io.executors.ray import RayWorkers
    except ModuleNotFoundError as error:
        raise MissingExtra(f"{error.name} is missing: pip install 'journeyman[ray]'") from error
    return RayWorkers(rest)
