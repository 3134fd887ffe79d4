"""What each step of a plan is told: its own words of the instruction, or what steps of its kind are always told.

Learned from the texts of past plans. Where a text stands in the instruction, two linear models find it again: one cuts so many
stretches out of the instruction as there are steps that are told some, the other says how well a stretch suits a card, and
stretches are dealt to the steps one to one (Kuhn, "The Hungarian method", 1955). Texts that do not stand there are kept as
they are, with the names of the steps that they stand on to be filled in.
"""

import re
import zlib
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.optimize import linear_sum_assignment, minimize
from scipy.sparse import csr_matrix
from scipy.special import expit

from journeyman.core.plan import Plan, Subtask
from journeyman.optimizers.planner.data import Example
from journeyman.optimizers.planner.features import EncodedInstruction
from journeyman.optimizers.planner.memory import Floats, step_of, words

SAID = ""
"""The template of a text that stands in the instruction."""
_SIZE = 1 << 15
"""Weights of each model, found by a feature's hash."""
_DECAY = 0.3
_TOKEN = re.compile(r"\w+|[^\w\s]")
_SLOT = re.compile(r"\{(\d)\}")
_SURE = 0.5
"""Share of the steps of one kind that must have been told the same, for the next one to be told it."""
_ANCHOR = 1.5
"""Log-odds that a step's stretch gains where it stands in the clause that the step comes from."""

Span = tuple[int, int]
"""First token and the one after the last."""


@dataclass(frozen=True, slots=True)
class _Tokens:
    """An instruction in words and signs."""

    said: str
    ends: tuple[Span, ...]
    """Where each stands among the characters."""
    shapes: tuple[str, ...]
    """Lower case, and numbers all alike."""

    @classmethod
    def of(cls, said: str) -> "_Tokens":
        found = [match.span() for match in _TOKEN.finditer(said)]
        return cls(said, tuple(found), tuple(re.sub(r"\d+", "0", said[a:b].lower()) for a, b in found))

    def text(self, span: Span) -> str:
        return self.said[self.ends[span[0]][0] : self.ends[span[1] - 1][1]]

    def find(self, text: str, taken: Iterable[Span] = ()) -> Span | None:
        """Where a text stands, as whole words that are not taken yet."""
        starts = {a: at for at, (a, _) in enumerate(self.ends)}
        stops = {b: at + 1 for at, (_, b) in enumerate(self.ends)}
        used = {at for span in taken for at in range(*span)}
        wanted = text.strip()
        for match in re.finditer(re.escape(wanted), self.said, re.IGNORECASE) if wanted else ():
            span = starts.get(match.start(), -1), stops.get(match.end(), -1)
            if min(span) >= 0 and used.isdisjoint(range(*span)):
                return span
        return None


def has_texts(plan: Plan) -> bool:
    """Whether a plan says of its steps what each is told: where it does not, each is told the whole."""
    return len(plan.subtasks) == 1 or any(step.text.strip() not in ("", plan.instruction.strip()) for step in plan.subtasks)


def same(one: str, other: str) -> bool:
    """Whether two texts say the same, but for signs and capitals."""
    return _bag(one) == _bag(other)


def own_texts(made: Plan, right: Plan) -> float | None:
    """Share of the right plan's steps that are told their own words: nearer to what is right for them than to what is right for
    any other step of the plan, by the F1 of their words. A step that is not there is not told anything. `None` where the plan
    says nothing of texts."""
    if not has_texts(right) or not right.subtasks:
        return None
    texts: dict[tuple[str, str], list[str]] = {}
    for step in made.subtasks:
        texts.setdefault(step_of(step), []).append(step.text)
    known = [step.text for step in right.subtasks]
    good = 0
    for step in right.subtasks:
        heard = texts.get(step_of(step), [])
        text = heard.pop(0) if heard else ""
        own = _alike(text, step.text)
        good += own > max((_alike(text, other) for other in known if not same(other, step.text)), default=0.0)
    return good / len(known)


def _bag(text: str) -> Counter[str]:
    return Counter(re.findall(r"\w+", text.lower()))


def _alike(one: str, other: str) -> float:
    here, there = _bag(one), _bag(other)
    return 2 * (here & there).total() / max(1, here.total() + there.total())


def located(plan: Plan) -> dict[str, Span]:
    """Of each step whose text stands in the instruction, where. The longest is found first: a short one may stand in it."""
    if not has_texts(plan):
        return {}
    tokens = _Tokens.of(plan.instruction)
    found: dict[str, Span] = {}
    for step in sorted(plan.subtasks, key=lambda step: -len(step.text)):
        span = tokens.find(step.text, found.values())
        if span is not None:
            found[step.id] = span
    return found


