"""Checks many samples of programming tasks at once, equal programs once, and says how many pass."""

import asyncio
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from journeyman.rewards.out_of_process import Verdict
from journeyman.rewards.unit_tests import UnitTests
from journeyman.stats import pass_at_k
from journeyman.task import Task
from journeyman.tasks.code import Sample, code_tests


@dataclass(frozen=True, slots=True, kw_only=True)
class Checked:
    """What became of the samples."""

    verdicts: Mapping[str, tuple[Verdict, ...]]
    """By task, in the order of its samples."""

    @property
    def all(self) -> tuple[Verdict, ...]:
        return tuple(verdict for verdicts in self.verdicts.values() for verdict in verdicts)

    def pass_at(self, k: int) -> float | None:
        """The mean over tasks; `None` unless every task has at least `k` samples with a verdict."""
        counts = [
            (sum(verdict.passed is not None for verdict in verdicts), sum(bool(verdict.passed) for verdict in verdicts))
            for verdicts in self.verdicts.values()
        ]
        if not counts or min(known for known, _ in counts) < k:
            return None
        return sum(pass_at_k(known, passed, k) for known, passed in counts) / len(counts)

    def json(self, ks: Iterable[int] = (1, 10, 100)) -> dict[str, Any]:
        """`verdicts` are true, false, or null where it could not be told; `failed` holds those that ran out of time."""
        found = self.all
        rates = {f"pass@{k}": self.pass_at(k) for k in ks}
        return {
            "samples": len(found),
            "passed": sum(verdict.passed is True for verdict in found),
            "failed": sum(verdict.passed is False for verdict in found),
            "timeout": sum(verdict.timed_out for verdict in found),
            "unknown": sum(verdict.passed is None for verdict in found),
            **{name: rate for name, rate in rates.items() if rate is not None},
            "verdicts": {id: [verdict.passed for verdict in verdicts] for id, verdicts in self.verdicts.items()},
        }


async def check_samples(
    tasks: Sequence[Task],
    samples: Sequence[Sample],
    verifier: UnitTests,
    *,
    workers: int = 4,
    done: Callable[[Verdict], None] = lambda _: None,
) -> Checked:
    """Check every sample with the tests of its task, `workers` at a time; `done` is called after each."""
    tests = {task.id: code_tests(task) for task in tasks}
    free = asyncio.Semaphore(workers)
    begun: dict[tuple[str, str], asyncio.Task[Verdict]] = {}

    async def check(id: str, program: str) -> Verdict:
        async with free:
            return await verifier.check(tests[id], program)

    async def one(sample: Sample) -> tuple[str, Verdict]:
        program = tests[sample.task_id].program(sample.text, continues=sample.continues)
        key = (sample.task_id, program)
        if key not in begun:
            begun[key] = asyncio.create_task(check(*key))
        verdict = await begun[key]
        done(verdict)
        return sample.task_id, verdict

    verdicts: dict[str, list[Verdict]] = {}
    for id, verdict in await asyncio.gather(*(one(sample) for sample in samples)):
        verdicts.setdefault(id, []).append(verdict)
    return Checked(verdicts={id: tuple(each) for id, each in verdicts.items()})
