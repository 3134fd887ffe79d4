"""What a newcomer runs into in the first hour: each is one clear sentence, or works."""

import csv
import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from journeyman.cli import main
from journeyman.core.errors import ModelError
from journeyman.experiments.settings import UpstreamSettings, load
from journeyman.models import know_prices, parse, pricing
from journeyman.serving.gateway.upstreams import resolve


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    for name in ("OPENAI_API_KEY", "OPENAI_BASE_URL", "COLUMNS"):
        monkeypatch.delenv(name, raising=False)
    return tmp_path


def questions(rows: int, path: str = "mine.csv") -> str:
    with Path(path).open("w", newline="", encoding="utf-8") as file:
        csv.writer(file).writerows([("input", "target"), *((f"{n} + 1?", n + 1) for n in range(rows))])
    return path


def train(*arguments: str, model: str = "scripted:4") -> int:
    return main(["train", "playbook", "--model", model, *arguments])


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--model", "openai:mine@localhost:8000/v1"], "'localhost:8000/v1' is no address of a server: write it with http://"),
        (["--model", "mine@10.0.0.7:8000"], "'10.0.0.7:8000' is no address of a server"),
        (["--model", "openai:mine", "--base-url", "localhost:8000/v1"], "as in http://localhost:8000/v1"),
        (["--model", "tiny"], "'tiny' is a size of the embedded model, which is embedded:base"),
        (["--model", "embedded:huge"], "no embedded model 'huge'; there are: base"),
    ],
)
def test_a_model_that_is_named_wrongly_is_found_by_a_dry_run(
    capsys: pytest.CaptureFixture[str], arguments: list[str], message: str
) -> None:
    assert main(["train", "playbook", questions(60), "--dry-run", *arguments]) == 2
    assert message in capsys.readouterr().err


def test_an_at_in_a_models_own_name_is_no_server() -> None:
    assert parse("openai:@cf/meta/llama-3").rest == "@cf/meta/llama-3"
    assert parse("openai:claude@20240229").rest == "claude@20240229"
    assert parse("openai:mine@v1.2").rest == "mine@v1.2"


def test_a_dry_run_prices_without_a_key_and_says_that_there_is_none(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["train", "playbook", questions(60), "--model", "openai:gpt-5-mini", "--dry-run"]) == 0
    told = capsys.readouterr()
    assert "In all about $" in told.out
    assert "before it can run: openai:gpt-5-mini needs a key" in told.err


def test_a_file_of_ones_own_needs_no_option_and_is_told_what_it_can_show(capsys: pytest.CaptureFixture[str]) -> None:
    assert train(questions(60), "--dry-run") == 0
    err = capsys.readouterr().err
    assert "60 tasks: 25 to learn from, 5 kept to choose by, 30 held out" in err or "30 held out" in err
    assert "30 held-out tasks show a gain of +" in err
    assert train(questions(12), "--dry-run") == 0
    assert "and the gate needs 30: nothing can pass" in capsys.readouterr().err


def test_fewer_examples_than_were_asked_for_are_not_passed_over(capsys: pytest.CaptureFixture[str]) -> None:
    assert train(questions(160), "--num-examples", "120", "--dry-run") == 0
    err = capsys.readouterr().err
    assert "--num-examples 120: " in err
    assert "are all there are, as the others are kept apart to prove it on" in err


def test_two_files_are_one_too_many(capsys: pytest.CaptureFixture[str]) -> None:
    assert train(questions(60), "--input", "other.csv", "--dry-run") == 2
    assert "two files are named, mine.csv and other.csv" in capsys.readouterr().err


def test_columns_are_said_by_options_and_those_seen_are_named(capsys: pytest.CaptureFixture[str]) -> None:
    Path("mails.csv").write_text("body,team\n" + "".join(f"mail {n},{n % 3}\n" for n in range(60)))
    assert train("mails.csv", "--dry-run") == 2
    assert "--question COLUMN (there are the columns body, team)" in capsys.readouterr().err
    assert train("mails.csv", "--question", "body", "--answer", "team", "--dry-run") == 0
    assert main(["evaluate", "power", "--input", "mails.csv", "--question", "body", "--answer", "team"]) == 0


