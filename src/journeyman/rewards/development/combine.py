"""All components as one number.

    w_i      = the documented weights, made to sum to 1 over the components that are on and could tell
    a        = functionality · compliance                        the architecture of what does not work is worth nothing
    mean     = w_architecture · a + Σ w_i · v_i                  over the other components
    combined = mean · penalty_multiplier                         if any component found a critical fault (once, however many)
             = mean + (1 - mean) · (mean - T) / (1 - T)          else if mean ≥ T, the bonus threshold
             = mean                                              else

So compliance multiplies the reward for functionality by a factor between w_functionality and w_functionality + w_architecture.
The bonus is continuous at T, never leaves 0 to 1, and never changes the order of two works. Critical faults: code that does not
parse, no check passed, a risk of high severity and confidence, a file over the profile's critical size, a forbidden import.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field

from journeyman.errors import InputError
from journeyman.rewards.base import RewardResult
from journeyman.rewards.development.architecture import Architecture
from journeyman.rewards.development.autonomy import Autonomy
from journeyman.rewards.development.efficiency import DevelopmentEfficiency
from journeyman.rewards.development.functionality import Functionality
from journeyman.rewards.development.innovation import Innovation
from journeyman.rewards.development.learning import Learning
from journeyman.rewards.development.quality import CodeQuality
from journeyman.rewards.development.work import Component, Work

WEIGHTS: Mapping[str, float] = {
    "code_quality": 0.25,
    "functionality": 0.20,
    "architecture": 0.20,
    "autonomy": 0.15,
    "learning": 0.10,
    "efficiency": 0.10,
    "innovation": 0.05,
}
"""As documented. With innovation, which is off by default, they add up to 1.05 and are divided by that; without it, to 1."""

VERSION = 2
"""Changes with any formula of this package."""


def components() -> tuple[Component, ...]:
    """One of each, as they come."""
    return CodeQuality(), Functionality(), Architecture(), Autonomy(), Learning(), DevelopmentEfficiency(), Innovation()


@dataclass(frozen=True, slots=True, kw_only=True)
class Development:
    """The components together."""

    components: tuple[Component, ...] = field(default_factory=components)
    weights: Mapping[str, float] = field(default_factory=lambda: {**WEIGHTS, "innovation": 0.0})
    """By component; 0 turns one off. Only their proportions matter."""
    penalty_multiplier: float = 0.5
    bonus_threshold: float = 0.8
    """From this mean on there is a bonus; 1 for none."""

    def __post_init__(self) -> None:
        names = {component.name for component in self.components}
        if strange := set(self.weights) - names:
            raise InputError(f"no component is called {', '.join(sorted(strange))}; there are {', '.join(sorted(names))}")
        if any(weight < 0 for weight in self.weights.values()) or not sum(self.weights.values()) > 0:
            raise InputError("the weights of the components must not be negative, and one must be above 0")
        if not (0 <= self.penalty_multiplier <= 1 and 0 <= self.bonus_threshold <= 1):
            raise InputError("penalty_multiplier and bonus_threshold must lie between 0 and 1")

    def compute(self, work: Work) -> RewardResult:
        """The combined reward; its details hold every component, the weights that counted, and what could not be told.

        Unknown when no component could tell, or when functionality is on and could not: how well something is written does not
        stand in for whether it works.
        """
        found = {each.name: each.compute(work) for each in self.components if self.weights.get(each.name)}
        values = _values(found)
        known = {name: value for name, value in values.items() if value is not None}
        total = sum(self.weights[name] for name in known)
        weights = {name: self.weights[name] / total for name in known}
        critical = [f"{name}: {fault}" for name, result in found.items() for fault in result.details.get("critical", ())]
        missing = sorted(set(values) - set(known))
        details = {
            "components": {name: {"score": values[name], **result.details} for name, result in found.items()},
            "weights": weights,
            "unknown": missing,
            "critical": critical,
        }
        if not known or ("functionality" in values and values["functionality"] is None):
            evidence = "unknown: " + "; ".join(f"{name}: {found[name].details.get('evidence', '')}" for name in missing)
            return RewardResult(score=None, details={**details, "evidence": evidence})
        mean = sum(weights[name] * value for name, value in known.items())
        score = self._adjusted(mean, penalised=bool(critical))
        return RewardResult(score=score, details={**details, "mean": mean, "evidence": _evidence(found, known, critical)})

    def _adjusted(self, mean: float, *, penalised: bool) -> float:
        if penalised:
            return mean * self.penalty_multiplier
        if mean < self.bonus_threshold or self.bonus_threshold == 1:
            return mean
        return min(1.0, mean + (1 - mean) * (mean - self.bonus_threshold) / (1 - self.bonus_threshold))


def _values(found: Mapping[str, RewardResult]) -> dict[str, float | None]:
    """The components' scores, with architecture multiplied by functionality where that is on."""
    values = {name: result.score for name, result in found.items()}
    compliance, works = values.get("architecture"), values.get("functionality")
    if compliance is not None and "functionality" in values:
        values["architecture"] = None if works is None else compliance * works
    return values


def _evidence(found: Mapping[str, RewardResult], known: Mapping[str, float], critical: list[str]) -> str:
    worst = min(known, key=lambda name: known[name])
    fault = f"critical: {critical[0]}; " if critical else ""
    return f"{fault}weakest is {worst} at {known[worst]:.2f}: {found[worst].details.get('evidence', '')}"
