"""Reading scenario files: every fault is named at once, by file, line and field, and what is vague is warned of.

scenarios:
  - name: Email validator          # of its own
    goal: A function that …
    requirements: [ … ]
    task_type: CODE_INTERPRET      # or TEXT_GENERATION, CODE_REVIEW
    category: micro_saas
    checks: [ … ]                  # shell lines, files of tests; see `_Checks`
    files: {seed.csv: "a,b"}       # or a list of files beside this one
    setup: mkdir data
"""

import ast
import json
import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from difflib import get_close_matches
from pathlib import Path, PurePosixPath
from typing import Any, TypeVar

import yaml

from journeyman.core.errors import InputError
from journeyman.tasks.scenarios.scenario import Acceptance, Scenario, TaskType

# YAML and JSON as values that know their line. Nothing but text, numbers, lists and mappings comes out of either.

MOST = 100_000
"""Values in a file, those that an alias repeats counted again: a few lines of aliases can stand for billions."""
DEEPEST = 50
_TAG = "tag:yaml.org,2002:"
_SCALARS = {"str", "int", "float", "bool", "null", "timestamp"}


@dataclass(frozen=True, slots=True)
class DocumentNode:
    """A value and the line that it begins on."""

    line: int
    value: "str | int | float | bool | list[DocumentNode] | dict[str, DocumentNode] | None"
    """Of a mapping, each key leads to its value; the line of a value is that of its key."""
    twice: tuple[tuple[int, str], ...] = ()
    """Line and name of keys that stand in a mapping more than once. The first one counts."""

    @property
    def kind(self) -> str:
        """What it is, in the words of a complaint."""
        kinds = {str: "text", bool: "true or false", int: "a number", float: "a number", list: "a list", dict: "a mapping"}
        return kinds.get(type(self.value), "nothing")


class UnreadableDocument(Exception):
    """The text is not YAML or JSON at all, or more than it looks."""

    def __init__(self, line: int, text: str) -> None:
        super().__init__(text)
        self.line = line


def of_yaml(text: str) -> DocumentNode:
    """The only document in a YAML text.

    Raises:
        UnreadableDocument: It is none, has several, names a type of object, or its aliases say more than `MOST` values.
    """
    try:
        root = yaml.compose(text, Loader=yaml.SafeLoader)
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark or error.context_mark
        said = " ".join(part for part in (error.context, error.problem) if part)
        raise UnreadableDocument(mark.line + 1 if mark else 1, f"is not YAML: {said}") from None
    except yaml.YAMLError as error:
        raise UnreadableDocument(1, f"is not YAML: {' '.join(str(error).split())}") from None
    except RecursionError:
        raise UnreadableDocument(1, "is nested too deeply") from None
    return DocumentNode(1, None) if root is None else _Walk().of(root, 0)


class _Walk:
    def __init__(self) -> None:
        self._seen = 0

    def of(self, node: Any, depth: int) -> DocumentNode:
        line = node.start_mark.line + 1
        self._seen += 1
        if self._seen > MOST or depth > DEEPEST:
            raise UnreadableDocument(
                line, f"says more than {MOST} values, or is nested deeper than {DEEPEST}: are its aliases right?"
            )
        kind = node.tag.removeprefix(_TAG)
        if isinstance(node, yaml.MappingNode) and kind == "map":
            return self._mapping(node, line, depth)
        if isinstance(node, yaml.SequenceNode) and kind == "seq":
            return DocumentNode(line, [self.of(item, depth + 1) for item in node.value])
        if isinstance(node, yaml.ScalarNode) and kind in _SCALARS:
            return DocumentNode(line, _scalar(kind, node.value))
        raise UnreadableDocument(line, f"holds a {node.tag}, and only text, numbers, lists and mappings are read")

    def _mapping(self, node: Any, line: int, depth: int) -> DocumentNode:
        found: dict[str, DocumentNode] = {}
        twice = []
        for key, value in node.value:
            name, at = str(key.value), key.start_mark.line + 1
            if not isinstance(key, yaml.ScalarNode):
                raise UnreadableDocument(at, "has a key that is no text")
            inner = self.of(value, depth + 1)
            if name in found:
                twice.append((at, name))
            else:
                found[name] = DocumentNode(at, inner.value, inner.twice)
        return DocumentNode(line, found, tuple(twice))


