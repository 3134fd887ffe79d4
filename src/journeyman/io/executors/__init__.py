"""Who does the work, by name.

here       this process, one after the other
local      a process for each core; local:4 takes four
ray        a Ray cluster; ray:ADDRESS joins that one
postgres   whoever runs `journeyman worker run URL`, by way of a PostgreSQL: postgres:URL
"""

from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass

from journeyman.core.errors import InputError, MissingExtra
from journeyman.io.executors.local import Here, In, ItemFailed, Out, Processes, Workers

__all__ = ["Here", "ItemFailed", "Processes", "Spread", "Workers", "load", "spread"]

NAMES = ("here", "local", "ray", "postgres")


def load(name: str = "here") -> Workers:
    """The workers called `here`, `local`, `local:PROCESSES`, `ray`, `ray:ADDRESS` or `postgres:URL`.

    Raises:
        InputError: There are none of that name.
        MissingExtra: Ray, or procrastinate, is not installed.
        JourneymanError: The cluster or the database does not answer.
    """
    kind, _, rest = name.partition(":")
    if kind == "postgresql":
        # A URL as it stands.
        kind, rest = "postgres", name
    if kind not in NAMES or (kind == "here" and rest):
        # What has an @ may be a URL with a password in it.
        raise InputError(f"no workers {kind if '@' in name else name!r}; there are {', '.join(NAMES)}")
    if kind == "here":
        return Here()
    if kind == "local":
        if rest and not (rest.isascii() and rest.isdigit() and int(rest)):
            raise InputError(f"{name!r} needs a number of processes, such as local:4")
        return Processes(int(rest) if rest else None)
    try:
        if kind == "postgres":
            from journeyman.io.executors.postgres import PostgresWorkers

            return PostgresWorkers(f"postgresql:{rest}" if rest.startswith("//") else rest)
        from journeyman.io.executors.ray import RayWorkers
    except ModuleNotFoundError as error:
        raise MissingExtra(f"{error.name} is missing: pip install 'journeyman[{_EXTRAS[kind]}]'") from error
    return RayWorkers(rest)


_EXTRAS = {"ray": "ray", "postgres": "workers"}


@dataclass(frozen=True, slots=True)
class Spread:
    """Workers, and how long each item may take them."""

    workers: Workers
    seconds: float | None = None

    @property
    def plain(self) -> bool:
        return self.workers.plain

    def map(
        self, function: Callable[[In], Out], items: Iterable[In], *, failed: Callable[[In, str], Out] | None = None
    ) -> Iterator[Out]:
        """As `Workers.map`."""
        return self.workers.map(function, items, seconds=self.seconds, failed=failed)


@contextmanager
def spread(name: str, seconds: float | None = None) -> Iterator[Spread | None]:
    """The workers of that name, for a `with`; `None` for `here`: then nothing has to cross to another process."""
    if name == "here":
        yield None
        return
    with load(name) as workers:
        yield Spread(workers, seconds)
