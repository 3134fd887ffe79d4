"""Tests in one process with the code they test, where it cannot be otherwise, and believed only as far as they can also fail.

The same tests are run several times, each in a sandbox of its own: once as they are, and a few times with other expectations in
some of them, drawn by lot. Code that passes tests is to fail exactly those that expect something else. Whatever makes all tests
pass, or fakes their results, cannot know which these are.
"""

import asyncio
import json
import random
import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from journeyman.errors import SandboxError
from journeyman.rewards.out_of_process import PACKAGE, TIME, Candidate, Verdict, carried, ended_by, prepared
from journeyman.rewards.sabotage import names_of_tests, sabotaged
from journeyman.sandbox.base import Outcome, Program, Sandbox

ROUNDS = 3
"""Runs with other expectations."""


@dataclass(frozen=True, slots=True)
class _Run:
    outcome: Outcome
    report: Mapping[str, Any] | None
    """`None` unless there was exactly one."""

    def became(self, name: str) -> str:
        """What became of a test, or of all tests that were made of it."""
        reports = (self.report or {}).get("became", {})
        every = {what for node, what in reports.items() if _name(node) == name}
        return "failed" if "failed" in every else every.pop() if len(every) == 1 else "unclear"


async def examine_together(sandbox: Sandbox, text: str, candidate: Candidate, *, file: str, chance: random.Random) -> Verdict:
    """Run a file of tests, written by the task's author, in the folder of the candidate's files.

    Args:
        chance: Draws which tests expect something else. The candidate must not be able to guess it.
    """
    names = names_of_tests(text)

    async def run(version: str) -> _Run:
        return await _run(sandbox, version, file, candidate)

    try:
        real = await run(sabotaged(text, (), chance)[0])
        verdict = _as_it_is(real, names)
        if not verdict.passed:
            return verdict
        versions = [_drawn(text, names, chance) for _ in range(ROUNDS)]
        if not any(changed for _, changed in versions):
            return Verdict(passed=None, evidence="the tests assert nothing that could be turned round, so passing says nothing")
        others = await asyncio.gather(*(run(version) for version, _ in versions))
    except SandboxError as error:
        return Verdict(passed=None, evidence=str(error))
    for other, (_, changed) in zip(others, versions, strict=True):
        if any(other.became(name) != ("failed" if name in changed else "passed") for name in names):
            return Verdict(
                passed=False,
                evidence="the tests do not fail where they expect something else, so their passing is not believed",
                tests=verdict.tests,
                tests_passed=0,
                outcome=real.outcome,
            )
    return verdict


def _drawn(text: str, names: tuple[str, ...], chance: random.Random) -> tuple[str, frozenset[str]]:
    """A version in which about half of the tests expect something else, and at least one."""
    chosen = {name for name in names if chance.random() < 0.5} or {chance.choice(names)}
    version, changed = sabotaged(text, chosen, chance)
    return (version, changed) if changed else sabotaged(text, names, chance)


def _as_it_is(run: _Run, names: tuple[str, ...]) -> Verdict:
    outcome = run.outcome
    became = [run.became(name) for name in names]
    good = became.count("passed")
    passed = outcome.ok and run.report is not None and run.report["code"] == 0 and bool(names) and good == len(names)
    if passed:
        evidence = f"{good} of {good} passed in one process with the code, and failed where they expected something else"
    elif run.report is None or not outcome.ok:
        evidence = f"the tests did not come to their end: {ended_by(outcome)}\n{outcome.stderr[-500:]}".strip()
    else:
        evidence = "; ".join(run.report["why"][:5]) or f"{good} of {len(names)} passed"
    return Verdict(
        passed=passed,
        evidence=evidence,
        tests=len(names),
        tests_passed=good,
        timed_out=outcome.limit in TIME,
        outcome=outcome,
    )


async def _run(sandbox: Sandbox, text: str, file: str, candidate: Candidate) -> _Run:
    told: list[str] = []

    async def tell(arguments: Mapping[str, Any]) -> None:
        told.append(str(arguments["0"])[: 1 << 20])

    code = (
        f"from {PACKAGE} import together\n"
        + prepared(candidate.setup)
        + f"together.run(lambda text: tools.report(text), {file!r})\n"
    )
    laid = {**candidate.files, file: text.encode(), **carried("together")}
    outcome = await sandbox.run(Program(code=code, files=laid, limits=candidate.limits), tools={"report": tell})
    return _Run(outcome, _read(told))


def _read(told: list[str]) -> Mapping[str, Any] | None:
    """The one report. It comes from where the candidate is, and may be anything."""
    try:
        (text,) = told
        found = json.loads(text)
        became = {str(node): str(what) for node, what in found["became"].items()}
        return {"became": became, "why": [str(line) for line in found["why"]], "code": int(found["code"])}
    except (ValueError, TypeError, KeyError, AttributeError):
        return None


def _name(node: str) -> str:
    """`file::Class::test[case]` is `Class.test`."""
    return ".".join(re.sub(r"\[.*$", "", node, flags=re.DOTALL).split("::")[1:])
