"""Every attack on every sandbox that runs here, and each without walls: a probe that gets through nowhere proves nothing."""

import asyncio
import fcntl
import os
import struct
from collections.abc import Iterator, Mapping
from dataclasses import fields, replace
from pathlib import Path

import pytest

from journeyman.core.errors import SandboxError
from journeyman.sandbox import load
from journeyman.sandbox.audit import NONE, check, judge, run_bare
from journeyman.sandbox.audit.attacks import ATTACKS
from journeyman.sandbox.audit.traps import Attack, AttackEvidence, Trap, named, own_word, readable
from journeyman.sandbox.base import Level, Limits, Program, RunOutcome, Sandbox, Session, Tool

pytestmark = [pytest.mark.attacks, pytest.mark.usefixtures("only_audit")]

QUICK = [
    attack for attack in ATTACKS if attack.name in {"TCP", "home folder", "signals", "capabilities", "one big file", "daemon"}
]


class NoWalls:
    """What the suite must find full of holes."""

    level: Level = NONE

    async def start(self) -> None:
        return None

    async def run(self, program: Program, *, tools: Mapping[str, Tool] | None = None) -> RunOutcome:
        return await run_bare(program)

    async def session(
        self, *, limits: Limits | None = None, files: Mapping[str, bytes] | None = None, idle_seconds: float = 600.0
    ) -> Session:
        raise SandboxError("there are no sessions without walls")

    async def close(self) -> None:
        return None


@pytest.fixture(scope="module", params=["bubblewrap", "landlock"])
def sandbox(request: pytest.FixtureRequest) -> Iterator[Sandbox]:
    """One for all: it outlives the event loop of each test."""
    box = load(request.param)
    try:
        asyncio.run(box.start())
    except SandboxError as error:
        pytest.skip(str(error))
    yield box
    asyncio.run(box.close())


@pytest.mark.parametrize("attack", ATTACKS, ids=lambda attack: attack.name)
async def test_every_attack_is_stopped_by_the_walls(sandbox: Sandbox, attack: Attack) -> None:
    verdict = await judge(sandbox, attack)
    if verdict.state == "untried":
        pytest.skip(verdict.why)
    if attack.name == "capabilities" and "no_capabilities" in sandbox.level.lacks:
        # Said by its level: an interpreter that only root can read cannot be run without this one.
        assert verdict.why == "capabilities 4"
        return
    assert verdict.state == "stopped", verdict.why


@pytest.mark.parametrize("attack", [attack for attack in ATTACKS if attack.lifted is None], ids=lambda attack: attack.name)
async def test_every_attack_gets_through_where_there_are_no_walls(attack: Attack) -> None:
    verdict = await judge(NoWalls(), attack)
    if verdict.state == "untried":
        pytest.skip(verdict.why)
    assert verdict.state == "through", verdict.why


LOCKING = """import fcntl, os
for lock in (fcntl.flock, fcntl.lockf):
    try: lock(os.open(PATH, os.O_RDONLY), fcntl.LOCK_SH)
    except OSError: pass
tools.locked()
"""
FLOCK = "hhqqixxxx"


async def test_no_lock_of_the_code_keeps_anybody_out_on_the_host(sandbox: Sandbox) -> None:
    path, free = readable(100), []

    async def locked(_: Mapping[str, object]) -> None:
        with Path(path).open("rb") as file:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            asked = fcntl.fcntl(file, fcntl.F_GETLK, struct.pack(FLOCK, fcntl.F_WRLCK, 0, 0, 0, 0))
            free.append(struct.unpack(FLOCK, asked)[0] == fcntl.F_UNLCK)

    outcome = await sandbox.run(Program(code=LOCKING.replace("PATH", repr(path))), tools={"locked": locked})
    assert outcome.ok, outcome.stderr
    assert free == [True]


CHAIN = """import os, time
for _ in range(6):
    if os.fork() == 0:
        os.setsid()
        for _ in range(30):
            if os.fork():
                os._exit(0)
        open("/proc/self/comm", "w").write("NAME")
        os.closerange(0, 256)
        time.sleep(2)
        os._exit(0)
"""
"""Each process of it has one child, and ends: whoever looks for the living may find only the dead."""


@pytest.mark.parametrize("kind", ["bubblewrap", "landlock", "unsafe-local"])
async def test_no_chain_of_processes_outlives_its_run_by_ending_faster_than_it_is_found(kind: str) -> None:
    box = load(kind)
    try:
        await box.start()
        for n in range(25):
            name = f"chain{n}{os.getpid()}"[:15]
            await box.run(Program(code=CHAIN.replace("NAME", name), limits=Limits(processes=250)))
            assert named(name) == []
    except SandboxError as error:
        pytest.skip(str(error))
    finally:
        await box.close()