def clause_of(instruction: str, clauses: Sequence[str], span: Span) -> int:
    """Which clause a stretch begins in."""
    begin, at, last = _Tokens.of(instruction).ends[span[0]][0], 0, 0
    for number, clause in enumerate(clauses):
        at = max(instruction.find(clause, at), at)
        if at > begin:
            break
        last = number
    return last


def asking(request: EncodedInstruction, places: Sequence[int], plan: Plan) -> dict[tuple[int, int], float]:
    """Of clauses and candidate cards, whether the one asks for the other, as far as the texts of the steps tell."""
    spans, columns = located(plan), np.searchsorted(request.candidates, places).tolist()
    said = {step.id: column for step, column in zip(plan.subtasks, columns, strict=True) if step.id in spans}
    # Of a card that some step is told otherwise nobody knows who asks for that step.
    known = set(said.values()) - {at for step, at in zip(plan.subtasks, columns, strict=True) if step.id not in spans}
    found = {(clause, column): 0.0 for clause in range(len(request.clauses)) for column in known}
    return found | {(clause_of(plan.instruction, request.clauses, spans[id]), column): 1.0 for id, column in said.items()}


# What is told by templates.


def _above(plan: Plan, step: Subtask) -> list[list[Subtask]]:
    """The step itself, those that it follows, those that these follow, and so on."""
    rows, seen = [[step]], {step.id}
    while rows[-1] and len(rows) < 4:
        ids = dict.fromkeys(id for each in rows[-1] for id in each.after if id not in seen)
        seen.update(ids)
        rows.append([plan.by_id[id] for id in ids])
    return rows


def _name(step: Subtask) -> str:
    return words(step.tool or step.type)


def _templated(plan: Plan, step: Subtask) -> str:
    """A text with the names of the steps that it stands on taken out."""
    text = step.text.replace("{", "(").replace("}", ")")
    for away, row in enumerate(_above(plan, step)):
        for name in dict.fromkeys(filter(None, map(_name, row))):
            text = re.sub(rf"(?<![\w{{]){re.escape(name)}(?![\w}}])", f"{{{away}}}", text, count=1, flags=re.IGNORECASE)
    return text


def _filled(template: str, plan: Plan, step: Subtask) -> str:
    rows = _above(plan, step)

    def name(match: re.Match[str]) -> str:
        row = rows[int(match[1])] if int(match[1]) < len(rows) else []
        return _name(row[0]).capitalize() if row else ""

    return _SLOT.sub(name, template)


def _keys(plan: Plan, step: Subtask) -> tuple[str, str, str]:
    """By what a step's template is found: its card and those that it follows, these alone, its card alone."""
    card = "/".join(step_of(step))
    after = ",".join(sorted({"/".join(step_of(plan.by_id[id])) for id in step.after}))
    return f"{card} after {after}", f"after {after}", card


# What is shown of words and of stretches.


def _places(features: Iterable[str]) -> list[int]:
    return [zlib.crc32(feature.encode(errors="surrogatepass")) % _SIZE for feature in features]


def _around(tokens: _Tokens, at: int) -> Iterator[str]:
    shapes = ("<", "<", "<", *tokens.shapes, ">", ">", ">")
    here = at + 3
    for away in range(-3, 4):
        yield f"{away} {shapes[here + away]}"
    for away in (-2, -1, 0, 1):
        yield f"{away} {shapes[here + away]} {shapes[here + away + 1]}"
    gap = tokens.said[tokens.ends[at - 1][1] if at else 0 : tokens.ends[at][0]]
    yield f"line {chr(10) in gap}"
    yield "any"


def _suits(tokens: _Tokens, span: Span, card: str, place: str) -> Iterator[str]:
    name = set(card.split("/", 1)[1].lower().split())
    inside, before = tokens.shapes[slice(*span)], tokens.shapes[max(0, span[0] - 5) : span[0]]
    for shape in set(inside):
        yield f"{card} in {shape}"
        yield f"in name {shape in name}"
    for shape in before:
        yield f"{card} before {shape}"
    yield f"before name {bool(name.intersection(before))}"
    yield f"{card} first {inside[0]}"
    yield f"{card} {place}"
    yield card


