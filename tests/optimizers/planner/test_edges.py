"""Who follows whom, learned from real plans."""

import gzip
import json
from functools import cache
from itertools import product
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from safetensors.numpy import load_file, save_file

from journeyman.core.errors import InputError
from journeyman.models import embedders
from journeyman.models.embedders import Cached
from journeyman.optimizers.planner import edges as edge_files
from journeyman.optimizers.planner.config import EdgeFitConfig
from journeyman.optimizers.planner.edges import (
    CHAIN,
    LOOSE,
    MIXED,
    Draft,
    Edges,
    Likely,
    Linked,
    Parents,
    fit,
    link,
)

pytestmark = pytest.mark.training

PLANS = Path(__file__).parents[2] / "data" / "worfbench" / "plans.jsonl.gz"
QUICK = EdgeFitConfig(epochs=2, least_steps=0, bags=2)


@cache
def drawn() -> list[Linked]:
    """400 plans, in the order in which they were drawn."""
    embedder = Cached(embedders.load("hashing"))
    with gzip.open(PLANS, "rt", encoding="utf-8") as file:
        rows = [json.loads(line) for line in file]
    return [linked(row["task"], row["nodes"], row["edges"], embedder) for row in rows]


@cache
def learned() -> Edges:
    return fit(drawn()[:60], embedder="hashing:384", config=QUICK)


@pytest.fixture
def plans() -> list[Linked]:
    return drawn()


@pytest.fixture
def edges() -> Edges:
    return learned()


def linked(task: str, nodes: list[str], pairs: list[list[int]], embedder: embedders.Embedder) -> Linked:
    parents = tuple(tuple(sorted(i for i, j in pairs if j == at)) for at in range(len(nodes)))
    return Linked(draft=Draft.of(task, nodes, embedder), parents=parents)


def draft(*texts: str, dimensions: int = 384) -> Draft:
    return Draft.of("Compare the two cities", texts, embedders.load(f"hashing:{dimensions}"))


def pairs_of(parents: Parents) -> set[tuple[int, int]]:
    return {(i, j) for j, each in enumerate(parents) for i in each}


def f1(said: set[tuple[int, int]], gold: set[tuple[int, int]]) -> float:
    return 2 * len(said & gold) / (len(said) + len(gold)) if said or gold else 1.0


def chain_of(n: int) -> Parents:
    return tuple((at - 1,) if at else () for at in range(n))


def test_plans_it_has_not_seen_are_linked_better_than_as_a_chain(plans: list[Linked]) -> None:
    edges = fit(plans[:260], embedder="hashing:384")
    test = plans[260:]
    ours = np.array([f1(pairs_of(link(edges.predict(plan.draft))), pairs_of(plan.parents)) for plan in test])
    chain = np.array([f1(pairs_of(chain_of(len(plan.parents))), pairs_of(plan.parents)) for plan in test])
    other = np.array([plan.shape != CHAIN for plan in test])
    assert ours[other].mean() > chain[other].mean() + 0.15
    assert ours.mean() > chain.mean() + 0.02


def test_what_was_learned_survives_a_file_and_makes_the_same_bytes(edges: Edges, plans: list[Linked], tmp_path: Path) -> None:
    edge_files.save(edges, tmp_path / "edges.safetensors")
    found = edge_files.load(tmp_path / "edges.safetensors")
    edge_files.save(found, tmp_path / "again.safetensors")
    assert (tmp_path / "edges.safetensors").read_bytes() == (tmp_path / "again.safetensors").read_bytes()
    assert found.embedder == "hashing:384"
    for plan in plans[60:80]:
        before, after = edges.predict(plan.draft), found.predict(plan.draft)
        assert (before.chain, before.loose) == (after.chain, after.loose)
        assert np.array_equal(before.mixed, after.mixed)


def test_learning_twice_from_the_same_plans_gives_the_same(plans: list[Linked], edges: Edges) -> None:
    again = fit(plans[:60], embedder="hashing:384", config=QUICK)
    assert all(np.array_equal(again.arrays[name], array) for name, array in edges.arrays.items())


