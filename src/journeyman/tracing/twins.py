"""Which recorded attempts are at the same request, and who of them may be learned from when the others are examined.

A lesson that is examined on the request it was drawn from proves nothing. So attempts at one request, of one session or of one
customer stay on one side, and what is examined is later than all that was learned from: it is what live means. Requests that
are the same but for case, spaces and numbers are always found. Others that say the same in other words are found by the terms
they share (TF-IDF of the customer's words and the calls' arguments, average linkage); some of these are missed, so a split
says how near the nearest neighbour still is.
"""

import re
import unicodedata
from array import array
from collections import Counter, deque
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from hashlib import blake2b
from itertools import pairwise

import numpy as np
from numpy.typing import NDArray
from scipy.cluster.hierarchy import fcluster, linkage
from scipy.sparse import coo_array, csr_array
from scipy.sparse.csgraph import connected_components

from journeyman.core.trace import ModelCall
from journeyman.tracing.base import NO_TIME
from journeyman.tracing.evidence import AttemptEvidence

Ints = NDArray[np.int64]
Truths = NDArray[np.bool_]

_TELLING = 5
"""So many words tell what is asked. With fewer ("Hi!") what is said before or next belongs to the request, too."""
_WORD = re.compile(r"[\u3040-\u30ff\u3400-\u9fff]|[^\W\d_]+")
"""Without numbers: a request in which only they differ has as many words."""
_TERM = re.compile(r"[\u3040-\u30ff\u3400-\u9fff]|[#\w@.\-]{2,}")
"""Words, ids and addresses; of scripts without spaces, each sign."""
_LONGEST = 100_000
"""Characters of an attempt that are compared in other words than its own."""
_RAREST, _COMMONEST = 2, 0.3
"""A term counts that is in two different requests, and in no more than this share of them."""
_WHOLE = 5_000
"""Up to so many different requests every pair is compared; of more, those that share a term that tells."""


def twin_groups(attempts: Iterable[AttemptEvidence], *, cut: float = 0.75) -> list[int]:
    """The number of each attempt's group: those in one group are at the same request.

    Requests that differ in case, spaces, punctuation and numbers alone are always in one. Which attempts are together does not
    depend on their order.

    Args:
        attempts: Each is read once and let go, so that they need not all be in memory.
        cut: How far groups may lie apart, on average, to be one still: 0 is the same terms, 1 is none in common.
    """
    return _read(attempts)[1].groups(cut)


def request_of(attempt: AttemptEvidence) -> str:
    """What an attempt was asked, in so far as two that are asked the same have the same: without case, spaces and numbers.

    It is the last that the customer said before the first reply, as examples may stand before it; with what was said around
    it where that is hardly a word.
    """
    said = _words_around(attempt)
    return _normal(said) or _normal(" ".join(f"{call.tool} {call.written}" for call in attempt.calls))


def _words_around(attempt: AttemptEvidence) -> str:
    turns = [[message.text for message in step.messages if message.role == "user"] for step in _model_calls(attempt)]
    first, *later = [turn for turn in turns if turn] or [list(attempt.words)]
    said = first[-1:]
    for before in reversed(first[:-1]):
        if _telling(said):
            break
        said.insert(0, before)
    for next_said in (text for turn in later for text in turn):
        if _telling(said):
            break
        said.append(next_said)
    return " ".join(said)


def _model_calls(attempt: AttemptEvidence) -> Iterator[ModelCall]:
    return (step for step in attempt.trace.steps if isinstance(step, ModelCall))


def _telling(said: Sequence[str]) -> bool:
    return sum(len(_WORD.findall(text)) for text in said) >= _TELLING


def _normal(text: str) -> str:
    text = unicodedata.normalize("NFKC", text).casefold()
    bare = re.sub(r"[\W_]+", "", text) or "".join(text.split())
    return re.sub(r"\d+", "0", bare)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Point:
    """What is kept of an attempt beside its terms."""

    id: str
    at: float | None
    """Seconds; `None` where no time was recorded."""
    people: tuple[str, ...]
    """Its session and its customer, where they are known."""
    request: bytes
    document: bytes


