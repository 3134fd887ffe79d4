import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("jinja2", reason="needs the extra: pip install 'journeyman[gguf]'")

from openai import OpenAI

from journeyman.cli import main
from journeyman.core.candidate import Candidate, Kind, ServedModel
from journeyman.io.files import sha256
from journeyman.optimizers.weights.adapters import digest
from journeyman.stores import open_store
from journeyman.stores.rollouts import open_rollouts
from tests.support import ollama
from tests.support.ggufs import gguf
from tests.support.llama_servers import llama_server
from tests.support.processes import is_alive

pytestmark = pytest.mark.service


@pytest.fixture(autouse=True)
def project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A project with one run that was exported, and is not proven."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("OLLAMA_HOST", raising=False)
    run = tmp_path / ".journeyman" / "runs" / "weights-grpo-oslo"
    for folder in (run / "adapter", run / "gguf"):
        folder.mkdir(parents=True)
    (run / "run.json").write_text("{}")
    (run / "adapter" / "adapter_config.json").write_text("{}")
    (run / "adapter" / "adapter_model.safetensors").write_bytes(b"weights")
    gguf(run / "gguf" / "weights-grpo-oslo-Q4_K_M.gguf")
    return run


@pytest.fixture
def server(tmp_path: Path) -> Iterator[ollama.Ollama]:
    with ollama.serving(tmp_path / "blobs") as state:
        yield state


def proven(run: Path, *, passed: bool, reason: str = "better by 40 points") -> None:
    (run / "result.json").write_text(json.dumps({"passed": passed, "reason": reason}))


def last_line(text: str) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(text.splitlines()[-1])
    return found


def deployments(run: Path) -> list[dict[str, Any]]:
    path = run / "deployments.jsonl"
    return [json.loads(line) for line in path.read_text().splitlines()] if path.exists() else []


def test_what_passed_its_gate_becomes_a_model_of_ollama(
    project: Path, server: ollama.Ollama, capsys: pytest.CaptureFixture[str]
) -> None:
    proven(project, passed=True)
    assert main(["deploy", "ollama", "weights-grpo-oslo", "--name", "agent", "--host", server.url, "--json"]) == 0
    told = capsys.readouterr()
    result = last_line(told.out)
    assert (result["name"], result["reply"], result["uploaded"]) == ("agent", "Hello!", True)
    assert result["digest"] == f"sha256:{server.blobs[0]}"
    assert "agent:latest" in server.models
    assert "ollama run agent" in told.err
    assert [(line["name"], line["forced"], line["passed"]) for line in deployments(project)] == [("agent", False, True)]


def test_what_did_not_pass_is_not_deployed_and_says_how(
    project: Path, server: ollama.Ollama, capsys: pytest.CaptureFixture[str]
) -> None:
    proven(project, passed=False, reason="0 points better, 95% -3 to +3")
    assert main(["deploy", "ollama", "weights-grpo-oslo", "--host", server.url, "--json"]) == 1
    told = capsys.readouterr()
    assert last_line(told.out) == {"deployed": False, "passed": False, "reason": "0 points better, 95% -3 to +3"}
    assert "--force" in told.err
    assert server.asked == []
    assert deployments(project) == []


def test_force_deploys_and_is_written_down(project: Path, server: ollama.Ollama) -> None:
    assert main(["deploy", "ollama", "weights-grpo-oslo", "--host", server.url, "--force"]) == 0
    written = deployments(project)[0]
    assert (written["forced"], written["passed"]) == (True, False)
    assert "not proven" in written["reason"]


def test_a_dry_run_prints_the_modelfile_and_asks_nobody(
    project: Path, server: ollama.Ollama, capsys: pytest.CaptureFixture[str]
) -> None:
    proven(project, passed=True)
    arguments = ["deploy", "ollama", "weights-grpo-oslo", "--name", "agent", "--host", server.url, "--dry-run"]
    assert main([*arguments, "--system", "Be brief.", "--num-ctx", "512", "--num-parallel", "1"]) == 0
    told = capsys.readouterr()
    assert told.out.startswith("FROM ./weights-grpo-oslo-Q4_K_M.gguf\nTEMPLATE ")
    assert 'SYSTEM """Be brief."""' in told.out
    assert "PARAMETER num_ctx 512\n" in told.out
    assert "sha256:" in told.err
    assert "num_ctx 512: as asked" in told.err
    assert server.asked == []
    assert main([*arguments, "--json"]) == 0
    assert last_line(capsys.readouterr().out)["request"]["model"] == "agent"


def test_another_machine_is_not_told_the_threads_of_this_one(project: Path, capsys: pytest.CaptureFixture[str]) -> None:
    proven(project, passed=True)
    arguments = ["deploy", "ollama", "weights-grpo-oslo", "--dry-run", "--num-ctx", "1024"]
    assert main([*arguments, "--host", "gpu-box"]) == 0
    there = capsys.readouterr().out
    assert main([*arguments, "--host", "127.0.0.1"]) == 0
    assert "PARAMETER num_ctx 1024\n" in there
    assert "num_thread" not in there
    assert "num_thread" in capsys.readouterr().out


