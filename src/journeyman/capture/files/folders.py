"""Files and folders of them, as the files that are read together."""

import os
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path

from journeyman.capture.base import Recorded
from journeyman.capture.files import reading
from journeyman.capture.files.formats import OTLP
from journeyman.capture.files.reading import holds_spans
from journeyman.capture.files.source import Problem
from journeyman.errors import InputError


def walked(paths: Iterable[Path]) -> Iterator[tuple[Path, bool]]:
    """The files, those of folders included; whether a file was named itself.

    Raises:
        InputError: There is no such file.
    """
    for path in paths:
        if not path.exists():
            raise InputError(f"there is no file {path}")
        if not path.is_dir():
            yield path, True
            continue
        for folder, inner, names in os.walk(path):
            inner[:] = sorted(each for each in inner if not each.startswith("."))
            found = (Path(folder, each) for each in sorted(names) if not each.startswith("."))
            yield from ((each, False) for each in found if each.is_file())


def grouped(found: Sequence[tuple[Path, bool]], name: str | None) -> Iterator[tuple[list[Path], bool]]:
    """Each file alone, but those of spans together: a trace's spans may stand in several."""
    spans: list[Path] = []
    named = False
    for path, is_named in found:
        if len(found) > 1 and (name == OTLP or (name is None and holds_spans(path))):
            spans.append(path)
            named |= is_named
        else:
            yield [path], is_named
    if spans:
        yield spans, named


def read(paths: list[Path], name: str | None, done: Callable[[int], None] = lambda _: None) -> Iterator[Recorded | Problem]:
    """The traces of a file, or of files of spans together; `done` is called with how many more bytes were read."""
    if len(paths) == 1:
        yield from reading.read(paths[0], name, done)
    else:
        yield from reading.read_spans(paths)
        done(sum(path.stat().st_size for path in paths))