def test_a_model_of_ones_own_has_the_price_that_the_project_says(capsys: pytest.CaptureFixture[str]) -> None:
    Path("journeyman.toml").write_text(
        '[prices."openai:mine@http://127.0.0.1:9/v1"]\ninput = 2.0\noutput = 8.0\ncached = 0.5\n'
    )
    try:
        assert train(questions(60), "--dry-run", "--json", model="openai:mine@http://127.0.0.1:9/v1") == 0
        told = json.loads(capsys.readouterr().out.splitlines()[-1])
        assert told["cost"] > 0
        assert "nobody listens at http://127.0.0.1:9/v1" in told["hindrances"][0]
        assert pricing.cost("http://127.0.0.1:9/v1", "mine", 1_000_000, 500_000, 200_000) == pytest.approx(1.6 + 0.1 + 4.0)
        assert pricing.cost("http://elsewhere:9/v1", "mine", 1, 1) is None
    finally:
        know_prices({})


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ('[prices."openai:mine"]\ninput = -1\noutput = 1\n', "prices.openai:mine.input is -1"),
        ('[prices."openai:mine"]\ninput = 1\n', "output must be given"),
        ('[prices."lmstudio:mine"]\ninput = 1\noutput = 1\n', "no model client 'lmstudio'"),
        ('[prices."openai:mine"]\ninptu = 1\noutput = 1\n', "did you mean"),
    ],
)
def test_a_price_that_cannot_be_is_refused_with_its_line(capsys: pytest.CaptureFixture[str], text: str, message: str) -> None:
    Path("journeyman.toml").write_text(text)
    assert main(["settings"]) == 2
    err = capsys.readouterr().err
    assert message in err
    assert "journeyman.toml:" in err


def test_a_commented_file_is_begun_with_one_word(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["init"]) == 0
    assert load().settings == load(Path("/")).settings
    assert "# [prices.NAME]" in Path("journeyman.toml").read_text()
    assert main(["init"]) == 2
    assert "is there already, and is left as it is" in capsys.readouterr().err