def _scalar(kind: str, text: str) -> str | int | float | bool | None:
    """Its type is all that matters of a value that is not text: none is wanted but yes and no."""
    if kind == "null":
        return None
    if kind == "bool":
        return text.casefold() in ("true", "yes", "on")
    return 0.0 if kind in ("int", "float") else text


def of_json(text: str) -> DocumentNode:
    """A JSON text.

    Raises:
        UnreadableDocument: It is none.
    """
    try:
        json.loads(text)
        return _value(text, *_on(text, 0, 1))[0]
    except json.JSONDecodeError as error:
        raise UnreadableDocument(error.lineno, f"is not JSON: {error.msg}") from None
    except (RecursionError, ValueError) as error:
        why = "is nested too deeply" if isinstance(error, RecursionError) else f"is not JSON: {error}"
        raise UnreadableDocument(1, why) from None


_SCALAR = json.JSONDecoder()


def _value(text: str, at: int, line: int) -> tuple[DocumentNode, int, int]:
    """The value that begins at a place of a sound JSON text, where it ends, and on which line."""
    if text[at] not in "{[":
        value, end = _SCALAR.raw_decode(text, at)
        return DocumentNode(line, value), end, line
    first, mapping = line, text[at] == "{"
    items: list[DocumentNode] = []
    found: dict[str, DocumentNode] = {}
    twice: list[tuple[int, str]] = []
    at, line = _on(text, at + 1, line)
    while text[at] not in "}]":
        key, begun = "", line
        if mapping:
            key, at = _SCALAR.raw_decode(text, at)
            at, line = _on(text, _blank(text, at) + 1, line + text.count("\n", at, _blank(text, at)))
        item, at, line = _value(text, at, line)
        if not mapping:
            items.append(item)
        elif key in found:
            twice.append((begun, key))
        else:
            found[key] = DocumentNode(begun, item.value, item.twice)
        at, line = _on(text, at, line)
        if text[at] == ",":
            at, line = _on(text, at + 1, line)
    return DocumentNode(first, found if mapping else items, tuple(twice)), at + 1, line


def _blank(text: str, at: int) -> int:
    """Past white space."""
    while at < len(text) and text[at] in " \t\r\n":
        at += 1
    return at


def _on(text: str, at: int, line: int) -> tuple[int, int]:
    """Past white space, with the line there."""
    end = _blank(text, at)
    return end, line + text.count("\n", at, end)


# What makes a scenario too vague to learn from, found before money is spent on it.

SHORT = 4
"""Words that a goal should have at least."""
_FILLER = """\
a all also an and any api app application as at be best better build clean code create easy etc everything excellent fast
fine for good great high highly i in is it just make must neat nice nicely of ok perfect please program project proper
properly quality quick quickly really robust run runs secure should simple site software solid some something system that
the thing things this to tool use useful very want we website well with work working works write
"""
"""Words that say nothing that could be checked."""
_EMPTY = frozenset(_FILLER.split())


def vague(scenario: Scenario) -> Iterator[tuple[str, str]]:
    """The fields that say too little, each with a sentence on what is missing."""
    if len(_words(scenario.goal)) < SHORT or not _says(scenario.goal):
        yield "goal", f"{_quoted(scenario.goal)} says little; say what is to be built, for whom, and what goes in and comes out"
    if not scenario.requirements:
        yield "requirements", "there is none; without them any answer is right"
    for number, requirement in enumerate(scenario.requirements):
        if not _says(requirement):
            yield (
                f"requirements[{number}]",
                f"{_quoted(requirement)} cannot be checked; say what must hold, with names and values",
            )
    if not scenario.checks:
        yield "checks", "there is none, so it is only read, never run, and cannot count as verified"
    elif all(check.hidden for check in scenario.checks) and scenario.runs:
        yield "checks", "all are hidden, so the agent learns nothing from their failures; show it at least one"


def _says(text: str) -> bool:
    return any(word not in _EMPTY for word in _words(text))


def _words(text: str) -> list[str]:
    return re.findall(r"[^\W_]+", text.casefold())


def _quoted(text: str) -> str:
    return repr(text if len(text) <= 60 else f"{text[:57]}...")


