"""How the code service starts, carries load, stops and dies."""

import asyncio
import os
import signal
import time
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest

from journeyman.cli import main
from journeyman.core.errors import SandboxError
from journeyman.io.http_server import listen
from journeyman.sandbox.base import Limits, Program, RunOutcome
from journeyman.sandbox.remote import HttpSandbox
from tests.support.code_service import CLIENT, Process, eventually, process

TOKEN = "a-token-of-the-first-one"
MIB = 1 << 20

pytestmark = pytest.mark.service


def family(pid: int) -> set[int]:
    """The process and all that descend from it."""
    children: dict[int, list[int]] = {}
    for found in Path("/proc").glob("[0-9]*/stat"):
        try:
            state, parent = found.read_text().rpartition(")")[2].split()[:2]
        except OSError:
            continue
        if state not in "ZX":
            children.setdefault(int(parent), []).append(int(found.parent.name))
    known, new = {pid}, [pid]
    while new:
        new = [child for one in new for child in children.get(one, []) if child not in known]
        known.update(new)
    return known


def alive(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] not in "ZX"
    except OSError:
        return False


def sleepers(seconds: str) -> list[str]:
    """Processes that were started as `sleep seconds`, wherever they hang."""
    found = []
    for path in Path("/proc").glob("[0-9]*/cmdline"):
        try:
            if path.read_bytes() == f"sleep\0{seconds}\0".encode():
                found.append(path.parent.name)
        except OSError:
            continue
    return found


def memory(pid: int) -> dict[int, int]:
    """Bytes of memory by process of the family."""
    resident = {}
    for one in family(pid):
        try:
            lines = Path(f"/proc/{one}/smaps_rollup").read_text().splitlines()
        except OSError:
            continue
        resident[one] = next(int(line.split()[1]) for line in lines if line.startswith("Rss:")) << 10
    return resident


def open_files(pid: int) -> int:
    return sum(1 for _ in Path(f"/proc/{pid}/fd").iterdir())


@pytest.fixture
def walled(tmp_path: Path) -> Iterator[Process]:
    with process(tmp_path, "--concurrency", "4", sandbox="bubblewrap") as running:
        yield running


async def swarm(url: str, clients: int, runs: int) -> list[str]:
    """What came back wrong."""

    async def one(client: int) -> list[str]:
        box = HttpSandbox(url)
        wrong = []
        for number in range(runs):
            token = f"{client}-{number}"
            code = f"import sys\nprint({token!r}, sys.argv[1], input())\nopen('{token}', 'w').write({token!r})"
            outcome = await box.run(Program(code=code, stdin=token.encode(), arguments=(token,), collect=("*-*",)))
            if outcome.stdout != f"{token} {token} {token}\n" or outcome.files != {token: token.encode()}:
                wrong.append(f"{token}: {outcome}")
        await box.close()
        return wrong

    found = await asyncio.gather(*(one(client) for client in range(clients)))
    return [line for lines in found for line in lines]


