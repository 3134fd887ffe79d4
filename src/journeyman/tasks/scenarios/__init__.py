"""Scenarios: what to build, in words, with what it must satisfy. Files in YAML or JSON, five examples, and a template."""

from journeyman.tasks.scenarios.read import Notice, Reading, load, parse, read
from journeyman.tasks.scenarios.scenario import Acceptance, Scenario, TaskType

__all__ = ["Acceptance", "Notice", "Reading", "Scenario", "TaskType", "load", "parse", "read"]
