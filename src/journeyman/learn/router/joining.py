"""A new worker among old ones: what was asked of it is kept, and what was not is filled in from how hard the requests are.

So a predictor can be fitted to a worker that has answered 20 to 50 requests, beside others that have answered thousands.
"""

from dataclasses import replace

import numpy as np

from journeyman.learn.router.irt import fit, place
from journeyman.learn.router.table import Floats, Table

FEWEST = 5
"""Judged answers from which on a worker is placed; with less too little is known to say anything of it."""


def newcomers(table: Table, most: float = 0.2) -> tuple[str, ...]:
    """Workers of whom at least `FEWEST` answers were judged, but at most this share of the rows that another has."""
    judged = (~np.isnan(table.success)).sum(axis=0)
    few = (judged >= FEWEST) & (judged <= most * judged.max(initial=0))
    return tuple(worker for worker, new in zip(table.workers, few.tolist(), strict=True) if new)


def joined(table: Table, workers: tuple[str, ...]) -> Table:
    """The table with what these workers were not asked filled in; hand it rows to learn from, never those to test on.

    Success is the probability by item response theory (`irt`), with difficulties from the other workers. Cost and seconds are
    the others' means for the request, times the ratio of the worker's to them on the requests that it was asked.
    """
    old = np.asarray([worker not in workers for worker in table.workers], np.bool_)
    judged = (~np.isnan(table.success[:, old])).any(axis=1)
    if not workers or (~np.isnan(table.success[judged][:, old])).any(axis=0).sum() < 2 or judged.sum() < 2:
        return table
    bank = fit(table.success[judged][:, old])
    success, cost, seconds = table.success.copy(), table.cost.copy(), table.seconds.copy()
    for column in np.flatnonzero(~old).tolist():
        told = success[judged, column]
        asked = np.flatnonzero(~np.isnan(told))
        success[judged, column] = place(bank, asked, told[asked]).success
        cost[:, column] = _scaled(table.cost, column, old)
        seconds[:, column] = _scaled(table.seconds, column, old)
    return replace(table, success=success, cost=cost, seconds=seconds)


def _scaled(values: Floats, column: int, old: "np.ndarray[tuple[int], np.dtype[np.bool_]]") -> Floats:
    """A column with its holes filled by the others' means, as much larger as it is where both are known."""
    known = ~np.isnan(values[:, old])
    counts = known.sum(axis=1)
    means = np.where(counts, np.where(known, values[:, old], 0.0).sum(axis=1) / np.maximum(counts, 1), np.nan)
    own = values[:, column]
    both = ~np.isnan(own) & ~np.isnan(means)
    if not both.any() or not means[both].sum():
        return own
    return np.where(np.isnan(own), means * (own[both].sum() / means[both].sum()), own)
