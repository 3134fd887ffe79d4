"""The learned reward: how likely is an attempt a success, judged by labelled ones that looked like it?

A logistic regression on what `features` counts, calibrated. Its file is JSON with plain arrays: reading one runs nothing, and
using one takes numpy alone. It refuses to speak where it was taught too little, or could not tell successes from failures when
it was examined (`teaching.teach`).
"""

import hashlib
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from journeyman.core.errors import InputError
from journeyman.core.trace import ModelCall, Reasoning, ToolCall, Trace
from journeyman.models import embedders
from journeyman.models.embedders import Embedder
from journeyman.rewards.base import RewardResult
from journeyman.rewards.calibration import Calibrator, IntervalEstimate, calibrator, finite

# What an attempt looks like in numbers: what a learned reward sees.
#
# Counts and shares of what was recorded, and nothing about which task it was: a reward that knows the task learns its
# difficulty.

NAMES = (
    "model_calls",
    "tool_calls",
    "tools",
    "tool_errors",
    "tool_error_share",
    "late_tool_errors",
    "retries",
    "reasoning",
    "input_tokens",
    "output_tokens",
    "reply_characters",
    "mean_reply_characters",
    "argument_characters",
    "result_characters",
    "questions",
    "stopped_early",
    "ends_with_a_tool",
    "seconds",
)
"""In the order of the columns. Counts, lengths and times are log(1 + x); the unknown is NaN."""

_COUNTS = frozenset(NAMES) - {"tool_error_share", "stopped_early", "ends_with_a_tool"}


def numbers(traces: Sequence[Trace]) -> NDArray[np.float64]:
    """Shape (traces, len(NAMES)); NaN where a trace does not tell."""
    table = np.array([_row(trace) for trace in traces], np.float64).reshape(len(traces), len(NAMES))
    logarithmic = [name in _COUNTS for name in NAMES]
    table[:, logarithmic] = np.log1p(table[:, logarithmic])
    return table


def columns(traces: Sequence[Trace], embedder: Embedder | None) -> NDArray[np.float64]:
    """The numbers, and beside them the vector of what was done and last said, when there is an embedder."""
    table = numbers(traces)
    if embedder is None:
        return table
    return np.hstack([table, embedder.embed([told(trace) for trace in traces]).astype(np.float64)])


def told(trace: Trace) -> str:
    """The tools in the order of their use, failures marked, and the last reply."""
    used = " ".join(step.tool if step.ok else f"{step.tool} failed" for step in trace.steps if isinstance(step, ToolCall))
    return f"{used}\n{trace.reply}"


def _row(trace: Trace) -> list[float]:
    tools = [step for step in trace.steps if isinstance(step, ToolCall)]
    replies = [call.reply for call in trace.calls]
    failed = [not call.ok for call in tools]
    asked = {(call.tool, call.arguments) for call in tools}
    seconds = [step.seconds for step in trace.steps if isinstance(step, ModelCall | ToolCall)]
    known = [each for each in seconds if each is not None]
    found: dict[str, float] = {
        "model_calls": len(replies),
        "tool_calls": len(tools),
        "tools": len({call.tool for call in tools}),
        "tool_errors": sum(failed),
        "tool_error_share": sum(failed) / len(failed) if failed else 0.0,
        "late_tool_errors": sum(failed[-3:]),
        "retries": len(tools) - len(asked),
        "reasoning": sum(isinstance(step, Reasoning) for step in trace.steps),
        "input_tokens": _or_nan(trace.input_tokens, replies),
        "output_tokens": _or_nan(trace.output_tokens, replies),
        "reply_characters": sum(map(len, replies)),
        "mean_reply_characters": sum(map(len, replies)) / len(replies) if replies else 0.0,
        "argument_characters": sum(len(call.arguments) for call in tools),
        "result_characters": sum(len(call.result) for call in tools),
        "questions": sum(reply.rstrip().endswith("?") for reply in replies),
        "stopped_early": float(trace.error is not None),
        "ends_with_a_tool": float(bool(trace.steps) and isinstance(trace.steps[-1], ToolCall)),
        "seconds": sum(known) if known and len(known) == len(seconds) else float("nan"),
    }
    return [found[name] for name in NAMES]


def _or_nan(count: int | None, replies: Sequence[str]) -> float:
    return float("nan") if count is None or not replies else float(count)


