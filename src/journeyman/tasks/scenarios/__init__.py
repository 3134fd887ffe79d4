"""Scenarios: what to build, in words, with what it must satisfy. Files in YAML or JSON, five examples, and a template."""

from journeyman.tasks.scenarios.read import Notice, ScenarioFile, load, parse, read
from journeyman.tasks.scenarios.scenario import Acceptance, Scenario, TaskType

__all__ = ["Acceptance", "Notice", "Scenario", "ScenarioFile", "TaskType", "load", "parse", "read"]