def test_a_dry_run_of_what_did_not_pass_shows_it_and_says_no(project: Path, capsys: pytest.CaptureFixture[str]) -> None:
    proven(project, passed=False)
    assert main(["deploy", "ollama", "weights-grpo-oslo", "--dry-run"]) == 1
    assert capsys.readouterr().out.startswith("FROM ./")


def test_a_file_from_elsewhere_is_deployed_with_a_word(
    server: ollama.Ollama, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    licence = tmp_path / "LICENSE"
    licence.write_text("Do as you like.")
    model = gguf(tmp_path / "mine.gguf")
    assert main(["deploy", "ollama", str(model), "--host", server.url, "--license", str(licence)]) == 0
    assert "no gate was asked" in capsys.readouterr().err
    assert server.models["mine:latest"]["request"]["license"] == "Do as you like."


def test_a_model_that_says_nothing_is_no_success(project: Path, server: ollama.Ollama) -> None:
    proven(project, passed=True)
    server.answer = lambda model, messages: ""
    assert main(["deploy", "ollama", "weights-grpo-oslo", "--host", server.url]) == 1


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["ollama", "nonsense"], "there is no run, adapter, model or GGUF file 'nonsense'"),
        (["ollama", "weights-grpo-oslo", "--force", "--name", "my agent"], "Ollama takes no model called 'my agent'"),
        (["ollama", "weights-grpo-oslo", "--force", "--host", "ftp://x"], "must with http:// or https://"),
        (["ollama", "weights-grpo-oslo", "--force", "--host", "127.0.0.1:1"], "start it with `ollama serve`"),
        (["llamacpp", "weights-grpo-oslo", "--force", "--replaces", "gpt-*"], "and needs --release"),
        (["llamacpp", "weights-grpo-oslo", "--stop"], "no server of weights-grpo-oslo was left running here; there are: none"),
    ],
)
def test_what_cannot_be_done_is_one_sentence(arguments: list[str], said: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["deploy", *arguments]) == 2
    assert said in capsys.readouterr().err.splitlines()[-1]


def test_llama_cpp_serves_until_it_is_told_to_stop(project: Path, tmp_path: Path) -> None:
    proven(project, passed=True)
    with running(tmp_path, "weights-grpo-oslo", "--name", "agent") as process:
        told = first_line(process)
        client = OpenAI(base_url=told["url"], api_key="none")
        answer = client.chat.completions.create(model="agent", messages=[{"role": "user", "content": "Hi."}])
        assert answer.choices[0].message.content == "you said Hi."
        process.send_signal(signal.SIGTERM)
        assert process.wait(timeout=30) == 0
    assert not is_alive(told["pid"])
    assert deployments(project)[0]["to"] == "llamacpp"


def test_a_server_that_ends_by_itself_is_said_so(project: Path, tmp_path: Path) -> None:
    proven(project, passed=True)
    with running(tmp_path, "weights-grpo-oslo") as process:
        os.kill(first_line(process)["pid"], signal.SIGKILL)
        assert process.wait(timeout=30) == 1
        assert process.stderr is not None
        assert "ended by itself" in process.stderr.read()