def _read(attempts: Iterable[AttemptEvidence]) -> tuple[list[_Point], "_Texts"]:
    points: list[_Point] = []

    def documents() -> Iterator[str]:
        for attempt in attempts:
            document = _document(attempt)
            points.append(_point(attempt, document))
            yield document

    counts = _counts(documents())
    numbers = {request: at for at, request in enumerate(sorted({point.request for point in points}))}
    requests = np.array([numbers[point.request] for point in points], dtype=np.int64)
    # Floating point adds up differently in another order: means are taken in the order of what the texts say.
    order = sorted(range(len(points)), key=lambda at: (points[at].request, points[at].document))
    return points, _Texts(rows=_weighted(counts, requests), requests=requests, order=np.array(order, dtype=np.int64))


def _point(attempt: AttemptEvidence, document: str) -> _Point:
    trace = attempt.trace
    session = (f"session {trace.session}",) if trace.session else ()
    customer = (f"customer {attempt.principal}",) if attempt.principal_known else ()
    return _Point(
        id=trace.id,
        at=None if trace.started_at == NO_TIME else trace.started_at.timestamp(),
        people=(*session, *customer),
        request=_digest(request_of(attempt)),
        document=_digest(document),
    )


def _digest(text: str) -> bytes:
    return blake2b(text.encode(errors="surrogatepass"), digest_size=16).digest()


def _document(attempt: AttemptEvidence) -> str:
    arguments = " ".join(call.arguments for call in attempt.trace.tool_calls)
    return f"{' '.join(attempt.words)[:_LONGEST]} {arguments[:_LONGEST]}".lower()


def _counts(documents: Iterable[str]) -> csr_array:
    """How often each term stands in each document; the terms in their own order, whatever that of the documents."""
    vocabulary: dict[str, int] = {}
    terms, counts, ends = array("i"), array("f"), array("q", [0])
    for document in documents:
        found = Counter(_TERM.findall(document))
        terms.extend(vocabulary.setdefault(term, len(vocabulary)) for term in found)
        counts.extend(found.values())
        ends.append(len(terms))
    column = np.empty(max(1, len(vocabulary)), dtype=np.int32)
    column[[vocabulary[term] for term in sorted(vocabulary)]] = np.arange(len(vocabulary), dtype=np.int32)
    parts = np.frombuffer(counts, dtype=np.float32), column[np.frombuffer(terms, dtype=np.int32)]
    several = csr_array((*parts, np.frombuffer(ends, dtype=np.int64)), shape=(len(ends) - 1, len(column)))
    several.sort_indices()
    return several


# Who is learned from, and what is examined.