async def test_a_report_counts_what_was_stopped_and_names_what_was_not(sandbox: Sandbox) -> None:
    report = await check(sandbox, QUICK)
    assert [verdict.attack.name for verdict in report.verdicts] == [attack.name for attack in QUICK]
    told = report.as_json()
    lacking = {"capabilities"} if "no_capabilities" in sandbox.level.lacks else set()
    assert {each["name"] for each in told["not_stopped"]} == lacking
    assert told["stopped"] + len(told["not_stopped"]) == told["total"]
    assert told["total"] + len(told["untried"]) == len(QUICK)
    assert told["level"]["name"] == sandbox.level.name


async def test_what_got_through_is_named_with_what_it_did() -> None:
    quick = [attack for attack in QUICK if attack.lifted is None]
    report = await check(NoWalls(), quick)
    assert report.stopped == 0
    why = {each["name"]: each["why"] for each in report.as_json()["not_stopped"]}
    assert why["TCP"] == "the host's listener heard it"
    assert why["home folder"] == "read what was hidden"
    assert why["signals"] == "a process of the host was ended"
    assert why["daemon"] == "1 of its processes run on"


async def test_a_probe_that_gets_through_nowhere_proves_nothing_and_counts_as_not_stopped() -> None:
    attack = Attack(name="none", tried="fails", category="files", probe="read", trap=own_word(paths=["/nowhere"]))
    report = await check(NoWalls(), [attack])
    assert (report.stopped, report.total) == (0, 1)
    assert report.as_json()["not_stopped"][0]["why"] == "it fails without walls, too: /nowhere: No such file or directory"


async def test_an_attack_that_not_even_root_may_try_here_is_untried_and_not_counted() -> None:
    attack = Attack(
        name="none", tried="fails", category="files", probe="read", trap=own_word(paths=["/nowhere"]), privileged=True
    )
    report = await check(NoWalls(), [attack])
    assert (report.stopped, report.total, len(report.untried)) == (0, 0, 1)


async def test_a_sandbox_that_runs_nothing_stops_nothing() -> None:
    class Broken(NoWalls):
        async def run(self, program: Program, *, tools: Mapping[str, Tool] | None = None) -> RunOutcome:
            return RunOutcome(level=NONE, exit_code=1, stderr="no python here")

    report = await check(Broken(), QUICK)
    assert report.stopped == 0
    assert report.as_json()["not_stopped"][0]["why"] == "the attack did not even start: exit code 1, no python here"


async def test_a_sandbox_that_never_comes_back_was_taken_along(monkeypatch: pytest.MonkeyPatch) -> None:
    class Stuck(NoWalls):
        async def run(self, program: Program, *, tools: Mapping[str, Tool] | None = None) -> RunOutcome:
            await asyncio.sleep(60)
            raise AssertionError

    monkeypatch.setattr("journeyman.sandbox.audit.LATE_SECONDS", 0.1)
    attack = replace(QUICK[0], limits=replace(QUICK[0].limits, wall_seconds=0.1))
    verdict = await judge(Stuck(), attack)
    assert (verdict.state, verdict.why) == ("through", "the sandbox did not come back in its time")


async def test_nothing_is_left_of_an_attack(sandbox: Sandbox) -> None:
    before = set(os.environ)
    await check(sandbox, QUICK)
    assert set(os.environ) == before


def test_what_a_probe_said_is_known_also_when_it_was_cut_short() -> None:
    said = '{"trying": "x"}\n{"reached": 3}\n{"reached": 7}\n[... 5 bytes left out ...]\n{"more": 2}\n{"rea'
    seen = AttackEvidence(outcome=RunOutcome(level=NONE, exit_code=None, stdout=said))
    assert seen.reached == 9
    assert seen.reported("trying") == ["x"]


def test_names_and_the_ends_of_sentences_tell_the_attacks_apart() -> None:
    assert len({attack.name for attack in ATTACKS}) == len(ATTACKS)
    assert len({attack.tried for attack in ATTACKS}) == len(ATTACKS)
    assert all(not attack.tried.endswith(".") and attack.tried[0].islower() for attack in ATTACKS)
    assert isinstance(Trap({}, lambda _: None).bait, dict)


def test_the_document_names_every_attack_and_every_default() -> None:
    document = (Path(__file__).parents[2] / "docs" / "sandbox.md").read_text()
    assert f"tries {len(ATTACKS)} ways out" in document
    for attack in ATTACKS:
        assert f"| {attack.name} | {attack.tried} |" in document
    for field in fields(Limits):
        value = getattr(Limits(), field.name)
        sizes = {f"{value:g}", f"{value // 1024:g}K", f"{value // 1024**2:g}M"}
        assert any(f"| `{field.name}` | {size} |" in document for size in sizes), field.name
