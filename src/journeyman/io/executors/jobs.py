"""What workers are given: JSON that is looked at before anything is done with it."""

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from pathlib import Path
from typing import Any, Self

from pydantic import BaseModel, ConfigDict, ValidationError

from journeyman.core import registry
from journeyman.core.errors import InputError

_OUTSIDE = ContextVar("outside", default=False)
_WALLS_DOWN = "unsafe-local"


def from_outside() -> bool:
    """Whether what is done here was asked for by way of a database, and not by whoever began this process."""
    return _OUTSIDE.get()


@contextmanager
def outside() -> Iterator[None]:
    """What is done in this `with` was asked for by way of a database."""
    before = _OUTSIDE.set(True)
    try:
        yield
    finally:
        _OUTSIDE.reset(before)


def call(job: str, item: Any) -> Any:
    """Do what was asked for by way of a database: a job, by its name."""
    with outside():
        return registry.load("jobs", job)(item)


class JobItem(BaseModel):
    """The item of a job, by its fields. `paths` and `folder` are files and a folder, `sandbox` what code is run in."""

    model_config = ConfigDict(extra="forbid", strict=True, frozen=True)

    @classmethod
    def read(cls, item: Mapping[str, Any]) -> Self:
        """
        Raises:
            InputError: A field is missing, unknown or of another kind; the message names the first. Or it came from outside,
                and leads out of the worker's folder, or wants code to be run without walls.
        """
        try:
            found = cls.model_validate(item)
        except ValidationError as error:
            first = error.errors()[0]
            where = ".".join(map(str, first["loc"]))
            raise InputError(f"the item of a job cannot be used: {where}: {first['msg']}") from None
        if from_outside():
            here = Path.cwd().resolve()
            for path in (*getattr(found, "paths", ()), getattr(found, "folder", ".")):
                if not (here / path).resolve().is_relative_to(here):
                    raise InputError(f"{path!r:.200} lies outside of the folder that the worker runs in")
            if getattr(found, "sandbox", "") == _WALLS_DOWN:
                raise InputError(f"a worker runs nothing in {_WALLS_DOWN}")
        return found

    def json_item(self) -> dict[str, Any]:
        """As it crosses to a worker."""
        return self.model_dump(mode="json")


def known(kind: str, name: str) -> str:
    """A name of the registry: a class of one's own is not sent to workers.

    Raises:
        InputError: It is none.
    """
    if not registry.known(kind, name):
        raise InputError(f"workers know {', '.join(registry.names(kind))}, and not {name!r:.80}; leave out --workers")
    return name