_ENOUGH = (60, 30)
"""So many twin groups to examine are wanted, and so many will do."""
_CLUSTERS = 12
"""An interval over fewer than ten tells nothing, and not everything can be examined that is held out."""
_SHARES = (0.4, 0.5)
"""Larger shares that are tried where the one that was asked for leaves too little."""
_TOO_NEAR = 0.4
"""Whoever is so like an examined attempt is not learned from, in whatever groups the two are."""
_NEARLY_ALL = 0.9
"""Whoever holds more than this share of the attempts leaves nobody to examine on."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TwinSplit:
    """Which attempts are learned from and which are examined.

    No twin group, no session and no known customer is on both sides, every examined attempt is later than every one that is
    learned from, and no two across are as near as 0.4. Numbers are places among the attempts that were given.
    """

    learn: tuple[int, ...]
    examine: tuple[int, ...]
    dropped: int
    """Attempts on neither side: twins, customer or one much alike are on the other, or they are on the wrong side in time."""
    groups: tuple[int, ...]
    """The twin group of every attempt."""
    clusters: tuple[str, ...] = ()
    """Of each examined attempt the name of what it hangs together with: an interval is taken over these, not over attempts.
    Where `crossed`, its customer or its twin group, whichever of the two are fewer."""
    nearest: tuple[float, ...] = ()
    """Of each examined attempt the similarity to the nearest that is learned from, 0 (no telling term in common) to 1."""
    far: tuple[bool, ...] = ()
    """Of each examined attempt whether it is in the half that is less like anything learned from."""
    held_out: float = 0.0
    """The share of time that was held out, and, but where `crossed`, of what hangs together."""
    held_out_customers: float = 0.0
    """Where `crossed`, the share of customers that was held out."""
    crossed: bool = False
    """Whether customers and twin groups were dealt out each for itself, as both together connect too much."""
    reason: str = ""
    """Why nothing is examined."""

    @property
    def examined_groups(self) -> int:
        """How many different requests are examined."""
        return len({self.groups[at] for at in self.examine})

    @property
    def leak(self) -> str:
        """What of the examined requests may still be known from learning."""
        if not self.examine:
            return f"nothing is examined: {self.reason}"
        share = f"{float(np.median(self.nearest)):.2f}".removeprefix("0")
        return (
            "no exact or near twin stands on both sides; the nearest learned neighbour of an examined request has a median "
            f"similarity of {share}, so twins that say it in other words may remain"
        )


def split_by_time(attempts: Iterable[AttemptEvidence], *, held_out: float = 0.3, cut: float = 0.75) -> TwinSplit:
    """Who may be learned from, and what is examined: the latest of those who came last.

    What hangs together by twins, session or customer is on one side: that of the last `held_out` which were first met, or the
    other. Then time is cut, too, and who is on the wrong side of the cut is left out. Where customers recur, little is left so:
    larger shares are tried, and customers and twin groups dealt out each for itself, until there are 60 twin groups to examine
    in 12 clusters; else the first with 30 is taken, else the one with most.

    Attempts without a time count as recorded in the order in which they are given, before all that have one.

    Args:
        attempts: As of `twin_groups`.
        held_out: The share of what hangs together, and of time, that is held out if that is enough.
        cut: As of `twin_groups`.
    """
    points, texts = _read(attempts)
    store = _Store.of(points, texts.groups(cut))
    reason = "there is no second one" if len(points) < 2 else store.one_holds_nearly_all()
    best = None if reason else _best([split for split in store.tried(held_out) if split.learn and split.examine])
    learn = _unlike(texts, best.learn, best.examine) if best else ()
    if best is None or not learn:
        reason = reason or "no attempt is later than another one that is neither its twin nor of its customer"
        everyone, groups = tuple(range(len(points))), tuple(store.groups.tolist())
        return TwinSplit(learn=everyone, examine=(), dropped=0, groups=groups, reason=reason)
    nearest = texts.nearest(best.examine, learn)
    dropped = best.dropped + len(best.learn) - len(learn)
    return replace(best, learn=learn, dropped=dropped, nearest=nearest, far=_far_half(nearest))


def _best(tried: Sequence[TwinSplit]) -> TwinSplit | None:
    most = max(tried, key=lambda split: split.examined_groups, default=None)
    telling = [split for split in tried if len(set(split.clusters)) >= _CLUSTERS]
    return next((split for least in _ENOUGH for split in telling if split.examined_groups >= least), most)


def _unlike(texts: "_Texts", learn: Sequence[int], examine: Sequence[int]) -> tuple[int, ...]:
    """Those of the learned ones that are not too near to any examined one."""
    return tuple(at for at, near in zip(learn, texts.nearest(learn, examine), strict=True) if near < _TOO_NEAR)


def _far_half(nearest: Sequence[float]) -> tuple[bool, ...]:
    """Which are below the median; where more than half are equal, so that none is, which are at it."""
    median = float(np.median(nearest))
    below = tuple(each < median for each in nearest)
    return below if any(below) else tuple(each <= median for each in nearest)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Store:
    """What of the attempts decides on which side each is; one number an attempt."""

    order: Ints
    """Its place in time; those of one time are told apart by their ids."""
    when: Ints
    """Equal for those of one time."""
    people: Ints
    """Whose it is: what hangs together by session and customer."""
    groups: Ints
    """What was asked."""
    whole: Ints
    """What hangs together by both."""
    ids: Sequence[str]

    @classmethod
    def of(cls, points: Sequence[_Point], groups: Sequence[int]) -> "_Store":
        # As many before the first second as have no time, in the order in which they came.
        times = [at - len(points) if point.at is None else point.at for at, point in enumerate(points)]
        ids = [point.id for point in points]
        order = np.empty(len(points), dtype=np.int64)
        order[sorted(range(len(points)), key=lambda at: (times[at], ids[at]))] = np.arange(len(points))
        return cls(
            order=order,
            when=np.unique(np.array(times), return_inverse=True)[1],
            people=_connected([point.people for point in points]),
            groups=np.array(groups, dtype=np.int64),
            whole=_connected([(*point.people, f"group {group}") for point, group in zip(points, groups, strict=True)]),
            ids=ids,
        )

    def one_holds_nearly_all(self) -> str:
        """The sentence that says so, or nothing."""
        several = len(self.ids)
        for labels, what in ((self.people, "hang together by session or customer"), (self.groups, "ask for the same")):
            most = int(np.bincount(labels).max()) if several else 0
            if several > 1 and most > _NEARLY_ALL * several:
                return f"{most:,} of {several:,} attempts {what}, so no other is left to examine on"
        return ""

    def tried(self, held_out: float) -> Iterator[TwinSplit]:
        """Splits in the order in which they are to be preferred."""
        shares = (held_out, *(share for share in _SHARES if share > held_out))
        for share in shares:
            yield self._dealt(share, self.whole, share)
        for share in shares:
            for of_people in sorted({share, max(share, _SHARES[-1])}):
                yield replace(self._dealt(share, self.people, of_people), crossed=True, held_out_customers=of_people)

    def _dealt(self, share: float, labels: Ints, of_those: float) -> TwinSplit:
        """The split in which this share of time is held out, and that one of what has one label."""
        early = self.when < np.sort(self.when)[min(round((1 - share) * len(self.when)), len(self.when) - 1)]
        last = self._met_last(labels, of_those)
        learn, examine = self._without_twins(early & ~last, ~early & last)
        # Where both connect, the interval is that over the fewer, which is the wider one.
        clusters = min(labels, self.groups, key=lambda each: len(set(each[examine])))
        # The id of its first attempt names a cluster: the same in whatever order they are given.
        names = {int(clusters[at]): self.ids[at] for at in np.argsort(-self.order)}
        examined = np.flatnonzero(examine)
        return TwinSplit(
            learn=tuple(np.flatnonzero(learn).tolist()),
            examine=tuple(examined.tolist()),
            dropped=int(len(self.ids) - learn.sum() - examine.sum()),
            groups=tuple(self.groups.tolist()),
            clusters=tuple(names[int(clusters[at])] for at in examined),
            held_out=share,
        )

    def _met_last(self, labels: Ints, share: float) -> Truths:
        """Whether an attempt belongs to the share of the labels that were first met last."""
        first = np.full(int(labels.max()) + 1, len(labels))
        np.minimum.at(first, labels, self.order)
        last = np.argsort(first)[len(first) - max(1, round(share * len(first))) :]
        return np.isin(labels, last)

    def _without_twins(self, learn: Truths, examine: Truths) -> tuple[Truths, Truths]:
        """A twin group on both sides stays on one: by turns on the side that has lost more, each time the group that costs
        the other side least."""
        several = int(self.groups.max()) + 1
        learned, examined = (np.bincount(self.groups[side], minlength=several) for side in (learn, examine))
        # Shares of a side, over one denominator: whole numbers add up alike in any order.
        parts = learned * int(examined.sum()), examined * int(learned.sum())
        met = np.full(several, len(self.order))
        np.minimum.at(met, self.groups, self.order)
        torn = np.flatnonzero((learned > 0) & (examined > 0))
        waiting = deque(torn[np.lexsort((met[torn], parts[1][torn] - parts[0][torn]))].tolist())
        kept = [int(part.sum() - part[torn].sum()) for part in parts]
        to_examine = examined > 0
        while waiting:
            side = int(kept[1] <= kept[0])
            group = waiting.pop() if side else waiting.popleft()
            to_examine[group] = side
            kept[side] += int(parts[side][group])
        return learn & ~to_examine[self.groups], examine & to_examine[self.groups]


def _connected(tags: Sequence[Sequence[str]]) -> Ints:
    """A number for each, the same for those that hang together by tags, over others, too."""
    places: dict[str, int] = {}
    edges = [(at, len(tags) + places.setdefault(tag, len(places))) for at, its in enumerate(tags) for tag in its]
    size = len(tags) + len(places)
    ends = np.array(edges, dtype=np.int64).reshape(-1, 2)
    graph = coo_array((np.ones(len(ends), dtype=np.int8), (ends[:, 0], ends[:, 1])), shape=(size, size))
    return np.unique(connected_components(graph, directed=False)[1][: len(tags)], return_inverse=True)[1]


# Texts as vectors.


@dataclass(frozen=True, slots=True, kw_only=True)
class _Texts:
    """Attempts as points: the nearer, the more telling terms they share. Computed in an order of their own."""

    rows: csr_array
    """A unit vector of each attempt's terms, or nothing where none of them counts."""
    requests: Ints
    """The number of each attempt's request, as `request_of` tells them apart."""
    order: Ints
    """The attempts as sorted by what they say."""

    def groups(self, cut: float) -> list[int]:
        """As `twin_groups`."""
        if not len(self.requests):
            return []
        several = _mean_rows(self.rows[self.order], self.requests[self.order])
        together = _linked(several, cut) if several.shape[0] <= _WHOLE else _agglomerated(several, cut)
        names: dict[int, int] = {}
        return [names.setdefault(int(group), len(names)) for group in together[self.requests]]

    def nearest(self, of: Sequence[int], among: Sequence[int]) -> tuple[float, ...]:
        """Of each attempt the similarity to the nearest among others, 0 to 1."""
        others = csr_array(self.rows[np.array(among, dtype=np.int64)].T)
        found: list[float] = []
        step = 1 + _ENTRIES // max(1, len(among))
        for start in range(0, len(of), step):
            strip = self.rows[np.array(of[start : start + step], dtype=np.int64)] @ others
            found += np.clip(strip.max(axis=1).toarray().ravel(), 0.0, 1.0).tolist()
        return tuple(found)


