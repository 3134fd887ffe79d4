"""Innovation: how far a solution is from the earlier ones. Off by default, because it can be gamed.

    innovation = passed · (1 - the largest Jaccard similarity to an earlier solution)

Compared are runs of five syntax-tree tokens with names and constants left out, so renaming changes nothing. Padding with
needless code does, and so does any odd detour: use it to look at a population of solutions, or with a small weight.
"""

import ast
from collections.abc import Iterator
from dataclasses import dataclass

from journeyman.rewards.base import RewardResult
from journeyman.rewards.development.work import Work, parsed, unknown

_RUN = 5


@dataclass(frozen=True, slots=True)
class Innovation:
    """How far it is from earlier solutions. Off by default: it can be gamed."""

    name: str = "innovation"

    def compute(self, work: Work) -> RewardResult:
        """Unknown without earlier solutions, without changed Python, and without a verdict of the checks."""
        trees, _ = parsed(work.changed)
        before, _ = parsed({str(place): text for place, text in enumerate(work.earlier)})
        if not trees or not before:
            return unknown("there is no earlier solution to compare with" if trees else "no Python was written")
        if work.passed is None:
            return unknown("whether it works is unknown, and what does not work is no innovation")
        mine = shingles(*trees.values())
        nearest = max(similarity(mine, shingles(tree)) for tree in before.values())
        told = f"similarity {nearest:.2f} to the nearest of {len(before)} earlier solutions"
        return RewardResult(score=work.passed * (1 - nearest), details={"evidence": told, "similarity": nearest})


def shingles(*trees: ast.Module) -> frozenset[tuple[str, ...]]:
    """Every run of tokens, of all trees together."""
    found = set()
    for tree in trees:
        tokens = list(_tokens(tree))
        found |= {tuple(tokens[at : at + _RUN]) for at in range(max(1, len(tokens) - _RUN + 1))}
    return frozenset(found)


def similarity(one: frozenset[tuple[str, ...]], other: frozenset[tuple[str, ...]]) -> float:
    """Jaccard's: what they share of what they have, 0 to 1."""
    both = one | other
    return len(one & other) / len(both) if both else 1.0


def _tokens(node: ast.AST) -> Iterator[str]:
    """The kinds of nodes, parents first, with no names, constants and docstrings."""
    for child in ast.iter_child_nodes(node):
        if isinstance(child, ast.expr_context) or (isinstance(child, ast.Expr) and isinstance(child.value, ast.Constant)):
            continue
        yield type(child).__name__
        yield from _tokens(child)
