"""Anybody's agent: it works in the repository, asks its model and nobody else, and what it leaves is judged."""

import json
import shlex
from collections.abc import AsyncIterator, Iterator
from datetime import UTC, datetime
from pathlib import Path

import pytest

from journeyman.agents.attempt import attempt, score
from journeyman.agents.command import AgentUpstream, CommandAgent, beside, checked, label
from journeyman.agents.replay import CallBudget
from journeyman.agents.workshop import RepositoryWorkshop, WorkLimits, left_in
from journeyman.core.errors import InputError, SandboxError
from journeyman.core.trace import Trace
from journeyman.sandbox import environments
from journeyman.sandbox.base import Interpreter
from journeyman.sandbox.supervised import missing
from journeyman.tasks.repository import RepositoryTask
from tests.support import repository_tasks, wheels
from tests.support.llm_server import Answer, LLMServer, completion, serving

pytestmark = pytest.mark.service

KEY = "sk-the-real-key-of-the-host"
AGENT = '''
import json, os, subprocess, sys, urllib.request

def ask(path, **told):
    asked = urllib.request.Request(os.environ["OPENAI_BASE_URL"] + path, data=json.dumps(told).encode(),
        headers={"authorization": "Bearer " + os.environ["OPENAI_API_KEY"], "content-type": "application/json"})
    with urllib.request.urlopen(asked) as answer:
        return answer.read().decode()

def main():
    """Asks for a shell script until there is none, and runs each."""
    messages = [{"role": "user", "content": open(sys.argv[2]).read()}]
    while True:
        said = json.loads(ask("/chat/completions", model=sys.argv[3], messages=messages))["choices"][0]["message"]["content"]
        if said == "done":
            return
        done = subprocess.run(said, shell=True, cwd=sys.argv[1], capture_output=True, text=True)
        messages += [{"role": "assistant", "content": said}, {"role": "user", "content": done.stdout + done.stderr}]
'''
COMMAND = "tiny-agent {workspace} {task_file} {model}"


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, str, Interpreter]:
    """Environments: of the tasks, and of the agent."""
    folder = tmp_path_factory.mktemp("environments")
    digest = repository_tasks.environment(folder)
    with pytest.MonkeyPatch.context() as patch:
        wheels.without_network(patch, folder / "wheels")
        wheels.program(folder / "wheels", "tiny-agent", AGENT)
        needs = environments.PackageNeeds(name="agent", version="0", requirements=("tiny-agent",))
        return folder, digest, environments.build(folder, needs).interpreter


@pytest.fixture(scope="module")
def server() -> Iterator[LLMServer]:
    with serving() as found:
        yield found


@pytest.fixture
def upstream(server: LLMServer) -> LLMServer:
    server.reset()
    server.key = KEY
    return server


Bench = tuple[RepositoryWorkshop, tuple[RepositoryTask, ...], Interpreter]


@pytest.fixture
async def bench(made: tuple[Path, str, Interpreter], tmp_path: Path) -> AsyncIterator[Bench]:
    folder, digest, python = made
    tasks = repository_tasks.tasks_of(repository_tasks.kept_package(tmp_path, folder), digest)
    workshop = repository_tasks.workshop(tasks, folder, beside=beside(python))
    yield workshop, tasks, python
    await workshop.close()


async def tried(bench: Bench, upstream: LLMServer, command: str = COMMAND, **more: object) -> Trace:
    workshop, tasks, python = bench
    agent = CommandAgent(
        workshop=workshop,
        command=command,
        upstream=AgentUpstream(base_url=upstream.url, key=KEY),
        model="some-model",
        environment=python,
        limits=WorkLimits(wall_seconds=60),
        **more,  # type: ignore[arg-type]
    )
    return await attempt(agent, tasks[0].task(), id="t", clock=lambda: datetime(2026, 1, 1, tzinfo=UTC))


async def test_an_installed_agent_mends_what_its_model_says(bench: Bench, upstream: LLMServer) -> None:
    workshop, tasks, _ = bench
    mend = "sed -i 's/ZONES.get(country, 4)/ZONES.get(country.upper(), 4)/' parcels/rates.py && python -m pytest -q | tail -1"
    upstream.answers.extend([completion(mend, id="c-1"), completion("done", id="c-2")])
    trace = await tried(bench, upstream)
    assert trace.error is None
    assert left_in(trace) == dict(tasks[0].reference)
    assert (await score(workshop, tasks[0].task(), trace)).total == 1.0
    # Its conversation is on the trace, as it was said.
    assert [call.reply for call in trace.calls] == [mend, "done"]
    assert "passed" in trace.calls[1].prompt
    assert (trace.input_tokens, trace.output_tokens) == (14, 6)
    # And a gateway is told what it was for.
    assert upstream.bodies[0]["messages"][0]["content"] == tasks[0].statement
    assert upstream.headers[0]["x-journeyman-task"] == tasks[0].id
    assert upstream.headers[0]["x-journeyman-agent"] == "tiny-agent"


