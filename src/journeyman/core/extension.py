"""What somebody else wrote, while it is made and asked: what goes wrong in it becomes one sentence.

    reward = extension.make("rewards", "my_reward:Polite")
    with extension.named("optimizers", "my_optimizer:OneByOne"):
        found = await optimizer.optimize(bench)

The sentence says of which kind it is, its name, the exception, and the line of its author's code that it came from.
"""

import inspect
import sysconfig
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from traceback import walk_tb
from typing import Any

from journeyman.core import registry
from journeyman.core.errors import InputError, JourneymanError

PARTS: Mapping[str, tuple[str, ...]] = {
    "models": ("name", "dialect", "deterministic", "complete", "close"),
    "embedders": ("name", "embed"),
    "rewards": ("name", "weight", "version", "compute"),
    "importers": ("recognises", "read"),
    "sources": ("kind", "read"),
    "sandboxes": ("start", "run", "session", "close"),
    "optimizers": ("optimize",),
}
"""What one of a kind must have, by kind; tasks and workers are no classes."""
_PAGES = {
    "rewards": "docs/extend-reward.md",
    "importers": "docs/extend-importer.md",
    "optimizers": "docs/extend-optimizer.md",
}
_OURS = Path(__file__).parents[1]
_PYTHONS = Path(sysconfig.get_path("stdlib"))
_INSTALLED = frozenset({"site-packages", "dist-packages"})


def make(kind: str, name: str, *given: Any, **options: Any) -> Any:
    """The reward, importer or optimizer of that name; the same for all kinds of `PARTS`.

    A class, or a function that gives one, is called with what is given; what is no class and has all parts is taken as it is.

    Raises:
        InputError: There is none, it cannot be made of this, or it lacks a part.
        MissingExtra: What it needs is not installed.
    """
    found = registry.load(kind, name)
    if isinstance(found, type) or _lacking(kind, found):
        found = _called(kind, name, found, given, options)
    with named(kind, name):
        lacking = _lacking(kind, found)
    if lacking:
        raise InputError(f"the {registry.ONE[kind]} {name!r} is none: it lacks {', '.join(lacking)}{_page(kind)}")
    return found


def _called(kind: str, name: str, found: Any, given: tuple[Any, ...], options: Mapping[str, Any]) -> Any:
    said = f"the {registry.ONE[kind]} {name!r} cannot be made so"
    if abstract := sorted(getattr(found, "__abstractmethods__", ())):
        raise InputError(f"{said}: it lacks {', '.join(abstract)}{_page(kind)}")
    if not callable(found):
        raise InputError(f"the {registry.ONE[kind]} {name!r} is none: it lacks {', '.join(_lacking(kind, found))}{_page(kind)}")
    try:
        inspect.signature(found).bind(*given, **options)
    except TypeError as error:
        without = "" if given or options else "; it is made without arguments: give each a default"
        raise InputError(f"{said}: {error}{without}{_page(kind)}") from None
    except ValueError:
        # What is written in C may not tell what it takes.
        pass
    with named(kind, name):
        try:
            return found(*given, **options)
        except ModuleNotFoundError as error:
            raise registry.missing(kind, name, error) from error


def _lacking(kind: str, found: Any) -> list[str]:
    return [part for part in PARTS[kind] if not hasattr(found, part)]


def _page(kind: str) -> str:
    return f"; see {_PAGES[kind]}" if kind in _PAGES else ""


@contextmanager
def named(kind: str, name: str) -> Iterator[None]:
    """Says whose the exception is that escapes. What already has a name keeps it, and a fault of our own its traceback."""
    try:
        yield
    except JourneymanError:
        raise
    except Exception as error:
        if name in registry.KINDS[kind]:
            raise
        raise InputError(f"the {registry.ONE[kind]} {name!r} ended in {ended(error)}") from error


def ended(error: BaseException) -> str:
    """An exception, and the line of somebody's code that it came from: "KeyError: 'x' (my_reward.py:12)"."""
    place = _place(error)
    said = " ".join(f"{error!s:.200}".split())
    return f"{type(error).__name__}{f': {said}' if said else ''}{f' ({place})' if place else ''}"


def _place(error: BaseException) -> str:
    """The last line that is neither ours nor Python's own; one of a library only where there is no other."""
    lines = [(Path(frame.f_code.co_filename), number) for frame, number in walk_tb(error.__traceback__)]
    theirs = [(path, number) for path, number in lines if path.is_absolute() and not path.is_relative_to(_OURS)]
    written = [(path, number) for path, number in theirs if not path.is_relative_to(_PYTHONS) and not _is_installed(path)]
    for path, number in reversed(written or [(path, number) for path, number in theirs if _is_installed(path)]):
        here = Path.cwd()
        return f"{path.relative_to(here) if path.is_relative_to(here) else path}:{number}"
    return ""


def _is_installed(path: Path) -> bool:
    return not _INSTALLED.isdisjoint(path.parts)
