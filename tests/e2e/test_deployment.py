"""Two versions of learned weights: deployed, watched, compared on live sessions and taken back, while agents notice nothing."""

import json
import threading
from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import openai
import pytest

from journeyman.cli import main
from journeyman.core.candidate import BASE
from tests.e2e.test_live_release import run
from tests.serving.gateway.test_passing import ask
from tests.serving.gateway.test_process import served, stopped, until
from tests.support import ollama
from tests.support.ggufs import gguf
from tests.support.upstream import Upstream, ok, upstream

pytestmark = pytest.mark.service
FORCED = ("--force", "--reason", "no tasks are held out for it")
QUESTION = "where is the desk?"


@pytest.fixture
def project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("JOURNEYMAN_USER", "ann")
    return tmp_path


@pytest.fixture
def up() -> Iterator[Upstream]:
    """What agents were answered by before."""
    message = {"role": "assistant", "content": "the vendor's answer"}
    choice = {"index": 0, "finish_reason": "stop", "message": message}
    with upstream() as made:
        made.answer = lambda asked: ok(
            {"id": "c", "object": "chat.completion", "created": 1, "model": "m", "choices": [choice]}
        )
        yield made


def chat(url: str, session: str) -> str:
    """An agent, which asks for the vendor's model and knows nothing of ours."""
    labels = {"X-Journeyman-Session": session}
    with openai.OpenAI(base_url=f"{url}/v1", api_key="key", default_headers=labels, max_retries=0) as client:
        asked = client.chat.completions.create(
            model="gpt-9", messages=[{"role": "user", "content": QUESTION}], temperature=0, max_tokens=16
        )
    return asked.choices[0].message.content or ""


def slot(url: str) -> dict[str, Any]:
    slots: dict[str, dict[str, Any]] = json.loads(ask(url, "/health", None, "GET")[2])["releases"]["slots"]
    return slots.get("weights:*/*", {})


@contextmanager
def others_at_work(url: str) -> Iterator[list[str]]:
    """Agents that go on asking meanwhile; what they were told, or that they were told nothing."""
    told: list[str] = []
    over = threading.Event()

    def work() -> None:
        number = 0
        while not over.wait(0.02):
            number += 1
            try:
                told.append(chat(url, f"other-{number}"))
            except openai.OpenAIError as error:
                told.append(f"failed: {error!r}")

    thread = threading.Thread(target=work)
    thread.start()
    try:
        yield told
    finally:
        over.set()
        thread.join(60)


class Walk:
    """A person at a terminal, who types `journeyman deployment`, and agents beside them."""

    def __init__(self, capsys: pytest.CaptureFixture[str], how: Sequence[str], version: Callable[[str], str]) -> None:
        """
        Args:
            version: The one that an answer is of.
        """
        self._capsys, self._how, self._version = capsys, how, version
        self.url = ""

    def __call__(self, *arguments: str, code: int = 0) -> dict[str, Any]:
        return self.types("deployment", *arguments, code=code)

    def types(self, *arguments: str, code: int = 0) -> dict[str, Any]:
        self._capsys.readouterr()
        assert main([*arguments, "--json"]) == code, self._capsys.readouterr().err
        found: dict[str, Any] = json.loads(self._capsys.readouterr().out.splitlines()[-1])
        return found

    def deploy(self, file: Path, name: str, *more: str) -> dict[str, Any]:
        # As a process: what it leaves running outlives it.
        deploy = ("--deploy", "--model-path", str(file), "--model-id", name, *self._how, *more)
        return run(Path.cwd(), "deployment", *deploy)

    def asked(self, session: str) -> str:
        """Who answers an agent."""
        return self.version(chat(self.url, session))

    def version(self, said: str) -> str:
        return "the vendor" if said.startswith("the vendor") else self._version(said)


def walked(walk: Walk, up: Upstream, a: Path, b: Path) -> None:
    """The four forms, end to end."""
    with served(Path.cwd(), "--upstream", up.url, "--no-pages") as (url, process):
        walk.url = url
        assert walk.asked("first") == "the vendor"
        first = _first_version(walk, a)
        asked = len(up.asked)
        second = walk.deploy(b, "agent_v1.1")
        assert second["production"] == first
        assert "--ab-test --model-a agent_v1.0 --model-b agent_v1.1" in second["said"]
        rollout = _test(walk)
        sessions = _compared(walk, rollout)
        _taken_back(walk, first, sessions)
        assert len(up.asked) == asked

        # And the first one, too: requests go where they went before, byte for byte.
        walk("--rollback", "--model-id", "agent_v1.0")
        assert until(lambda: not slot(url))
        assert walk.asked("third") == "the vendor"
        assert up.asked[-1].body == up.asked[0].body
        assert stopped(process) == 0
    assert walk.types("audit", "--verify")