def test_the_numbers_are_probabilities_and_only_of_earlier_subtasks(edges: Edges, plans: list[Linked]) -> None:
    for plan in plans[60:120]:
        likely = edges.predict(plan.draft)
        assert likely.chain >= 0
        assert likely.loose >= 0
        assert likely.chain + likely.loose <= 1 + 1e-9
        for found in (likely.mixed, likely.edges):
            assert np.array_equal(found, np.triu(found, 1))
            assert found.min() >= 0
            assert found.max() <= 1 + 1e-9


@given(weights=st.integers(0, 2**32 - 1), size=st.floats(0, 1e6), n=st.integers(0, 9))
def test_no_weights_whatever_make_a_circle(weights: int, size: float, n: int) -> None:
    chance = np.random.default_rng(weights)
    wild = {name: (size * chance.standard_normal(array.shape)).astype(np.float32) for name, array in learned().arrays.items()}
    texts = [f"step {chance.integers(5)}" for _ in range(n)]
    found = link(Edges(embedder="hashing:384", arrays=wild).predict(draft(*texts)))
    assert len(found) == n
    assert all(parent < at for at, parents in enumerate(found) for parent in parents)


@given(st.integers(2, 4), st.integers(0, 2**32 - 1))
def test_of_a_small_plan_the_edges_with_the_largest_expected_f1_are_found(n: int, seed: int) -> None:
    chance = np.random.default_rng(seed)
    chain, loose, _ = chance.dirichlet([1, 1, 1])
    likely = Likely(chain=chain, loose=loose, mixed=np.triu(chance.random((n, n)), 1))
    pairs = [(i, j) for j in range(n) for i in range(j)]
    worlds = []
    for world in product((False, True), repeat=len(pairs)):
        chosen = {pair for pair, there in zip(pairs, world, strict=True) if there}
        weight = (1 - chain - loose) * np.prod(
            [likely.mixed[i, j] if (i, j) in chosen else 1 - likely.mixed[i, j] for i, j in pairs]
        )
        worlds.append((chosen, weight + chain * (chosen == pairs_of(chain_of(n))) + loose * (not chosen)))

    def expected(said: set[tuple[int, int]]) -> float:
        return sum(float(weight) * f1(said, gold) for gold, weight in worlds)

    assert expected(pairs_of(link(likely))) == pytest.approx(max(expected(said) for said, _ in worlds))


def test_a_plan_that_is_surely_one_thing_is_that() -> None:
    for n in (1, 2, 5, 6, 12):
        star = np.triu(np.zeros((n, n)), 1)
        star[0, 1:] = 1.0
        assert link(Likely(chain=1.0, loose=0.0, mixed=star)) == chain_of(n)
        assert link(Likely(chain=0.0, loose=1.0, mixed=star)) == ((),) * n
        assert link(Likely(chain=0.0, loose=0.0, mixed=star)) == tuple((0,) if at else () for at in range(n))


def test_between_a_chain_and_nothing_there_is_no_half_chain() -> None:
    likely = Likely(chain=0.45, loose=0.55, mixed=np.zeros((4, 4)))
    assert link(likely) == ((),) * 4
    assert np.all(np.diag(likely.edges, 1) == 0.45)


def test_nothing_and_one_subtask_follow_nobody(edges: Edges) -> None:
    assert link(edges.predict(draft())) == ()
    assert link(edges.predict(draft("Find the city"))) == ((),)


def test_long_plans_are_linked_too_and_the_same_each_time(edges: Edges) -> None:
    long = draft(*(f"Find the population of city {at}" for at in range(40)))
    assert link(edges.predict(long)) == link(edges.predict(long))


def test_a_step_that_takes_up_what_another_brought_in_is_told_from_one_that_does_not() -> None:
    seen = draft("Find the mayor of Oslo", "Find the weather in Rome", "Say how old that mayor is")
    before, after = seen.pairs
    rows = {(int(i), int(j)): row for i, j, row in zip(before, after, seen.of_pairs, strict=True)}
    assert not np.array_equal(rows[0, 2], rows[1, 2])
    assert all(np.isfinite(row).all() for row in rows.values())


