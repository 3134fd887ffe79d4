from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pytest

from journeyman.models.embedders import Cached, HashingEmbedder, Vectors


class Counting:
    """Remembers what it was asked."""

    name = "counting"

    def __init__(self) -> None:
        self.asked: list[str] = []

    def embed(self, texts: Sequence[str]) -> Vectors:
        self.asked.extend(texts)
        return HashingEmbedder(8).embed(texts)


def test_a_text_is_embedded_once_also_within_a_call() -> None:
    inner = Counting()
    cached = Cached(inner)
    first = cached.embed(["a", "b", "a"])
    second = cached.embed(["b", "c"])
    assert inner.asked == ["a", "b", "c"]
    assert np.array_equal(first, HashingEmbedder(8).embed(["a", "b", "a"]))
    assert np.array_equal(second, HashingEmbedder(8).embed(["b", "c"]))
    assert cached.misses == 3


def test_no_texts_are_no_rows_of_the_right_width() -> None:
    assert Cached(HashingEmbedder(8)).embed([]).shape == (0, 8)


def test_a_saved_cache_is_found_again(tmp_path: Path) -> None:
    path = tmp_path / "deep" / "vectors.npz"
    before = Cached(Counting(), path)
    before.embed(["a", "b"])
    before.save()
    inner = Counting()
    after = Cached(inner, path)
    assert np.array_equal(after.embed(["b", "a"]), HashingEmbedder(8).embed(["b", "a"]))
    assert inner.asked == []
    assert [file.name for file in path.parent.iterdir()] == ["vectors.npz"]


def test_vectors_of_two_embedders_never_meet(tmp_path: Path) -> None:
    path = tmp_path / "vectors.npz"
    before = Cached(HashingEmbedder(8), path)
    before.embed(["a"])
    before.save()
    inner = Counting()
    Cached(inner, path).embed(["a"])
    assert inner.asked == ["a"]


@pytest.mark.parametrize("broken", [b"", b"not a cache", b"PK\x03\x04 cut off"])
def test_a_broken_cache_is_as_good_as_none(tmp_path: Path, broken: bytes, caplog: pytest.LogCaptureFixture) -> None:
    path = tmp_path / "vectors.npz"
    path.write_bytes(broken)
    assert Cached(HashingEmbedder(8), path).embed(["a"]).shape == (1, 8)
    assert "made anew" in caplog.text


def test_without_a_path_saving_does_nothing() -> None:
    cached = Cached(HashingEmbedder(8))
    cached.embed(["a"])
    cached.save()