def _matrix(rows: Sequence[Sequence[int]]) -> csr_matrix:
    columns = np.concatenate([np.asarray(row, np.int32) for row in rows])
    ends = np.concatenate([[0], np.cumsum([len(row) for row in rows])]).astype(np.int32)
    return csr_matrix((np.ones(len(columns)), columns, ends), shape=(len(rows), _SIZE))


def _logistic(rows: csr_matrix, wanted: NDArray[np.float64]) -> Floats:
    """The weights of a logistic regression, held near 0. The same rows give the same weights."""

    def loss(weights: NDArray[np.float64]) -> tuple[float, NDArray[np.float64]]:
        logits = rows @ weights
        value = np.logaddexp(0.0, logits).sum() - wanted @ logits + 0.5 * _DECAY * weights @ weights
        return float(value), rows.T @ (expit(logits) - wanted) + _DECAY * weights

    found = minimize(loss, np.zeros(_SIZE), jac=True, method="L-BFGS-B", options={"maxiter": 150})
    return np.asarray(found.x, np.float32)


@dataclass(frozen=True, kw_only=True)
class StepTexts:
    """What was learned of texts."""

    templates: Mapping[str, tuple[str, int, int]] = field(default_factory=dict)
    """By key, what most of such steps were told, how many were, and of how many."""
    cuts: Floats = field(repr=False)
    """(_SIZE, 3): log-odds that a stretch begins, goes on and ends with a word."""
    suits: Floats = field(repr=False)
    """(_SIZE,): that a stretch is what a card is told."""

    @classmethod
    def of(cls, templates: Mapping[str, Sequence[Any]], cuts: Floats, suits: Floats) -> "StepTexts":
        """What lies in a file.

        Raises:
            ValueError: It is nothing of the kind.
        """
        if cuts.shape != (_SIZE, 3) or suits.shape != (_SIZE,):
            raise ValueError("what is known of the steps' texts has another shape")
        return cls(templates={key: (str(a), int(b), int(c)) for key, (a, b, c) in templates.items()}, cuts=cuts, suits=suits)

    def write(self, plan: Plan, clauses: Sequence[str], where: Sequence[int]) -> list[str]:
        """The text of each step.

        Args:
            clauses: Of the instruction.
            where: The clause that each step comes from, and is told where nothing better is known.
        """
        chosen = [self._template(plan, step) for step in plan.subtasks]
        texts = [
            clauses[at] if template is None else _filled(template, plan, step)
            for template, step, at in zip(chosen, plan.subtasks, where, strict=True)
        ]
        said = [at for at, template in enumerate(chosen) if template == SAID]
        tokens = _Tokens.of(plan.instruction)
        spans = _cut(self._odds(tokens), len(said)) if said else []
        for at, span in zip(said, self._dealt(tokens, spans, plan, [(where[at], at) for at in said], clauses), strict=True):
            texts[at] = clauses[where[at]] if span is None else tokens.text(span)
        return texts

    def _template(self, plan: Plan, step: Subtask) -> str | None:
        """What such steps are told; of the keys the one that is surest."""
        known = [self.templates[key] for key in _keys(plan, step) if key in self.templates]
        best = max(known, key=lambda each: each[1] / (each[2] + 1), default=None)
        return best[0] if best is not None and best[1] >= _SURE * best[2] else None

    def _odds(self, tokens: _Tokens) -> Floats:
        return np.stack([self.cuts[_places(_around(tokens, at))].sum(0) for at in range(len(tokens.ends))] or [np.zeros(3)])

    def _dealt(
        self, tokens: _Tokens, spans: Sequence[Span], plan: Plan, steps: Sequence[tuple[int, int]], clauses: Sequence[str]
    ) -> list[Span | None]:
        """Of each step, by the clause that it comes from and its number, its stretch."""
        if len(spans) < len(steps) or not spans:
            return [None] * len(steps)
        inside = [clause_of(plan.instruction, clauses, span) for span in spans]
        worth = np.zeros((len(steps), len(spans)))
        for row, (clause, at) in enumerate(steps):
            card = "/".join(step_of(plan.subtasks[at]))
            for column, span in enumerate(spans):
                features = _places(_suits(tokens, span, card, _rank(column, len(spans))))
                # Of alike steps the first has the first stretch.
                order = -0.01 * abs(row - column)
                worth[row, column] = self.suits[features].sum() + _ANCHOR * (inside[column] == clause) + order
        rows, columns = linear_sum_assignment(-worth)
        found = dict(zip(rows.tolist(), columns.tolist(), strict=True))
        return [spans[found[row]] for row in range(len(steps))]


def _rank(place: int, number: int) -> str:
    return "only" if number == 1 else "first" if place == 0 else "last" if place == number - 1 else "between"


