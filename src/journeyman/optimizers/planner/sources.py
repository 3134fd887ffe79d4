"""Task graphs that others published, as examples: Seal-Tools, RestBench-TMDB, TaskBench, NESTFUL and WorFBench.

Each reads the files as they were released, gzipped or not. What a set does not say is left open: no plan here was carried out.
"""

import json
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from journeyman.core.errors import InputError, PlanError
from journeyman.core.plan import Plan, Subtask
from journeyman.core.policy import Card
from journeyman.io.jsonl import iter_jsonl, open_maybe_compressed
from journeyman.optimizers.planner.data import Example, TrainingData

_MISSING = "see the set's own page for where it is published"


def sealtools(rows: Path, tools: Path | None = None) -> TrainingData:
    """Seal-Tools (Wu et al., 2024), parsed: id, request, tools in order, links between their places."""
    examples = []
    for at, row in enumerate(_lines(rows)):
        with _row(where := f"{rows}:{at + 1}"):
            links = [(int(a), int(b)) for a, b in row["links"]]
            examples.append(_example(row["request"], row["tools"], links, where))
    cards = {}
    for at, row in enumerate(_lines(tools) if tools else ()):
        with _row(f"{tools}:{at + 1}"):
            cards[row["api_name"]] = Card(name=row["api_name"], description=row["api_description"], kind="tool")
    return TrainingData.of(examples, tools=tuple(cards.values()))


def tool_graph(rows: Path, tools: Path | None = None) -> TrainingData:
    """RestBench-TMDB and TaskBench (Shen et al., 2023), gold or predicted: user_request, task_nodes, task_links by name.

    A link whose ends are no nodes, or one that makes a circle, is left out: predictions of a language model have such.
    """
    cards = {card.name: card for card in (_tool_nodes(tools) if tools else ())}
    examples = []
    for at, row in enumerate(_lines(rows)):
        with _row(where := f"{rows}:{at + 1}"):
            names = [str(node["task"]) for node in row["task_nodes"] if isinstance(node, dict) and node.get("task")]
            names = [name for name in names if not cards or name in cards]
            if names:
                examples.append(_example(row["user_request"], names, _by_name(names, row.get("task_links") or ()), where))
    return TrainingData.of(examples, tools=tuple(cards.values()))


def _tool_nodes(path: Path) -> Iterator[Card]:
    for node in _json(path)["nodes"]:
        takes, gives = _types(node, "input-type"), _types(node, "output-type")
        yield Card(name=node["id"], description=node["desc"], kind="tool", takes=takes, gives=gives)


def _types(node: Mapping[str, Any], name: str) -> tuple[str, ...]:
    return tuple(str(kind).lower() for kind in node.get(name) or ())


def _by_name(names: Sequence[str], links: Iterable[Any]) -> list[tuple[int, int]]:
    """Links by name as links by place: between the nearest two of those names, forward where that can be."""
    found = []
    for link in links:
        if not isinstance(link, dict):
            continue
        heads = [at for at, name in enumerate(names) if name == link.get("source")]
        tails = [at for at, name in enumerate(names) if name == link.get("target")]
        pairs = [(a, b) for a in heads for b in tails if a != b]
        if pairs:
            found.append(min(pairs, key=lambda pair: (pair[0] > pair[1], abs(pair[1] - pair[0]))))
    return found


_LABEL = re.compile(r"\$(\w+?)(?:\.|\$)")


def nestful(path: Path) -> TrainingData:
    """NESTFUL (Basu et al., 2024): calls whose arguments name the labels of earlier ones."""
    examples = []
    for at, row in enumerate(_json(path)):
        with _row(where := f"{path}: row {at}"):
            calls = [call for call in row["output"] if call["name"] != "var_result"]
            examples.append(_example(row["input"], [call["name"] for call in calls], _labelled(calls), where))
    return TrainingData.of(examples)


def _labelled(calls: Sequence[Mapping[str, Any]]) -> list[tuple[int, int]]:
    places = {call.get("label"): place for place, call in enumerate(calls)}
    named = [sorted(set(_LABEL.findall(json.dumps(call.get("arguments"))))) for call in calls]
    return [(places[label], place) for place, labels in enumerate(named) for label in labels if label in places]


def worfbench(path: Path) -> TrainingData:
    """WorFBench (Qiao et al., 2024), parsed: task, nodes as texts, edges between their places. Its steps have no tools; their
    type is the collection that a row comes from."""
    examples = []
    for at, row in enumerate(_lines(path)):
        with _row(where := f"{path}:{at + 1}"):
            after = [tuple(str(a + 1) for a, b in row["edges"] if b == place) for place in range(len(row["nodes"]))]
            steps = enumerate(zip(row["nodes"], after, strict=True), 1)
            subtasks = [Subtask(id=str(at), text=text, type=row["source"], after=parents) for at, (text, parents) in steps]
            try:
                examples.append(Example(plan=Plan.of(row["task"], subtasks)))
            except PlanError as error:
                raise InputError(f"{where}: {error}") from None
    return TrainingData.of(examples)


def _example(request: str, names: Sequence[str], links: Iterable[tuple[int, int]], where: str) -> Example:
    after: list[set[int]] = [set() for _ in names]
    for head, tail in links:
        if not (0 <= head < len(names) and 0 <= tail < len(names)):
            raise InputError(f"{where}: a link from {head} to {tail} in a plan of {len(names)} steps")
        # Whatever would close a circle stays out.
        if head != tail and not _reaches(after, tail, head):
            after[tail].add(head)
    subtasks = [
        Subtask(id=str(at + 1), text=request, tool=name, after=tuple(str(head + 1) for head in sorted(after[at])))
        for at, name in enumerate(names)
    ]
    return Example(plan=Plan.of(request, subtasks))


def _reaches(after: Sequence[set[int]], first: int, last: int) -> bool:
    """Whether `last` must wait for `first`."""
    waits, seen = [last], set()
    while waits:
        at = waits.pop()
        if at == first:
            return True
        if at not in seen:
            seen.add(at)
            waits += after[at]
    return False


@contextmanager
def _row(where: str) -> Iterator[None]:
    """Name the row that is not as the set was published."""
    try:
        yield
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        raise InputError(f"{where}: not a row as the set was published ({type(error).__name__}: {error})") from None


def _lines(path: Path) -> Iterator[Any]:
    return (line.value for line in iter_jsonl(path, json.loads, missing=_MISSING))


def _json(path: Path) -> Any:
    with open_maybe_compressed(path, missing=_MISSING) as file:
        try:
            return json.loads(file.read().decode())
        except json.JSONDecodeError as error:
            raise InputError(f"{path}:{error.lineno}: no JSON ({error.msg})") from None
