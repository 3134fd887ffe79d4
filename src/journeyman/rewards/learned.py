"""The learned reward: how likely is an attempt a success, judged by labelled ones that looked like it?

A logistic regression on what `features` counts, calibrated. Its file is JSON with plain arrays: reading one runs nothing, and
using one takes numpy alone. It refuses to speak where it was taught too little, or could not tell successes from failures when
it was examined (`teaching.teach`).
"""

import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from journeyman import embed
from journeyman.embed.base import Embedder
from journeyman.errors import InputError
from journeyman.rewards import features
from journeyman.rewards.base import RewardResult
from journeyman.rewards.calibration import Calibrator, Estimate, calibrator, finite
from journeyman.trace import Trace

FORMAT = "journeyman-learned-reward"
FORMAT_VERSION = 1
LEAST_LABELS = 20
"""Of successes, and of failures."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Report:
    """What cross-validation by groups found: every number is of attempts at tasks that the tested model had never seen."""

    successes: int
    failures: int
    groups: int
    auc: Estimate | None = None
    """`None` where there were too few labels to find out; so with the others."""
    ece: Estimate | None = None
    brier: Estimate | None = None

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
    report: Report

    def probability(self, trace: Trace, embedder: Embedder | None) -> float:
        row = features.columns([trace], embedder)[0]
        normal = np.nan_to_num((row - np.array(self.mean)) / np.array(self.scale), nan=0.0)
        return float(self.calibration(np.array([normal @ np.array(self.coefficients) + self.intercept]))[0])

    def json(self) -> dict[str, Any]:
        """With a digest over all the rest, so that a file that was changed by hand or by accident is found out."""
        content = {
            "format": FORMAT,
            "version": FORMAT_VERSION,
            "features": list(features.NAMES),
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
        return cls(model, embed.load(model.embedder) if model.embedder else None)

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
    if data.get("version") != FORMAT_VERSION or data.get("features") != list(features.NAMES):
        raise InputError(f"{path} was made by another version of journeyman; train it anew")
    if data.get("digest") != _digest({name: value for name, value in data.items() if name != "digest"}):
        raise InputError(f"{path} was changed since it was written: its digest does not fit; train it anew")
    try:
        return _model(data)
    except (KeyError, TypeError, ValueError, OverflowError) as error:
        raise InputError(f"{path} is no sound learned reward: {error}; train it anew") from None


def _model(data: Mapping[str, Any]) -> LearnedModel:
    arrays = {name: tuple(finite(value) for value in data[name]) for name in ("mean", "scale", "coefficients")}
    width = len(features.NAMES) + _dimensions(str(data["embedder"]))
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
        report=Report(
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


def _estimate(data: Mapping[str, Any] | None) -> Estimate | None:
    return None if data is None else Estimate(*(finite(data[name]) for name in ("value", "low", "high")))


def _digest(content: Mapping[str, Any]) -> str:
    return hashlib.sha256(json.dumps(content, sort_keys=True).encode()).hexdigest()
