"""What plans are learned from: examples, and the documented JSON that holds them, read with care and written whole.

    {"task_types": [cards], "models": [cards], "tools": [cards], "examples": [
      {"instruction": "...",
       "targets": {"model_selections": [2, 0], "task_types": [3, 5], "dependencies": [[], [0]],
                   "tools": [1, null], "texts": ["...", "..."]},
       "rewards": {"success": 1.0, "cost": -0.045, "latency": -1.2}}]}

Numbers are places in the lists beside; a card is a name, or an object with what is known of it. The bare list of examples is
read too: its types and models then have no names but "type 3" and "model 2". Costs are in US dollars and latencies in seconds,
both negative, as rewards are; what was not measured is null or left out.
"""

import hashlib
import json
import re
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, fields, replace
from pathlib import Path
from typing import Any, Protocol

from journeyman.core import plan
from journeyman.core.errors import InputError, PlanError
from journeyman.core.plan import Plan, Subtask
from journeyman.core.policy import Card
from journeyman.io.atomic import atomic_write
from journeyman.io.jsonl import iter_jsonl, open_maybe_compressed
from journeyman.tracing.importers.execution_log import LoggedExecution, read_executions
from journeyman.tracing.importers.source import Problem

TYPE = "type"
"""The `kind` of a card that stands for a kind of work which a model does, no tool."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Example:
    """A plan that somebody made, and what became of it."""

    plan: Plan
    success: float | None = None
    """0 to 1; `None` when it was not carried out, as plans of experts often are. One that failed is no example to follow."""
    cost: float | None = None
    """US dollars."""
    seconds: float | None = None
    group: str = ""
    """Examples made from one another, such as paraphrases, have the same; it never lies in two splits. Empty: its own."""
    synthetic: bool = False

    @property
    def family(self) -> str:
        """Its group, or itself: examples of one family never lie in two splits, and never vote for one another."""
        return self.group or self.plan.instruction

    @property
    def succeeded(self) -> bool:
        """Whether it is one to follow: plans that nobody carried out are taken at their author's word."""
        return self.success is None or self.success >= 0.5


class Planner(Protocol):
    """Makes a plan for an instruction."""

    def plan(self, instruction: str, *, tools: Sequence[Card] = (), models: Sequence[Card] = ()) -> Plan:
        """The plan with a worker for each subtask. Acyclic, and each required input is given by an earlier subtask or the
        instruction.

        Args:
            tools: What there is to call; others than it learned from, too.
            models: Who can do subtasks that no tool does.

        Raises:
            PlanError: No such plan can be made; says why.
        """


def type_card(name: str, description: str = "") -> Card:
    """The card of a kind of work."""
    return Card(name=name, description=description, kind=TYPE)


@dataclass(frozen=True, kw_only=True)
class TrainingData:
    """Examples, and what their plans are made of."""

    examples: tuple[Example, ...]
    tools: tuple[Card, ...] = ()
    task_types: tuple[Card, ...] = ()
    models: tuple[Card, ...] = ()

    @classmethod
    def of(
        cls,
        examples: Iterable[Example],
        *,
        tools: Sequence[Card] = (),
        task_types: Sequence[Card] = (),
        models: Sequence[Card] = (),
    ) -> "TrainingData":
        """With a card for each name that the plans use and nobody described."""
        kept = tuple(examples)
        subtasks = [subtask for example in kept for subtask in example.plan.subtasks]
        return cls(
            examples=kept,
            tools=_with(tools, (s.tool for s in subtasks), lambda name: Card(name=name, kind="tool")),
            task_types=_with(task_types, (s.type for s in subtasks), lambda name: _kind(name, subtasks)),
            models=_with(models, (s.worker for s in subtasks), lambda name: Card(name=name)),
        )


def _kind(name: str, subtasks: Sequence[Subtask]) -> Card:
    """A kind of work: it takes and gives what every step of it does that a model did without a tool."""
    steps = [subtask for subtask in subtasks if subtask.type == name and not subtask.tool]
    takes, gives = (_common(step.takes for step in steps), _common(step.gives for step in steps))
    return replace(type_card(name), takes=takes, gives=gives)


def _common(lists: Iterable[Sequence[str]]) -> tuple[str, ...]:
    found = [set(each) for each in lists]
    return tuple(sorted(set.intersection(*found))) if found else ()


def _with(cards: Sequence[Card], names: Iterable[str], make: Callable[[str], Card]) -> tuple[Card, ...]:
    known = {card.name for card in cards}
    return (*cards, *(make(name) for name in sorted({name for name in names if name} - known)))


