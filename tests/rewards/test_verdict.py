import os
import subprocess
import sys

import pytest

from journeyman.rewards.base import version
from journeyman.rewards.static import Goal

PRINTED = """
from journeyman.rewards.static import Goal, TaskCompletionReward
from journeyman.rewards.development import DevelopmentReward
goals = {"task": Goal(calls=(("book", {"bags": 2}),), only=frozenset({"book", "cancel", "change"}))}
print(DevelopmentReward().version, TaskCompletionReward(goals=goals).version)
"""


@pytest.mark.service
def test_a_version_is_the_same_in_every_process() -> None:
    """Texts in a set have another order in each."""
    found = {
        subprocess.run(
            [sys.executable, "-c", PRINTED], env={**os.environ, "PYTHONHASHSEED": seed}, capture_output=True, check=True
        ).stdout
        for seed in ("1", "2", "3")
    }
    assert len(found) == 1


def test_a_version_knows_what_lies_deep_in_its_settings() -> None:
    goals = [Goal(), Goal(only=frozenset({"book"})), Goal(calls=(("book", {"bags": 1}),)), Goal(calls=(("book", {"bags": 2}),))]
    assert len({version(1, {"task": [goal]}) for goal in goals} | {version(1, {"other": [goals[0]]}), version(2)}) == 6
