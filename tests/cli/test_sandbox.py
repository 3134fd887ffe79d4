import json
import os
import re
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from journeyman.cli import doctor, main
from journeyman.cli.sandbox import carried, ending, exit_code, language_of, limits_of
from journeyman.core.errors import InputError
from journeyman.sandbox import bubblewrap
from journeyman.sandbox.base import MIB, Level, Limits, RunOutcome
from journeyman.sandbox.supervised import missing

pytestmark = pytest.mark.service

bubblewrapped = pytest.mark.skipif(not bubblewrap.installed(), reason="bubblewrap is not installed")


def file(folder: Path, code: str, name: str = "main.py") -> str:
    path = folder / name
    path.write_text(code)
    return str(path)


def without_bubblewrap(monkeypatch: pytest.MonkeyPatch, tmp_path: Path, *, program: str | None = None) -> None:
    """A machine where it is missing, or is this program."""
    if program is not None:
        (tmp_path / "bwrap").write_text(program)
        (tmp_path / "bwrap").chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path))


@bubblewrapped
def test_a_file_is_run_behind_walls_and_its_exit_code_is_ours(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    code = "import os, sys; print('here', sys.argv[1]); print('there', file=sys.stderr); print(os.listdir('.')); sys.exit(3)"
    (tmp_path / "data").mkdir()
    (tmp_path / "data" / "x.txt").write_text("x")
    arguments = ["sandbox", "run", file(tmp_path, code), "one", "--files", str(tmp_path / "data")]
    assert main(arguments) == 3
    told = capfd.readouterr()
    assert told.out.startswith("here one\n")
    assert "'data'" in told.out
    assert told.err == "there\n"


@bubblewrapped
def test_a_limit_that_was_hit_is_exit_code_124_and_named(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    path = file(tmp_path, "print('begun', flush=True)\nwhile True: pass")
    assert main(["sandbox", "run", path, "--limit", "cpu_seconds=0.2", "--json"]) == 124
    told = json.loads(capfd.readouterr().out.splitlines()[-1])
    assert (told["limit"], told["exit_code"], told["signal"], told["stdout"]) == ("cpu", None, "SIGKILL", "begun\n")
    assert told["level"]["name"] == "bubblewrap"
    assert main(["sandbox", "run", path, "--limit", "wall-seconds=0.2"]) == 124
    assert capfd.readouterr() == ("begun\n", "journeyman: stopped by the limit on wall; --limit wall_seconds=… sets it\n")


OBEYED = "\x1b]0;title\x07\x1b[2J\x1b[31mred\x9b31m\x08\u202e"
"""What a terminal would obey: its title, an empty screen, colours, going back, writing from right to left."""


def test_what_code_prints_is_shown_and_no_terminal_obeys_it(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    path = file(tmp_path, f"import sys\nprint({OBEYED!r})\nprint({OBEYED!r}, file=sys.stderr)\nprint('a\\tb\\nc')\n")
    assert main(["sandbox", "run", path, "--unsafe-local"]) == 0
    told = capfd.readouterr()
    for said in told:
        assert not set(said) & {"\x1b", "\x07", "\x08", "\x9b", "\u202e"}
        assert "\\x1b[31mred\\x9b31m\\x08\\x202e\n" in said
    assert told.out.endswith("a\tb\nc\n")
    assert main(["sandbox", "run", path, "--unsafe-local", "--json"]) == 0
    assert json.loads(capfd.readouterr().out.splitlines()[-1])["stdout"].startswith(OBEYED)


@bubblewrapped
def test_stdin_is_handed_through(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "given").write_text("what was given")
    path = file(tmp_path, 'read line; echo "$line"', "main.sh")
    assert main(["sandbox", "run", path, "--stdin", str(tmp_path / "given")]) == 0
    assert capfd.readouterr().out == "what was given\n"


def test_code_without_walls_runs_only_where_it_was_asked_for_and_with_a_warning(
    tmp_path: Path, capfd: pytest.CaptureFixture[str], caplog: pytest.LogCaptureFixture
) -> None:
    secret = tmp_path / "secret"
    secret.write_text("mine")
    path = file(tmp_path, f"print(open({str(secret)!r}).read())")
    assert main(["sandbox", "run", path, "--unsafe-local"]) == 0
    assert capfd.readouterr().out == "mine\n"
    assert "no walls" in caplog.text


def test_where_bubblewrap_is_missing_the_command_that_installs_it_is_said(
    tmp_path: Path, capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    path = file(tmp_path, "print('ran')")
    without_bubblewrap(monkeypatch, tmp_path)
    assert main(["sandbox", "run", path]) == 2
    told = capfd.readouterr()
    assert told.out == ""
    assert "install bubblewrap" in told.err or "pacman -S bubblewrap" in told.err or "apk add bubblewrap" in told.err


@pytest.mark.skipif(missing() is not None, reason="this kernel has no Landlock")
def test_where_bubblewrap_may_not_run_landlock_does_and_says_so(
    tmp_path: Path, capfd: pytest.CaptureFixture[str], caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = file(tmp_path, "print('ran')")
    without_bubblewrap(monkeypatch, tmp_path, program="#!/bin/sh\necho 'No permissions: Operation not permitted' >&2\nexit 1\n")
    assert main(["sandbox", "run", path, "--json"]) == 0
    told = capfd.readouterr()
    assert json.loads(told.out.splitlines()[-1])["level"]["name"] == "landlock"
    assert "bubblewrap cannot run here, so landlock is used: " in caplog.text


def test_a_check_without_walls_says_no_and_what_got_through(capfd: pytest.CaptureFixture[str]) -> None:
    arguments = ["sandbox", "check", "--sandbox", "unsafe-local", "--only", "TCP", "--only", "home folder"]
    assert main([*arguments, "--json"]) == 1
    told = json.loads(capfd.readouterr().out.splitlines()[-1])
    assert (told["stopped"], told["total"]) == (0, 2)
    assert told["not_stopped"][0] == {
        "name": "TCP",
        "tried": "connects to a server on the host's loopback",
        "why": "the host's listener heard it",
    }
    assert main(arguments) == 1
    out = capfd.readouterr().out
    assert "got through" in out
    assert "why" in out
    assert out.endswith("Attacks that were stopped: 0 of 2.\n")


@bubblewrapped
def test_a_check_of_walls_says_yes(capfd: pytest.CaptureFixture[str]) -> None:
    assert main(["sandbox", "check", "--only", "TCP", "--only", "home folder"]) == 0
    out = capfd.readouterr().out
    assert out.endswith("Attacks that were stopped: 2 of 2.\n")
    assert "why" not in out


def test_an_attack_that_there_is_not_is_told_with_those_there_are(capfd: pytest.CaptureFixture[str]) -> None:
    assert main(["sandbox", "check", "--only", "telepathy"]) == 2
    assert "--only telepathy: there are fork bomb, thread bomb" in capfd.readouterr().err


def test_a_sandbox_that_nobody_knows_is_named_with_those_there_are(capfd: pytest.CaptureFixture[str]) -> None:
    assert main(["sandbox", "check", "--sandbox", "docker"]) == 2
    assert "no sandbox 'docker'; there are auto, bubblewrap, landlock, unsafe-local" in capfd.readouterr().err


def test_an_address_without_its_scheme_is_told_how_one_begins(capfd: pytest.CaptureFixture[str]) -> None:
    assert main(["sandbox", "check", "--sandbox", "localhost:8012"]) == 2
    assert "no sandbox 'localhost:8012': the address of a service begins with http://; there are" in capfd.readouterr().err


@pytest.mark.parametrize(
    ("given", "told"),
    [
        ("ram=5", "--limit ram=5: should be NAME=VALUE with one of cpu_seconds, wall_seconds, memory"),
        ("memory", "'' is no size such as 256M"),
        ("memory=", "'' is no size such as 256M"),
        ("memory=4GG", "--limit memory=4GG: '4GG' is no size such as 256M"),
        ("memory=-1", "'-1' is no size"),
        ("disk=inf", "'inf' is no size"),
        ("output=nan", "'nan' is no size"),
        ("cpu_seconds=0", "'0' is no number of seconds such as 2.5"),
        ("processes=many", "'many' is no number such as 64"),
    ],
)
def test_a_limit_that_cannot_be_meant_is_told_what_could_be(given: str, told: str) -> None:
    with pytest.raises(InputError, match=re.escape(told)):
        limits_of([given])


def test_sizes_may_have_units() -> None:
    assert limits_of(["memory=64M", "disk=1g", "wall-seconds=1.5", "processes=7"]) == Limits(
        memory=64 * MIB, disk=1024 * MIB, wall_seconds=1.5, processes=7
    )


@pytest.mark.parametrize(
    ("name", "language"),
    [
        ("a.py", "python"),
        ("test_a.py", "pytest"),
        ("a_test.py", "pytest"),
        ("a.sh", "shell"),
        ("a.js", "javascript"),
        ("a.mjs", "javascript"),
    ],
)
def test_a_language_is_known_by_the_name_of_the_file(name: str, language: str) -> None:
    assert language_of(Path(name)) == language


def test_a_file_of_an_unknown_language_is_told_what_to_say() -> None:
    with pytest.raises(InputError, match=r"a\.rb: no language has such names; say --language, one of python"):
        language_of(Path("a.rb"))


def test_a_file_that_is_no_text_is_told_where(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "a.py").write_bytes(b"print(1)\n\xff")
    assert main(["sandbox", "run", str(tmp_path / "a.py")]) == 2
    assert "not a text in UTF-8" in capfd.readouterr().err


def test_folders_are_carried_with_all_that_is_in_them_but_no_links(tmp_path: Path) -> None:
    (tmp_path / "data" / "deep").mkdir(parents=True)
    (tmp_path / "data" / "deep" / "x").write_bytes(b"x")
    (tmp_path / "data" / "link").symlink_to("/etc/passwd")
    os.mkfifo(tmp_path / "data" / "fifo")
    (tmp_path / "one").write_bytes(b"1")
    assert carried([tmp_path / "data", tmp_path / "one"]) == {"data/deep/x": b"x", "one": b"1"}


@pytest.mark.parametrize(
    ("outcome", "code"),
    [
        (RunOutcome(level=Level("none"), exit_code=0), 0),
        (RunOutcome(level=Level("none"), exit_code=7), 7),
        (RunOutcome(level=Level("none"), exit_code=0, limit="output"), 0),
        (RunOutcome(level=Level("none"), exit_code=1, limit="memory"), 124),
        (RunOutcome(level=Level("none"), exit_code=None, signal="SIGKILL", limit="wall"), 124),
        (RunOutcome(level=Level("none"), exit_code=None, signal="SIGSEGV"), 139),
    ],
)
def test_the_exit_code_says_how_it_ended(outcome: RunOutcome, code: int) -> None:
    assert exit_code(outcome) == code


@pytest.mark.parametrize(
    ("outcome", "said"),
    [
        (RunOutcome(level=Level("none"), exit_code=7), None),
        (RunOutcome(level=Level("none"), exit_code=None, signal="SIGKILL"), "ended by SIGKILL"),
        (RunOutcome(level=Level("none"), exit_code=0, limit="output"), "the limit on output was met; --limit output=… sets it"),
        (
            RunOutcome(level=Level("none"), exit_code=None, signal="SIGKILL", limit="cpu"),
            "stopped by the limit on cpu; --limit cpu_seconds=… sets it",
        ),
    ],
)
def test_an_end_that_the_exit_code_does_not_tell_is_said(outcome: RunOutcome, said: str | None) -> None:
    assert ending(outcome) == said


def test_an_interrupt_says_that_the_output_is_lost(tmp_path: Path) -> None:
    begun = tmp_path / "begun"
    path = file(tmp_path, f"open({str(begun)!r}, 'w').close()\nimport time; time.sleep(15)")
    command = [sys.executable, "-m", "journeyman", "sandbox", "run", path, "--unsafe-local"]
    with subprocess.Popen(command, stderr=subprocess.PIPE, text=True) as process:
        for _ in range(200):
            if begun.exists():
                break
            time.sleep(0.05)
        process.send_signal(signal.SIGINT)
        _, err = process.communicate(timeout=10)
    assert process.returncode == 130
    assert "journeyman: interrupted; what the code has printed so far is not shown" in err


@bubblewrapped
def test_the_doctor_says_which_sandbox_works_and_which_walls_hold() -> None:
    found = {check.name: check for check in doctor.examine_sandboxes()}
    assert found["bubblewrap"].state == "ok"
    assert "no_network" in found["bubblewrap"].detail
    assert found["used"].detail == "bubblewrap"
    assert "python" in found["languages"].detail
    assert all(check.works for check in found.values())


def test_the_doctor_says_what_to_type_where_bubblewrap_is_missing(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    without_bubblewrap(monkeypatch, tmp_path)
    found = {check.name: check for check in doctor.examine_sandboxes()}
    assert found["bubblewrap"].state == "missing"
    assert "bubblewrap is not installed: " in found["bubblewrap"].detail
    assert found["used"].state == "missing"


def test_the_doctor_says_why_bubblewrap_does_not_start(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    without_bubblewrap(monkeypatch, tmp_path, program="#!/bin/sh\necho 'No permissions: Operation not permitted' >&2\nexit 1\n")
    found = {check.name: check for check in doctor.examine_sandboxes()}
    assert found["bubblewrap"].state == "broken"
    assert "ermitted" in found["bubblewrap"].detail
    if missing() is None:
        assert found["used"].detail == "landlock, the second choice"
        assert found["disk_limit"].mend.startswith("bubblewrap")
