"""Requests with functions that may be called, in the files of the Berkeley Function Calling Leaderboard (BFCL).

Parsing alone: what checks the calls is `rewards.answers.WrittenCalls`. A file is of one category, `BFCL_v4_simple_python.json`;
its right calls stand under the same name in the folder `possible_answer` beside it, or in the rows as `ground_truth`. Where no
function helps (`irrelevance`), no call is right, and no file says so. Categories of several turns need the leaderboard's own
simulated systems, and are refused.

    Patil et al., "The Berkeley Function Calling Leaderboard (BFCL)", ICML 2025.
"""

import json
import logging
import re
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from journeyman.core.errors import InputError
from journeyman.core.messages import ToolUse
from journeyman.core.task import Task
from journeyman.io.markdown import fences
from journeyman.tasks import code, rows
from journeyman.tasks.questions import LEAST

log = logging.getLogger(__name__)

BY_CALLS = "Call the functions that the request needs, with the arguments that it says; call none where none of them helps."
"""What a model is told that takes functions."""
_WRITTEN = """\
{by_calls} Calls are written, and nothing else: one JSON list, such as [{{"name": "f", "arguments": {{"x": 1}}}}], in the order
of the request, and [] where no function helps. The functions, each with the JSON schema of its arguments:
{functions}"""
_FILE = re.compile(r"BFCL_v\d+_(?P<category>\w+)\.jsonl?(?:\.gz)?")
_CATEGORY = re.compile(r"(?P<category>.+?)_\d")
_UNCALLED = re.compile(r"(live_)?irrelevance")
_ANSWERS = "possible_answer"
_NO_NAME = re.compile(r"[^A-Za-z0-9_-]")
_TYPES: Mapping[str, str | None] = {"dict": "object", "float": "number", "tuple": "array", "any": None}
"""The leaderboard's words for types that JSON schema has others for; any is no restriction."""


def load(input: str, held_out: str = "", *, domain: str = "functions", least: int = LEAST) -> tuple[Task, ...]:
    """Tasks in their splits, as `code.load` places them; a path is a file, or a folder of them.

    Raises:
        InputError: A file cannot be used, or a task is in both.
    """
    return code.load(input, held_out, domain=domain, least=least, read=read_tasks)


def read_tasks(path: Path | str, *, domain: str = "functions") -> tuple[Task, ...]:
    """The tasks of a file, or of a folder's files, in their order.

    Raises:
        InputError: Something is wrong with a file; every fault with its line.
    """
    path = Path(path)
    files = [path] if not path.is_dir() else [each for each in sorted(path.iterdir()) if _is_of_one_turn(each)]
    bad = rows.Complaints("these function calls cannot be used")
    found: dict[str, Task] = {}
    for file in files:
        truths = _truths(file, bad)
        for row in rows.read(file, bad):
            task = _task(row, truths, bad, domain)
            if task is not None and found.setdefault(task.id, task) is not task:
                bad.add(row.where, f"{task.id} was there before")
    bad.check()
    if not found:
        raise InputError(f"{path} holds no requests with functions, such as BFCL_v4_simple_python.json")
    return tuple(found.values())


def category(task_id: str) -> str:
    """The leaderboard's category of a task, which its id begins with: simple_python_0, live_simple_3-1-0."""
    named = _CATEGORY.match(task_id)
    return named["category"] if named else "functions"


def functions(task: Task) -> tuple[Mapping[str, Any], ...]:
    """The functions of a task, with names and schemas as models take them: "name", "description" and "parameters"."""
    return tuple(
        {
            "name": _NO_NAME.sub("_", tool["name"]),
            "description": tool.get("description", ""),
            "parameters": _schema(tool["parameters"]),
        }
        for tool in json.loads(task.answer)["tools"]
    )


def written_calls(reply: str) -> tuple[ToolUse, ...]:
    """The calls that a reply holds as JSON, in its last block that is some or as a whole; none where it holds none.

    A call is `{"name": …, "arguments": {…}}`, or `{name: {…}}` as the leaderboard's own results have them.
    """
    for text in (*reversed([fence.text for fence in fences(reply) if fence.info.strip() in ("", "json")]), reply):
        try:
            told = json.loads(text)
        except (ValueError, RecursionError):
            continue
        return tuple(use for each in (told if isinstance(told, list) else [told]) for use in _uses(each))
    return ()


def right_reply(task: Task) -> str:
    """A reply with calls that are right: of each argument the last value that is allowed."""
    calls = [(name, allowed) for call in json.loads(task.answer)["calls"] for name, allowed in call.items()]
    made = [(name, {key: _built(value) for key, value in _chosen(allowed).items()}) for name, allowed in calls]
    return json.dumps([{"name": name, "arguments": arguments} for name, arguments in made])