LARGEST = 10_000_000
"""Bytes of a scenario file, and of a file that it names."""
_FIELDS = ("name", "goal", "requirements", "task_type", "category", "checks", "files", "setup")
_LONGEST_NAME = 200
_Value = TypeVar("_Value")


@dataclass(frozen=True, slots=True)
class Notice:
    """One fault or warning, and where it is."""

    file: str
    line: int
    field: str
    """Such as `scenarios[3].goal`; empty when it is the whole file."""
    text: str

    def __str__(self) -> str:
        return f"{self.file}:{self.line}: {self.field + ': ' if self.field else ''}{self.text}"


@dataclass(frozen=True, slots=True)
class ScenarioFile:
    """All that was found in a file."""

    scenarios: tuple[Scenario, ...]
    """Those without a fault."""
    faults: tuple[Notice, ...]
    warnings: tuple[Notice, ...]


def load(path: Path | str) -> tuple[Scenario, ...]:
    """The scenarios of a file.

    Raises:
        InputError: It has faults; all of them are named.
    """
    found = read(path)
    if found.faults:
        raise InputError("\n".join(map(str, found.faults)))
    return found.scenarios


def read(path: Path | str) -> ScenarioFile:
    """What a file holds, with its faults and warnings. A file ending in `.json` is JSON, any other YAML.

    Raises:
        InputError: It is not there or not text.
    """
    path = Path(path)
    try:
        raw = _bytes(path)
    except OSError as error:
        raise InputError(f"{path} could not be read: {error.strerror}; check the name") from None
    return parse(raw, str(path), beside=path.parent)


def parse(raw: bytes, name: str, *, beside: Path) -> ScenarioFile:
    """The same for the bytes of a file. `beside` is where the files lie that it names."""
    notices: list[Notice] = []
    try:
        text = raw.decode("utf-8-sig")
        root = of_json(text) if name.endswith(".json") else of_yaml(text)
    except UnicodeDecodeError as error:
        return ScenarioFile((), (Notice(name, 1, "", f"is not text in UTF-8 (byte {error.start})"),), ())
    except UnreadableDocument as error:
        return ScenarioFile((), (Notice(name, error.line, "", str(error)),), ())
    reader = _Reader(name, beside, notices)
    found = reader.all(root)
    warnings = [
        Notice(name, _line(node, field), f"scenarios[{number}].{field}", text)
        for number, node, scenario in found
        for field, text in vague(scenario)
    ]
    return ScenarioFile(tuple(scenario for _, _, scenario in found), tuple(notices), tuple(warnings))