@pytest.mark.parametrize("runs", [320, pytest.param(2016, marks=pytest.mark.nightly)])
def test_thirty_two_clients_lose_nothing_mix_nothing_and_leave_nothing(walled: Process, runs: int) -> None:
    warm = 160
    assert asyncio.run(swarm(walled.url, 32, warm // 32)) == []
    # What is left is the sandbox's own, kept warm for the next runs.
    assert eventually(lambda: len(family(walled.pid)) <= 16)
    before, files = memory(walled.pid), open_files(walled.pid)
    assert asyncio.run(swarm(walled.url, 32, runs // 32)) == []
    assert eventually(lambda: open_files(walled.pid) <= files and len(family(walled.pid)) <= 16)
    after = memory(walled.pid)
    # Those that run code come and go, and how many are kept warm at a moment is chance: like is compared with like.
    grown = {one: (after[one] - before[one]) / MIB for one in before.keys() & after.keys()}
    assert walled.pid in grown
    assert max(grown.values()) < 8, f"MiB more after {runs} more runs, by process: {grown}"
    told = CLIENT.get(walled.url + "/metrics").text
    assert f'journeyman_executions_total{{language="python",outcome="ok"}} {warm + runs}' in told
    assert "journeyman_executions_in_flight 0" in told
    assert "journeyman_executions_queued 0" in told


def test_a_service_that_is_killed_leaves_no_client_waiting_and_no_process_alive(walled: Process) -> None:
    asleep = "98765.25"
    code = f"import subprocess\nsubprocess.run(['sleep', '{asleep}'])"

    async def tool(arguments: Mapping[str, Any]) -> Any:
        await asyncio.sleep(600)

    async def all_ask() -> tuple[list[RunOutcome | BaseException], set[int], float]:
        boxes = [HttpSandbox(walled.url) for _ in range(16)]
        asked = [
            asyncio.create_task(
                box.run(Program(code=code, limits=Limits(wall_seconds=100.0)), tools={"tool": tool} if number % 2 else None)
            )
            for number, box in enumerate(boxes)
        ]
        assert await asyncio.to_thread(eventually, lambda: len(sleepers(asleep)) == 4)
        there = family(walled.pid)
        walled.tell(signal.SIGKILL)
        began = time.monotonic()
        answers = await asyncio.wait_for(asyncio.gather(*asked, return_exceptions=True), 30)
        for box in boxes:
            await box.close()
        return answers, there, time.monotonic() - began

    answers, there, seconds = asyncio.run(all_ask())
    assert len(there) > 4
    assert len(answers) == 16
    assert all(isinstance(answer, SandboxError) for answer in answers), answers
    assert seconds < 15
    walled.popen.wait(timeout=10)
    assert eventually(lambda: not sleepers(asleep) and not any(map(alive, there))), sleepers(asleep)


def test_told_to_stop_it_takes_nothing_new_finishes_what_runs_and_ends_well(walled: Process) -> None:
    async def told() -> tuple[RunOutcome, int, int]:
        box = HttpSandbox(walled.url, patience_seconds=0.5)
        statuses: list[int] = []

        async def stop(arguments: Mapping[str, Any]) -> Any:
            walled.tell(signal.SIGTERM)
            await asyncio.sleep(1)
            statuses.append((await asyncio.to_thread(CLIENT.get, walled.url + "/health")).status_code)
            refused = await asyncio.to_thread(CLIENT.post, walled.url + "/execute", json={"code": "1"})
            statuses.append(refused.status_code if refused.headers.get("retry-after") else 0)
            return "stopped"

        code = "import time\nprint(tools.stop())\ntime.sleep(1)\nprint('done')"
        outcome = await box.run(Program(code=code), tools={"stop": stop})
        await box.close()
        return outcome, statuses[0], statuses[1]

    outcome, health, execute = asyncio.run(told())
    assert outcome.stdout == "stopped\ndone\n"
    assert (health, execute) == (503, 503)
    assert walled.popen.wait(timeout=30) == 0
    assert "Traceback" not in walled.log.read_text()


def test_told_twice_it_ends_what_runs(walled: Process) -> None:
    asleep = "98765.75"

    async def told() -> BaseException | RunOutcome:
        box = HttpSandbox(walled.url, patience_seconds=0.0)
        code = f"import subprocess\nsubprocess.run(['sleep', '{asleep}'])"
        run = asyncio.create_task(box.run(Program(code=code, limits=Limits(wall_seconds=100.0))))
        assert await asyncio.to_thread(eventually, lambda: len(sleepers(asleep)) == 1)
        walled.tell(signal.SIGTERM)
        await asyncio.sleep(0.5)
        assert not run.done()
        walled.tell(signal.SIGTERM)
        [answer] = await asyncio.wait_for(asyncio.gather(run, return_exceptions=True), 30)
        await box.close()
        return answer

    assert isinstance(asyncio.run(told()), SandboxError)
    assert walled.popen.wait(timeout=30) == 0
    assert eventually(lambda: not sleepers(asleep))
    assert "Traceback" not in walled.log.read_text()


def test_a_token_is_taken_from_the_environment_and_never_said(tmp_path: Path) -> None:
    with process(tmp_path, "--token-env", "CODE_TOKEN", "--host", "0.0.0.0", env={"CODE_TOKEN": TOKEN}) as running:
        url = running.url.replace("0.0.0.0", "127.0.0.1")
        assert CLIENT.post(url + "/execute", json={"code": "1"}).status_code == 401
        headers = {"authorization": f"Bearer {TOKEN}"}
        seen = "import os\nprint(sorted(os.environ))"
        answer = CLIENT.post(url + "/execute", json={"code": seen}, headers=headers).json()
        assert "CODE_TOKEN" not in answer["stdout"]
        running.tell(signal.SIGTERM)
        assert running.popen.wait(timeout=30) == 0
        assert TOKEN not in running.log.read_text()
        assert TOKEN not in Path(f"/proc/{os.getpid()}/cmdline").read_text()


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        (["--host", "0.0.0.0"], "--token-env"),
        (["--token-env", "NOT_THERE"], "NOT_THERE"),
        (["--token-env", "SHORT_TOKEN"], "too short"),
        (["--max-limit", "memory=lots"], "'lots' is no size such as 256M"),
        (["--max-limit", "patience=3"], "wall_seconds"),
        (["--callback-host", "http://x"], "host:port"),
        (["--host", "198.51.100.1", "--allow-anyone"], "cannot listen"),
        (["--sandbox", "paper"], "bubblewrap"),
    ],
)
def test_what_cannot_be_served_is_one_sentence(
    arguments: list[str], told: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SHORT_TOKEN", "hunter2")
    assert main(["sandbox", "serve", "--port", "0", *arguments]) == 2
    said = capsys.readouterr().err
    assert told in said
    assert "hunter2" not in said
    assert len(said.strip().splitlines()) == 1


def test_a_port_that_is_taken_is_said(capsys: pytest.CaptureFixture[str]) -> None:
    with listen("127.0.0.1", 0) as taken:
        taken.listen()
        assert main(["sandbox", "serve", "--port", str(taken.getsockname()[1])]) == 2
    assert "choose another --port" in capsys.readouterr().err