@given(st.lists(st.text(max_size=40), max_size=6), st.text(max_size=40))
def test_any_text_has_features(texts: list[str], instruction: str) -> None:
    seen = Draft.of(instruction, texts, embedders.load("hashing:8"))
    if texts:
        assert np.isfinite(seen.of_pairs).all()
        assert np.isfinite(seen.of_plan).all()
        assert len(seen.of_pairs) == len(texts) * (len(texts) - 1) // 2


def test_shapes_are_told_apart() -> None:
    for parents, shape in (
        (((), (0,), (1,)), CHAIN),
        (((), (), ()), LOOSE),
        (((), (), (0, 1)), MIXED),
        (((), (0,), (0, 1)), MIXED),
    ):
        assert Linked(draft=draft("a", "b", "c"), parents=parents).shape == shape


def test_plans_that_cannot_be_learned_from_are_refused() -> None:
    with pytest.raises(InputError, match="does not stand before it"):
        Linked(draft=draft("a", "b"), parents=((1,), ()))
    with pytest.raises(InputError, match="as many entries"):
        Linked(draft=draft("a", "b"), parents=((),))
    with pytest.raises(InputError, match="two subtasks"):
        fit([Linked(draft=draft("a"), parents=((),))], embedder="hashing:384")
    with pytest.raises(InputError, match="need vectors"):
        Draft(instruction="a", texts=("b",), vector=np.zeros(3, np.float32), vectors=np.zeros((2, 3), np.float32))


def test_plans_without_a_mixed_one_can_be_learned_from() -> None:
    chains = [Linked(draft=draft("Search", "Read"), parents=((), (0,))) for _ in range(4)]
    found = fit(chains, embedder="hashing:384", config=EdgeFitConfig(bags=1))
    assert link(found.predict(draft("Search", "Read"))) == ((), (0,))


def test_a_few_plans_are_enough_to_repeat_them() -> None:
    past = [
        Linked(draft=draft("Find Ann's height", "Find Bo's height", "Compare both heights"), parents=((), (), (0, 1))),
        Linked(draft=draft("Find the report", "Send it to Ann"), parents=((), (0,))),
        Linked(draft=draft("Get the news", "Get the weather"), parents=((), ())),
    ]
    found = fit(past * 5, embedder="hashing:384", config=EdgeFitConfig(bags=2))
    assert [link(found.predict(plan.draft)) for plan in past] == [plan.parents for plan in past]


def test_vectors_of_another_length_are_refused(edges: Edges) -> None:
    with pytest.raises(InputError, match="384 numbers"):
        edges.predict(draft("a", "b", dimensions=8))


def test_files_that_are_something_else_are_refused(edges: Edges, tmp_path: Path) -> None:
    file = tmp_path / "edges.safetensors"
    with pytest.raises(InputError, match="is not there"):
        edge_files.load(file)
    edge_files.save(edges, file)
    arrays, whole = load_file(file), file.read_bytes()
    said = '{"embedder": "hashing:384", "format": "journeyman-edges-1"}'
    spoilt = (
        {**arrays, "pair_in": arrays["pair_in"][:, 1:]},
        {**arrays, "plan_out_bias": np.full_like(arrays["plan_out_bias"], np.nan)},
        {name: array for name, array in arrays.items() if name != "text_axes"},
    )
    for wrong in spoilt:
        save_file({name: np.ascontiguousarray(array) for name, array in wrong.items()}, file, {"journeyman": said})
        with pytest.raises(InputError, match="check that it is the right file"):
            edge_files.load(file)
    save_file(dict(arrays), file, {"journeyman": said.replace("edges-1", "edges-9")})
    with pytest.raises(InputError, match="edges-9"):
        edge_files.load(file)
    for content in (whole[:-9], b"", b"not safetensors at all"):
        file.write_bytes(content)
        with pytest.raises(InputError, match="check that it is the right file"):
            edge_files.load(file)
