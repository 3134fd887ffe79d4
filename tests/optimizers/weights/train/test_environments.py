"""The world with tools that a training names."""

import pytest

pytest.importorskip("trl", reason="needs the extra: pip install 'journeyman[weights]'")

from journeyman.core.errors import InputError, SettingError
from journeyman.core.task import Task
from journeyman.optimizers.weights.config import TrainingConfig
from journeyman.optimizers.weights.train.run import _environment_class

pytestmark = pytest.mark.training


class Shop:
    """A world."""

    def reset(self, task: Task) -> str | None:
        return task.question


def test_a_world_is_found_by_the_name_of_its_module_and_its_own(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(__import__("sys").modules, "my_shop", __import__("types").SimpleNamespace(Shop=Shop))
    assert _environment_class("my_shop:Shop")().reset(Task(id="1", question="hello")) == "hello"


@pytest.mark.parametrize("named", ["no_such_module_here:Shop", "json:Shop", "json", "json:loads", ":x"])
def test_what_is_no_world_is_refused_in_a_sentence(named: str) -> None:
    with pytest.raises(InputError, match="the environment"):
        _environment_class(named)


def test_an_environment_is_for_grpo_and_without_looks_of_a_single_turn() -> None:
    with pytest.raises(SettingError, match="only grpo knows it"):
        TrainingConfig(method="kto", environment="my:World", validation=0)
    with pytest.raises(SettingError, match="in an environment no single turn tells"):
        TrainingConfig(method="grpo", environment="my:World", dataset_name="desk")