async def test_it_has_no_network_no_key_and_no_way_to_the_rest_of_an_api(bench: Bench, upstream: LLMServer) -> None:
    peek = (
        "env; python - <<'X'\nimport os, urllib.request, urllib.error\nbase = os.environ['OPENAI_BASE_URL']\n"
        "for url in (base + '/files', base + '/../secret/chat/completions', base.replace('/v1', '/metrics'), 'http://192.0.2.1/'):\n"
        "    try:\n        print(urllib.request.urlopen(url, timeout=5, data=b'{}').status)\n"
        "    except urllib.error.HTTPError as error:\n        print('refused', error.code)\n"
        "    except OSError as error:\n        print('nobody')\nX"
    )
    upstream.answers.extend([completion(peek, id="c-1"), completion("done", id="c-2")])
    trace = await tried(bench, upstream)
    heard = upstream.bodies[1]["messages"][-1]["content"]
    assert KEY not in heard
    assert "OPENAI_API_KEY=journeyman" in heard
    assert heard.strip().splitlines()[-4:] == ["refused 404", "refused 404", "refused 404", "nobody"]
    assert len(upstream.bodies) == 2
    assert KEY not in repr(trace)
    assert "country.upper(), 4" not in heard


async def test_an_answer_comes_through_piece_by_piece_and_a_large_request_goes_whole(bench: Bench, upstream: LLMServer) -> None:
    pieces = [{"choices": [{"index": 0, "delta": {"content": word}}], "model": "m", "id": "c-9"} for word in ("Hel", "lo")]
    body = "".join(f"data: {json.dumps(piece)}\n\n" for piece in pieces) + "data: [DONE]\n\n"
    upstream.answers.append(Answer(body=body, headers={"content-type": "text/event-stream"}))
    code = (
        "import json, os, urllib.request\nbody = json.dumps({'model': 'm', 'stream': True, 'messages': "
        "[{'role': 'user', 'content': 'x' * 3_000_000}]}).encode()\n"
        "asked = urllib.request.Request(os.environ['OPENAI_BASE_URL'] + '/chat/completions', data=body)\n"
        "print(urllib.request.urlopen(asked).read().decode().count('data:'))"
    )
    trace = await tried(bench, upstream, f"python -c {shlex.quote(code)}")
    assert len(upstream.bodies[0]["messages"][0]["content"]) == 3_000_000
    assert [call.reply for call in trace.calls] == ["Hello"]
    (said,) = [step.result for step in trace.tool_calls if step.tool == "command"]
    assert said == "exit code 0\n3"


async def test_who_never_came_to_work_was_not_wrong(bench: Bench, upstream: LLMServer) -> None:
    workshop, tasks, _ = bench
    trace = await tried(bench, upstream, "no-such-agent {workspace}")
    assert trace.error is not None
    assert "exit code 127" in trace.error
    assert (await score(workshop, tasks[0].task(), trace)).total is None
    upstream.key = "another"
    trace = await tried(bench, upstream)
    assert trace.error is not None
    assert trace.error.startswith("ModelError: ")
    assert "none of its 1 calls was answered" in trace.error


async def test_it_ends_with_its_time_and_what_it_left_counts(bench: Bench, upstream: LLMServer) -> None:
    workshop, tasks, python = bench
    mend = "sed -i 's/ZONES.get(country, 4)/ZONES.get(country.upper(), 4)/' parcels/rates.py; sleep 100"
    upstream.answers.append(completion(mend))
    agent = CommandAgent(
        workshop=workshop, command=COMMAND, upstream=AgentUpstream(base_url=upstream.url, key=KEY), environment=python,
        limits=WorkLimits(wall_seconds=5),
    )  # fmt: skip
    trace = await attempt(agent, tasks[0].task(), id="t", clock=lambda: datetime(2026, 1, 1, tzinfo=UTC))
    assert trace.error is None
    assert left_in(trace) == dict(tasks[0].reference)
    assert next(step for step in trace.tool_calls if step.tool == "command").result.startswith("wall limit")


async def test_beyond_the_budget_no_call_is_made_and_the_attempt_is_unknown(bench: Bench, upstream: LLMServer) -> None:
    workshop, tasks, _ = bench
    trace = await tried(bench, upstream, budget=CallBudget(max_calls=1, max_cost=None))
    assert len(upstream.bodies) == 1
    assert trace.error == "ModelRefused: all 1 calls of --max-calls are used up"
    assert (await score(workshop, tasks[0].task(), trace)).total is None


@pytest.mark.skipif(missing() is not None, reason="this kernel has no Landlock")
async def test_walls_without_a_loopback_are_refused_before_anything_is_attempted(
    made: tuple[Path, str, Interpreter], tmp_path: Path
) -> None:
    folder, digest, python = made
    tasks = repository_tasks.tasks_of(repository_tasks.kept_package(tmp_path, folder), digest)
    workshop = repository_tasks.workshop(tasks, folder, beside=beside(python), walls="landlock")
    await workshop.start()
    agent = CommandAgent(workshop=workshop, command=COMMAND, upstream=AgentUpstream(base_url="http://127.0.0.1:1/v1"))
    with pytest.raises(SandboxError, match="bubblewrap"):
        agent.check()
    await workshop.close()


def test_a_command_is_named_by_its_program() -> None:
    assert label("env A=b /opt/bin/mini -t {task}") == "mini"
    for bad in ("", "'open"):
        with pytest.raises(InputError):
            checked(bad)