def split(examples: Sequence[Example], share: float = 0.2, seed: int = 0) -> tuple[list[Example], list[Example]]:
    """Training and validation. Which side a group falls on depends on its name and the seed alone, so what was made from an
    example stays with it; what is synthetic is never validated on."""
    train, validation = [], []
    for example in examples:
        digest = hashlib.sha256(f"{seed}\0{example.family}".encode(errors="surrogatepass")).digest()
        if int.from_bytes(digest[:8]) / 2**64 >= share:
            train.append(example)
        elif not example.synthetic:
            validation.append(example)
    return train, validation


def read(path: Path) -> TrainingData:
    """The examples in a file.

    Raises:
        InputError: It cannot be read; names the example and what is wrong with it.
    """
    try:
        return parse(path.read_text("utf-8"), str(path))
    except FileNotFoundError:
        raise InputError(f"{path} is not there; `journeyman dataset planner` makes one from logs") from None
    except (OSError, UnicodeDecodeError) as error:
        raise InputError(f"{path} could not be read: {error}") from None


def parse(text: str, where: str) -> TrainingData:
    """The examples in a text. `where` is what complaints call it."""
    try:
        data = json.loads(text)
    except json.JSONDecodeError as error:
        raise InputError(f"{where}:{error.lineno}: no JSON ({error.msg})") from None
    except (RecursionError, ValueError) as error:
        raise InputError(f"{where}: no JSON that can be read ({error})") from None
    bare = isinstance(data, list)
    rows = data if bare else data.get("examples") if isinstance(data, dict) else None
    if not isinstance(rows, list):
        raise InputError(f"{where} holds no examples; it needs a list of them, or an object with the list under `examples`")
    beside = {} if bare else data
    cards = {
        "tools": _cards(beside.get("tools"), "tool", f"{where}: tools"),
        "task_types": _cards(beside.get("task_types"), "type", f"{where}: task_types"),
        "models": _cards(beside.get("models"), "model", f"{where}: models"),
    }
    examples = [_example(row, cards, f"{where}: example {at}") for at, row in enumerate(rows)]
    return TrainingData.of(examples, **cards)


def dumps(data: TrainingData) -> str:
    """The documented JSON, an example a line."""
    places = {
        name: {card.name: at for at, card in enumerate(cards)}
        for name, cards in (("tools", data.tools), ("task_types", data.task_types), ("models", data.models))
    }
    head = {name: [_card_json(card) for card in getattr(data, name)] for name in ("task_types", "models", "tools")}
    rows = ",\n".join(json.dumps(_row(example, places), ensure_ascii=False) for example in data.examples)
    return f'{json.dumps(head, ensure_ascii=False)[:-1]}, "examples": [\n{rows}\n]}}\n'


def write(data: TrainingData, path: Path) -> None:
    """Write the documented JSON, whole or not at all."""
    with atomic_write(path) as part:
        part.write_text(dumps(data), "utf-8")


_CARD = {field.name for field in fields(Card)}
_AMOUNTS = ("input_price", "output_price", "call_price", "seconds", "window")
_TYPES = ("takes", "gives")


def _cards(found: Any, kind: str, where: str) -> tuple[Card, ...]:
    return tuple(_card(said, kind, f"{where} {at}") for at, said in enumerate(_list(found or [], where)))


def _card(said: Any, kind: str, where: str) -> Card:
    values = {"name": said} if isinstance(said, str) else said
    if not isinstance(values, dict) or not isinstance(values.get("name"), str) or not values["name"]:
        raise InputError(f"{where}: a card needs a name")
    known = {key: value for key, value in values.items() if key in _CARD and value is not None}
    for key, value in known.items():
        if key in _TYPES:
            known[key] = tuple(map(str, _list(value, f"{where}: {key}")))
        elif key in _AMOUNTS:
            _number(value, f"{where}: {key}", low=0)
        elif not isinstance(value, str):
            raise InputError(f"{where}: {key} is {str(value)[:40]}, and must be a text")
    return Card(**{"kind": kind, **known})


def _card_json(card: Card) -> dict[str, Any]:
    values = {name: getattr(card, name) for name in sorted(_CARD - {"kind"})}
    return {"name": card.name} | {name: value for name, value in values.items() if value not in (None, "", ())}


