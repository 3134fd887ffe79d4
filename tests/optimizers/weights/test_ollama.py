import hashlib
import socket
from collections.abc import Iterator
from pathlib import Path

import pytest

pytest.importorskip("jinja2", reason="needs the extra: pip install 'journeyman[gguf]'")

from hypothesis import given
from hypothesis import strategies as st

from journeyman.core.errors import InputError, ModelBusy, ModelError, ModelRefused
from journeyman.optimizers.weights.hosting import OllamaHostingProfile
from journeyman.optimizers.weights.ollama import DeploymentProgress, Modelfile, OllamaDeployer, check_name, wire_of
from tests.support import ollama
from tests.support.ggufs import TINY, gguf


@pytest.fixture
def server(tmp_path: Path) -> Iterator[ollama.Ollama]:
    with ollama.serving(tmp_path / "blobs") as state:
        yield state


@pytest.fixture
def weights(tmp_path: Path) -> Path:
    return gguf(tmp_path / "tiny-Q8_0.gguf", weights=b"w" * 3_000_000)


def deployer(server: ollama.Ollama) -> OllamaDeployer:
    return OllamaDeployer(server.url, environment={})


def test_a_file_becomes_a_model_that_answers(server: ollama.Ollama, weights: Path) -> None:
    made = deployer(server).create_model("toolbox-agent", weights)
    assert (made.reply, made.uploaded, made.version) == ("Hello!", True, "0.12.3")
    assert server.blobs == [hashlib.sha256(weights.read_bytes()).hexdigest()]
    assert [model.name for model in deployer(server).list()] == ["toolbox-agent:latest"]


def test_the_server_is_told_template_parameters_and_licence(server: ollama.Ollama, weights: Path) -> None:
    profile = OllamaHostingProfile(num_parallel=2, num_ctx=1024, num_thread=6)
    deployer(server).create_model("agent", weights, profile=profile, system="Be brief.", parameters={"temperature": 0})
    told = server.models["agent:latest"]["request"]
    assert told["parameters"] == {"num_ctx": 1024, "num_thread": 6, "stop": ["<|im_end|>"], "temperature": 0}
    assert (told["system"], told["license"]) == ("Be brief.", "apache-2.0")
    assert "<|im_start|>assistant\n{{ .Content }}<|im_end|>" in told["template"]


def test_weights_that_are_there_are_not_sent_again(server: ollama.Ollama, weights: Path) -> None:
    deployer(server).create_model("one", weights)
    again = deployer(server).create_model("two", weights)
    assert not again.uploaded
    assert sum(method == "POST" and "blobs" in path for method, path in server.asked) == 1


def test_an_upload_that_broke_off_says_so_and_a_second_call_mends_it(server: ollama.Ollama, weights: Path) -> None:
    server.breaks_after = 100_000
    with pytest.raises(ModelBusy, match=r"could not be reached while sending tiny-Q8_0.gguf"):
        deployer(server).create_model("agent", weights)
    assert server.blobs == []
    server.breaks_after = None
    assert deployer(server).create_model("agent", weights).uploaded


def test_progress_is_told_in_bytes_and_in_the_servers_words(server: ollama.Ollama, weights: Path) -> None:
    seen: list[DeploymentProgress] = []
    OllamaDeployer(server.url, on_progress=seen.append, environment={}).create_model("agent", weights)
    sent = [step.completed or 0 for step in seen if step.status == "sending the weights"]
    assert sent == sorted(sent)
    assert sent[-1] == weights.stat().st_size
    assert {"parsing GGUF", "writing manifest", "success", "asking it"} <= {step.status for step in seen}


def test_the_modelfile_beside_the_weights_says_the_same(server: ollama.Ollama, weights: Path) -> None:
    made = deployer(server).create_model("agent", weights)
    text = made.modelfile.read_text()
    assert made.modelfile == weights.with_name("tiny-Q8_0.Modelfile")
    assert text.startswith("FROM ./tiny-Q8_0.gguf\n")
    assert f'TEMPLATE """{made.deployment.modelfile.template}"""' in text
    assert 'PARAMETER stop "<|im_end|>"\n' in text
    assert 'LICENSE """apache-2.0"""' in text


def test_a_plan_needs_no_server_and_sends_nothing(weights: Path) -> None:
    made = OllamaDeployer("127.0.0.1:1", environment={}).prepare("agent", weights)
    assert (made.size, made.url) == (weights.stat().st_size, "http://127.0.0.1:1")
    assert made.request["files"] == {"tiny-Q8_0.gguf": f"sha256:{made.digest}"}


def test_another_machine_decides_on_its_threads_itself(weights: Path) -> None:
    assert "num_thread" not in OllamaDeployer("box.example", environment={}).prepare("agent", weights).modelfile.parameters
    assert "num_thread" in OllamaDeployer("localhost", environment={}).prepare("agent", weights).modelfile.parameters


def test_a_model_can_be_asked_and_deleted(server: ollama.Ollama, weights: Path) -> None:
    deployer(server).create_model("agent", weights)
    server.answer = lambda model, messages: f"{model}: {messages[-1]['content']}"
    assert deployer(server).chat("agent", "Hi.") == "agent: Hi."
    deployer(server).delete("agent")
    assert deployer(server).list() == []
    with pytest.raises(ModelRefused, match="refused deleting agent: model 'agent' not found"):
        deployer(server).delete("agent")


def test_nobody_there_says_how_to_start_one(weights: Path) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        host = f"127.0.0.1:{taken.getsockname()[1]}"
        with pytest.raises(ModelBusy, match=rf"http://{host} could not be reached .*start it with `ollama serve`"):
            OllamaDeployer(host, environment={}).create_model("agent", weights)


