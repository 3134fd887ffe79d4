"""docs/trace-format.md says what the code does."""

import json
import re
from dataclasses import MISSING, fields
from pathlib import Path
from typing import Any

import pytest

from journeyman.core.reward import Reward
from journeyman.core.trace import KINDS, Message, Trace
from journeyman.tracing.importers import NAMES
from journeyman.tracing.importers.jsonl import VERSION, line, parse

DOCS = Path(__file__).parents[2] / "docs"
TEXT = (DOCS / "trace-format.md").read_text()
SECTIONS = dict(re.findall(r"^## (.+?)\n(.*?)(?=^## |\Z)", TEXT, re.MULTILINE | re.DOTALL))


def rows(section: str) -> dict[str, str]:
    """The fields of a table, each with its default."""
    return {name: default.strip() for name, default in re.findall(r"^\| `(\w+)` \|[^|]*\|([^|]*)\|", SECTIONS[section], re.M)}


def required(made: Any) -> dict[str, bool]:
    return {each.name: each.default is MISSING and each.default_factory is MISSING for each in fields(made)}


@pytest.mark.parametrize(
    ("section", "made", "beside"),
    [
        ("Trace", Trace, {"version"}),
        ("Reward", Reward, set()),
        ("Message", Message, set()),
        *((f"Steps of the kind `{name}`", made, {"kind"}) for name, made in KINDS.items()),
    ],
)
def test_every_field_is_described_and_nothing_else(section: str, made: Any, beside: set[str]) -> None:
    told = rows(section) | (rows("Every step") if "kind" in beside else {})
    assert set(told) - beside == set(required(made))
    assert {name for name, default in told.items() if default == "required"} == {
        name for name, needed in required(made).items() if needed
    }


def test_the_example_is_a_trace_of_this_version() -> None:
    (example,) = re.findall(r"^```json\n(.*?)^```", TEXT, re.MULTILINE | re.DOTALL)
    record = json.loads(example)
    assert record["version"] == VERSION
    trace = parse(record, name="x").trace
    assert json.loads(line(trace)) == record
    assert TEXT.startswith(f"# The trace format, version {VERSION}\n")


def test_every_format_is_in_the_table_of_formats_and_in_the_help() -> None:
    formats = (DOCS / "collect.md").read_text().partition("\n## Formats\n")[2].partition("\n## ")[0]
    told = re.findall(r"^\| `([\w-]+)` \|", formats, re.MULTILINE)
    assert sorted(told) == sorted(NAMES)
    help_text = (DOCS.parent / "src" / "journeyman" / "cli" / "collect.py").read_text()
    assert all(re.search(rf"\b{name}\b", help_text) for name in NAMES)