def _example(row: Any, cards: Mapping[str, Sequence[Card]], where: str) -> Example:
    if not isinstance(row, dict) or not isinstance(row.get("instruction"), str):
        raise InputError(f"{where}: no instruction; every example needs one")
    targets = row.get("targets")
    if not isinstance(targets, dict):
        raise InputError(f"{where}: no targets; every example needs an object with task_types and dependencies")
    after = _list(targets.get("dependencies"), f"{where}: dependencies")
    k = len(after)
    named = {
        "type": _names(targets.get("task_types"), cards["task_types"], "type", (k, f"{where}: task_types")),
        "worker": _names(targets.get("model_selections"), cards["models"], "model", (k, f"{where}: model_selections")),
        "tool": _names(targets.get("tools"), cards["tools"], "tool", (k, f"{where}: tools")),
    }
    texts = _list(targets.get("texts") or [row["instruction"]] * k, f"{where}: texts", k)
    subtasks = []
    for at in range(k):
        parents = _list(after[at], f"{where}: dependencies {at}")
        if not all(isinstance(parent, int) and 0 <= parent < k for parent in parents):
            raise InputError(f"{where}: subtask {at} depends on {parents}; there are subtasks 0 to {k - 1}")
        subtasks.append(
            Subtask(
                id=str(at + 1),
                text=str(texts[at]),
                type=named["type"][at] or "general",
                tool=named["tool"][at],
                worker=named["worker"][at],
                after=tuple(str(parent + 1) for parent in parents),
            )
        )
    try:
        plan = Plan.of(row["instruction"], subtasks)
    except PlanError as error:
        raise InputError(f"{where}: {error}") from None
    rewards = row.get("rewards") or {}
    if not isinstance(rewards, dict):
        raise InputError(f"{where}: rewards is no object; it holds success, cost and latency, as far as they are known")
    cost, latency = (_number(rewards.get(name), f"{where}: rewards {name}") for name in ("cost", "latency"))
    return Example(
        plan=plan,
        success=_number(rewards.get("success"), f"{where}: rewards success", low=0, high=1),
        cost=None if cost is None else abs(cost),
        seconds=None if latency is None else abs(latency),
        group=str(row.get("group") or ""),
        synthetic=bool(row.get("synthetic")),
    )


def _list(found: Any, where: str, length: int | None = None) -> list[Any]:
    if not isinstance(found, list):
        raise InputError(f"{where}: a list is needed, not {json.dumps(found)[:40]}")
    if length is not None and len(found) != length:
        raise InputError(f"{where}: {len(found)} entries for {length} subtasks; there must be one for each")
    return found


def _names(found: Any, cards: Sequence[Card], what: str, shape: tuple[int, str]) -> list[str]:
    k, where = shape
    if found is None:
        return [""] * k
    names = []
    for entry in _list(found, where, k):
        if entry is None or entry == "":
            names.append("")
        elif isinstance(entry, str):
            names.append(entry)
        elif not isinstance(entry, int) or isinstance(entry, bool) or entry < 0 or (cards and entry >= len(cards)):
            raise InputError(f"{where}: {entry!r} is no {what}; there are {what}s 0 to {len(cards) - 1}")
        else:
            names.append(cards[entry].name if cards else f"{what} {entry}")
    return names


def _number(found: Any, where: str, *, low: float = -sys.float_info.max, high: float = sys.float_info.max) -> float | None:
    if found is None:
        return None
    if isinstance(found, bool | int | float) and low <= found <= high:
        return float(found)
    limits = "" if low < 0 else f" from {low:g} to {high:g}" if high == 1 else f" of at least {low:g}"
    raise InputError(f"{where}: {repr(found)[:40]} is no number{limits}")


def _row(example: Example, places: Mapping[str, Mapping[str, int]]) -> dict[str, Any]:
    subtasks = example.plan.subtasks
    at = {subtask.id: place for place, subtask in enumerate(subtasks)}
    targets: dict[str, Any] = {
        "model_selections": [places["models"].get(subtask.worker) for subtask in subtasks],
        "task_types": [places["task_types"][subtask.type] for subtask in subtasks],
        "dependencies": [[at[id] for id in subtask.after] for subtask in subtasks],
        "tools": [places["tools"].get(subtask.tool) for subtask in subtasks],
        "texts": [subtask.text for subtask in subtasks],
    }
    rewards = {
        "success": example.success,
        "cost": None if example.cost is None else -example.cost,
        "latency": None if example.seconds is None else -example.seconds,
    }
    row: dict[str, Any] = {"instruction": example.plan.instruction, "targets": targets, "rewards": rewards}
    return row | ({"group": example.group} if example.group else {}) | ({"synthetic": True} if example.synthetic else {})


# Execution logs become training data: what was planned, and what it brought.


