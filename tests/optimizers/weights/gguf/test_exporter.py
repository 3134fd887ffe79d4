"""From a model's or an adapter's folder to GGUF files, and what each of them costs."""

import json
import re
import stat
import struct
import sys
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("llama_cpp", reason="llama-cpp-python is not installed: make test builds it")

import torch
from gguf import GGUFReader
from safetensors.torch import load_file, save_file

from journeyman.agents.answer import answer
from journeyman.core.errors import InputError, MissingExtra
from journeyman.core.installation import installing
from journeyman.core.task import Task
from journeyman.models import embedded_weights
from journeyman.models.local import load
from journeyman.optimizers.weights.gguf import TYPES, GGUFExporter
from journeyman.optimizers.weights.gguf.conversion import open_tensors
from journeyman.optimizers.weights.llamacpp import loaded
from tests.optimizers.weights.gguf.test_families import differs_only_by_a_tie
from tests.optimizers.weights.test_merge import adapter
from tests.support import tiny_models

pytestmark = pytest.mark.training

SHOPPERS = ("three blue mugs to Oslo by 5 March", "2 green plates, ship to Bergen on 12 June", "a red bowl to Rome, please")


def prompts(tokenizer: Any) -> list[list[int]]:
    """Fifty of the kind that the embedded model knows."""
    said = [f"{text} and {number} black cups" for number in range(17) for text in SHOPPERS][:50]
    asked = [answer(Task(id=text, question=text), (), "terse") for text in said]
    texts = [
        tokenizer.apply_chat_template(
            [{"role": each.role, "content": each.content} for each in messages], tokenize=False, add_generation_prompt=True
        )
        for messages in asked
    ]
    return [list(tokenizer(text)["input_ids"]) for text in texts]


@pytest.fixture
def small(tmp_path: Path) -> Path:
    """A random model, as wide as the blocks of the K-types."""
    tiny_models.save(
        tmp_path / "model", "Qwen2", tiny_models.byte_level(), hidden_size=256, intermediate_size=512, tie_word_embeddings=True
    )
    return tmp_path / "model"


@pytest.mark.parametrize(("kind", "tie"), [("F32", 1e-4), ("F16", 2e-2)])
def test_the_embedded_model_says_the_same_in_llama_cpp_on_fifty_prompts(kind: str, tie: float, tmp_path: Path) -> None:
    tokenizer, model = load(str(embedded_weights("base")), "")

    path = GGUFExporter(embedded_weights("base"), threads=1).convert(kind, tmp_path / "model.gguf")

    with loaded(path, threads=1) as served:
        ties = sum(differs_only_by_a_tie(served, model.float(), ids, 32, tie) for ids in prompts(tokenizer))
    assert ties == 0


def test_every_type_is_written_and_the_smaller_costs_more(small: Path, tmp_path: Path) -> None:
    export = GGUFExporter(small, threads=1).export(TYPES, out=tmp_path / "out")

    cost = {file.type: file.cost.divergence for file in export.files if file.cost}
    size = {file.type: file.contents.size for file in export.files}
    assert list(cost) == list(TYPES)
    assert cost["F32"] == 0
    assert cost["F16"] < cost["Q8_0"] < cost["Q6_K"] < cost["Q5_K_M"] < cost["Q4_K_M"] < cost["Q2_K"]
    assert size["F32"] > size["F16"] > size["Q8_0"] > size["Q6_K"] > size["Q4_K_M"] > size["Q2_K"]
    assert not any(file.contents.replaced for file in export.files)
    assert json.loads(json.dumps(export.json(), default=str))["files"][0]["type"] == "F32"
    assert sorted(path.name for path in (tmp_path / "out").iterdir()) == sorted(f"model-{kind}.gguf" for kind in TYPES)


def test_rows_that_a_type_cannot_take_are_told_of(tmp_path: Path) -> None:
    export = GGUFExporter(embedded_weights("small"), threads=1).export(["Q4_K_M", "F16"], out=tmp_path, measure=False)

    replaced = export.files[0].contents.replaced
    assert {each.width for each in replaced} == {128, 384}
    assert sum(each.tensors for each in replaced) == sum(export.files[0].contents.types.values()) == 22
    assert export.files[1].contents.replaced == ()


