import json
from pathlib import Path

import pytest

from journeyman.core.errors import InputError
from journeyman.optimizers.weights import adapters, model_shape
from journeyman.optimizers.weights.adapters import Form, find


@pytest.fixture
def runs(tmp_path: Path) -> Path:
    run = tmp_path / "runs" / "weights-grpo-oslo"
    (run / "adapter").mkdir(parents=True)
    (run / "run.json").write_text("{}")
    (run / "config.json").write_text("{}")
    (run / "adapter" / "adapter_config.json").write_text("{}")
    return tmp_path / "runs"


def proven(runs: Path, **result: object) -> None:
    (runs / "weights-grpo-oslo" / "result.json").write_text(json.dumps(result))


def test_a_run_is_found_by_its_id_its_folder_and_its_adapter(runs: Path) -> None:
    run = runs / "weights-grpo-oslo"
    for named in (run.name, str(run), str(run / "adapter")):
        found = find(named, runs)
        assert (found.form, found.path, found.run) == (Form.ADAPTER, run / "adapter", run)


def test_what_the_gate_said_goes_with_what_lies_in_the_runs_folder(runs: Path) -> None:
    proven(runs, passed=True, reason="better by 40 points")
    exported = runs / "weights-grpo-oslo" / "export" / "model-Q8_0.gguf"
    exported.parent.mkdir()
    exported.write_bytes(b"GGUF....")
    found = find(str(exported), runs)
    assert found.form is Form.GGUF
    assert found.proof is not None
    assert (found.proof.passed, found.proof.reason) == (True, "better by 40 points")


def test_a_run_that_nobody_proved_did_not_pass(runs: Path) -> None:
    proof = find("weights-grpo-oslo", runs).proof
    assert proof is not None
    assert not proof.passed
    assert "was not proven" in proof.reason


def test_a_result_without_a_verdict_is_no_pass(runs: Path) -> None:
    proven(runs, passed=None)
    proof = find("weights-grpo-oslo", runs).proof
    assert proof is not None
    assert not proof.passed


def test_weights_from_elsewhere_were_never_before_a_gate(tmp_path: Path) -> None:
    model = tmp_path / "model"
    model.mkdir()
    (model / "config.json").write_text("{}")
    (model / "model.safetensors").write_bytes(b"")
    found = find(str(model), tmp_path / "runs")
    assert (found.form, found.run, found.proof) == (Form.MODEL, None, None)


def test_a_name_that_is_nothing_lists_the_runs(runs: Path) -> None:
    with pytest.raises(InputError, match=r"runs of weights in .*: weights-grpo-oslo"):
        find("nonsense", runs)


def test_a_file_that_is_no_gguf_is_refused(tmp_path: Path) -> None:
    (tmp_path / "notes.txt").write_text("hello")
    with pytest.raises(InputError, match="no GGUF file"):
        find(str(tmp_path / "notes.txt"), tmp_path)


def test_a_folder_without_weights_is_refused(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="holds no weights"):
        find(str(tmp_path), tmp_path)


def test_a_run_that_learned_nothing_says_so(runs: Path) -> None:
    (runs / "weights-grpo-oslo" / "adapter" / "adapter_config.json").unlink()
    with pytest.raises(InputError, match="has no adapter"):
        find("weights-grpo-oslo", runs)


def test_a_result_that_is_no_json_is_named(runs: Path) -> None:
    (runs / "weights-grpo-oslo" / "result.json").write_text("{")
    with pytest.raises(InputError, match=r"result\.json is not JSON"):
        assert find("weights-grpo-oslo", runs).proof


def test_what_a_run_learned_has_one_place_for_each_type_it_is_exported_as(runs: Path) -> None:
    run = runs / "weights-grpo-oslo"
    assert find(run.name, runs).gguf("Q8_0") == run / "gguf" / "weights-grpo-oslo-Q8_0.gguf"


def test_a_gguf_file_is_itself_whatever_the_type(tmp_path: Path) -> None:
    (tmp_path / "mine.v2.gguf").write_bytes(b"GGUF")
    found = find(str(tmp_path / "mine.v2.gguf"), tmp_path)
    assert (found.gguf("Q8_0"), found.name) == (tmp_path / "mine.v2.gguf", "mine.v2")


DEEP = "[" * 100_000


@pytest.mark.parametrize("config", [DEEP, '{"peft_type": "LORA", "r": 1e999, "lora_alpha": 1, "target_modules": []}'])
def test_a_configuration_that_no_adapter_has_is_named(tmp_path: Path, config: str) -> None:
    (tmp_path / "adapter_model.safetensors").write_bytes(b"")
    (tmp_path / "adapter_config.json").write_text(config)
    with pytest.raises(InputError, match=r"adapter_config\.json"):
        adapters.read_adapter(tmp_path)


@pytest.mark.parametrize("config", [DEEP, '{"architectures": ["X"], "num_attention_heads": 1e999, "hidden_size": 1}'])
def test_a_configuration_that_no_model_has_is_named(tmp_path: Path, config: str) -> None:
    (tmp_path / "config.json").write_text(config)
    assert "is not known" in model_shape.find(str(tmp_path), {})[1]
    with pytest.raises(InputError, match=r"config\.json"):
        model_shape.read_settings(tmp_path)