class _Reader:
    """Reads one file. What is wrong goes into `notices`, and the reading goes on."""

    def __init__(self, file: str, beside: Path, notices: list[Notice]) -> None:
        self._file = file
        self._beside = beside.resolve()
        self._notices = notices

    def all(self, root: DocumentNode) -> list[tuple[int, DocumentNode, Scenario]]:
        """Number, node and value of every scenario without a fault."""
        listed = root
        if isinstance(root.value, dict):
            self._unknown(root, ("scenarios",), "")
            listed = root.value.get("scenarios", DocumentNode(root.line, None))
        if not isinstance(listed.value, list) or not listed.value:
            self._fault(listed.line, "scenarios", f"must be a list of scenarios, and is {_kind_of(listed)}")
            return []
        found = []
        names: dict[str, int] = {}
        for number, node in enumerate(listed.value):
            before = len(self._notices)
            scenario = self._scenario(node, f"scenarios[{number}]", names)
            if scenario is not None and len(self._notices) == before:
                found.append((number, node, scenario))
        return found

    def _scenario(self, node: DocumentNode, at: str, names: dict[str, int]) -> Scenario | None:
        if not isinstance(node.value, dict):
            self._fault(node.line, at, f"must be a mapping of fields, and is {_kind_of(node)}")
            return None
        self._unknown(node, _FIELDS, at)
        take = _Take(self, node, at)
        name = take("name", self._line_of_text, "", needed=True)
        if name and (first := names.setdefault(name.casefold(), node.line)) != node.line:
            self._fault(node.value["name"].line, f"{at}.name", f"{name!r} is the name of the scenario on line {first} too")
        return Scenario(
            name=name,
            goal=take("goal", self._text, "", needed=True),
            requirements=take("requirements", self._texts, ()),
            task_type=take("task_type", self._task_type, TaskType.CODE_INTERPRET),
            category=take("category", self._line_of_text, "custom"),
            checks=take("checks", self._checks, ()),
            files=take("files", self._files, {}),
            setup=take("setup", self._script, ""),
        )

    def _text(self, node: DocumentNode, at: str) -> str:
        if not isinstance(node.value, str):
            hint = "; put it in quotes" if isinstance(node.value, bool | int | float) else ""
            self._fault(node.line, at, f"must be text, and is {_kind_of(node)}{hint}")
            return ""
        if not node.value.strip():
            self._fault(node.line, at, "is empty")
        return node.value.strip()

    def _line_of_text(self, node: DocumentNode, at: str) -> str:
        text = self._text(node, at)
        if len(text) > _LONGEST_NAME or not text.isprintable():
            self._fault(node.line, at, f"must be one line of at most {_LONGEST_NAME} characters")
        return text

    def _texts(self, node: DocumentNode, at: str) -> tuple[str, ...]:
        return tuple(self._text(item, f"{at}[{number}]") for number, item in enumerate(self._list(node, at)))

    def _list(self, node: DocumentNode, at: str) -> list[DocumentNode]:
        if isinstance(node.value, list):
            return node.value
        self._fault(node.line, at, f"must be a list, and is {_kind_of(node)}")
        return []

    def _task_type(self, node: DocumentNode, at: str) -> TaskType:
        text = self._text(node, at)
        if text and text not in list(TaskType):
            self._fault(node.line, at, f"is {text!r}; there are {', '.join(TaskType)}{_near(text.upper(), list(TaskType))}")
        return TaskType(text) if text in list(TaskType) else TaskType.CODE_INTERPRET

    def _script(self, node: DocumentNode, at: str) -> str:
        return "\n".join(self._texts(node, at)) if isinstance(node.value, list) else self._text(node, at)

    def _checks(self, node: DocumentNode, at: str) -> tuple[Acceptance, ...]:
        """Each is a shell line, a file of tests in place, the name of one (`test_x.py`), or a mapping with `shell` or `pytest`,
        and perhaps `name` and `hidden`."""
        found = [self._check(item, f"{at}[{number}]", number) for number, item in enumerate(self._list(node, at))]
        checks = [check for check in found if check is not None]
        names = [check.name for check in checks]
        for name in sorted({name for name in names if names.count(name) > 1}):
            self._fault(node.line, at, f"{name!r} is the name of two checks; give each a name of its own")
        return tuple(checks)

    def _check(self, node: DocumentNode, at: str, number: int) -> Acceptance | None:
        if not isinstance(node.value, dict):
            text = self._text(node, at)
            kind = "pytest" if _is_path(text) or "\ndef test_" in f"\n{text}" or "\nimport " in f"\n{text}" else "shell"
            node = DocumentNode(node.line, {kind: DocumentNode(node.line, text)}) if text else node
        if not isinstance(node.value, dict):
            return None
        self._unknown(node, ("shell", "pytest", "name", "hidden"), at)
        kinds = [kind for kind in ("shell", "pytest") if kind in node.value]
        if len(kinds) != 1:
            self._fault(node.line, at, "needs either shell or pytest, and one of them")
            return None
        take = _Take(self, node, at)
        text, named = self._source(node.value[kinds[0]], f"{at}.{kinds[0]}", kinds[0])
        name = take("name", self._line_of_text, named or f"check {number + 1}")
        hidden = take("hidden", self._yes, False)
        return Acceptance(name=name, kind="shell" if kinds[0] == "shell" else "pytest", text=text, hidden=hidden)

    def _source(self, node: DocumentNode, at: str, kind: str) -> tuple[str, str]:
        """The text of a check, and the name of the file that it came from."""
        text = self._text(node, at)
        if kind == "shell" or not text:
            return text, ""
        named = text if _is_path(text) else ""
        if named:
            text = self._file_beside(named, node.line, at)
        try:
            tree = ast.parse(text)
        except (SyntaxError, ValueError, RecursionError) as error:
            self._fault(node.line, at, f"is not Python: {error}")
            return text, named
        functions = (n.name for n in ast.walk(tree) if isinstance(n, ast.FunctionDef | ast.AsyncFunctionDef))
        if text and not any(name.startswith("test") for name in functions):
            self._fault(node.line, at, "has no test: a function whose name begins with test_")
        return text, named

    def _yes(self, node: DocumentNode, at: str) -> bool:
        if not isinstance(node.value, bool):
            self._fault(node.line, at, f"must be true or false, and is {_kind_of(node)}")
        return node.value is True

    def _files(self, node: DocumentNode, at: str) -> Mapping[str, str]:
        if isinstance(node.value, dict):
            return {path: self._content(item, path, f"{at}.{path}") for path, item in node.value.items()}
        found = {}
        for number, item in enumerate(self._list(node, at)):
            path = self._text(item, f"{at}[{number}]")
            if path:
                found[path] = self._file_beside(path, item.line, f"{at}[{number}]")
        return found

    def _content(self, node: DocumentNode, path: str, at: str) -> str:
        if not within(path):
            self._fault(node.line, at, "must be a relative path that stays in its folder")
        if not isinstance(node.value, str):
            self._fault(node.line, at, f"must be the text of the file, and is {_kind_of(node)}")
            return ""
        return node.value

    def _file_beside(self, name: str, line: int, at: str) -> str:
        path = (self._beside / name).resolve()
        if not within(name) or not path.is_relative_to(self._beside):
            self._fault(line, at, f"{name} must be a relative path that stays in the folder of the scenarios")
            return ""
        try:
            return _bytes(path).decode("utf-8")
        except (OSError, UnicodeDecodeError) as error:
            why = error.strerror if isinstance(error, OSError) else "it is not text in UTF-8"
            self._fault(line, at, f"{name}, a file beside the scenarios, could not be read: {why}")
            return ""

    def _unknown(self, node: DocumentNode, known: tuple[str, ...], at: str) -> None:
        assert isinstance(node.value, dict)
        for name, item in node.value.items():
            if name not in known:
                where = f"{at}.{name}" if at else name
                self._fault(item.line, where, f"there is no such field; there are {', '.join(known)}{_near(name, known)}")
        for line, name in node.twice:
            self._fault(line, f"{at}.{name}" if at else name, "stands there twice")

    def _fault(self, line: int, field: str, text: str) -> None:
        self._notices.append(Notice(self._file, line, field, text))


