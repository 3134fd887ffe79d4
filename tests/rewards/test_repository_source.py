"""What is told of a repository's code without running it."""

from journeyman.rewards.repository.instructions import as_fast, most
from journeyman.rewards.repository.source import cycles, hiding, imports, more_tangled, not_offered_alike, reached, tangled
from journeyman.tasks.repository.tree import Tree

CODE = {
    "parcels/__init__.py": "from .rates import price\n",
    "parcels/rates.py": "from typing import TYPE_CHECKING\nif TYPE_CHECKING:\n    from parcels import labels\n"
    "def price(grams, country='NO'):\n    return grams if grams > 0 else 0\n",
    "parcels/labels.py": "def label(grams):\n    from . import rates\n    return rates.price(grams)\n",
}


def tree(**changed: str) -> Tree:
    """The package, with other modules."""
    files = CODE | {f"parcels/{name}.py": text for name, text in changed.items()}
    return Tree({path: text.encode() for path, text in files.items()})


def test_imports_are_those_of_functions_too_but_not_those_for_types_alone() -> None:
    graph = imports(tree())
    assert graph["parcels.labels"] == {"parcels.rates"}
    assert graph["parcels.rates"] == frozenset()
    assert cycles(graph) == frozenset()


def test_a_cycle_is_closed_by_one_import() -> None:
    graph = imports(tree(rates="import parcels.labels\n"))
    assert cycles(graph) == {("parcels.labels", "parcels.rates")}
    assert "parcels.labels" in reached(graph, "parcels")


def test_what_is_offered_is_names_with_their_parameters() -> None:
    assert not_offered_alike(tree(), tree(labels=f"{CODE['parcels/labels.py']}\ndef _own():\n    pass\n")) == ""
    assert "price" in not_offered_alike(tree(), tree(rates="def price(grams):\n    return grams\n"))
    assert "gone" in not_offered_alike(tree(), tree(labels=""))


def test_code_that_is_hidden_is_named() -> None:
    assert hiding(tree(), tree()) == ""
    for more in ("x = eval('1')", "import importlib", "from sys import modules", "x = 1  # noqa", "import subprocess as s"):
        assert hiding(tree(), tree(labels=f"{CODE['parcels/labels.py']}\n{more}\n")), more


def test_complexity_moved_into_a_helper_or_a_lambda_is_seen() -> None:
    branches = " or ".join(f"grams == {number}" for number in range(6))
    before = tangled(tree())
    assert before["parcels/rates.py", "price"] == 2
    helper = tangled(tree(labels=f"def _own(grams):\n    return {branches}\n"))
    assert "_own" in more_tangled(before, helper, 4)
    assert more_tangled(before, helper, 6) == ""
    assert tangled(tree(rates=f"def price(grams):\n    return (lambda: {branches})()\n"))["parcels/rates.py", "price"] == 6
    assert "the module" in more_tangled(before, tangled(tree(labels=f"own = lambda grams: {branches}\n")), 4)


def test_whoever_was_stopped_before_the_largest_size_is_not_as_fast() -> None:
    right = (1_000_000, 4_000_000)
    allowed = [int(most(each)) for each in right]
    assert as_fast(allowed, right)
    assert not as_fast([allowed[0], allowed[1] + 2], right)
    assert not as_fast(allowed[:1], right)
    assert not as_fast((), right)
