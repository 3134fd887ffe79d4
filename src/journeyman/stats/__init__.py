"""Statistics without models or files: intervals, evidence, agreement (`intervals`), off-policy evaluation (`off_policy`)."""

from journeyman.stats.intervals import (
    Floats,
    anytime_interval,
    bootstrap_interval,
    cohens_kappa,
    e_value,
    pass_at_k,
    spent,
    without_choice,
)

__all__ = [
    "Floats",
    "anytime_interval",
    "bootstrap_interval",
    "cohens_kappa",
    "e_value",
    "pass_at_k",
    "spent",
    "without_choice",
]