@dataclass(frozen=True, slots=True)
class _Take:
    """Takes the fields of one mapping."""

    reader: _Reader
    node: DocumentNode
    at: str

    def __call__(
        self, field: str, read: Callable[[DocumentNode, str], _Value], default: Any, *, needed: bool = False
    ) -> _Value:
        assert isinstance(self.node.value, dict)
        found = self.node.value.get(field)
        if found is None or found.value is None:
            if needed:
                line = found.line if found else self.node.line
                self.reader._fault(line, f"{self.at}.{field}", "is missing; every scenario needs one")
            missing: _Value = default
            return missing
        return read(found, f"{self.at}.{field}")


def _line(node: DocumentNode, field: str) -> int:
    """The line of a field such as `requirements[2]` of a sound scenario, or that of the scenario where it is missing."""
    assert isinstance(node.value, dict)
    name, _, number = field.rstrip("]").partition("[")
    found = node.value.get(name, node)
    return found.value[int(number)].line if number and isinstance(found.value, list) else found.line


def within(path: str) -> bool:
    """Whether a relative path stays in its folder, and could be one on any system."""
    parts = PurePosixPath(path).parts
    fine = path.isprintable() and "\\" not in path and ":" not in path and len(path) <= 200
    return fine and 0 < len(parts) <= 10 and not path.startswith(("/", "~")) and not path.endswith("/") and ".." not in parts


def _is_path(text: str) -> bool:
    return text.endswith(".py") and not any(character.isspace() for character in text)


def _near(name: str, known: list[Any] | tuple[str, ...]) -> str:
    near = get_close_matches(name, known, n=1)
    return f"; did you mean {near[0]}?" if near else ""


def _kind_of(node: DocumentNode) -> str:
    return "an empty list" if node.value == [] else node.kind


def _bytes(path: Path) -> bytes:
    """A whole file.

    Raises:
        OSError: It could not be read, or is too large to be what it should be.
    """
    with path.open("rb") as file:
        raw = file.read(LARGEST + 1)
    if len(raw) > LARGEST:
        raise OSError(27, f"it is larger than {LARGEST} bytes")
    return raw
