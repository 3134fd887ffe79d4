"""Playbooks of every kind, for property tests, and the real ones that others have learned."""

import gzip
import os
from pathlib import Path
from typing import Any

import pytest
from hypothesis import strategies as st

from journeyman.core.playbook import Bullet, BulletOrigin, Playbook, Provenance
from journeyman.core.release import Stage

DATA = Path(__file__).parents[1] / "data"

TEXT = st.text(max_size=40)
COUNTS = st.integers(0, 5)
JSON: st.SearchStrategy[Any] = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**40), 2**40) | st.floats(allow_nan=False, allow_infinity=False) | TEXT,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(TEXT, inner, max_size=3),
    max_leaves=5,
)
KEYS = st.sampled_from(["id", "confidence", "extra", "tags", "version", "bullets", "playbook"]) | TEXT
EXTRA = st.dictionaries(KEYS, JSON, max_size=3)
BULLETS = st.builds(
    Bullet,
    id=st.sampled_from(["b-1", "b-2", "B001", "shr-00001"]) | TEXT,
    content=TEXT,
    section=st.sampled_from(["helpful", "harmful", "STRATEGIES", ""]) | TEXT.filter(lambda text: text.casefold() != "neutral"),
    domain=st.sampled_from(["general", "oslo"]) | TEXT,
    stage=st.sampled_from(Stage),
    about=TEXT,
    shown=COUNTS,
    cited=COUNTS,
    helpful=COUNTS,
    harmful=COUNTS,
    support=COUNTS,
    locked=st.booleans(),
    retired=TEXT,
    held=TEXT,
    expires_at=TEXT,
    provenance=st.builds(
        Provenance,
        run=TEXT,
        tasks=st.lists(TEXT, max_size=2).map(tuple),
        model=TEXT,
        origin=st.sampled_from(["", *BulletOrigin]),
        traces=st.lists(TEXT, max_size=2).map(tuple),
        trace_count=COUNTS,
        principals=COUNTS,
        evidence=TEXT,
    ),
    created_at=TEXT,
    updated_at=TEXT,
    version=st.integers(1, 3),
    extra=EXTRA,
)
PLAYBOOKS = st.builds(
    Playbook,
    bullets=st.lists(BULLETS, max_size=4, unique_by=lambda bullet: bullet.id).map(tuple),
    batches=st.frozensets(TEXT, max_size=3),
    created_at=TEXT,
    training_config=st.dictionaries(TEXT, JSON, max_size=2),
    extra=EXTRA,
)


def real(name: str) -> Path:
    """A file of the full data sets, or a reason to skip."""
    folder = os.environ.get("JOURNEYMAN_DATA")
    if not folder:
        pytest.skip("JOURNEYMAN_DATA names no folder with the full data sets")
    path = Path(folder) / name
    if not path.exists():
        pytest.skip(f"{path} is not there")
    return path


def unpacked(path: Path) -> str:
    with gzip.open(path) as file:
        return file.read().decode()
