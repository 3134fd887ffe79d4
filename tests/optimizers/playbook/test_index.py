import importlib.util
import re

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from journeyman.core.errors import MissingExtra
from journeyman.core.installation import installing
from journeyman.models.embedders import Vectors
from journeyman.optimizers.playbook.index import Index, MatrixShelf, alike

needs_faiss = pytest.mark.skipif(importlib.util.find_spec("faiss") is None, reason="the extra `faiss` is not installed")


def units(count: int, seed: int = 0, dimensions: int = 16) -> Vectors:
    rows = np.random.default_rng(seed).standard_normal((count, dimensions)).astype(np.float32)
    return np.asarray(rows / np.linalg.norm(rows, axis=1, keepdims=True), np.float32)


def names(count: int) -> list[str]:
    return [f"b-{number}" for number in range(count)]


@given(st.integers(0, 12), st.integers(0, 9000), st.sampled_from([0.3, 0.5, 0.7]), st.integers(1, 5))
def test_finds_what_a_plain_loop_finds(new: int, held: int, threshold: float, k: int) -> None:
    queries, vectors = units(new, 1), units(held, 2)
    shelf = MatrixShelf()
    shelf.put(names(held), vectors)
    products = queries @ vectors.T
    for hits, row in zip(shelf.search(queries, threshold, k), products, strict=True):
        best = sorted((-value, place) for place, value in enumerate(row.tolist()) if value >= threshold)[:k]
        assert [id for id, _ in hits] == [f"b-{place}" for _, place in best]


def test_of_equals_the_older_comes_first() -> None:
    shelf = MatrixShelf()
    same = np.repeat(units(1), 9000, axis=0)
    shelf.put(names(9000), same)
    (hits,) = shelf.search(same[:1], 0.8, 3)
    assert [id for id, _ in hits] == ["b-0", "b-1", "b-2"]


def test_growing_one_at_a_time_is_growing_at_once() -> None:
    slowly, at_once = MatrixShelf(), MatrixShelf()
    vectors = units(200)
    at_once.put(names(200), vectors)
    for id, vector in zip(names(200), vectors, strict=True):
        slowly.put([id], vector[None])
    assert slowly.ids == at_once.ids
    assert np.array_equal(slowly.vectors, at_once.vectors)
    assert slowly.vectors.flags.c_contiguous


def test_a_removed_bullet_is_not_found_and_a_replaced_one_only_where_it_now_is() -> None:
    shelf, vectors = MatrixShelf(), units(3)
    shelf.put(names(3), vectors)
    shelf.remove(["b-0", "never there"])
    shelf.put(["b-1"], vectors[:1])
    found = shelf.search(vectors, 0.99, 3)
    assert [[id for id, _ in hits] for hits in found] == [["b-1"], [], ["b-2"]]


def test_domains_are_isolated() -> None:
    index, vectors = Index(), units(1)
    index.put("oslo", ["b-1"], vectors)
    assert index.search("rome", vectors, 0.5) == [[]]
    assert [id for id, _ in index.search("oslo", vectors, 0.5)[0]] == ["b-1"]
    index.remove("oslo", ["b-1"])
    assert index.search("oslo", vectors, 0.5) == [[]]


@given(st.integers(0, 60), st.integers(0, 70), st.booleans())
def test_top_is_the_head_of_the_sorted_list(held: int, k: int, weighted: bool) -> None:
    shelf, vectors, query = MatrixShelf(), units(held), units(1, 5)[0]
    shelf.put(names(held), vectors.reshape(held, 16))
    shelf.remove(names(held)[:3])
    weights = np.linspace(0.1, 1, held) if weighted else np.ones(held)
    scores = (vectors.reshape(held, 16) @ query) * weights
    expected = sorted(range(3, held), key=lambda row: -scores[row])[:k]
    assert [id for id, _ in shelf.top(query, k, weights if weighted else None)] == [f"b-{row}" for row in expected]


def test_a_batch_knows_its_own_duplicates() -> None:
    one, other = units(2)
    assert alike(np.stack([one, other, one, one]), 0.8) == [[], [], [0], [0, 2]]
    assert alike(units(0), 0.8) == []


@pytest.mark.skipif(importlib.util.find_spec("faiss") is not None, reason="the extra is installed")
def test_a_missing_extra_says_what_to_type() -> None:
    with pytest.raises(MissingExtra, match=re.escape(installing("faiss"))):
        importlib.import_module("journeyman.optimizers.playbook.faiss_index")


@needs_faiss
def test_the_graph_finds_what_the_matrix_finds() -> None:
    from journeyman.optimizers.playbook.faiss_index import FaissShelf

    index, exact, vectors = Index(FaissShelf), Index(), units(500, dimensions=32)
    for each in (index, exact):
        each.put("oslo", names(500), vectors)
        each.put("oslo", ["b-7"], vectors[8:9])
        each.remove("oslo", ["b-9"])
    found = [[id for id, _ in hits] for hits in index.search("oslo", vectors, 0.95, 1)]
    same = [[id for id, _ in hits] for hits in exact.search("oslo", vectors, 0.95, 1)]
    assert sum(mine == theirs for mine, theirs in zip(found, same, strict=True)) > 490
    assert found[9] == []