def _is_of_one_turn(path: Path) -> bool:
    named = _FILE.fullmatch(path.name)
    if named is None:
        return False
    kept = bool(_UNCALLED.fullmatch(named["category"])) or (path.parent / _ANSWERS / path.name).is_file()
    if not kept or "turn" in named["category"]:
        log.info("%s is left out: its calls are not checked one turn at a time", path)
        return False
    return True


def _truths(file: Path, bad: rows.Complaints) -> Mapping[str, Any]:
    """The right calls that stand beside a file, by the ids of its rows."""
    beside = file.parent / _ANSWERS / file.name
    if not beside.is_file():
        return {}
    return {str(row.value.get("id")): row.value.get("ground_truth") for row in rows.read(beside, bad)}


def _task(row: rows.FileRow, truths: Mapping[str, Any], bad: rows.Complaints, domain: str) -> Task | None:
    value, id = row.value, row.value.get("id")
    truth = value.get("ground_truth", truths.get(str(id)))
    if truth is None and isinstance(id, str) and _UNCALLED.fullmatch(category(id)):
        truth = []
    said = _said(value.get("question"))
    for wrong, what in (
        (not (isinstance(id, str) and id), "no id; every task needs one"),
        (
            said is None,
            "question must be one turn, a list of one list of messages; categories of several turns are not supported",
        ),
        (not _are_functions(value.get("function")), "function must be a list of functions, each with a name and parameters"),
        (not _are_calls(truth), f"no ground_truth of calls, in the row or in {_ANSWERS}/ beside the file"),
    ):
        if wrong:
            bad.add(row.where, what)
            return None
    tools = json.dumps({"calls": truth, "tools": value["function"]}, ensure_ascii=False)
    task = Task(id=str(id), question=str(said), answer=tools, domain=domain)
    listed = json.dumps(functions(task), ensure_ascii=False)
    told = _WRITTEN.format(by_calls=BY_CALLS, functions=listed)
    return Task(id=task.id, question=task.question, answer=tools, domain=domain, instructions=told)


def _said(question: Any) -> str | None:
    """The messages of its only turn as one text, the speaker named where there are several."""
    if not (isinstance(question, list) and len(question) == 1 and isinstance(question[0], list) and question[0]):
        return None
    messages = question[0]
    if not all(isinstance(each, dict) and isinstance(each.get("content"), str) for each in messages):
        return None
    if len(messages) == 1:
        return str(messages[0]["content"])
    return "\n\n".join(f"[{each.get('role', 'user')}]\n{each['content']}" for each in messages)


def _are_functions(told: Any) -> bool:
    return isinstance(told, list) and all(
        isinstance(each, dict) and isinstance(each.get("name"), str) and isinstance(each.get("parameters"), dict)
        for each in told
    )


def _are_calls(told: Any) -> bool:
    return isinstance(told, list) and all(
        isinstance(call, dict)
        and len(call) == 1
        and all(isinstance(allowed, dict) and all(isinstance(v, list) for v in allowed.values()) for allowed in call.values())
        for call in told
    )


def _schema(told: Any) -> Any:
    """A schema in JSON schema's own words for types."""
    if isinstance(told, list):
        return [_schema(each) for each in told]
    if not isinstance(told, dict):
        return told
    made = {key: _schema(value) for key, value in told.items()}
    if isinstance(kind := told.get("type"), str) and kind in _TYPES:
        made["type"] = _TYPES[kind]
        if _TYPES[kind] is None:
            del made["type"]
    return made


def _uses(told: Any) -> Iterator[ToolUse]:
    if not isinstance(told, dict):
        return
    if isinstance(told.get("name"), str) and "arguments" in told:
        yield _use(told["name"], told["arguments"])
        return
    for name, arguments in told.items():
        if isinstance(arguments, dict | str):
            yield _use(name, arguments)


def _use(name: str, arguments: Any) -> ToolUse:
    return ToolUse(name, arguments if isinstance(arguments, str) else json.dumps(arguments, ensure_ascii=False))


def _chosen(allowed: Mapping[str, Sequence[Any]]) -> dict[str, Any]:
    """Of each argument the last of the allowed values; one that may only be left out is left out."""
    present = {key: [value for value in values if value != ""] for key, values in allowed.items()}
    return {key: values[-1] for key, values in present.items() if values}


def _built(value: Any) -> Any:
    """In an object, and in a list of objects, each key has its own allowed values; no deeper."""
    if isinstance(value, dict):
        return _chosen(value)
    if isinstance(value, list) and value and all(isinstance(part, dict) for part in value):
        return [_chosen(part) for part in value]
    return value
