import subprocess
import sys
import time

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from journeyman.core.errors import InputError
from journeyman.models.embedders import HashingEmbedder

RULE = "Always convert the amount to cents before you compare two prices."


def likeness(first: str, second: str) -> float:
    vectors = HashingEmbedder().embed([first, second])
    return float(vectors[0] @ vectors[1])


@given(st.lists(st.text(max_size=40), max_size=5))
def test_rows_are_unit_vectors_or_nothing(texts: list[str]) -> None:
    vectors = HashingEmbedder().embed(texts)
    assert vectors.shape == (len(texts), 384)
    assert vectors.dtype == np.float32
    lengths = np.linalg.norm(vectors, axis=1)
    assert all(abs(length - 1) < 1e-5 or length == 0 for length in lengths)


def test_a_text_has_the_same_vector_in_any_company() -> None:
    alone = HashingEmbedder().embed([RULE])[0]
    among = HashingEmbedder().embed(["something else", RULE, "and more"])[1]
    assert np.array_equal(alone, among)


def test_another_process_gives_the_same_vector() -> None:
    code = f"from journeyman.models.embedders import HashingEmbedder as H; print(H().embed([{RULE!r}]).tobytes().hex())"
    other = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout.strip()
    assert other == HashingEmbedder().embed([RULE]).tobytes().hex()


@pytest.mark.parametrize(
    "near",
    [
        "always convert the amount to cents before you compare two prices",
        "Always convert amounts to cents before you compare two prices.",
        "Always convert the amount to cents before comparing two prices.",
        "Please always convert the amount to cents before you compare prices.",
    ],
)
def test_near_duplicates_are_past_the_default_threshold(near: str) -> None:
    assert likeness(RULE, near) > 0.8


@pytest.mark.parametrize(
    "far",
    ["Write the name of the city in upper case.", "Check that the answer has a unit.", "Convert hours to minutes."],
)
def test_different_rules_are_far_apart(far: str) -> None:
    assert likeness(RULE, far) < 0.5


def test_ten_thousand_texts_take_seconds() -> None:
    texts = [f"{RULE} Case {number} of order {number * 7}." for number in range(10_000)]
    started = time.process_time()
    HashingEmbedder().embed(texts)
    assert time.process_time() - started < 10


def test_a_wrong_number_of_dimensions_is_said() -> None:
    with pytest.raises(InputError, match="hashing:384"):
        HashingEmbedder.named("many")
    assert HashingEmbedder.named("64").embed(["a"]).shape == (1, 64)
