"""A new model among known ones: which few requests to ask it, and what its answers tell of all the others."""

from collections.abc import Sequence
from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from journeyman.errors import InputError
from journeyman.learn.router import irt
from journeyman.learn.router.shrink import group_sums
from journeyman.optimizers.outcome_table import Table
from journeyman.optimizers.splits import key
from journeyman.stats import Floats

LEAST = 5
"""Judged answers by which a newcomer is placed; 20 to 50 place it well."""


def questions(table: Table, rows: Sequence[int], count: int) -> tuple[int, ...]:
    """Which of these rows tell the most of a model that nobody has asked yet, the easiest first; each request once.

    Raises:
        InputError: Fewer than two workers have answered them.
    """
    places: dict[str, int] = {}
    for row in rows:
        if not np.isnan(table.success[row]).all():
            places.setdefault(table.requests[row], row)
    among = np.array(list(places.values()), np.int64)
    found = irt.anchors(irt.fit(table.success[among]), count)
    return tuple(among[found].tolist())


def placed(table: Table, rows: Sequence[int], newcomers: Sequence[str]) -> Table:
    """The table with the success of newcomers filled in on these rows, where they were not asked: what item response theory
    expects of somebody with their answers (`learn.router.irt`). What they were asked stays as it is.

    Raises:
        InputError: A newcomer is none of the workers, or has too few judged answers on these rows.
    """
    at = np.asarray(rows, np.int64)
    found, own = np.unique([key(table.requests[row]) for row in rows], return_inverse=True)
    # Whoever asked under another id, or twice, asked the same question.
    right = _means(table.success[at], own, len(found))
    known = [column for column, name in enumerate(table.workers) if name not in newcomers]
    bank = irt.fit(right[:, known])
    success = table.success.copy()
    for name in newcomers:
        told = right[:, table.workers.index(name)] if name in table.workers else np.array([])
        asked = np.flatnonzero(~np.isnan(told))
        if len(asked) < LEAST:
            raise InputError(
                f"{name!r} is new, and {len(asked)} of its answers are judged on requests to learn from; bring at least "
                f"{LEAST}, to what `journeyman route anchors` writes"
            )
        success[at, table.workers.index(name)] = irt.place(bank, asked, told[asked]).success[own]
    return replace(table, success=success)


def _means(values: Floats, groups: NDArray[np.int64], size: int) -> Floats:
    """(size, m): means by group; NaN where nothing is known."""
    sums, _, counts = group_sums(values, groups, size)
    return np.where(counts, sums / np.maximum(counts, 1), np.nan)
