import json
from pathlib import Path

import pytest

pytest.importorskip("llama_cpp", reason="llama-cpp-python is not installed: make test builds it")

from journeyman.cli import main
from journeyman.models import embedded_weights
from tests.optimizers.weights.test_merge import adapter

pytestmark = pytest.mark.training


@pytest.fixture(autouse=True)
def run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A project with a run that learned an adapter from a row."""
    monkeypatch.chdir(tmp_path)
    folder = tmp_path / ".journeyman" / "runs" / "weights-kto-oslo"
    folder.mkdir(parents=True)
    (folder / "run.json").write_text("{}")
    (folder / "config.json").write_text('{"base_model": "embedded:small", "method": "kto"}')
    row = {"prompt": "three blue mugs to Oslo", "completion": ' {"tool": "order"}', "label": True}
    (folder / "rows.jsonl").write_text(json.dumps(row) + "\n")
    adapter(folder / "adapter", "embedded:small", embedded_weights("small"), ["q_proj"])
    return folder


def test_a_run_is_exported_with_its_costs_on_its_own_rows(run: Path, capsys: pytest.CaptureFixture[str]) -> None:
    arguments = ["export", "gguf", run.name, "--quantization", "Q8_0", "--quantization", "Q4_K_M", "--threads", "1"]

    assert main([*arguments, "--merged", "kept"]) == 0

    shown = capsys.readouterr()
    assert "merged embedded:small with the adapter" in shown.err
    assert "became Q5_0" in shown.err
    assert [line.split()[0] for line in shown.out.splitlines()] == ["type", "Q8_0", "Q4_K_M"]
    files = [run / "gguf" / f"weights-kto-oslo-{kind}.gguf" for kind in ("Q8_0", "Q4_K_M")]
    assert all(file.is_file() for file in files)
    assert Path("kept/model.safetensors").is_file()


def test_what_was_exported_is_one_object_for_programs(run: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert (
        main(["export", "gguf", str(run / "adapter"), "--quantization", "F16", "--out", "x.gguf", "--no-measure", "--json"])
        == 0
    )

    found = json.loads(capsys.readouterr().out)
    assert found["files"][0]["path"] == "x.gguf"
    assert found["files"][0]["contents"]["types"] == {"F16": 22}
    assert found["files"][0]["cost"] is None
    assert found["merged"]["difference"] < 1e-4


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        (["nothing"], "there is no run, adapter, model or GGUF file 'nothing'"),
        (["weights-kto-oslo", "--quantization", "Q9"], "'Q9' is no type that can be exported as; there are F32, F16"),
        ([str(embedded_weights("small")), "--merged", "kept"], "is a whole model: there is nothing to merge"),
    ],
)
def test_what_cannot_be_exported_is_a_sentence(arguments: list[str], sentence: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["export", "gguf", *arguments]) == 2
    assert sentence in capsys.readouterr().err
