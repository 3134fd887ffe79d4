"""How a training of weights ended."""

from collections.abc import KeysView
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from journeyman.examination import Report as Examined
from journeyman.learn.weights.job import Ended
from journeyman.learn.weights.job import TrainingReport as Report
from journeyman.release import Stage


@dataclass(frozen=True, kw_only=True)
class WeightsResult:
    """What was learned, and what the gate made of it. Read it as attributes, or by the names of its JSON."""

    run_id: str
    folder: Path
    adapter: Path | None
    """The folder of the adapter; `None` when nothing was learned."""
    candidate_id: str | None
    trained: Report
    evaluation: Examined | None
    """`None` when there were no held-out tasks, or nobody asked."""
    earlier: dict[str, Examined] = field(default_factory=dict)
    """By domain, what the adapter does to tasks that were learned before."""
    stage: Stage
    forced: bool
    reason: str
    """The gate's sentence, or why it was not asked."""

    @property
    def passed(self) -> bool:
        return self.evaluation is not None and self.evaluation.passed

    @property
    def healthy(self) -> bool:
        """Whether no guard had to stop the training."""
        return self.trained.ended is not Ended.GUARDED

    def json(self) -> dict[str, Any]:
        return {
            "run_id": self.run_id,
            "folder": str(self.folder),
            "adapter": str(self.adapter) if self.adapter else None,
            "candidate_id": self.candidate_id,
            "ended": self.trained.ended.value,
            "trained": self.trained.json(),
            "evaluation": self.evaluation.json() if self.evaluation else None,
            "earlier": {domain: report.json() for domain, report in self.earlier.items()},
            "passed": self.passed,
            "stage": self.stage.value,
            "forced": self.forced,
            "reason": self.reason,
        }

    def __getitem__(self, key: str) -> Any:
        return self.json()[key]

    def keys(self) -> KeysView[str]:
        """With `[]`, this makes `dict(result)` the JSON."""
        return self.json().keys()
