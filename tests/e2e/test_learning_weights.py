"""A real `journeyman pipeline weights`: trained, examined, exported, served by llama.cpp, and asked through OpenAI's client."""

import json
import os
from pathlib import Path
from typing import Any

import openai
import pytest

pytest.importorskip("trl", reason="needs the extra: pip install 'journeyman[weights]'")
pytest.importorskip("llama_cpp", reason="llama-cpp-python is not installed: make test builds it")

from journeyman.agents import answer
from journeyman.core.task import Split
from journeyman.experiments.weights import settings
from journeyman.optimizers.weights.config import TrainingConfig
from journeyman.optimizers.weights.llamacpp import serve
from tests.support import warm

pytestmark = pytest.mark.service

ENV = {**os.environ, "OMP_NUM_THREADS": "1"}
TASKS = ["--tasks", "desk", "--domain", "oslo", "--base-model", "embedded:small", "--method", "rft"]
SIZES = ["--max-steps", "6", "--num-examples", "64", "--validation", "16", "--held-out", "10"]


def ran(folder: Path, *arguments: str) -> dict[str, Any]:
    done = warm.run("-m", "journeyman", *arguments, "--json", cwd=folder, env=ENV, children=True)
    assert done.returncode == 0, done.stderr
    found: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return found


@pytest.mark.training
def test_what_was_learned_answers_through_the_openai_client(tmp_path: Path) -> None:
    trained = ran(tmp_path, "train", "weights", *TASKS, *SIZES)
    run = tmp_path / ".journeyman" / "runs" / trained["run_id"]
    assert json.loads((run / "result.json").read_text()) == trained
    assert trained["trained"]["validation_after"] > trained["trained"]["validation_before"]
    assert trained["evaluation"]["tasks"] == 10
    assert (run / "adapter" / "adapter_model.safetensors").is_file()

    exported = ran(tmp_path, "export", "gguf", trained["run_id"], "--quantization", "F16", "--quantization", "Q4_K_M")
    files = {file["type"]: Path(file["path"]) for file in exported["files"]}
    assert files["Q4_K_M"].stat().st_size < files["F16"].stat().st_size

    found = settings.load(TrainingConfig(dataset_name="desk", domain="oslo", num_examples=1, validation=1), held_out=1)
    (task,) = found.split(Split.VALIDATION)
    asked = [{"role": message.role, "content": message.content} for message in answer.answer(task, (), "terse")]
    with serve(files["F16"]) as served, openai.OpenAI(base_url=served.url, api_key="none") as client:
        reply = client.chat.completions.create(
            model=served.model,
            messages=asked,  # type: ignore[arg-type]
            temperature=0.0,
            max_tokens=64,
        )
    said = json.loads(reply.choices[0].message.content or "")
    assert said["name"] == "order"
    assert said["arguments"]["sku"]
