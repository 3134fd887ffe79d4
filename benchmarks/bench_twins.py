"""Who is at the same request, found in recorded runs of which the task is known, and in 100,000 that are made of them.

    python -m benchmarks.bench_twins                       # both; JOURNEYMAN_DATA is the folder of the data sets
    python -m benchmarks.bench_twins --attempts 20000 --json

Recorded: tau-bench's airline (50 tasks, 4 trials of one agent) and tau2-bench's (50 tasks, 7 agents): two attempts are twins
when their task is the same, though the simulated customer told it anew. Grouped, and split by time; "leak" is the share of the
examined attempts whose task was learned from as well.

Made: a case has as many customer's messages as a recorded attempt, drawn from all of them, and 2 to 10 of the recorded calls;
every id, number and capitalised word, and three in ten of the other words, are replaced throughout by others that were
recorded. It is attempted 1 to 6 times, each time with one in seven words left out, one in ten replaced, and three in ten of the
calls not made. Attempts come at random times of 90 days, from 20,000 customers, each in a session of its own, and are handed
over one by one. CPU is that of grouping and splitting, without making them; the peak of memory is that of the whole process.
"""

import argparse
import json
import os
import random
import re
import resource
import time
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

from journeyman.core.trace import Message, ModelCall, ToolCall, Trace
from journeyman.tracing.base import RecordedTrace
from journeyman.tracing.evidence import AttemptEvidence, evidence_of
from journeyman.tracing.importers import read
from journeyman.tracing.twins import TwinSplit, split_by_time, twin_groups

Row = dict[str, Any]

OTHER_SETS = ("retail", "medical", "adaptive", "cascata", "ironforge")
"""Files of tau2-bench that are of another domain, or tune themselves to its tasks."""
CPU_LIMIT, MEMORY_LIMIT = 5.0, 1024
"""Minutes and MB that grouping and splitting 100,000 attempts may take."""
AT = datetime(2026, 1, 2, tzinfo=UTC)
CUSTOMERS = 20_000


def recorded(*paths: Path) -> list[AttemptEvidence]:
    return [evidence_of(each.trace) for path in paths for each in read(path) if isinstance(each, RecordedTrace)]


def tau_airline(data: Path) -> list[AttemptEvidence]:
    return recorded(data / "tau-bench" / "gpt-4o-airline.json.gz")


def tau2_airline(data: Path) -> list[AttemptEvidence]:
    files = sorted((data / "tau2-bench" / "submissions").rglob("*.gz"))
    return recorded(*(file for file in files if not any(word in file.name for word in OTHER_SETS)))


def grouped(groups: Sequence[int], tasks: Sequence[str]) -> Row:
    """How well groups and tasks agree, over all pairs."""
    both, found, true = (pairs(Counter(labels)) for labels in (zip(groups, tasks, strict=True), groups, tasks))
    return {
        "groups": len(set(groups)),
        "largest": max(Counter(groups).values()),
        "pair_recall": both / true,
        "pair_precision": both / max(1, found),
    }


