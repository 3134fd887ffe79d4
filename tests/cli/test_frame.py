import json
import os
import signal
import subprocess
import sys
import time
from datetime import UTC, datetime
from pathlib import Path

import click
import pytest
from click.testing import CliRunner

from journeyman import cli
from journeyman.cli import COMMANDS, main, root
from journeyman.cli.console import minute
from journeyman.cli.shared import emit, json_option
from journeyman.core.errors import InputError

HEAVY = {
    "alembic", "datasets", "faiss", "genai_prices", "httpx2", "numpy", "openai", "psycopg", "pydantic", "rich", "scipy",
    "sentence_transformers", "sqlalchemy", "torch", "transformers",
}  # fmt: skip


def python(code: str, cwd: Path) -> subprocess.CompletedProcess[str]:
    return subprocess.run([sys.executable, "-W", "error", "-c", code], cwd=cwd, capture_output=True, text=True, check=False)


@pytest.mark.parametrize("arguments", [["--help"], ["--version"], ["train", "playbook", "--help"], ["doctor", "--help"]])
def test_help_imports_nothing_heavy_and_leaves_nothing_behind(tmp_path: Path, arguments: list[str]) -> None:
    code = f"import sys, journeyman.cli as c; c.main({arguments!r}); print(*{{m.split('.')[0] for m in sys.modules}})"
    run = python(code, tmp_path)
    assert run.stderr == ""
    # The options of a training are made of the declaration of its settings, and the doctor knows the sandboxes.
    allowed = {"train": "pydantic", "doctor": "asyncio"}.get(arguments[0], "")
    assert not ((HEAVY | {"asyncio"}) - {allowed}) & set(run.stdout.splitlines()[-1].split())
    assert list(tmp_path.iterdir()) == []


@pytest.mark.service
@pytest.mark.parametrize("arguments", [["compare", "a", "a"], ["evaluate", "decisions", "--always", "x", "--log", "a"]])
def test_results_in_files_are_compared_without_torch(tmp_path: Path, arguments: list[str]) -> None:
    (tmp_path / "a").write_text("no row\n")
    code = f"import sys, journeyman.cli as c; print(c.main({arguments!r}), 'torch' in sys.modules)"
    run = python(code, tmp_path)
    assert run.stdout.split() == ["2", "False"], run.stderr


def test_importing_the_package_imports_nothing_heavy(tmp_path: Path) -> None:
    run = python("import sys, journeyman; print(*{m.split('.')[0] for m in sys.modules})", tmp_path)
    assert run.stderr == ""
    assert not (HEAVY | {"click"}) & set(run.stdout.split())


def test_the_help_lists_every_command_without_loading_one(tmp_path: Path) -> None:
    run = python("import sys, journeyman.cli as c; c.main(['--help']); print(*sys.modules)", tmp_path)
    assert all(f"  {name} " in run.stdout for name in COMMANDS)
    assert not {f"journeyman.cli.{name}" for name in COMMANDS} & set(run.stdout.splitlines()[-1].split())


def test_no_file_of_commands_imports_anything_heavy_before_its_command_is_called(tmp_path: Path) -> None:
    names = sorted(path.stem for path in Path(cli.__file__).parent.glob("[a-z]*.py"))
    imports = "; ".join(f"import journeyman.cli.{name}" for name in names)
    run = python(f"import sys; {imports}; print(*{{m.split('.')[0] for m in sys.modules}})", tmp_path)
    # What a router may be told is declared with its objective, which computes in arrays.
    assert not (HEAVY - {"numpy", "pydantic"}) & set(run.stdout.split())
    assert len(names) > 20


@pytest.mark.parametrize("name", COMMANDS)
def test_the_line_in_the_list_is_the_first_line_of_the_commands_own_help(name: str) -> None:
    command = root.get_command(click.Context(root), name)
    assert command is not None
    assert command.get_short_help_str(limit=200).rstrip(".") == COMMANDS[name].rstrip(".")


def fails(error: BaseException) -> click.Command:
    @click.command()
    def command() -> None:
        raise error

    return command


def given(monkeypatch: pytest.MonkeyPatch, command: click.Command) -> None:
    """A command of our own in the place of `doctor`."""
    module = type(sys)("journeyman.cli.doctor")
    vars(module)["command"] = command
    monkeypatch.setitem(sys.modules, "journeyman.cli.doctor", module)


