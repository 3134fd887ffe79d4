"""What a run on scenarios shows: each attempt as it goes on stderr, the summary at the end on stdout."""

import shlex
from pathlib import Path
from typing import Any

from rich.console import Console

from journeyman.cli._screen import unused
from journeyman.learn.playbook.progress import Progress
from journeyman.learn.playbook.runs import Run
from journeyman.offline import TrainingResult
from journeyman.playbook import Playbook
from journeyman.results import Results, Row
from journeyman.rollout import Attempt
from journeyman.scenarios import ScenarioTrainer
from journeyman.tasks.scenarios import Scenario

_EVERY = 10
"""Scenarios between two counts of what was learned."""
_QUARTERS = 4


class ScenarioScreen:
    """Watches a run. Implements `scenarios.ScenarioWatcher`."""

    def __init__(self, trainer: ScenarioTrainer, out: Console) -> None:
        self._trainer = trainer
        self._out = out
        self._together = trainer.config.batch_merge_size * trainer.config.attempts > 1
        """Then attempts end in any order, and each is told of as a whole when it ends."""
        self._counted = 0
        self._quarter = 0

    def begin(self, run: Run) -> None:
        config = self._trainer.config
        self._out.print(f"Starting training with {self._trainer.planned} scenarios ({', '.join(dict.fromkeys(config.models))})")
        self._out.print(f"Initial skills: {len(run.playbook.active)}\n")
        self._counted = run.progress.attempts.attempts // _EVERY

    def started(self, scenario: Scenario) -> None:
        if not self._together:
            done = len(self._trainer.results.rows) if self._trainer.results else 0
            self._head(min(done + 1, self._trainer.planned), scenario.name, scenario.goal, scenario.category)

    def attempted(self, attempt: Attempt) -> None:
        pass

    def scored(self, row: Row, done: int) -> None:
        if self._together:
            self._head(done, row["scenario"]["name"], row["scenario"]["goal"], row["scenario"]["category"])
        score, cost = row["metadata"]["performance_score"], row["metadata"]["cost_usd"]
        self._say(f"   {_ended(row)}")
        self._say(f"   Score: {'unknown' if score is None else f'{score:.2f}'}")
        self._say(f"   Cost: {money(cost)}\n")

    def merged(self, playbook: Playbook, progress: Progress, tasks: int) -> None:
        if tasks // _EVERY > self._counted:
            self._counted = tasks // _EVERY
            self._say(f"Skills learned: {len(playbook.active)}\n")

    def evaluated(self, done: int, total: int) -> None:
        if _QUARTERS * done // total > self._quarter:
            self._quarter = _QUARTERS * done // total
            self._say(f"{done}/{total} attempts at held-out scenarios")

    def _head(self, number: int, name: str, goal: str, category: str) -> None:
        self._say(f"[{number}/{self._trainer.planned}]")
        self._say(f"Running: {name}")
        self._say(f"   Goal: {_short(goal)}")
        self._say(f"   Category: {category}")

    def _say(self, text: str) -> None:
        self._out.print(text)


def tell(result: TrainingResult, results: Results, journal: Path) -> None:
    """The end of a run, in words."""
    out = Console(highlight=False, soft_wrap=True, markup=False)
    for line in (*_summary(results.json(), result.metrics.progress.unusable), f"Results saved to: {results.path}"):
        out.print(line)
    out.print(f"Skillbook: {result.playbook_path} ({result.stage.value}); {result.reason}")
    out.print(f"Every change is in its journal: journeyman playbook log {shlex.quote(str(journal))}")
    if not result.finished:
        out.print(f"Go on with: journeyman train playbook --resume {result.run_id} --max-cost <more, or inf>")


def _summary(found: dict[str, Any], unusable: int) -> list[str]:
    total, skills = found["total_scenarios"], found["skills"]
    tokens = found["total_tokens"]
    optional = {
        "unverified": "Not verified: {} (no checks: read, not run)",
        "unknown": "Unknown: {} (broke off, or could not be checked)",
    }
    return [
        f"Final skills: {skills['final']}",
        f"Skills gained: {skills['final'] - skills['initial']}",
        *unused(unusable),
        "",
        "=" * 60,
        "TRAINING SUMMARY",
        "=" * 60,
        f"Total scenarios: {total}",
        f"Successful: {found['successful']} ({_share(found['successful'], total)})",
        f"Failed: {found['failed']} ({_share(found['failed'], total)})",
        *(text.format(found[name]) for name, text in optional.items() if found[name]),
        "",
        "By Category:",
        *(
            f"  {name}: {of['successful']}/{of['total']} ({_share(of['successful'], of['total'])})"
            for name, of in found["by_category"].items()
        ),
        "",
        f"Total Cost: {money(found['total_cost_usd'])}",
        f"Total Tokens: {'unknown' if tokens is None else f'{tokens:,}'}",
        f"Avg Cost/Scenario: {money(found['avg_cost_usd'])}",
        "",
    ]


def money(cost: float | None) -> str:
    """US dollars, or that nobody knows."""
    return "unknown" if cost is None else f"${cost:.4f}"


def _ended(row: Row) -> str:
    why = _short(str(row["evidence"]).partition("\n")[0])
    if row["success"] is None:
        return f"{'Unknown' if row['scored_by'] == 'checks' else 'Not verified'}: {why}"
    return "Success" if row["success"] else f"Failed: {why}"


def _short(text: str) -> str:
    return text if len(text) <= 160 else f"{text[:157]}..."


def _share(part: int, whole: int) -> str:
    return f"{part / whole:.1%}" if whole else "none"