def pairs(sizes: Mapping[object, int]) -> int:
    return sum(size * (size - 1) // 2 for size in sizes.values())


def examined(split: TwinSplit, tasks: Sequence[str]) -> Row:
    learned = {tasks[at] for at in split.learn}
    return {
        "learned": len(split.learn),
        "examined": len(split.examine),
        "dropped": split.dropped,
        "examined_groups": split.examined_groups,
        "held_out": split.held_out,
        "crossed": split.crossed,
        "leak": sum(tasks[at] in learned for at in split.examine) / max(1, len(split.examine)),
        "said": split.leak,
    }


def leak_of_random_groups(groups: Sequence[int], tasks: Sequence[str], share: float = 0.3) -> float:
    """The leak where whole groups are held out by chance, up to so many attempts; the mean of 50 times."""
    leaks = []
    for seed in range(50):
        names = sorted(set(groups))
        random.Random(seed).shuffle(names)
        sizes, held = Counter(groups), set[int]()
        while sum(sizes[name] for name in held) < share * len(groups):
            held.add(names.pop())
        learned = {task for task, group in zip(tasks, groups, strict=True) if group not in held}
        asked = [task in learned for task, group in zip(tasks, groups, strict=True) if group in held]
        leaks.append(sum(asked) / len(asked))
    return sum(leaks) / len(leaks)


def of_recorded(name: str, attempts: Sequence[AttemptEvidence]) -> Row:
    tasks = [attempt.trace.task_id for attempt in attempts]
    groups = twin_groups(attempts)
    found = {"set": name, "attempts": len(attempts), **grouped(groups, tasks)}
    return {**found, "random_leak": leak_of_random_groups(groups, tasks), **examined(split_by_time(attempts), tasks)}


class Maker:
    """Makes attempts of recorded ones."""

    WORD = re.compile(r"[\w#@.\-]+")

    def __init__(self, sources: Sequence[AttemptEvidence], seed: int) -> None:
        self.chance = random.Random(seed)
        self.said = [attempt.words for attempt in sources]
        self.calls = [call for attempt in sources for call in attempt.trace.tool_calls]
        words: set[str] = {word for said in self.said for text in said for word in self.WORD.findall(text)}
        self.words = sorted(word for word in words if word.islower() and word.isalpha())
        self.names = sorted(word for word in words if word[0].isupper() and word.isalpha())
        self.tasks: list[str] = []
        self.seconds = 0.0

    def attempts(self, count: int) -> Iterator[AttemptEvidence]:
        """Case by case; what making them costs is counted apart."""
        began, number = time.process_time(), 0
        while len(self.tasks) < count:
            said, calls = self.case()
            for trial in range(min(count - len(self.tasks), self.chance.randint(1, 6))):
                self.tasks.append(str(number))
                made = self.attempt(f"{number}/{trial}", said, calls)
                self.seconds += time.process_time() - began
                yield made
                began = time.process_time()
            number += 1

    def case(self) -> tuple[list[str], list[ToolCall]]:
        instead: dict[str, str] = {}

        def other(match: re.Match[str]) -> str:
            return instead.setdefault(str(match[0]), self.another(str(match[0])))

        turns = len(self.chance.choice(self.said))
        said = [self.WORD.sub(other, self.chance.choice(self.chance.choice(self.said) or ("",))) for _ in range(turns)]
        calls = self.chance.sample(self.calls, self.chance.randint(2, 10))
        return said, [replace(call, arguments=self.WORD.sub(other, call.arguments)) for call in calls]

    def another(self, word: str) -> str:
        if any(sign.isdigit() for sign in word):
            return "".join(str(self.chance.randrange(10)) if sign.isdigit() else sign for sign in word)
        if word[0].isupper() and word.isalpha():
            return self.chance.choice(self.names)
        return self.chance.choice(self.words) if self.chance.random() < 0.3 else word

    def told(self, match: re.Match[str]) -> str:
        drawn = self.chance.random()
        return "" if drawn < 1 / 7 else self.chance.choice(self.words) if drawn < 1 / 7 + 0.1 else str(match[0])

    def attempt(self, id: str, said: Sequence[str], calls: Sequence[ToolCall]) -> AttemptEvidence:
        turns = [Message(role="user", text=self.WORD.sub(self.told, text)) for text in said]
        steps = [ModelCall(model="m", prompt="", reply="", messages=(turn,)) for turn in turns]
        return evidence_of(
            Trace(
                id=id,
                task_id=id.partition("/")[0],
                candidate_id="base",
                started_at=AT + timedelta(seconds=self.chance.randrange(90 * 86_400)),
                session=id,
                steps=(*steps, *(call for call in calls if self.chance.random() < 0.7)),
                raw={"principal": f"c{self.chance.randrange(CUSTOMERS)}"},
            )
        )


def of_made(sources: Sequence[AttemptEvidence], count: int, seed: int) -> Row:
    maker = Maker(sources, seed)
    before, began = peak(), time.process_time()
    split = split_by_time(maker.attempts(count))
    minutes = (time.process_time() - began - maker.seconds) / 60
    return {
        "set": "made",
        "attempts": count,
        **grouped(split.groups, maker.tasks),
        **examined(split, maker.tasks),
        "cpu_minutes": minutes,
        "limit_minutes": CPU_LIMIT,
        "making_them_minutes": maker.seconds / 60,
        "peak_mb": peak(),
        "limit_mb": MEMORY_LIMIT,
        "peak_mb_before": before,
    }


def peak() -> float:
    """MB that this process has held at most."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path, default=Path(os.environ.get("JOURNEYMAN_DATA", "data")))
    parser.add_argument("--attempts", type=int, default=100_000)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--json", action="store_true")
    told = parser.parse_args()
    airline, other = tau_airline(told.data), tau2_airline(told.data)
    rows = [of_recorded("tau-bench airline", airline), of_recorded("tau2-bench airline", other)]
    rows.append(of_made([*airline, *other], told.attempts, told.seed))
    if told.json:
        print(json.dumps(rows))
        return 0
    for row in rows:
        print(
            "\n".join(
                f"{name:36} {value:.3f}" if isinstance(value, float) else f"{name:36} {value}" for name, value in row.items()
            )
        )
        print()
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