def _cut(odds: Floats, number: int) -> list[Span]:
    """So many stretches that do not overlap, those for which the odds are best (Viterbi, 1967); none where there is no room."""
    n = len(odds)
    begin, inside, end = odds.T
    # By stretches closed so far: the best score of all words before, and where the last one opened.
    closed = np.full((number + 1, n + 1), -np.inf)
    opened = np.full((number + 1, n + 1), -np.inf)
    came = np.zeros((number + 1, n + 1, 2), np.int64)
    closed[0] = 0.0
    for m in range(1, number + 1):
        for t in range(1, n + 1):
            fresh, longer = closed[m - 1, t - 1] + begin[t - 1], opened[m, t - 1]
            came[m, t, 0] = t - 1 if fresh >= longer else came[m, t - 1, 0]
            opened[m, t] = max(fresh, longer) + inside[t - 1]
            done, later = opened[m, t] + end[t - 1], closed[m, t - 1]
            came[m, t, 1] = t if done >= later else came[m, t - 1, 1]
            closed[m, t] = max(done, later)
    spans: list[Span] = []
    t = n
    for m in range(number, 0, -1):
        if not np.isfinite(closed[m, t]):
            return []
        last = int(came[m, t, 1])
        first = int(came[m, last, 0])
        spans.append((first, last))
        t = first
    return spans[::-1]


# Learning.


def learn(examples: Sequence[Example]) -> StepTexts | None:
    """What the texts of the plans that succeeded say; `None` where they say nothing. The same plans give the same bytes."""
    plans = [example.plan for example in examples if example.succeeded and has_texts(example.plan)]
    if not plans:
        return None
    spans = [located(plan) for plan in plans]
    shown = [(plan, found) for plan, found in zip(plans, spans, strict=True) if found]
    cuts, suits = np.zeros((_SIZE, 3), np.float32), np.zeros(_SIZE, np.float32)
    if shown:
        cuts, suits = _learn_cuts(shown), _learn_suits(shown)
    return StepTexts(templates=_learn_templates(plans, spans), cuts=cuts, suits=suits)


def _learn_templates(plans: Sequence[Plan], spans: Sequence[Mapping[str, Span]]) -> dict[str, tuple[str, int, int]]:
    plain: dict[str, Counter[str]] = {}
    slotted: dict[str, Counter[str]] = {}
    for plan, found in zip(plans, spans, strict=True):
        for step in plan.subtasks:
            said = step.id in found
            for key in _keys(plan, step):
                plain.setdefault(key, Counter())[SAID if said else step.text] += 1
                slotted.setdefault(key, Counter())[SAID if said else _templated(plan, step)] += 1
    made = {}
    for key in plain:
        # What is always told as it stands has no names to be filled in, though it may hold some.
        (text, often), (form, more) = (counts[key].most_common(1)[0] for counts in (plain, slotted))
        made[key] = (form, more, slotted[key].total()) if more > often else (_braced(text), often, plain[key].total())
    return made


def _braced(text: str) -> str:
    return _SLOT.sub(r"(\1)", text)


def _learn_cuts(shown: Sequence[tuple[Plan, Mapping[str, Span]]]) -> Floats:
    rows: list[list[int]] = []
    wanted: list[tuple[bool, bool, bool]] = []
    for plan, found in shown:
        tokens = _Tokens.of(plan.instruction)
        for at in range(len(tokens.ends)):
            rows.append(_places(_around(tokens, at)))
            within = [(a == at, a <= at < b, at == b - 1) for a, b in found.values()]
            wanted.append((any(w[0] for w in within), any(w[1] for w in within), any(w[2] for w in within)))
    matrix, labels = _matrix(rows), np.asarray(wanted, np.float64)
    return np.stack([_logistic(matrix, labels[:, column]) for column in range(3)], 1)


def _learn_suits(shown: Sequence[tuple[Plan, Mapping[str, Span]]]) -> Floats:
    rows: list[list[int]] = []
    wanted: list[float] = []
    for plan, found in shown:
        tokens, spans = _Tokens.of(plan.instruction), sorted(found.values())
        cards = {id: "/".join(step_of(plan.by_id[id])) for id in found}
        for id, span in found.items():
            place = _rank(spans.index(span), len(spans))
            for card in sorted(set(cards.values())):
                rows.append(_places(_suits(tokens, span, card, place)))
                wanted.append(float(card == cards[id]))
    return _logistic(_matrix(rows), np.asarray(wanted))