_ENTRIES = 4_000_000
"""Similarities, or terms of pairs, that are computed at once: it bounds the memory."""


def _weighted(counts: csr_array, requests: Ints) -> csr_array:
    """Rows of unit length, each term by how few of the requests have it (Salton and Buckley, 1988)."""
    several = len(np.unique(requests))
    having = _having(counts, requests)
    counted = (having >= _RAREST) & (having <= _COMMONEST * several)
    kept = csr_array(counts[:, np.flatnonzero(counted)])
    rarity = (np.log((1 + several) / (1 + having[counted])) + 1).astype(np.float32)
    np.log(kept.data, out=kept.data)
    kept.data += 1
    kept.data *= rarity[kept.indices]
    lengths = np.sqrt(np.bincount(_row_numbers(kept), weights=np.square(kept.data), minlength=kept.shape[0]))
    kept.data /= lengths.astype(np.float32)[_row_numbers(kept)]
    return kept


def _having(counts: csr_array, requests: Ints) -> Ints:
    """In how many requests each term stands."""
    alone = np.bincount(requests)[requests] == 1 if len(requests) else np.zeros(0, dtype=bool)
    several = _membership(np.unique(requests[~alone], return_inverse=True)[1]) @ counts[np.flatnonzero(~alone)]
    once = counts.indices[np.repeat(alone, np.diff(counts.indptr))]
    return np.bincount(once, minlength=counts.shape[1]) + np.bincount(several.indices, minlength=counts.shape[1])


