"""Faults put into code that tests cover: whoever finds and mends one makes the tests pass again."""

import random
from collections.abc import Iterator
from dataclasses import replace

from journeyman.core.format import counted
from journeyman.experiments.task_generation.base import (
    MOST_COVERING,
    Rejected,
    TaskDraft,
    TaskSource,
    alternating,
    leaks,
    tested,
)
from journeyman.experiments.task_generation.history import Commits
from journeyman.rewards.repository.suite import SuiteRun, run_suite
from journeyman.sandbox.base import Sandbox
from journeyman.tasks.repository import Category, RepositoryTask
from journeyman.tasks.repository.mutations import mutations

_SECONDS = 30.0


class BugFix:
    """One mutation in a function that tests come by; of a repository's history also what a commit mended."""

    category = Category.BUG_FIX
    version = "2"

    def __init__(self) -> None:
        self._commits = Commits(self.category)

    def drafts(self, subject: TaskSource, chance: random.Random) -> Iterator[TaskDraft]:
        found = list[tuple[str, TaskDraft]]()
        for path in subject.tree.sources:
            text = subject.tree.text(path)
            module = subject.tree.module_of(path)
            covered = subject.covered(path)
            # What no test comes by is no candidate: nothing could notice it.
            for each in (each for each in mutations(text) if each.line in covered):
                draft = TaskDraft(
                    key=f"{path}:{each.start}:{each.kind}:{each.new}",
                    source=f"{module}:{each.function}",
                    kind=each.kind,
                    path=path,
                    base={path: each.applied(text)},
                    reference={path: text},
                    lines=(each.line,),
                    told={"old": each.old, "new": each.new},
                )
                found.append((draft.source, draft))
        yield from alternating(_in_turns(found, chance), self._commits.drafts(subject, chance))

    async def task(self, draft: TaskDraft, subject: TaskSource, box: Sandbox) -> RepositoryTask | Rejected:
        if self._commits.made(draft):
            return await self._commits.task(draft, subject, box)
        tests = subject.covering(draft.path, draft.lines)[:MOST_COVERING]
        if not tests:
            return Rejected("no test comes by it")
        broken = subject.tree.changed(draft.base)
        run = await run_suite(box, broken, tests, seconds=subject.patience(tests, _SECONDS), plugins=subject.plugins)
        if run.broken:
            return Rejected("it ends the tests", run.broken)
        if not run.became:
            return Rejected("the code cannot be imported", next(iter(run.why.values()), ""))
        made_by = f"bug_fix {self.version} {draft.kind}"
        found = tested(draft, subject, run, tests, category=self.category, made_by=made_by)
        if isinstance(found, Rejected):
            return found
        return replace(found, statement=_statement(subject, draft, run, found.checks.fail_to_pass))


def _statement(subject: TaskSource, draft: TaskDraft, run: SuiteRun, failing: tuple[str, ...]) -> str:
    """What a user would see of it: never where it is, nor what stood there."""
    said = [_first_line(run.why[test]) for test in failing if run.why.get(test)]
    seen = next((line for line in said if line and not _tells(line, draft)), "")
    function = draft.source.partition(":")[2]
    area = f"{subject.name}" if _tells(function, draft) else f"`{function.split('.')[0]}` of {subject.name}"
    told = f"Something that used to work with {area} does not any more."
    shown = f" What is seen: {seen}" if seen else ""
    hidden = f"{counted(len(failing), 'test')} that passed before {'fails' if len(failing) == 1 else 'fail'} because of it"
    return (
        f"{told}{shown}\nFind the fault in the code and mend it. Outside the repository {hidden}; those that are there must go "
        "on passing. They are run with `python -m pytest`."
    )


def _first_line(text: str) -> str:
    return text.strip().partition("\n")[0][:200]


def _tells(words: str, draft: TaskDraft) -> bool:
    old = draft.told.get("old", "").strip()
    return any(leaks(words, secrets=[old] if len(old) > 3 else [], paths=[draft.path]))


def _in_turns(found: list[tuple[str, TaskDraft]], chance: random.Random) -> Iterator[TaskDraft]:
    """One of each function in turn: a long one would otherwise be most of what is tried."""
    by_source: dict[str, list[TaskDraft]] = {}
    for source, draft in found:
        by_source.setdefault(source, []).append(draft)
    order = sorted(by_source)
    chance.shuffle(order)
    for source in order:
        chance.shuffle(by_source[source])
    while by_source:
        for source in [each for each in order if each in by_source]:
            yield by_source[source].pop()
            if not by_source[source]:
                del by_source[source]