def test_a_curve_is_found_from_elsewhere_by_the_folder_of_its_run(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("JOURNEYMAN_STORE", str(tmp_path / "mine.db"))
    assert train(questions(60), "--no-evaluate") == 0
    (run,) = (tmp_path / ".journeyman" / "runs").iterdir()
    monkeypatch.delenv("JOURNEYMAN_STORE")
    (tmp_path / "elsewhere").mkdir()
    monkeypatch.chdir(tmp_path / "elsewhere")
    capsys.readouterr()
    assert main(["curve", str(run)]) == 0
    assert f"run {run.name}" in capsys.readouterr().out
    (run / "store.url").unlink()
    assert main(["curve", str(run)]) == 2
    assert "name it in JOURNEYMAN_STORE" in capsys.readouterr().err


def test_the_baseline_of_a_run_that_goes_on_is_the_playbook_it_began_with(capsys: pytest.CaptureFixture[str]) -> None:
    bullet = {"id": "general-00001", "section": "strategies", "content": "Add the two numbers.", "domain": "general"}
    Path("old.json").write_text(json.dumps({"bullets": [bullet]}))
    assert train(questions(60), "--initial-playbook", "old.json") == 0
    out = capsys.readouterr().out
    assert "with the playbook it began with" in out
    assert "without the playbook" not in out


@pytest.mark.service
@pytest.mark.parametrize("module", ["click", "journeyman.cli.console", "journeyman.cli.doctor", "journeyman.models"])
def test_ctrl_c_while_everything_is_loaded_ends_without_a_traceback(module: str) -> None:
    program = f"""
import os, signal, sys
class Interrupt:
    def find_spec(self, name, path=None, target=None):
        if name == {module!r}:
            os.kill(os.getpid(), signal.SIGINT)
sys.meta_path.insert(0, Interrupt())
from journeyman.__main__ import main
sys.exit(main())
"""
    done = subprocess.run([sys.executable, "-c", program, "doctor"], capture_output=True, text=True, timeout=60)
    assert "Traceback" not in done.stderr
    assert done.returncode in (130, -signal.SIGINT)


def test_the_split_of_an_examination_has_one_spelling_in_the_help(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["evaluate", "--help"]) == 0
    assert "--split [held-out|test]" in capsys.readouterr().out
    for split in ("held_out", "held-out"):
        assert main(["evaluate", "--split", split, "--playbook", "missing.json"]) == 2
        assert "missing.json is not there" in capsys.readouterr().err


def test_an_upstream_that_was_typed_without_a_name_has_none_in_a_sentence() -> None:
    (typed,) = resolve({}, ["http://127.0.0.1:1/v1"])
    assert typed.spoken == "the upstream"
    (named,) = resolve({"mine": UpstreamSettings(base_url="http://127.0.0.1:1/v1")})
    assert named.spoken == "the upstream mine"


def chat(*lines: object) -> str:
    Path("chat.jsonl").write_text("".join(json.dumps({"messages": line}) + "\n" for line in lines))
    return "chat.jsonl"


def booked(answer: str) -> list[dict[str, object]]:
    call = {"id": "1", "type": "function", "function": {"name": "book", "arguments": "{}"}}
    return [
        {"role": "user", "content": f"A table for two, please: {answer}"},
        {"role": "assistant", "content": "", "tool_calls": [call]},
        {"role": "tool", "tool_call_id": "1", "content": answer},
        {"role": "assistant", "content": "Done, or not."},
    ]


def test_a_tool_whose_answer_is_an_error_has_failed_wherever_it_was_recorded(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["collect", chat(booked("Error: no date"), booked('{"ok": true}'), booked('{"error": "full"}'))]) == 0
    capsys.readouterr()
    assert main(["traces", "stats", "--json"]) == 0
    told = json.loads(capsys.readouterr().out.splitlines()[-1])
    assert (told["all"]["failed_tool_calls"], told["all"]["tool_calls"]) == (2, 3)


def test_statistics_say_what_they_do_not_know_and_of_how_many_they_speak(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["collect", chat(booked("fine"), booked("well"))]) == 0
    capsys.readouterr()
    assert main(["traces", "stats", "--json"]) == 0
    told = json.loads(capsys.readouterr().out.splitlines()[-1])["all"]
    assert (told["traces"], told["timed"], told["median_seconds"]) == (2, 0, None)
    assert main(["traces", "stats"]) == 0
    assert "$0" not in capsys.readouterr().out


def test_a_list_that_is_piped_has_whole_ids_and_what_the_user_said(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["collect", chat(booked("fine"))]) == 0
    capsys.readouterr()
    assert main(["traces", "list"]) == 0
    out = capsys.readouterr().out
    assert main(["traces", "list", "--json"]) == 0
    (trace,) = json.loads(capsys.readouterr().out.splitlines()[-1])["traces"]
    assert trace["id"] in out
    assert "A table for two, please: fine" in out
    assert main(["traces", "tail", "--for", "0"]) == 0
    (line,) = capsys.readouterr().out.splitlines()
    assert trace["id"] in line
    assert "A table for two, please: fine" in line


@pytest.mark.service
def test_a_trace_that_comes_while_one_looks_is_shown_once(tmp_path: Path) -> None:
    assert main(["collect", chat(booked("fine"))]) == 0
    command = [sys.executable, "-m", "journeyman", "traces", "tail", "--every", "0.1"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env={**os.environ, "PYTHONUNBUFFERED": "1"}) as tail:
        assert tail.stdout is not None
        assert "please: fine" in tail.stdout.readline()
        assert main(["collect", chat(booked("fine"), booked("more"))]) == 0
        assert "please: more" in tail.stdout.readline()
        tail.send_signal(signal.SIGINT)
        assert tail.stdout.read() == ""
        assert tail.wait(30) == 0


@pytest.mark.service
@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_a_shell_is_told_what_can_be_typed(capsys: pytest.CaptureFixture[str], shell: str) -> None:
    assert main(["completion", shell]) == 0
    assert "_JOURNEYMAN_COMPLETE" in capsys.readouterr().out
    words = {"COMP_WORDS": "journeyman tra", "COMP_CWORD": "1"}
    env = {**os.environ, **words, "_JOURNEYMAN_COMPLETE": f"{shell}_complete"}
    if shell == "fish":
        env["COMP_CWORD"] = "tra"
    program = "from journeyman.cli import root; root(prog_name='journeyman')"
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, env=env, timeout=60)
    assert {"train", "traces"} <= set(done.stdout.replace(",", "\n").replace("\t", "\n").split("\n"))


def test_a_size_alone_says_how_each_of_the_two_is_written() -> None:
    with pytest.raises(ModelError, match="one of OpenAI's would be openai:base"):
        parse("base")