def _first_version(walk: Walk, file: Path) -> str:
    """Nobody is served what no gate has seen, unless a person insists. The candidate."""
    waiting = walk.deploy(file, "agent_v1.0")
    assert (waiting["production"], "was never examined" in waiting["said"]) == (BASE, True)
    assert walk.asked("second") == "the vendor"
    forced = walk.deploy(file, "agent_v1.0", *FORCED)
    assert (forced["candidate"], forced["url"]) == (waiting["candidate"], waiting["url"])
    assert forced["production"] == forced["candidate"]
    assert until(lambda: slot(walk.url).get("production") == forced["candidate"])
    assert walk.asked("third") == "agent_v1.0"
    return str(forced["candidate"])


def _test(walk: Walk) -> str:
    """The A/B test, which no gate let begin. The rollout."""
    test = ("--ab-test", "--model-a", "v1.0", "--model-b", "v1.1", "--test-name", "performance_test")
    assert "was never examined" in walk(*test, code=1)["reason"]
    assert walk.asked("fourth") == "agent_v1.0"
    begun = walk(*test, *FORCED)["rollout"]
    plan = begun["plan"]
    assert (begun["shares"], plan["promote"], plan["on_end"]) == ({"canary": 0.5}, "ask", "hold")
    assert plan["primary"]["require"] == "better"
    assert begun["events"][0]["cause"]["reason"].startswith("A/B test performance_test of agent_v1.1 against agent_v1.0: ")
    assert until(lambda: slot(walk.url).get("rollout"))
    return str(begun["id"])


def _compared(walk: Walk, rollout: str) -> Sequence[str]:
    """About half of the sessions are answered by each, and each by one; both are watched. The sessions."""
    answered: dict[str, set[str]] = defaultdict(set)
    for number in (*range(40), *range(40)):
        answered[f"s-{number}"].add(walk.asked(f"s-{number}"))
    assert {len(each) for each in answered.values()} == {1}
    on_b = sum(each == {"agent_v1.1"} for each in answered.values())
    assert 8 <= on_b <= 32
    assert until(lambda: walk("--monitor", "--model-id", "agent_v1.1")["calls"]["calls"] == 2 * on_b)
    for name, production in (("agent_v1.0", ["weights:*/*"]), ("agent_v1.1", [])):
        seen = walk("--monitor", "--model-id", name)
        assert (seen["answers"], seen["production"], seen["calls"]["errors"]) == (True, production, 0)
        assert [each["id"] for each in seen["rollouts"]] == [rollout]
        assert seen["calls"]["median_seconds"] > 0
    return list(answered)


def _taken_back(walk: Walk, first: str, sessions: Sequence[str]) -> None:
    """While agents work: nobody notices but by who answers."""
    with others_at_work(walk.url) as told:
        assert until(lambda: len({walk.version(each) for each in told}) == 2)
        back = walk("--rollback", "--model-id", "agent_v1.1")
        assert until(lambda: not slot(walk.url).get("rollout"))
        # One may be on its way.
        since = len(told) + 1
        assert until(lambda: len(told) > since + 5)
    assert not [each for each in told if each.startswith("failed")]
    assert {walk.version(each) for each in told[since:]} == {"agent_v1.0"}
    assert back["production"] == {"weights:*/*": first}
    assert {walk.asked(session) for session in sessions} == {"agent_v1.0"}
    assert "nothing to take back" in walk("--rollback", "--model-id", "agent_v1.1", code=1)["reason"]


def test_on_ollama_the_four_forms_do_what_they_say(project: Path, up: Upstream, capsys: pytest.CaptureFixture[str]) -> None:
    a, b = (gguf(project / f"{name}.gguf", weights=name.encode()) for name in ("agent", "better"))
    with ollama.serving(project / "blobs") as box:
        box.answer = lambda model, messages: f"{model} says that it is here"
        walked(Walk(capsys, ("--to", "ollama", "--host", box.url), lambda said: said.partition(" ")[0]), up, a, b)
        # Of what production was sent before, while and after the other was tried, no byte differs.
        sent = [each for each in box.contents if b'"agent_v1.0"' in each and QUESTION.encode() in each]
        assert len(sent) > 50
        assert len(set(sent)) == 1


@pytest.mark.training
def test_on_llama_cpp_the_four_forms_do_what_they_say(project: Path, up: Upstream, capsys: pytest.CaptureFixture[str]) -> None:
    pytest.importorskip("peft", reason="needs the extra: pip install 'journeyman[weights]'")
    pytest.importorskip("llama_cpp", reason="llama-cpp-python is not installed: make test builds it")
    from journeyman.models import WEIGHTS
    from journeyman.optimizers.weights.gguf import GGUFExporter
    from tests.support.tuned import ANSWER, adapter

    (project / "models").mkdir()
    a = GGUFExporter(WEIGHTS / "small").convert("F16", project / "models" / "agent.gguf")
    b = GGUFExporter(adapter(), base_model="embedded:small").convert("F16", project / "models" / "better.gguf")
    names = ("agent_v1.0", "agent_v1.1")
    walk = Walk(capsys, (), lambda said: names[said == ANSWER])
    try:
        walked(walk, up, a, b)
    finally:
        for name, file in zip(names, (a, b), strict=True):
            walk.types("deploy", "llamacpp", str(file), "--name", name, "--stop")