@dataclass(kw_only=True)
class PreparedExamples:
    """What the logs gave, and what they did not."""

    data: TrainingData = field(default_factory=lambda: TrainingData(examples=()))
    lines: int = 0
    succeeded: int = 0
    failed: int = 0
    unjudged: int = 0
    held_out: int = 0
    """Left out: nobody may learn from them."""
    without_plan: int = 0
    """Left out: the line does not hold one, or one that nobody could carry out."""
    left_out: int = 0
    """Failures, where only successes were asked for."""
    problems: tuple[Problem, ...] = ()
    """Places that could not be read."""

    def json(self) -> dict[str, Any]:
        known = ("lines", "succeeded", "failed", "unjudged", "held_out", "without_plan", "left_out")
        return {
            "examples": len(self.data.examples),
            **{name: getattr(self, name) for name in known},
            "task_types": [card.name for card in self.data.task_types],
            "models": [card.name for card in self.data.models],
            "tools": [card.name for card in self.data.tools],
            "problems": [str(problem) for problem in self.problems],
        }


def prepare(paths: Sequence[Path], *, cards: Iterable[Card] = (), only_success: bool = False) -> PreparedExamples:
    """Training data from the logs in files and folders, in the order in which they stand there.

    Args:
        cards: What is known of tools, kinds of work and models; a log holds their names alone.
        only_success: Leave failures out. Otherwise they are kept with what they brought, and training gives them no weight.

    Raises:
        InputError: There are no logs, or nothing in them that can be learned from.
    """
    made = PreparedExamples()
    problems: list[Problem] = []
    examples: list[Example] = []
    for path in paths:
        for found in read_executions(path):
            if isinstance(found, Problem):
                problems.append(found)
                continue
            made.lines += 1
            example = _example_preparing(found, made)
            if only_success and example is not None and example.success == 0:
                made.left_out += 1
            elif example is not None:
                examples.append(example)
    made.problems = tuple(problems)
    if not examples:
        raise InputError(f"{', '.join(map(str, paths))}: no execution there can be learned from ({_why(made)})")
    made.data = TrainingData.of(examples, **_known(examples, cards))
    return made


def _example_preparing(found: LoggedExecution, made: PreparedExamples) -> Example | None:
    if found.held_out:
        made.held_out += 1
        return None
    if found.plan is None or not found.plan.subtasks:
        made.without_plan += 1
        return None
    if found.success is None:
        made.unjudged += 1
    else:
        made.succeeded += found.success
        made.failed += not found.success
    seconds = found.critical_path_seconds
    if seconds is None and found.latency_ms is not None:
        seconds = found.latency_ms / 1000
    return Example(
        plan=_done(found),
        success=None if found.success is None else float(found.success),
        cost=found.cost,
        seconds=seconds,
        group=found.task_id,
    )


def _done(found: LoggedExecution) -> Plan:
    """The plan with the models in it that did the work; a tool is no choice of a worker."""
    assert found.plan is not None
    workers = [
        "" if subtask.tool else found.results[subtask.id].worker if subtask.id in found.results else subtask.worker
        for subtask in found.plan.subtasks
    ]
    return found.plan.with_workers(workers)


def _known(examples: Sequence[Example], cards: Iterable[Card]) -> Mapping[str, tuple[Card, ...]]:
    """Those cards that the plans use."""
    subtasks = [subtask for example in examples for subtask in example.plan.subtasks]
    used = {
        "tools": {subtask.tool for subtask in subtasks},
        "task_types": {subtask.type for subtask in subtasks},
        "models": {subtask.worker for subtask in subtasks if not subtask.tool},
    }
    kinds = {"tool": "tools", "type": "task_types", "model": "models"}
    kept: dict[str, list[Card]] = {name: [] for name in used}
    for card in cards:
        name = kinds[card.kind]
        if card.name in used[name]:
            kept[name].append(type_card(card.name, card.description) if name == "task_types" else card)
    return {name: tuple(found) for name, found in kept.items()}


def _why(made: PreparedExamples) -> str:
    parts = [
        f"{count} {what}"
        for count, what in (
            (made.held_out, "of held-out instructions"),
            (made.without_plan, "without a plan"),
            (made.left_out, "failed"),
            (len(made.problems), "could not be read"),
        )
        if count
    ]
    return ", ".join(parts) or "the logs are empty"


# Task graphs that others published, as examples: Seal-Tools, RestBench-TMDB, TaskBench, NESTFUL and WorFBench.
#
# Each reads the files as they were released, gzipped or not. What a set does not say is left open: no plan was carried out.


