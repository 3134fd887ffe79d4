"""`journeyman traces export`."""

import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from itertools import islice
from pathlib import Path
from typing import IO, Any

from journeyman.capture import jsonl
from journeyman.capture.finetuning import Losses, lines
from journeyman.cli import _traces
from journeyman.errors import InputError
from journeyman.io.atomic import atomic_write


def export(
    url: str | None, filters: Mapping[str, Any], name: str, out: Path | None, *, limit: int | None, quiet: bool
) -> dict[str, Any]:
    """Write what the filters let through; how many traces and lines there were, and what was lost."""
    wanted = _traces.query(filters)
    if quiet and out is None:
        raise InputError("--json and the traces would both be on stdout; name a file with --out")
    losses, traces, written = Losses(), 0, 0
    with _traces.opened(url) as store, _written(out) as file:
        for trace in islice(store.traces(wanted), limit):
            traces += 1
            for line in lines(trace, losses) if name == "chat" else [jsonl.line(trace)]:
                file.write(line + "\n")
                written += 1
    lost = list(losses)
    if name == "chat" and written:
        lost.append("Times, tokens, costs, labels and rewards have no place in this format")
    for each in lost:
        _traces.tell(each)
    _traces.tell(f"{traces} traces, {written} lines" + (f" in {out}" if out else ""))
    return {"format": name, "traces": traces, "lines": written, "losses": lost, "out": None if out is None else str(out)}


@contextmanager
def _written(out: Path | None) -> Iterator[IO[str]]:
    """Where to write; a file is there whole when all went well, and else as it was. It is its owner's alone: traces may hold
    what is private."""
    if out is None:
        yield sys.stdout
        return
    if not out.parent.is_dir():
        raise InputError(f"{out} could not be written: {out.parent} is no folder; make it, or name another place")
    with atomic_write(out) as part, part.open("w", encoding="utf-8") as file:
        yield file
