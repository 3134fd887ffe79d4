"""Every recorded sample gives the very traces that it gave when they were last looked at.

After a change that is meant, write the digests anew: `python -m tests.golden.test_importers`.
"""

import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.golden.recorded import digests, of_exchanges, of_file, of_line

DATA = Path(__file__).parents[1] / "data"
GOLDEN = Path(__file__).parent / "importers.json"
_FOLDERS = ("collect", "otlp", "tau-bench")
_CASSETTES = "llm-http-cassettes/exchanges.jsonl"
_BY_LINE = ("collect/chat/openai_cookbook_toy.jsonl", "collect/kayba/car_bench.jsonl", "tau-bench/gpt-4o-airline-sample.jsonl")


def _samples() -> Iterator[tuple[str, list[str]]]:
    for path in sorted(each for folder in _FOLDERS for each in (DATA / folder).rglob("*") if each.is_file()):
        if path.suffix == ".md":
            continue
        name = path.relative_to(DATA).as_posix()
        yield name, digests(of_file(path, name))
    rows = [json.loads(line) for line in (DATA / _CASSETTES).read_text().splitlines()]
    yield f"{_CASSETTES} joined", digests(of_exchanges(rows))
    for name in _BY_LINE:
        records = [json.loads(line) for line in (DATA / name).read_text().splitlines()]
        yield f"{name} by line", digests(line for record in records for line in of_line(record))


def test_every_sample_gives_the_traces_that_it_gave_before() -> None:
    pytest.importorskip("opentelemetry.proto", reason="the extra for spans is not installed")
    kept = json.loads(GOLDEN.read_text())
    found = dict(_samples())
    assert sorted(found) == sorted(kept)
    differ = {name: _differ(kept[name], found[name]) for name in kept if kept[name] != found[name]}
    assert differ == {}


def _differ(before: list[str], now: list[str]) -> str:
    """Which lines of those that `recorded` writes are not as before."""
    places = [at for at, (one, other) in enumerate(zip(before, now, strict=False)) if one != other]
    return f"{len(before)} lines before, {len(now)} now; different at {places[:10]}"


if __name__ == "__main__":
    rows = (f"{json.dumps(name)}: {json.dumps(lines)}" for name, lines in sorted(_samples()))
    GOLDEN.write_text("{\n" + ",\n".join(rows) + "\n}\n")