def test_an_adapter_is_merged_and_its_file_says_what_the_merged_model_says(tmp_path: Path) -> None:
    folder = adapter(tmp_path / "mine", "embedded:small", embedded_weights("small"), ["q_proj", "down_proj"])

    export = GGUFExporter(folder, name="desk", threads=1).export(["F32"])

    assert export.merged is not None
    assert export.merged.difference < 1e-4
    file = GGUFReader(export.files[0].path)
    assert export.files[0].path == folder / "desk-F32.gguf"
    assert file.fields["general.name"].contents() == "desk"
    assert file.fields["journeyman.dialect"].contents() == "terse"
    assert "<|im_start|>" in file.fields["tokenizer.chat_template"].contents()
    tokenizer, model = load(str(embedded_weights("small")), str(folder))
    with loaded(export.files[0].path, threads=1) as served:
        assert not any(differs_only_by_a_tie(served, model, ids, 24, 1e-4) for ids in prompts(tokenizer)[:10])


def test_weights_in_several_files_and_in_bfloat16_are_read(small: Path, tmp_path: Path) -> None:
    one = GGUFExporter(small).convert("F32", tmp_path / "one.gguf")
    tensors = load_file(small / "model.safetensors")
    (small / "model.safetensors").unlink()
    names = sorted(tensors)
    parts = {"a.safetensors": names[::2], "b.safetensors": names[1::2]}
    for part, inside in parts.items():
        save_file({name: tensors[name].bfloat16() for name in inside}, small / part, metadata={"format": "pt"})
    index = {"weight_map": {name: part for part, inside in parts.items() for name in inside}}
    (small / "model.safetensors.index.json").write_text(json.dumps(index))

    two = GGUFExporter(small).convert("F32", tmp_path / "two.gguf")

    for a, b in zip(GGUFReader(one).tensors, GGUFReader(two).tensors, strict=True):
        assert a.name == b.name
        assert torch.equal(torch.tensor(a.data).bfloat16().float(), torch.tensor(b.data))


def test_conversations_are_measured_with_the_models_own_reply(tmp_path: Path) -> None:
    messages = answer(Task(id="a", domain="oslo", question=SHOPPERS[0]), (), "terse")
    asked = [{"role": message.role, "content": message.content} for message in messages]
    costs = []
    for text in (asked, [*asked, {"role": "assistant", "content": "{"}]):
        export = GGUFExporter(embedded_weights("base"), texts=[text], threads=1).export(["Q8_0"], out=tmp_path)
        assert export.files[0].cost is not None
        costs.append(export.files[0].cost)
    # The second speaks first: the original's reply is not asked for.
    assert costs[0].tokens > costs[1].tokens + 5


def changed(folder: Path, name: str, **settings: Any) -> None:
    path = folder / name
    path.write_text(json.dumps({**json.loads(path.read_text()), **settings}))


def test_what_llama_cpp_would_compute_otherwise_is_refused(small: Path) -> None:
    good = (small / "config.json").read_text()
    for settings, sentence in (
        ({"hidden_act": "relu"}, "no Qwen2ForCausalLM with the activation 'relu'"),
        ({"num_hidden_layers": 4, "layer_types": ["full_attention"] * 4}, "says 4 layers, and there are weights of 3"),
        ({"rope_parameters": {"rope_type": "dynamic", "factor": 2.0}}, "no rotary positions of the type 'dynamic'"),
        ({"vocab_size": 900}, "embeddings are 700 x 256, and config.json says 900 x 256"),
        ({"quantization_config": {"bits": 4}}, "quantised already"),
        ({"hidden_size": None}, "is not the configuration of a Qwen2ForCausalLM"),
        ({"architectures": []}, "names no architecture"),
    ):
        changed(small, "config.json", **settings)
        with pytest.raises(InputError, match=sentence):
            GGUFExporter(small).convert("F32")
        (small / "config.json").write_text(good)
    assert not list(small.glob("*.gguf"))
    assert not list(small.glob(".gguf-*"))


def test_another_way_to_cut_texts_is_refused_unless_its_tokens_are_the_same(tmp_path: Path) -> None:
    small = tmp_path / "model"
    tiny_models.save(small, "Llama", tiny_models.byte_level(r"\p{L}+|\p{N}{1,2}|[^\p{L}\p{N}]+"))
    with pytest.raises(InputError, match=r"no known name in llama\.cpp.*--pre-tokenizer"):
        GGUFExporter(small).convert("F32")
    with pytest.raises(InputError, match=r"llama\.cpp makes other tokens"):
        GGUFExporter(small, pre_tokenizer="qwen2").convert("F32")


