"""An executor that writes code and runs it: behind the walls of this machine, and in a code service elsewhere."""

import json
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from journeyman import create_ace_executor
from journeyman.models import KEY
from journeyman.optimizers.playbook import files
from tests.support.code_service import in_thread
from tests.support.llm_server import Answer, LLMServer, completion, serving
from tests.support.pupil import REFLECTOR

RULE = "Define a function before it is called."
GOAL = "Write a function add in main.py"
RIGHT = "```python file=main.py\ndef add(a, b):\n    return a + b\nprint(add(1, 2))\n```"
WRONG = "```python file=main.py\nprint(add(1, 2))\n```"
CHECK = "python -c 'import main; assert main.add(2, 3) == 5'"

pytestmark = pytest.mark.service


def apprentice(body: dict[str, Any]) -> Answer:
    """Writes what breaks, until it was told of the rule or of its failure."""
    text = json.dumps(body["messages"])
    if REFLECTOR in text:
        learned = [{"verdict": "helpful", "content": RULE, "about": ""}] if "NameError" in text else []
        return completion(json.dumps({"insights": learned, "shown": []}))
    return completion(RIGHT if RULE in text or "That did not do yet" in text else WRONG)


@pytest.fixture
def server(monkeypatch: pytest.MonkeyPatch) -> Iterator[LLMServer]:
    monkeypatch.setenv(KEY, "sk-test")
    with serving() as started:
        started.default = apprentice
        yield started


@pytest.fixture(params=["walls", "service"])
def ptc_base_url(request: pytest.FixtureRequest) -> Iterator[str]:
    if request.param == "walls":
        if shutil.which("bwrap") is None:
            pytest.skip("bubblewrap is not installed")
        yield ""
    else:
        with in_thread() as service:
            yield service.url


async def test_a_stumble_teaches_and_only_checks_make_a_success(server: LLMServer, tmp_path: Path, ptc_base_url: str) -> None:
    name = f"openai:apprentice@{server.url}"
    skillbook = tmp_path / "skillbook.json"
    async with create_ace_executor(
        model=name, reflector_model=name, skillbook_path=skillbook, ptc_base_url=ptc_base_url, async_learning=False
    ) as executor:
        stumbled = await executor.aforward(GOAL)
        (bullet,) = files.load(skillbook).bullets
        assert stumbled.error is None
        assert (len(stumbled.trace.calls), stumbled.success, stumbled.metadata["performance_score"]) == (2, None, None)
        assert stumbled.files["main.py"].startswith("def add")
        assert (bullet.content, bullet.shown, bullet.helpful, bullet.harmful) == (RULE, 0, 0, 0)
        checked = await executor.aforward(GOAL, checks=[CHECK])
        broken = await executor.aforward(GOAL, checks=["false"])
        (bullet,) = files.load(skillbook).bullets
    assert (len(checked.trace.calls), checked.success, checked.bullets[0].content) == (1, True, RULE)
    assert broken.success is False
    assert (bullet.shown, bullet.helpful) == (2, 1)
    assert CHECK not in json.dumps(server.bodies), "the agent never sees a check"


async def test_a_service_that_is_down_costs_the_run_and_not_the_answer(server: LLMServer, tmp_path: Path) -> None:
    name = f"openai:apprentice@{server.url}"
    async with create_ace_executor(
        model=name, reflector_model=name, skillbook_path=tmp_path / "skillbook.json", ptc_base_url="http://127.0.0.1:9"
    ) as executor:
        result = await executor.aforward(GOAL)
    assert result.output == WRONG
    assert result.success is None
    assert result.error is not None
    assert result.error.startswith("SandboxError: ")
    assert (executor.stats.broke_off, executor.stats.learning.offered) == (1, 0)