_MISSING = "see the set's own page for where it is published"


def sealtools(rows: Path, tools: Path | None = None) -> TrainingData:
    """Seal-Tools (Wu et al., 2024), parsed: id, request, tools in order, links between their places."""
    examples = []
    for at, row in enumerate(_lines(rows)):
        with _row_as_published(where := f"{rows}:{at + 1}"):
            links = [(int(a), int(b)) for a, b in row["links"]]
            examples.append(_example_of(row["request"], row["tools"], links, where))
    cards = {}
    for at, row in enumerate(_lines(tools) if tools else ()):
        with _row_as_published(f"{tools}:{at + 1}"):
            cards[row["api_name"]] = Card(name=row["api_name"], description=row["api_description"], kind="tool")
    return TrainingData.of(examples, tools=tuple(cards.values()))


def tool_graph(rows: Path, tools: Path | None = None) -> TrainingData:
    """RestBench-TMDB and TaskBench (Shen et al., 2023), gold or predicted: user_request, task_nodes, task_links by name.

    A link whose ends are no nodes, or one that makes a circle, is left out: predictions of a language model have such.
    """
    cards = {card.name: card for card in (_tool_nodes(tools) if tools else ())}
    examples = []
    for at, row in enumerate(_lines(rows)):
        with _row_as_published(where := f"{rows}:{at + 1}"):
            names = [str(node["task"]) for node in row["task_nodes"] if isinstance(node, dict) and node.get("task")]
            names = [name for name in names if not cards or name in cards]
            if names:
                examples.append(_example_of(row["user_request"], names, _by_name(names, row.get("task_links") or ()), where))
    return TrainingData.of(examples, tools=tuple(cards.values()))


def _tool_nodes(path: Path) -> Iterator[Card]:
    with _row_as_published(str(path)):
        nodes = list(_json(path)["nodes"])
    for at, node in enumerate(nodes):
        with _row_as_published(f"{path}: node {at}"):
            takes, gives = _types_of(node, "input-type"), _types_of(node, "output-type")
            card = Card(name=node["id"], description=node["desc"], kind="tool", takes=takes, gives=gives)
        yield card


def _types_of(node: Mapping[str, Any], name: str) -> tuple[str, ...]:
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
        with _row_as_published(where := f"{path}: row {at}"):
            calls = [call for call in row["output"] if call["name"] != "var_result"]
            examples.append(_example_of(row["input"], [call["name"] for call in calls], _labelled(calls), where))
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
        with _row_as_published(f"{path}:{at + 1}"):
            after = [[str(a + 1) for a, b in row["edges"] if b == place] for place in range(len(row["nodes"]))]
            steps = enumerate(zip(row["nodes"], after, strict=True), 1)
            subtasks = [{"id": str(at), "text": text, "type": row["source"], "after": parents} for at, (text, parents) in steps]
            examples.append(Example(plan=plan.read({"instruction": row["task"], "subtasks": subtasks})))
    return TrainingData.of(examples)


def _example_of(request: str, names: Sequence[str], links: Iterable[tuple[int, int]], where: str) -> Example:
    after: list[set[int]] = [set() for _ in names]
    for head, tail in links:
        if not (0 <= head < len(names) and 0 <= tail < len(names)):
            raise InputError(f"{where}: a link from {head} to {tail} in a plan of {len(names)} steps")
        # Whatever would close a circle stays out.
        if head != tail and not _reaches(after, tail, head):
            after[tail].add(head)
    subtasks = [
        {"id": str(at + 1), "text": request, "tool": name, "after": [str(head + 1) for head in sorted(after[at])]}
        for at, name in enumerate(names)
    ]
    return Example(plan=plan.read({"instruction": request, "subtasks": subtasks}))


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
def _row_as_published(where: str) -> Iterator[None]:
    """Name the row that is not as the set was published."""
    try:
        yield
    except PlanError as error:
        raise InputError(f"{where}: {error}") from None
    except (KeyError, TypeError, ValueError, AttributeError, OverflowError) as error:
        raise InputError(f"{where}: not a row as the set was published ({type(error).__name__}: {error})") from None


def _lines(path: Path) -> Iterator[Any]:
    return (line.value for line in iter_jsonl(path, json.loads, missing=_MISSING))


def _json(path: Path) -> Any:
    with open_maybe_compressed(path, missing=_MISSING) as file:
        try:
            return json.loads(file.read().decode())
        except (json.JSONDecodeError, RecursionError) as error:
            raise InputError(f"{path}: no JSON that can be read ({error})") from None