def _row_numbers(rows: csr_array) -> NDArray[np.int32]:
    return np.repeat(np.arange(rows.shape[0], dtype=np.int32), np.diff(rows.indptr))


def _membership(labels: Ints) -> csr_array:
    """A matrix that adds up the rows of each label."""
    several = int(labels.max()) + 1 if len(labels) else 0
    parts = np.ones(len(labels), dtype=np.float32), (labels.astype(np.int32), np.arange(len(labels), dtype=np.int32))
    return csr_array(coo_array(parts, shape=(several, len(labels))))


def _mean_rows(rows: csr_array, labels: Ints) -> csr_array:
    sums = csr_array(_membership(labels) @ rows)
    sums.data /= np.bincount(labels).astype(np.float32)[_row_numbers(sums)]
    sums.sort_indices()
    return sums


# Average linkage: of every pair where they are few, else along edges.


def _linked(rows: csr_array, cut: float) -> Ints:
    """The group of each row, every pair compared."""
    several = rows.shape[0]
    if several < 2:
        return np.zeros(several, dtype=np.int64)
    distances = np.empty(several * (several - 1) // 2)
    turned, end, step = csr_array(rows.T), 0, 1 + _ENTRIES // several
    for start in range(0, several, step):
        strip = (rows[start : start + step] @ turned).toarray()
        for at, row in enumerate(strip, start=start):
            beside = row[at + 1 :]
            distances[end : end + len(beside)] = 1 - np.clip(beside, 0, 1)
            end += len(beside)
    return np.asarray(fcluster(linkage(distances, "average"), cut, "distance"), dtype=np.int64)


_LOOKS = 32
"""Terms that are drawn of each row: each is shared with a twin as probably as their vectors overlap."""
_BESIDE = 2
"""Rows that each is held against, of those that have drawn the same term."""


def _agglomerated(rows: csr_array, cut: float) -> Ints:
    """The group of each row, as average linkage makes them along the edges between rows that share a telling term.

    All pairs that are each other's nearest are merged at once: with average linkage that gives what merging one after the
    other does (Murtagh, 1983). What is missing beside comparing every pair are edges that no look has found.
    """
    labels = np.arange(rows.shape[0])
    merging = _Clusters(rows, np.ones(rows.shape[0], dtype=np.int64), least=1 - cut)
    # What has been merged shows terms that its parts had not drawn: a second look is taken at the clusters.
    for look in range(2):
        merging.find_edges(np.random.default_rng(look))
        while len(merging.pairs):
            labels = merging.merge()[labels]
    return labels


class _Clusters:
    """Clusters that are being merged: the sum of each one's rows, and the pairs that are near enough."""

    def __init__(self, sums: csr_array, sizes: Ints, *, least: float) -> None:
        self.sums, self.sizes, self.least = sums, sizes, least
        self.pairs: Ints = np.empty((0, 2), dtype=np.int64)
        self.near: NDArray[np.float64] = np.empty(0)

    def find_edges(self, chance: np.random.Generator) -> None:
        pairs = _alike(self.sums, chance)
        near = self._similarity(pairs)
        self.pairs, self.near = pairs[near >= self.least], near[near >= self.least]

    def merge(self) -> Ints:
        """Merges all pairs that are each other's nearest; the new number of each cluster."""
        several = len(self.sizes)
        order = np.lexsort((self.pairs[:, 1], self.pairs[:, 0], -self.near))
        pairs, near = self.pairs[order], self.near[order]
        first = np.full(several, len(pairs))
        np.minimum.at(first, pairs.ravel(), np.repeat(np.arange(len(pairs)), 2))
        at = np.arange(len(pairs))
        chosen = pairs[(first[pairs[:, 0]] == at) & (first[pairs[:, 1]] == at)]
        target = np.arange(several)
        target[chosen[:, 1]] = chosen[:, 0]
        renamed = np.unique(target, return_inverse=True)[1]
        self._contract(renamed, np.bincount(renamed) > 1, pairs, near)
        return renamed

    def _contract(self, renamed: Ints, changed: Truths, pairs: Ints, near: NDArray[np.float64]) -> None:
        self.sums = csr_array(_membership(renamed) @ self.sums)
        self.sizes = np.bincount(renamed, weights=self.sizes).astype(np.int64)
        ends = np.sort(renamed[pairs], axis=1)
        _, kept = np.unique(ends[:, 0] * len(self.sizes) + ends[:, 1], return_index=True)
        pairs, near = ends[kept], near[kept]
        apart = pairs[:, 0] != pairs[:, 1]
        pairs, near = pairs[apart], near[apart]
        stale = changed[pairs].any(axis=1)
        near[stale] = self._similarity(pairs[stale])
        self.pairs, self.near = pairs[near >= self.least], near[near >= self.least]

    def _similarity(self, pairs: Ints) -> NDArray[np.float64]:
        """Of each pair of clusters the mean over their rows."""
        weight = np.diff(self.sums.indptr)
        upto = np.cumsum(weight[pairs].sum(axis=1))
        steps = np.searchsorted(upto, np.arange(_ENTRIES, (upto[-1] if len(upto) else 0) + _ENTRIES, _ENTRIES), side="right")
        found = np.zeros(len(pairs))
        for start, end in pairwise(np.unique([0, *steps, len(pairs)])):
            left, right = self.sums[pairs[start:end, 0]], self.sums[pairs[start:end, 1]]
            found[start:end] = left.multiply(right).sum(axis=1)
        return np.asarray(found / self.sizes[pairs].prod(axis=1))


def _alike(rows: csr_array, chance: np.random.Generator) -> Ints:
    """Pairs of rows that share a term which one look has drawn (weighted MinHash, by exponential variables)."""
    filled = np.flatnonzero(np.diff(rows.indptr))
    if len(filled) < 2:
        return np.empty((0, 2), dtype=np.int64)
    drawn = np.stack([_drawn(rows, filled, chance) for _ in range(_LOOKS)])
    codes: list[Ints] = []
    for look in range(_LOOKS):
        # Within those that drew the same term, who drew the same next ones, too, stand side by side.
        order = np.lexsort([filled, *(drawn[(look + more) % _LOOKS] for more in (3, 2, 1, 0))])
        for step in range(1, _BESIDE + 1):
            one, other = order[:-step], order[step:]
            same = drawn[look, one] == drawn[look, other]
            ends = np.sort(filled[np.stack([one[same], other[same]], axis=1)], axis=1)
            codes.append(ends[:, 0] * rows.shape[0] + ends[:, 1])
    unique = np.unique(np.concatenate(codes))
    return np.stack(np.divmod(unique, rows.shape[0]), axis=1)


def _drawn(rows: csr_array, filled: Ints, chance: np.random.Generator) -> Ints:
    """A term of each filled row, drawn with its share in the row's length; equal rows draw the same."""
    rare = chance.exponential(size=rows.shape[1])
    values = rare[rows.indices] / np.square(rows.data)
    starts = rows.indptr[filled]
    least = np.minimum.reduceat(values, starts)
    first = np.flatnonzero(values == np.repeat(least, np.diff(rows.indptr)[filled]))
    owner = _row_numbers(rows)[first]
    return np.asarray(rows.indices[first[np.unique(owner, return_index=True)[1]]], dtype=np.int64)
