"""How much merging costs beside the bare matrix product that it cannot do without, measured in the same run.

    python benchmarks/bench_merge.py            # a table
    python benchmarks/bench_merge.py --json     # one object

Embeddings are given (384 dimensions, random unit vectors; half of the new ones are near an old one), so no model is timed.
The index holds the playbook's vectors already. A merge is everything from insights to the next playbook: refusing, comparing
texts, the search, the deltas, `Playbook.apply`, and taking in what the merge before it changed. Times are the median of
several merges, each of other insights. Set OMP_NUM_THREADS=1 to see one core.
"""

import argparse
import json
import statistics
import tempfile
import time
from collections.abc import Callable, Sequence
from pathlib import Path

import numpy as np

from journeyman.core.playbook import Bullet, Insight, Playbook, bullet_id
from journeyman.models.embedders import Vectors
from journeyman.optimizers.playbook.curator import Curator, Origin
from journeyman.optimizers.playbook.index import MatrixShelf
from journeyman.optimizers.playbook.journal import Journal

Row = dict[str, float | None]

DIMENSIONS = 384
LIMITS = {(100, 10_000): 4.0, (1000, 100_000): 3.0}
"""What a merge of so many insights into so many bullets may cost, in bare products."""
TOP_LIMIT = 3.0


class Given:
    """Embeddings that are there already."""

    name = "given"

    def __init__(self) -> None:
        self.rows: dict[str, Vectors] = {}

    def add(self, texts: Sequence[str], vectors: Vectors) -> None:
        self.rows.update(zip(texts, vectors, strict=True))

    def embed(self, texts: Sequence[str]) -> Vectors:
        if not texts:
            return np.zeros((0, DIMENSIONS), np.float32)
        return np.stack([self.rows[text] for text in texts])


def units(rows: Vectors) -> Vectors:
    return np.asarray(rows / np.linalg.norm(rows, axis=1, keepdims=True), np.float32)


def text(kind: str, number: int) -> str:
    """Nineteen words of a length as people write them; no digits, which would make near texts different rules."""
    words = [word((number * 31 + place * 17) % 997 + 1000) for place in range(10)]
    return f"When the {kind} order mentions {' '.join(words)}, check {word(number + 5000)} before the reply is sent."


def word(number: int) -> str:
    return "".join("abcdefghij"[int(digit)] for digit in str(number))


def seconds(work: Callable[[], object]) -> float:
    started = time.perf_counter()
    work()
    return time.perf_counter() - started


def start(size: int, chance: np.random.Generator) -> tuple[Playbook, Given, Vectors]:
    texts = [text("old", number) for number in range(size)]
    vectors = units(chance.standard_normal((size, DIMENSIONS), np.float32))
    given = Given()
    given.add(texts, vectors)
    return Playbook(bullets=tuple(Bullet(id=bullet_id("general", each), content=each) for each in texts)), given, vectors


def merge(new: int, size: int, rounds: int = 5) -> Row:
    """Seconds for a merge of `new` insights into `size` bullets, and for the bare product of the same arrays."""
    chance = np.random.default_rng(0)
    playbook, given, vectors = start(size, chance)
    curator = Curator(given)
    curator.curate(playbook, [], Origin(batch_id="warm"))
    merges, bare, added = [], [], 0
    for turn in range(rounds):
        texts = [text("new", turn * new + number) for number in range(new)]
        near = vectors[chance.integers(0, size, new)] + 0.02 * chance.standard_normal((new, DIMENSIONS), np.float32)
        far = chance.standard_normal((new, DIMENSIONS), np.float32)
        given.add(texts, rows := units(np.where(np.arange(new)[:, None] % 2, near, far)))
        insights = [Insight(content=each, task_ids=("t1",)) for each in texts]
        bare.append(seconds(lambda rows=rows: rows @ vectors.T))  # type: ignore[misc]
        started = time.perf_counter()
        batch, report = curator.curate(playbook, insights, Origin(batch_id=str(turn)))
        playbook = playbook.apply(batch)
        merges.append(time.perf_counter() - started)
        added += len(report.added)
    took, product = statistics.median(merges), statistics.median(bare)
    return {
        "new": new,
        "bullets": size,
        "added": added / rounds,
        "seconds": took,
        "bare": product,
        "ratio": took / product,
        "microseconds_per_insight": took / new * 1e6,
        "limit": LIMITS.get((new, size)),
    }


