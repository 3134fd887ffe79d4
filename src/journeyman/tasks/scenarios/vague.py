"""What makes a scenario too vague to learn from, found before money is spent on it."""

import re
from collections.abc import Iterator

from journeyman.tasks.scenarios.scenario import Scenario

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