def test_another_architecture_is_left_to_llama_cpps_own_converter(small: Path, tmp_path: Path, monkeypatch: Any) -> None:
    ours = GGUFExporter(small).convert("F32", tmp_path / "ours.gguf")
    changed(small, "config.json", architectures=["UnheardOfForCausalLM"])
    monkeypatch.delenv("LLAMA_CPP", raising=False)
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(InputError, match=r"UnheardOfForCausalLM is none.*convert_hf_to_gguf\.py"):
        GGUFExporter(small).convert("Q8_0")

    # A stand-in for a program of others, which speaks its command line.
    script = tmp_path / "llama.cpp" / "convert_hf_to_gguf.py"
    script.parent.mkdir()
    script.write_text(
        "import shutil, sys\nassert sys.argv[2::2] == ['--outfile', '--outtype'], sys.argv\n"
        f"assert sys.argv[5] == 'f32'\nshutil.copy({str(ours)!r}, sys.argv[3])\n"
    )
    monkeypatch.setenv("LLAMA_CPP", str(script.parent))
    export = GGUFExporter(small).export(["Q8_0"], measure=False)

    assert export.notes == (f"converted by {script}",)
    assert export.files[0].contents.types == {"Q8_0": 22}

    script.write_text("import sys\nsys.exit('this model is not supported')\n")
    with pytest.raises(InputError, match=r"could not convert.*this model is not supported"):
        GGUFExporter(small).convert("Q8_0")


def test_broken_weights_are_a_sentence_with_the_file(small: Path) -> None:
    whole = (small / "model.safetensors").read_bytes()
    (small / "model.safetensors").write_bytes(whole[: len(whole) // 2])
    with pytest.raises(InputError, match=r"model\.safetensors is broken at"):
        GGUFExporter(small).convert("F32")
    (small / "model.safetensors").write_bytes(b"\xff" * 64)
    with pytest.raises(InputError, match=r"model\.safetensors is no file of safetensors"):
        GGUFExporter(small).convert("F32")
    header = json.dumps({"a": {"dtype": [None], "shape": [1], "data_offsets": [0, 4]}}).encode()
    (small / "model.safetensors").write_bytes(len(header).to_bytes(8, "little") + header + bytes(4))
    with pytest.raises(InputError, match=r"a is of type \[None\]; only F32"):
        GGUFExporter(small).convert("F32")
    header = json.dumps({"a": {"dtype": "F32", "shape": [1], "data_offsets": [0]}}).encode()
    (small / "model.safetensors").write_bytes(len(header).to_bytes(8, "little") + header + bytes(4))
    with pytest.raises(InputError, match=r"model\.safetensors is no file of safetensors"):
        GGUFExporter(small).convert("F32")
    (small / "model.safetensors").unlink()
    (small / "model.safetensors.index.json").write_text(json.dumps({"weight_map": {"a": "../elsewhere.safetensors"}}))
    with pytest.raises(InputError, match="no such file beside it"):
        GGUFExporter(small).convert("F32")


def test_what_was_typed_wrong_is_said_at_once(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="is not a folder"):
        GGUFExporter(tmp_path / "nothing")
    exporter = GGUFExporter(tmp_path)
    with pytest.raises(InputError, match="'Q5' is no type"):
        exporter.convert("Q5")
    with pytest.raises(InputError, match="name a folder"):
        exporter.export(["F16", "F32"], out=tmp_path / "a.gguf")
    with pytest.raises(InputError, match=r"config\.json is missing|has no model\.safetensors"):
        exporter.convert("F16")


def test_a_file_is_readable_by_others(tmp_path: Path) -> None:
    path = GGUFExporter(embedded_weights("small"), threads=1).convert("F16", tmp_path / "model.gguf")
    if sys.platform != "win32":
        assert stat.S_IMODE(path.stat().st_mode) & 0o444 == 0o444


def test_a_type_that_is_written_here_needs_no_llama_cpp(small: Path, tmp_path: Path, monkeypatch: Any) -> None:
    monkeypatch.setitem(sys.modules, "llama_cpp", None)

    made = GGUFExporter(small).export(["F16"], out=tmp_path)

    assert made.files[0].path.is_file()
    assert (made.probed, made.files[0].cost) == (0, None)
    assert any("llama.cpp is not here" in note for note in made.notes)
    with pytest.raises(MissingExtra, match=re.escape(installing("gguf"))):
        GGUFExporter(small).export(["Q8_0"], out=tmp_path)


@pytest.mark.parametrize("shape", [[[1], 2], 1.5, [-3]])
def test_a_shape_that_no_tensor_has_is_named_with_its_file(tmp_path: Path, shape: object) -> None:
    header = json.dumps({"w": {"dtype": "F32", "shape": shape, "data_offsets": [0, 8]}}).encode()
    (tmp_path / "model.safetensors").write_bytes(struct.pack("<Q", len(header)) + header + bytes(8))
    with pytest.raises(InputError, match=r"model\.safetensors"):
        open_tensors(tmp_path).load("w")