FORMAT = "journeyman-learned-reward"
FORMAT_VERSION = 1
LEAST_LABELS = 20
"""Of successes, and of failures."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CrossValidationReport:
    """What cross-validation by groups found: every number is of attempts at tasks that the tested model had never seen."""

    successes: int
    failures: int
    groups: int
    auc: IntervalEstimate | None = None
    """`None` where there were too few labels to find out; so with the others."""
    ece: IntervalEstimate | None = None
    brier: IntervalEstimate | None = None

    @property
    def silence(self) -> str | None:
        """Why the model must not speak, or `None` when it may."""
        fewer = min(self.successes, self.failures)
        if fewer < LEAST_LABELS:
            return f"taught by {self.successes} successes and {self.failures} failures; it takes {LEAST_LABELS} of each"
        if self.auc is None:
            return f"its labels are of {self.groups} tasks, too few to examine it on others"
        if not self.auc.low > 0.5:
            return f"it cannot tell successes from failures: AUC {self.auc} does not exclude 0.5"
        return None

    def json(self) -> dict[str, Any]:
        counts = {"successes": self.successes, "failures": self.failures, "groups": self.groups}
        named = {"auc": self.auc, "ece": self.ece, "brier": self.brier}
        return {**counts, **{name: found.json() if found else None for name, found in named.items()}}


@dataclass(frozen=True, slots=True, kw_only=True)
class LearnedModel:
    """What was learned: calibration(coefficients · (x - mean) / scale + intercept), where the unknown is at its mean."""

    embedder: str
    """By the name that `embed.load` knows; empty for none."""
    mean: tuple[float, ...]
    scale: tuple[float, ...]
    coefficients: tuple[float, ...]
    intercept: float
    calibration: Calibrator
    report: CrossValidationReport

    def probability(self, trace: Trace, embedder: Embedder | None) -> float:
        row = columns([trace], embedder)[0]
        normal = np.nan_to_num((row - np.array(self.mean)) / np.array(self.scale), nan=0.0)
        return float(self.calibration(np.array([normal @ np.array(self.coefficients) + self.intercept]))[0])

    def json(self) -> dict[str, Any]:
        """With a digest over all the rest, so that a file that was changed by hand or by accident is found out."""
        content = {
            "format": FORMAT,
            "version": FORMAT_VERSION,
            "features": list(NAMES),
            "embedder": self.embedder,
            "mean": list(self.mean),
            "scale": list(self.scale),
            "coefficients": list(self.coefficients),
            "intercept": self.intercept,
            "calibration": self.calibration.json(),
            "report": self.report.json(),
        }
        return {**content, "digest": _digest(content)}


@dataclass(frozen=True, slots=True)
class LearnedReward:
    """The probability of a success, as a soft reward. Not verifiable: it is a guess, and says how good a one in its details."""

    model: LearnedModel
    embedder: Embedder | None = None
    weight: float = 1.0
    name: str = "learned"
    verifiable: bool = field(default=False, init=False)

    @classmethod
    def named(cls, rest: str) -> "LearnedReward":
        """What follows the colon in `learned:reward.json`."""
        if not rest:
            raise InputError("learned: after the colon stands the file that `journeyman rewards train` wrote")
        model = load(Path(rest))
        return cls(model, embedders.load(model.embedder) if model.embedder else None)

    @property
    def version(self) -> str:
        return str(self.model.json()["digest"])[:12]

    def compute(self, trace: Trace) -> RewardResult:
        if why := self.model.report.silence:
            return RewardResult(score=None, details={"evidence": f"the learned reward does not speak: {why}"})
        probability = self.model.probability(trace, self.embedder)
        told = f"attempts that look like this succeed in {probability:.0%}; AUC of such guesses {self.model.report.auc}"
        return RewardResult(score=probability, details={"evidence": told, "verifiable": False})


def load(path: Path) -> LearnedModel:
    """The model in a file.

    Raises:
        InputError: It is not there, or not what `journeyman rewards train` wrote.
    """
    try:
        data = json.loads(path.read_text("utf-8"))
    except FileNotFoundError:
        raise InputError(f"{path} is not there; `journeyman rewards train LABELLED.jsonl -o {path}` makes one") from None
    except (OSError, UnicodeDecodeError, json.JSONDecodeError) as error:
        raise InputError(f"{path} could not be read as a learned reward: {error}") from None
    if not isinstance(data, dict) or data.get("format") != FORMAT:
        raise InputError(f"{path} is no learned reward; `journeyman rewards train` writes one")
    if data.get("version") != FORMAT_VERSION or data.get("features") != list(NAMES):
        raise InputError(f"{path} was made by another version of journeyman; train it anew")
    if data.get("digest") != _digest({name: value for name, value in data.items() if name != "digest"}):
        raise InputError(f"{path} was changed since it was written: its digest does not fit; train it anew")
    try:
        return _model(data)
    except (KeyError, TypeError, ValueError, OverflowError) as error:
        raise InputError(f"{path} is no sound learned reward: {error}; train it anew") from None


def _model(data: Mapping[str, Any]) -> LearnedModel:
    arrays = {name: tuple(finite(value) for value in data[name]) for name in ("mean", "scale", "coefficients")}
    width = len(NAMES) + _dimensions(str(data["embedder"]))
    if {len(values) for values in arrays.values()} != {width}:
        raise ValueError(f"its arrays should have {width} numbers each")
    if not all(value > 0 for value in arrays["scale"]):
        raise ValueError("its scale must be above 0")
    report = data["report"]
    return LearnedModel(
        embedder=str(data["embedder"]),
        **arrays,
        intercept=finite(data["intercept"]),
        calibration=calibrator(data["calibration"]),
        report=CrossValidationReport(
            successes=int(report["successes"]),
            failures=int(report["failures"]),
            groups=int(report["groups"]),
            auc=_estimate(report["auc"]),
            ece=_estimate(report["ece"]),
            brier=_estimate(report["brier"]),
        ),
    )


def _dimensions(embedder: str) -> int:
    if not embedder:
        return 0
    kind, _, rest = embedder.partition(":")
    if kind != "hashing" or not rest.isdecimal():
        raise ValueError(f"its embedder {embedder!r} is not hashing:DIMENSIONS")
    return int(rest)


def _estimate(data: Mapping[str, Any] | None) -> IntervalEstimate | None:
    return None if data is None else IntervalEstimate(*(finite(data[name]) for name in ("value", "low", "high")))


def _digest(content: Mapping[str, Any]) -> str:
    return hashlib.sha256(json.dumps(content, sort_keys=True).encode()).hexdigest()
