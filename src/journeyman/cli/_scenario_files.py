"""The work behind `journeyman scenarios`."""

from dataclasses import asdict
from pathlib import Path
from typing import Any

from journeyman.learn.playbook import files
from journeyman.tasks.scenarios import Notice, builtin, read


def template(kind: str, output: Path | None) -> str:
    """The template; written to a file where one is named, which must not be there yet."""
    text = builtin.template("json" if kind == "json" else "yaml")
    if output is not None:
        files.check_writable(output)
        files.write_text(output, text)
    return text


def validated(path: Path) -> tuple[dict[str, Any], list[str]]:
    """What is wrong with a file and what is vague in it, as an object and in words."""
    found = read(path)
    verified = sum(bool(scenario.checks) for scenario in found.scenarios)
    words = [f"{notice}" for notice in _sorted(found.faults)] + [f"{notice} (warning)" for notice in _sorted(found.warnings)]
    words.append(
        f"{path}: {_counted(len(found.scenarios), 'scenario')} can be used, {verified} with checks; "
        f"{_counted(len(found.faults), 'fault')}, {_counted(len(found.warnings), 'warning')}"
    )
    return {
        "valid": not found.faults,
        "scenarios": len(found.scenarios),
        "with_checks": verified,
        "faults": [asdict(notice) for notice in _sorted(found.faults)],
        "warnings": [asdict(notice) for notice in _sorted(found.warnings)],
    }, words


def examples() -> list[dict[str, Any]]:
    """The built-in scenarios, as they stand in a file, without their checks."""
    return [
        {
            "name": scenario.name,
            "goal": scenario.goal,
            "requirements": list(scenario.requirements),
            "task_type": str(scenario.task_type),
            "category": scenario.category,
            "checks": [check.name for check in scenario.checks],
        }
        for scenario in builtin.examples()
    ]


def _counted(number: int, what: str) -> str:
    return f"{number} {what}{'' if number == 1 else 's'}"


def _sorted(notices: tuple[Notice, ...]) -> list[Notice]:
    return sorted(notices, key=lambda notice: notice.line)