@pytest.mark.parametrize(("version", "said"), [("0.5.4", "0.5.5 or newer is needed"), (None, "is no Ollama")])
def test_a_server_that_cannot_is_refused_before_anything_is_sent(
    server: ollama.Ollama, weights: Path, version: str | None, said: str
) -> None:
    server.version = version
    with pytest.raises(ModelRefused, match=said):
        deployer(server).create_model("agent", weights)
    assert server.asked == [("GET", "/api/version")]


@pytest.mark.parametrize("version", ["0.5.5", "0.5.11-rc1", "1.0", "0.0.0", "0.5.7-0-ga420a45-dirty"])
def test_newer_versions_and_home_made_ones_are_taken(server: ollama.Ollama, version: str) -> None:
    server.version = version
    assert deployer(server).version() == version


def test_a_full_disk_is_said_with_what_is_needed(server: ollama.Ollama, tmp_path: Path) -> None:
    large = gguf(tmp_path / "large.gguf", weights=b"w" * 30_000_000)
    server.full_after = 1000
    with pytest.raises(ModelRefused) as raised:
        deployer(server).create_model("agent", large)
    assert "no space left (0.03 GB are needed" in str(raised.value)


def test_what_the_server_says_on_the_way_is_the_reason(server: ollama.Ollama, weights: Path) -> None:
    server.create_error = "unsupported architecture"
    with pytest.raises(ModelRefused, match="refused making agent: unsupported architecture"):
        deployer(server).create_model("agent", weights)


def test_a_model_that_is_made_and_does_not_answer_is_an_error(server: ollama.Ollama, weights: Path) -> None:
    server.chat_error = "llama runner process has terminated"
    with pytest.raises(ModelError, match=r"was made at .* and does not answer \(llama runner"):
        deployer(server).create_model("agent", weights)
    assert "agent:latest" in server.models


def test_secrets_are_sent_and_never_shown(server: ollama.Ollama, weights: Path) -> None:
    server.password = "Bearer s3cret-key"
    told = OllamaDeployer(server.url, environment={"OLLAMA_API_KEY": "s3cret-key"})
    assert told.create_model("agent", weights).reply
    wrong = OllamaDeployer(server.url.replace("//", "//me:hunter2@"), environment={})
    with pytest.raises(ModelRefused, match="set OLLAMA_API_KEY") as raised:
        wrong.version()
    for shown in (str(raised.value), repr(wrong._wire), wrong.url, repr(told._wire)):
        assert "hunter2" not in shown
        assert "s3cret" not in shown
    assert server.headers[-1]["Authorization"].startswith("Basic ")


def test_a_file_without_a_template_is_deployed_with_a_word(server: ollama.Ollama, tmp_path: Path) -> None:
    bare = gguf(tmp_path / "bare.gguf", {key: value for key, value in TINY.items() if "template" not in key})
    made = deployer(server).create_model("agent", bare)
    assert any("no chat template" in note for note in made.deployment.notes)
    assert "template" not in server.models["agent:latest"]["request"]


@pytest.mark.parametrize("name", ["toolbox-agent", "me/agent", "host.example:5000/me/agent:v1.2", "a", "Agent_2:q4_K_M"])
def test_names_that_ollama_takes_are_taken(name: str) -> None:
    assert check_name(name) == name


@pytest.mark.parametrize(
    "name", ["", "my agent", "agent:", ":v1", "/agent", "a//b", "a/b/c/d", "-agent", "ä", "a" * 81, "a/../b\n"]
)
def test_names_that_it_does_not_take_are_refused_before_anything_is_sent(name: str) -> None:
    with pytest.raises(InputError, match="Ollama takes no model called"):
        check_name(name)


@pytest.mark.parametrize(
    ("said", "url"),
    [
        ("", "http://127.0.0.1:11434"),
        ("0.0.0.0", "http://127.0.0.1:11434"),
        ("0.0.0.0:8080", "http://127.0.0.1:8080"),
        (":1234", "http://127.0.0.1:1234"),
        ("box", "http://box:11434"),
        ("box:80", "http://box:80"),
        ("http://box", "http://box:80"),
        ("https://box", "https://box:443"),
        ("https://box/", "https://box:443"),
        ("https://box:8443/some/path/", "https://box:8443/some/path"),
        ("box/path", "http://box:11434/path"),
        ("[::1]", "http://[::1]:11434"),
        ("::1", "http://[::1]:11434"),
        ("[::]:80", "http://[::1]:80"),
        (' "10.0.0.1:99" ', "http://10.0.0.1:99"),
        ("https://me:p%40ss@box", "https://box:443"),
    ],
)
def test_a_host_means_what_it_means_to_ollamas_own_client(said: str, url: str) -> None:
    assert wire_of(None, {"OLLAMA_HOST": said}).url == url
    assert wire_of(said, {"OLLAMA_HOST": "elsewhere"}).url == (url if said else "http://127.0.0.1:11434")


@pytest.mark.parametrize("said", ["ftp://box", "box:port", "box:99999", "box:-1"])
def test_a_host_that_cannot_be_meant_is_refused(said: str) -> None:
    with pytest.raises(InputError, match="Ollama's host"):
        wire_of(said, {})


@given(said=st.text(max_size=40))
def test_no_host_makes_it_fail_otherwise(said: str) -> None:
    try:
        wire = wire_of(said, {})
    except InputError:
        return
    assert 0 <= wire.port <= 65535


def test_text_that_no_modelfile_can_hold_is_refused() -> None:
    with pytest.raises(InputError, match='the system has """ in it'):
        Modelfile(weights="a.gguf", system='say """hi"""')