def test_what_the_library_raises_is_one_line_on_stderr(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    given(monkeypatch, fails(InputError("rows.jsonl:3: no question; add one")))
    assert main(["doctor"]) == 2
    assert capsys.readouterr() == ("", "journeyman: rows.jsonl:3: no question; add one\n")


def test_an_error_of_ours_in_the_program_is_not_hidden(monkeypatch: pytest.MonkeyPatch) -> None:
    given(monkeypatch, fails(ZeroDivisionError()))
    with pytest.raises(ZeroDivisionError):
        main(["doctor"])


def test_an_interrupted_command_ends_with_130(monkeypatch: pytest.MonkeyPatch) -> None:
    given(monkeypatch, fails(KeyboardInterrupt()))
    assert main(["doctor"]) == 130


@pytest.mark.parametrize("code", [0, 1])
def test_a_command_says_its_own_exit_code(monkeypatch: pytest.MonkeyPatch, code: int) -> None:
    @click.command()
    @click.pass_context
    def command(ctx: click.Context) -> None:
        ctx.exit(code)

    given(monkeypatch, command)
    assert main(["doctor"]) == code


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["trian"], "No such command 'trian'. Did you mean 'train'?"),
        (["doctor", "--jsn"], "No such option '--jsn'"),
        (["doctor", "extra"], "unexpected extra argument (extra)"),
    ],
)
def test_a_wrong_call_ends_with_2_and_says_why(arguments: list[str], message: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(arguments) == 2
    assert message in capsys.readouterr().err


def test_options_may_be_written_with_underscores(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    @click.command()
    @click.option("--num-examples", type=int)
    @click.option("--split", type=click.Choice(["train", "held_out"]))
    @json_option
    def command(num_examples: int, split: str, as_json: bool) -> None:
        emit({"examples": num_examples, "split": split}, as_json=as_json)

    given(monkeypatch, command)
    for option, split in [("--num_examples", "held_out"), ("--num-examples", "held-out")]:
        assert main(["doctor", option, "3", "--split", split, "--json"]) == 0
        assert json.loads(capsys.readouterr().out) == {"examples": 3, "split": "held_out"}


def test_json_is_one_line_and_only_where_it_is_asked_for(capsys: pytest.CaptureFixture[str]) -> None:
    emit({"a": "ü\n", "path": Path("x")}, as_json=True)
    emit({"b": 1}, as_json=False)
    assert capsys.readouterr().out == '{"a": "\\u00fc\\n", "path": "x"}\n'


def test_python_dash_m_is_the_same_program(tmp_path: Path) -> None:
    run = subprocess.run(
        [sys.executable, "-m", "journeyman", "--version"], cwd=tmp_path, capture_output=True, text=True, check=True
    )
    assert run.stdout.startswith("journeyman ")


_AT_ITS_END = """
import atexit, sys, threading, time
{before}
import journeyman.cli
from journeyman.__main__ import program

class Torn:
    def __del__(self):
        print("torn down")

def command():
    atexit.register(print, "registered")
    threading.Thread(target=lambda: (time.sleep(0.2), print("a thread's word"))).start()
    print("a command's word")
    return 3

torn = Torn()
journeyman.cli.main = command
sys.exit(program())
"""


def test_a_program_that_ends_does_all_that_is_left_to_do_and_takes_nothing_apart(tmp_path: Path) -> None:
    run = python(_AT_ITS_END.format(before=""), tmp_path)
    assert (run.returncode, run.stderr) == (3, "")
    assert run.stdout.splitlines() == ["a command's word", "a thread's word", "registered"]


def test_what_somebody_else_wanted_done_at_the_end_is_done(tmp_path: Path) -> None:
    """Such as what measures how much of the code was run."""
    run = python(_AT_ITS_END.format(before="atexit.register(print, 'measured')"), tmp_path)
    assert (run.returncode, run.stderr) == (3, "")
    assert run.stdout.splitlines() == ["a command's word", "a thread's word", "registered", "measured", "torn down"]


def test_the_runner_of_click_can_be_used_on_the_whole_program() -> None:
    assert CliRunner().invoke(root, ["--help"]).exit_code == 0
    assert Path(cli.__file__).name == "__init__.py"


@pytest.mark.skipif(os.name != "posix", reason="pipes and signals of POSIX")
@pytest.mark.parametrize(
    # Click takes ASCII for what a terminal says that does not know itself, and writes UTF-8.
    ("encoding", "written"),
    [("ascii", "98→3 Köln"), ("latin-1", "98->3 Köln"), ("utf-8", "98→3 Köln")],
)
def test_what_a_terminal_cannot_write_ends_no_command(tmp_path: Path, encoding: str, written: str) -> None:
    code = "from journeyman.cli.console import speak_plainly, table, Column, say; speak_plainly(); say('Köln → …'); "
    code += "table([Column(name='a', words=True)], [['98→3 Köln']])"
    run = subprocess.run(
        [sys.executable, "-c", code],
        cwd=tmp_path,
        capture_output=True,
        check=False,
        env={**os.environ, "PYTHONIOENCODING": encoding},
    )
    assert run.returncode == 0, run.stderr
    assert written in run.stdout.decode("utf-8" if encoding == "ascii" else encoding)


@pytest.mark.parametrize(
    ("zone", "said"),
    [("UTC", "2026-03-05 12:00"), ("Asia/Kolkata", "2026-03-05 17:30+05:30"), ("America/Lima", "2026-03-05 07:00-05:00")],
)
def test_a_time_that_is_not_in_utc_says_how_far_from_it(zone: str, said: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TZ", zone)
    time.tzset()
    try:
        assert minute(datetime(2026, 3, 5, 12, tzinfo=UTC)) == said
    finally:
        monkeypatch.undo()
        time.tzset()


def test_a_reader_that_goes_away_gets_no_complaint(tmp_path: Path) -> None:
    run = subprocess.run(
        ["bash", "-c", f"'{sys.executable}' -W error -m journeyman --help | true"],
        cwd=tmp_path,
        capture_output=True,
        check=True,
    )
    assert run.stderr == b""


@pytest.mark.skipif(os.name != "posix", reason="pipes and signals of POSIX")
def test_control_c_ends_a_command_with_130(tmp_path: Path) -> None:
    code = (
        "import sys, types, time, click, journeyman.cli as c\n"
        "@click.command()\ndef command():\n    print('here', flush=True)\n    time.sleep(60)\n"
        "module = types.ModuleType('journeyman.cli.doctor'); module.command = command\n"
        "sys.modules['journeyman.cli.doctor'] = module\nsys.exit(c.main(['doctor']))"
    )
    with subprocess.Popen([sys.executable, "-c", code], cwd=tmp_path, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as run:
        assert run.stdout is not None
        assert run.stdout.readline() == b"here\n"
        time.sleep(0.1)
        run.send_signal(signal.SIGINT)
        _, errors = run.communicate(timeout=30)
    assert run.returncode == 130
    assert b"Traceback" not in errors