def top(size: int, rounds: int = 200) -> Row:
    chance = np.random.default_rng(1)
    vectors = units(chance.standard_normal((size, DIMENSIONS), np.float32))
    weights = chance.random(size, np.float32)
    shelf = MatrixShelf()
    shelf.put([str(number) for number in range(size)], vectors)
    queries = units(chance.standard_normal((rounds, DIMENSIONS), np.float32))
    found = statistics.median(seconds(lambda query=query: shelf.top(query, 10, weights)) for query in queries)  # type: ignore[misc]
    bare = statistics.median(seconds(lambda query=query: vectors @ query) for query in queries)  # type: ignore[misc]
    return {"bullets": size, "seconds": found, "bare": bare, "ratio": found / bare, "limit": TOP_LIMIT}


def journal(new: int, size: int, rounds: int = 5) -> Row:
    """Seconds until a batch is on the disk, by appending; beside it, what writing the whole playbook anew would take."""
    playbook, given, _ = start(size, np.random.default_rng(2))
    curator = Curator(given)
    appended = []
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "journal.jsonl"
        written = Journal.create(path, playbook)
        first = path.stat().st_size
        whole = seconds(lambda: Journal.create(Path(folder) / "anew.jsonl", playbook))
        for turn in range(rounds):
            texts = [text("new", turn * new + number) for number in range(new)]
            given.add(texts, units(np.random.default_rng(turn + 9).standard_normal((new, DIMENSIONS), np.float32)))
            insights = [Insight(content=each) for each in texts]
            batch, _ = curator.curate(written.playbook, insights, Origin(batch_id=str(turn)))
            appended.append(seconds(lambda batch=batch: written.append(batch)))  # type: ignore[misc]
        size_of_batch = (path.stat().st_size - first) / rounds
    return {"new": new, "bullets": size, "seconds": statistics.median(appended), "bytes": size_of_batch, "whole_seconds": whole}


def ace(size: int) -> Row | None:
    """The near duplicates among `size` texts, by the package `ace-framework` where it is installed, and by the curator."""
    try:
        from ace.deduplication.detector import SimilarityDetector  # type: ignore[import-not-found, unused-ignore]
        from ace.skillbook import Skillbook  # type: ignore[import-not-found, unused-ignore]
    except ImportError:
        return None
    _, given, vectors = start(size, np.random.default_rng(3))
    skills = Skillbook()
    for content, vector in zip(given.rows, vectors, strict=True):
        skills.add_skill("general", content).embedding = vector.tolist()
    theirs = seconds(lambda: SimilarityDetector().detect_similar_pairs(skills, 0.8))
    insights = [Insight(content=content) for content in given.rows]
    curator = Curator(given)

    def ours() -> None:
        batch, _ = curator.curate(Playbook(), insights, Origin(batch_id="1"))
        Playbook().apply(batch)

    mine = seconds(ours)
    return {"bullets": size, "theirs": theirs, "seconds": mine, "ratio": theirs / mine}


def main() -> None:
    parser = argparse.ArgumentParser(description="What merging into a playbook costs.")
    parser.add_argument("--json", action="store_true", help="print one object instead of a table")
    parser.add_argument("--quick", action="store_true", help="leave the 100,000 bullets out")
    options = parser.parse_args()
    sizes = [(100, 1000), (100, 10_000)] if options.quick else [(100, 1000), (100, 10_000), (100, 100_000), (1000, 100_000)]
    found = {"merge": [merge(new, size) for new, size in sizes], "top": [top(10_000)], "journal": [journal(100, 10_000)]}
    other = ace(1000)
    found["ace"] = [other] if other else []
    if options.json:
        print(json.dumps(found))
        return
    for name, rows in found.items():
        print(f"\n{name}" + ("" if rows else ": ace-framework is not installed"))
        for row in rows:
            print(
                "   "
                + "  ".join(
                    f"{key} {value:,}" if isinstance(value, int) else f"{key} {value:.4g}"
                    for key, value in row.items()
                    if value is not None
                )
            )


if __name__ == "__main__":
    main()
