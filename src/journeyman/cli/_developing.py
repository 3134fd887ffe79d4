"""Development work in `journeyman score --task`: the files that were there, the checks, and how their reward is made up."""

from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from pydantic import BaseModel, ConfigDict, ValidationError

from journeyman.errors import InputError
from journeyman.rewards.blocking import wait
from journeyman.rewards.checks import Check
from journeyman.rewards.development import WEIGHTS, Development, DevelopmentReward, Work, components, examine, work_of
from journeyman.rewards.development import profile as profiles
from journeyman.rewards.development.architecture import Architecture
from journeyman.sandbox.base import Sandbox
from journeyman.trace import Trace


class _Strict(BaseModel):
    model_config = ConfigDict(extra="forbid", strict=True)


class _Check(_Strict):
    name: str = ""
    shell: str | None = None
    pytest: str | None = None
    edge: bool = False
    """Whether it tries an edge case."""


class _Settings(_Strict):
    weights: dict[str, float] = {}
    """By component, for those that are not to weigh as documented."""
    penalty_multiplier: float = 0.5
    bonus_threshold: float = 0.8
    profile: str = "V2"
    """Of compliance: the name of a preset, or a file."""


class _Told(_Strict):
    files: dict[str, str] = {}
    """As the agent found them."""
    checks: list[_Check]
    setup: str = ""
    development: _Settings = _Settings()


def reward(path: Path, given: Mapping[str, Any], left: Mapping[str, str], opened: Callable[[], Sandbox]) -> DevelopmentReward:
    """The reward for the work that the task at `path` asks for; its checks run in the sandbox.

    Args:
        given: The task's fields about development work.
        left: The files that the agent left, beside those that its trace shows it write.

    Raises:
        InputError: What the task says of the work cannot be used. Names every fault.
    """
    try:
        told = _Told.model_validate(given)
    except ValidationError as error:
        faults = (f"{'.'.join(map(str, each['loc']))}: {each['msg']}" for each in error.errors())
        raise InputError(f"{path}: {'; '.join(faults)}") from None
    checks = [_check(path, number, each) for number, each in enumerate(told.checks, start=1)]
    edges = {check.name for check, each in zip(checks, told.checks, strict=True) if each.edge}

    def find(trace: Trace) -> Work:
        shown = work_of(trace)
        # What was not written anew is still there.
        work = replace(shown, before=told.files, after={**told.files, **shown.after, **left})
        return wait(examine(work, opened(), checks, edges=edges, setup=told.setup))

    return DevelopmentReward(development=_development(told.development), find=find)


def _check(path: Path, number: int, told: _Check) -> Check:
    if (told.shell is None) == (told.pytest is None):
        raise InputError(f"{path}: check {number} needs either `shell` or `pytest`")
    name = told.name or f"check {number}"
    if told.shell is not None:
        return Check(name=name, kind="shell", text=told.shell)
    return Check(name=name, kind="pytest", text=told.pytest or "")


def _development(told: _Settings) -> Development:
    architecture = Architecture(profile=profiles.load(told.profile))
    return Development(
        components=tuple(architecture if each.name == architecture.name else each for each in components()),
        weights={**WEIGHTS, "innovation": 0.0, **told.weights},
        penalty_multiplier=told.penalty_multiplier,
        bonus_threshold=told.bonus_threshold,
    )
