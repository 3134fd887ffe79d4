"""Scenarios typed in. Every answer is on the disk before the next question, so that an interruption loses none."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import click

from journeyman import app
from journeyman.errors import InputError
from journeyman.learn.playbook.files import check_writable
from journeyman.learn.playbook.runs import write_json
from journeyman.tasks.scenarios import load

DONE = "done"
_DRAFT = "interactive.json"
_CATEGORIES = "micro_saas, automation, ai_agent, custom"


def enter(project: Path) -> Path:
    """Ask for scenarios until "done"; the file that they are in.

    Raises:
        InputError: None was typed in, or there is no place to keep it; that is said before anything is asked.
    """
    draft, path = project / _DRAFT, Path("scenarios") / f"interactive_{app.now():%Y%m%d_%H%M%S}.json"
    for file in (draft, path):
        check_writable(file)
    scenarios, begun = _kept(draft)

    def keep() -> None:
        write_json(draft, {"scenarios": scenarios, "begun": begun})

    _say(f"Type {DONE} as a name when all scenarios are entered. Every answer is kept in {draft} at once.")
    while _entered(scenarios, begun, keep):
        scenarios.append(dict(begun))
        begun.clear()
        keep()
    if not scenarios:
        draft.unlink(missing_ok=True)
        raise InputError("no scenario was entered; there is nothing to train on")
    write_json(path, {"scenarios": scenarios})
    load(path)
    draft.unlink(missing_ok=True)
    _say(f"{len(scenarios)} in {path}. There you can give them checks, and train on them again with --scenarios.")
    return path


def _kept(draft: Path) -> tuple[list[dict[str, Any]], dict[str, Any]]:
    """What an interrupted session had entered, if it is wanted: whole scenarios, and the answers to one that was begun."""
    try:
        found = json.loads(draft.read_text(encoding="utf-8"))
        scenarios, begun = list(found["scenarios"]), dict(found["begun"])
    except FileNotFoundError:
        return [], {}
    except (ValueError, KeyError, TypeError):
        raise InputError(f"{draft} is not what was written; mend it, or delete it to begin anew") from None
    names = ", ".join(entry["name"] for entry in [*scenarios, begun] if "name" in entry)
    wanted = names and click.confirm(f"Entered before: {names}. Go on with that?", default=True, err=True)
    return (scenarios, begun) if wanted else ([], {})


def _entered(scenarios: list[dict[str, Any]], begun: dict[str, Any], keep: Callable[[], None]) -> bool:
    """Ask for what is missing of one scenario; whether there was one."""
    if "name" not in begun:
        taken = {entry["name"].casefold() for entry in scenarios}
        name = _ask("Scenario name", lambda text: text and text.casefold() not in taken, "give it a name that none has yet")
        if name.casefold() == DONE:
            return False
        begun["name"] = name
        keep()
    if "goal" not in begun:
        begun["goal"] = _ask("Goal", bool, "say what is to be built")
        keep()
    wanted = begun.setdefault("requirements", [])
    while "category" not in begun:
        text = _ask(f"Requirement {len(wanted) + 1} (empty: no more)", lambda _: True, "")
        if not text:
            begun["category"] = ""
        else:
            wanted.append(text)
        keep()
    begun["category"] = begun["category"] or _ask(f"Category ({_CATEGORIES})", lambda _: True, "") or "custom"
    begun["task_type"] = "CODE_INTERPRET"
    return True


def _ask(question: str, fine: Callable[[str], Any], otherwise: str) -> str:
    while True:
        answer: str = click.prompt(question, default="", show_default=False, err=True).strip()
        if fine(answer):
            return answer
        _say(otherwise)


def _say(text: str) -> None:
    click.echo(text, err=True)
