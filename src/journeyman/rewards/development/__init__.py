"""Rewards for agents that develop software: seven components, each from evidence alone, and what they come to together."""

from journeyman.rewards.development.combine import WEIGHTS, Development, components
from journeyman.rewards.development.reward import DevelopmentReward, examine, work_of
from journeyman.rewards.development.work import Checked, Component, Coverage, Work

__all__ = [
    "WEIGHTS",
    "Checked",
    "Component",
    "Coverage",
    "Development",
    "DevelopmentReward",
    "Work",
    "components",
    "examine",
    "work_of",
]
