import gzip
import json
import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from journeyman.core.errors import InputError
from journeyman.optimizers.planner import data

DATA = Path(os.environ.get("JOURNEYMAN_DATA", "/nowhere"))
full = pytest.mark.skipif(not DATA.is_dir(), reason="set JOURNEYMAN_DATA to the folder of the full data sets")


def lines(path: Path, rows: Sequence[Any]) -> Path:
    path.write_text("".join(f"{json.dumps(row)}\n" for row in rows))
    return path


def test_seal_tools_rows_and_tools_are_read(tmp_path: Path) -> None:
    rows = [{"id": "a", "request": "do x, y and z", "tools": ["getX", "getY", "getX"], "links": [[0, 1]]}]
    tools = [{"api_name": "getX", "api_description": "Gets x"}, {"api_name": "getZ", "api_description": "Gets z"}]
    found = data.sealtools(lines(tmp_path / "rows", rows), lines(tmp_path / "tools", tools))
    (example,) = found.examples
    assert [subtask.tool for subtask in example.plan.subtasks] == ["getX", "getY", "getX"]
    assert example.plan.edges == (("1", "2"),)
    assert [card.name for card in found.tools] == ["getX", "getZ", "getY"]
    assert example.success is None


def test_a_predicted_graph_is_read_without_its_circles_and_unknown_tools(tmp_path: Path) -> None:
    row = {
        "user_request": "r",
        "task_nodes": [{"task": "A"}, {"task": "B"}, {"task": "made up"}, {"task": "A"}],
        "task_links": [{"source": "A", "target": "B"}, {"source": "B", "target": "A"}, {"source": "A", "target": "made up"}, 3],
    }
    tools = tmp_path / "tools.json"
    nodes = [{"id": name, "desc": f"does {name}", "input-type": ["Image"], "output-type": ["text"]} for name in "AB"]
    tools.write_text(json.dumps({"nodes": nodes}))
    found = data.tool_graph(lines(tmp_path / "rows", [row]), tools)
    (example,) = found.examples
    assert [subtask.tool for subtask in example.plan.subtasks] == ["A", "B", "A"]
    assert example.plan.edges == (("1", "2"), ("2", "3"))
    assert found.tools[0].takes == ("image",)


def test_a_link_in_a_circle_is_left_out(tmp_path: Path) -> None:
    links = [{"source": a, "target": b} for a, b in ("AB", "BC", "CA")]
    row = {"user_request": "r", "task_nodes": [{"task": name} for name in "ABC"], "task_links": links}
    (example,) = data.tool_graph(lines(tmp_path / "rows", [row])).examples
    assert example.plan.is_chain


def test_nested_calls_depend_on_the_labels_that_they_name(tmp_path: Path) -> None:
    calls = [
        {"name": "find", "arguments": {"q": "x"}, "label": "var1"},
        {"name": "look", "arguments": {"id": "$var1.id$", "more": ["$var1.name$"]}, "label": "var2"},
        {"name": "var_result", "arguments": {"all": "$var2$"}},
    ]
    (tmp_path / "rows.json").write_text(json.dumps([{"input": "i", "output": calls}]))
    (example,) = data.nestful(tmp_path / "rows.json").examples
    assert example.plan.is_chain
    assert [subtask.tool for subtask in example.plan.subtasks] == ["find", "look"]


def test_steps_that_are_only_texts_are_of_the_type_of_their_collection(tmp_path: Path) -> None:
    row = {"id": "1", "source": "wikihow", "task": "t", "nodes": ["a", "b", "c"], "edges": [[0, 2], [1, 2]]}
    (example,) = data.worfbench(lines(tmp_path / "rows", [row])).examples
    assert example.plan.types == ("wikihow",) * 3
    assert example.plan.subtasks[2].after == ("1", "2")
    with pytest.raises(InputError, match=r"rows:1: .*circle"):
        data.worfbench(lines(tmp_path / "rows", [{**row, "edges": [[0, 1], [1, 0]]}]))


def test_what_cannot_be_read_is_named(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="is not there"):
        data.nestful(tmp_path / "none.json")
    with pytest.raises(InputError, match=r"rows:1: not a row as the set was published .*'nodes'"):
        data.worfbench(lines(tmp_path / "rows", [{"id": 1, "edges": []}]))
    with pytest.raises(InputError, match=r"rows:1: subtask '1': type is missing, or no text"):
        data.worfbench(lines(tmp_path / "rows", [{"task": "t", "source": [], "nodes": ["a"], "edges": []}]))
    with pytest.raises(InputError, match=r"rows:1: subtask '1': tool is missing, or no text"):
        data.sealtools(lines(tmp_path / "rows", [{"request": "r", "tools": [{}], "links": []}]))
    (tmp_path / "deep.json").write_text("[" * 100_000)
    with pytest.raises(InputError, match=r"deep.json: no JSON that can be read"):
        data.nestful(tmp_path / "deep.json")
    (tmp_path / "tools.json").write_text('{"nodes": [3]}')
    with pytest.raises(InputError, match=r"tools.json: node 0: not a row as the set was published"):
        data.tool_graph(tmp_path / "deep.json", tmp_path / "tools.json")
    (tmp_path / "bad.jsonl").write_text('{"a"\n')
    with pytest.raises(InputError, match=r"bad.jsonl:1: no JSON"):
        data.worfbench(tmp_path / "bad.jsonl")
    (tmp_path / "short.gz").write_bytes(gzip.compress(b"{}")[:-6])
    with pytest.raises(InputError, match="could not be read"):
        data.worfbench(tmp_path / "short.gz")


@full
def test_the_published_sets_are_read_whole() -> None:
    sealed = data.sealtools(DATA / "plan_sealtools" / "dev_parsed.jsonl.gz", DATA / "plan_sealtools" / "tool.jsonl.gz")
    assert (len(sealed.examples), len(sealed.tools)) == (700, 4076)
    movies = data.tool_graph(DATA / "plan_tmdb" / "data.jsonl.gz", DATA / "plan_tmdb" / "tool_desc.json")
    assert (len(movies.examples), sum(example.plan.is_chain for example in movies.examples)) == (100, 100)
    nested = [data.nestful(path) for path in sorted((DATA / "plan_nestful").glob("*.json.gz"))]
    assert [len(found.examples) for found in nested] == [85, 169, 46]
    flows = data.worfbench(DATA / "plan_worfbench" / "parsed.jsonl.gz")
    assert len(flows.examples) == 2139
    assert sum(not example.plan.is_chain for example in flows.examples) in range(560, 580)
