"""From an adapter to an answer over the network: merged, converted, and served by llama.cpp for real."""

import json
import os
import shutil
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("peft", reason="needs the extra: pip install 'journeyman[weights]'")
pytest.importorskip("llama_cpp", reason="needs the extra: pip install 'journeyman[gguf]'")

from openai import OpenAI

from journeyman.models import WEIGHTS
from journeyman.optimizers.weights.gguf import GGUFExporter
from journeyman.optimizers.weights.hosting import OllamaHostingProfile
from journeyman.optimizers.weights.llamacpp import serve
from journeyman.optimizers.weights.ollama import OllamaDeployer
from tests.support import go_templates, ollama
from tests.support.processes import is_alive
from tests.support.tuned import ANSWER, QUESTION, adapter

pytestmark = pytest.mark.training
ONE = OllamaHostingProfile(num_parallel=1, num_ctx=512, num_thread=1)


@pytest.fixture(scope="module")
def weights(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("tuned")
    return GGUFExporter(adapter(), base_model="embedded:small").convert("F16", folder / "tuned-F16.gguf")


def said(url: str, model: str) -> str | None:
    client = OpenAI(base_url=url, api_key="none")
    asked = client.chat.completions.create(
        model=model, messages=[{"role": "user", "content": QUESTION}], temperature=0, max_tokens=32
    )
    return asked.choices[0].message.content


def test_the_tuned_models_answer_comes_back_over_openais_protocol(weights: Path) -> None:
    with serve(weights, ONE, model="desk") as served:
        assert said(served.url, "desk") == ANSWER
        streamed = OpenAI(base_url=served.url, api_key="none").chat.completions.create(
            model="desk", messages=[{"role": "user", "content": QUESTION}], temperature=0, max_tokens=32, stream=True
        )
        assert "".join(chunk.choices[0].delta.content or "" for chunk in streamed) == ANSWER
    assert not is_alive(served.pid)


def test_the_model_under_it_answers_otherwise_whatever_the_environment_says(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, value in {"HOST": "0.0.0.0", "PORT": "1", "MODEL": "other.gguf", "API_KEY": "secret"}.items():
        monkeypatch.setenv(name, value)
    base = GGUFExporter(WEIGHTS / "small").convert("F16", tmp_path / "base-F16.gguf")
    with serve(base, ONE) as served:
        assert said(served.url, "base-F16") != ANSWER


def test_the_command_takes_an_adapter_all_the_way_to_an_answer(tmp_path: Path) -> None:
    folder = shutil.copytree(adapter(), tmp_path / "tuned")
    command = [sys.executable, "-m", "journeyman", "deploy", "llamacpp", str(folder), "--base-model", "embedded:small"]
    options = ["--quantization", "Q8_0", "--name", "desk", "--port", "0", "--json"]
    with subprocess.Popen(
        [*command, *options], cwd=tmp_path, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    ) as process:
        assert process.stdout is not None
        assert process.stderr is not None
        line = process.stdout.readline()
        assert line, process.stderr.read()
        told = json.loads(line)
        assert said(told["url"], "desk") == ANSWER
        process.send_signal(signal.SIGTERM)
        assert process.wait(timeout=60) == 0
    assert not is_alive(told["pid"])


def test_a_broken_file_says_what_llama_cpp_made_of_it(weights: Path, tmp_path: Path) -> None:
    broken = tmp_path / "broken.gguf"
    broken.write_bytes(weights.read_bytes()[:-100_000])
    with pytest.raises(Exception, match=r"llama.* ended with exit code \d+ \(its log, .*broken.log"), serve(broken, ONE):
        pass


def test_ollamas_template_makes_the_same_prompt_of_a_question_and_so_the_same_answer(weights: Path, tmp_path: Path) -> None:
    """The server that speaks Ollama's API runs nothing; llama.cpp, as in the real one, is asked on the blob that was sent."""
    from llama_cpp import Llama

    with ollama.serving(tmp_path / "blobs") as server:

        def answer(model: str, messages: list[dict[str, Any]]) -> str:
            made = server.models[f"{model}:latest"]
            prompt = go_templates.render(made["request"]["template"], messages)
            llama = Llama(str(server.folder / made["digest"]), n_ctx=512, n_threads=1, verbose=False)
            stop = made["request"]["parameters"]["stop"]
            text: str = llama.create_completion(prompt, max_tokens=32, temperature=0, stop=stop)["choices"][0]["text"]
            llama.close()
            return text

        go_templates.render("", [])
        server.answer = answer
        deployer = OllamaDeployer(server.url, environment={})
        deployer.create_model("desk", weights, profile=ONE)
        assert deployer.chat("desk", QUESTION, tokens=32) == ANSWER


def test_the_real_ollama_gives_the_tuned_models_answer(weights: Path) -> None:
    if shutil.which("ollama") is None and "OLLAMA_HOST" not in os.environ:
        pytest.skip("Ollama is not installed here, and OLLAMA_HOST names no server")
    deployer = OllamaDeployer()
    deployer.create_model("journeyman-test", weights, profile=ONE)
    try:
        assert deployer.chat("journeyman-test", QUESTION, tokens=32) == ANSWER
    finally:
        deployer.delete("journeyman-test")
