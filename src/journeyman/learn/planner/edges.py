"""Who follows whom: given the subtasks of a plan in order, how likely each needs the output of each earlier one.

Two small networks, each an average of several: one says whether the plan is a chain, has no edges at all, or is mixed; the
other, for each pair of a mixed plan, whether there is an edge. `link` makes edges of what they say. Only numpy is needed.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from journeyman.errors import InputError
from journeyman.learn.planner.edge_features import Draft, Numbers
from journeyman.learn.planner.edge_link import Likely, Parents, link

__all__ = ["Draft", "Edges", "Likely", "Parents", "link"]


@dataclass(frozen=True, kw_only=True)
class Edges:
    """What was learned about who follows whom. `edge_fit.fit` makes one."""

    embedder: str
    """The name of the embedder whose vectors it reads."""
    arrays: Mapping[str, NDArray[np.float32]] = field(repr=False)
    """The principal axes of the vectors, and the weights of the networks for pairs and for plans."""

    def predict(self, draft: Draft) -> Likely:
        """How likely each plan is. The same draft gives the same numbers, and only pairs (i, j) with i < j get any.

        Raises:
            InputError: The draft's vectors are not as long as those it learned from.
        """
        if draft.vector.shape != self.arrays["request_mean"].shape:
            learned, given = len(self.arrays["request_mean"]), draft.vector.shape[-1]
            raise InputError(
                f"who follows whom was learned from {learned} numbers a text ({self.embedder}), but these have {given}"
            )
        n = len(draft.texts)
        mixed = np.zeros((n, n))
        if n < 2:
            return Likely(chain=1.0, loose=0.0, mixed=mixed)
        pair_rows, plan_row = self.rows(draft)
        scores = self._answers("pair", pair_rows)
        mixed[draft.pairs] = ((1 + np.tanh(scores[..., 0] / 2)) / 2).mean(0)
        shape = self._answers("plan", plan_row[None])[:, 0]
        likely = np.exp(shape - shape.max(1, keepdims=True))
        chain, loose, _ = (likely / likely.sum(1, keepdims=True)).mean(0)
        return Likely(chain=float(chain), loose=float(loose), mixed=mixed)

    def rows(self, draft: Draft) -> tuple[Numbers, Numbers]:
        """What the two networks are shown: a row for each pair, and one for the plan."""
        request = (draft.vector - self.arrays["request_mean"]) @ self.arrays["request_axes"]
        texts = (draft.vectors - self.arrays["text_mean"]) @ self.arrays["text_axes"]
        before, after = draft.pairs
        shared = np.tile(np.concatenate([draft.of_plan, request]), (len(before), 1))
        pairs = np.hstack([draft.of_pairs, shared, texts[before], texts[after], texts[before] * texts[after]])
        return pairs, np.concatenate([draft.of_plan, request, texts.mean(0), texts[-1], texts.std(0)])

    def _answers(self, head: str, rows: Numbers) -> Numbers:
        """Of each network in turn; shape (bags, rows, answers)."""
        get = {name: self.arrays[f"{head}_{name}"].astype(float) for name in ("in", "in_bias", "out", "out_bias")}
        hidden = np.maximum(rows @ get["in"] + get["in_bias"][:, None], 0)
        answers: Numbers = hidden @ get["out"] + get["out_bias"][:, None]
        return answers
