from contextlib import suppress
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from journeyman.core.errors import InputError
from journeyman.optimizers.weights.gguf.contents import read_header
from tests.support.ggufs import CHATML, TINY, gguf


def test_a_header_tells_what_serving_needs(tmp_path: Path) -> None:
    header = read_header(gguf(tmp_path / "tiny.gguf", weights=b"0" * 100))
    assert (header.architecture, header.name, header.quantization) == ("qwen2", "tiny", "Q8_0")
    assert (header.context_length, header.vocabulary, header.licence) == (2048, 3, "apache-2.0")
    assert (header.token("eos"), header.token("bos"), header.adds_bos) == ("<|im_end|>", "", False)
    assert header.chat_template == CHATML
    assert header.size == (tmp_path / "tiny.gguf").stat().st_size


def test_a_token_of_the_cache_is_counted_by_its_key_value_heads(tmp_path: Path) -> None:
    header = read_header(gguf(tmp_path / "tiny.gguf"))
    assert header.cache_values == 28 * 2 * (128 + 128)


def test_layers_may_have_different_heads(tmp_path: Path) -> None:
    values = {**TINY, "qwen2.attention.head_count_kv": (2, 4), "qwen2.block_count": 2, "qwen2.attention.key_length": 64}
    assert read_header(gguf(tmp_path / "tiny.gguf", values)).cache_values == 6 * (64 + 128)


def test_what_the_file_does_not_tell_is_unknown(tmp_path: Path) -> None:
    header = read_header(gguf(tmp_path / "bare.gguf", {"general.architecture": "llama"}))
    assert (header.cache_values, header.context_length, header.quantization) == (None, None, None)
    assert header.token("eos") == ""


def test_it_reads_what_llama_cpps_own_writer_writes(tmp_path: Path) -> None:
    writer_of = pytest.importorskip("gguf", reason="needs the extra: pip install 'journeyman[gguf]'")
    writer = writer_of.GGUFWriter(tmp_path / "one.gguf", "llama")
    writer.add_context_length(512)
    writer.add_token_list(["<s>", "</s>"])
    writer.add_bos_token_id(0)
    writer.add_add_bos_token(True)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.close()
    header = read_header(tmp_path / "one.gguf")
    assert (header.architecture, header.context_length, header.token("bos"), header.adds_bos) == ("llama", 512, "<s>", True)


@given(cut=st.integers(min_value=4, max_value=600))
def test_a_file_cut_anywhere_is_refused_in_a_sentence(tmp_path_factory: pytest.TempPathFactory, cut: int) -> None:
    whole = gguf(tmp_path_factory.mktemp("cut") / "tiny.gguf")
    content = whole.read_bytes()
    whole.write_bytes(content[: min(cut, len(content) - 1)])
    with pytest.raises(InputError, match="ends in the middle"):
        read_header(whole)


@given(content=st.binary(max_size=200))
def test_no_bytes_make_it_fail_otherwise(tmp_path_factory: pytest.TempPathFactory, content: bytes) -> None:
    path = tmp_path_factory.mktemp("any") / "any.gguf"
    path.write_bytes(b"GGUF\x03\0\0\0" + b"\0" * 8 + b"\x01" + b"\0" * 7 + content)
    with suppress(InputError):
        assert read_header(path).path == path


def test_another_version_says_what_to_do(tmp_path: Path) -> None:
    (tmp_path / "old.gguf").write_bytes(b"GGUF\x01\0\0\0")
    with pytest.raises(InputError, match=r"version 1; .* convert the model again"):
        read_header(tmp_path / "old.gguf")