def test_a_server_left_running_is_stopped_by_another_command(
    project: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    proven(project, passed=True)
    with running(tmp_path, "weights-grpo-oslo", "--detach") as process:
        told = first_line(process)
        assert process.wait(timeout=30) == 0
    assert is_alive(told["pid"])
    monkeypatch.setenv("PATH", f"{tmp_path / 'bin'}{os.pathsep}{os.environ['PATH']}")
    assert main(["deploy", "llamacpp", "weights-grpo-oslo", "--port", "0"]) == 2
    assert "runs already" in capsys.readouterr().err
    assert main(["deploy", "llamacpp", "weights-grpo-oslo", "--stop", "--json"]) == 0
    assert last_line(capsys.readouterr().out)["pid"] == told["pid"]
    assert not is_alive(told["pid"])


def running(folder: Path, *arguments: str) -> subprocess.Popen[str]:
    """`deploy llamacpp` as a program of its own, with a llama-server on its PATH."""
    path = f"{llama_server(folder / 'bin')}{os.pathsep}{os.environ['PATH']}"
    command = [sys.executable, "-m", "journeyman", "deploy", "llamacpp", *arguments, "--port", "0", "--json"]
    return subprocess.Popen(
        command, cwd=folder, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env={**os.environ, "PATH": path}
    )


def first_line(process: subprocess.Popen[str]) -> dict[str, Any]:
    assert process.stdout is not None
    line = process.stdout.readline()
    assert line, process.stderr and process.stderr.read()
    found: dict[str, Any] = json.loads(line)
    return found


# Where gateways are told of it.


def models() -> dict[str, ServedModel]:
    with open_rollouts(Path(".journeyman") / "journeyman.db") as store:
        assert store.verify() is None
        return {each.model: each for each in store.live().models.values()}


def test_weights_that_a_gateway_is_told_of_are_a_candidate_and_nobody_is_served_by_them_yet(
    project: Path, server: ollama.Ollama, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    model = gguf(tmp_path / "mine.gguf")
    arguments = ["deploy", "ollama", "mine.gguf", "--host", server.url, "--name", "agent_v1.0", "--release"]
    assert main([*arguments, "--replaces", "gpt-*", "--replaces", "o?", "--json"]) == 0
    told = capsys.readouterr()
    found = models()["agent_v1.0"]
    candidate = Candidate(kind=Kind.ADAPTER, body=sha256(model))
    assert (found.candidate_id, found.url, found.digest) == (candidate.id, f"{server.url}/v1", candidate.body)
    assert (found.file, found.replaces) == (str(model), ("gpt-*", "o?"))
    assert last_line(told.out)["served"] == found.as_json()
    assert f"journeyman releases start {candidate.id}" in told.err
    with open_rollouts(Path(".journeyman") / "journeyman.db") as store:
        assert store.candidate(candidate.id) == candidate
        assert not store.live().production

    # Neither a name nor weights become something else, and then nothing is sent.
    other = gguf(tmp_path / "other.gguf", weights=b"other")
    sent = len(server.asked)
    assert main(["deploy", "ollama", str(other), *arguments[3:]]) == 1
    assert "is what other weights" in capsys.readouterr().err
    assert main([*arguments[:6], "v2", "--release", "--json"]) == 1
    assert "are called agent_v1.0 already" in last_line(capsys.readouterr().out)["reason"]
    assert [path for _, path in server.asked[sent:] if path != "/api/version"] == []
    assert main([*arguments, "--json"]) == 0


def test_what_the_gate_said_of_a_run_counts_for_the_weights_that_are_served(project: Path, server: ollama.Ollama) -> None:
    proven(project, passed=True)
    with open_store(Path(".journeyman") / "journeyman.db") as store:
        own = Candidate(kind=Kind.ADAPTER, body=digest(project / "adapter"))
        store.add_candidate(own)
    assert main(["deploy", "ollama", "weights-grpo-oslo", "--host", server.url, "--release"]) == 0
    file = project / "gguf" / "weights-grpo-oslo-Q4_K_M.gguf"
    (found,) = models().values()
    assert (found.candidate_id, found.digest) == (own.id, sha256(file))


def test_a_key_is_not_kept_and_the_upstream_that_has_it_is(
    server: ollama.Ollama, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("OLLAMA_API_KEY", "the-key-of-ollama")
    arguments = ["deploy", "ollama", str(gguf(tmp_path / "mine.gguf")), "--host", server.url, "--release"]
    assert main(arguments) == 2
    assert "[upstreams.NAME]" in capsys.readouterr().err
    assert not server.models
    settings = f'[upstreams.box]\nbase_url = "{server.url}/v1"\nkey_env = "OLLAMA_API_KEY"\n'
    (tmp_path / "journeyman.toml").write_text(settings)
    assert main(arguments) == 0
    assert models()["mine"].url == "box"


def test_a_server_that_is_needed_is_not_stopped(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    file = str(gguf(tmp_path / "mine.gguf"))
    with running(tmp_path, file, "--detach", "--release") as process:
        told = first_line(process)
        assert process.wait(timeout=30) == 0
    id = told["served"]["candidate_id"]
    monkeypatch.setenv("JOURNEYMAN_USER", "ann")
    try:
        assert main(["releases", "start", id, "--force", "--reason", "to try it"]) == 0
        assert main(["deploy", "llamacpp", file, "--stop", "--json"]) == 1
        assert "answers the requests of weights:*/*" in last_line(capsys.readouterr().out)["reason"]
        assert is_alive(told["pid"])
        assert main(["releases", "rollback", "weights", "--reason", "tried"]) == 0
    finally:
        assert main(["deploy", "llamacpp", file, "--stop", "--json"]) == 0
    assert last_line(capsys.readouterr().out)["withdrawn"] is True
    assert not is_alive(told["pid"])
    assert not models()


def test_gateways_are_not_told_of_a_server_that_ended_with_its_command(tmp_path: Path) -> None:
    with running(tmp_path, str(gguf(tmp_path / "mine.gguf")), "--name", "agent", "--release") as process:
        first_line(process)
        assert list(models()) == ["agent"]
        process.send_signal(signal.SIGTERM)
        assert process.wait(timeout=30) == 0
    assert not models()
