"""Fenced blocks: what is written is found again, and code that looks like a fence stays code."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from journeyman.io.markdown import fenced, fences

DOCSTRING = 'def f():\n    """As in\n\n    ```\n    f()\n    ```\n    """\n    return 1\n'


@pytest.mark.parametrize("mark", ["```", "~~~", "````"])
def test_a_fence_that_is_indented_like_code_is_code(mark: str) -> None:
    (found,) = fences(f"{mark}python\n{DOCSTRING}{mark}\n")
    assert (found.text, found.closed) == (DOCSTRING, True)


def test_a_block_in_a_list_ends_with_the_list() -> None:
    (one, two) = fences("1. do\n   ```sh\n   ls\n     -l\n   ```\n2. then\n\n```\nx\n   ```")
    assert (one.text, one.info, one.before) == ("ls\n  -l\n", "sh", "1. do")
    assert (two.text, two.before, two.closed) == ("x\n", "2. then", True)


def test_one_without_an_end_is_said_to_have_none() -> None:
    (found,) = fences("```py\nx = 1")
    assert (found.text, found.closed) == ("x = 1\n", False)


@given(
    st.lists(st.text(st.characters(exclude_categories=["Cs", "Cc"]), max_size=20) | st.sampled_from(["```", "   ````", "~~~"]))
)
def test_any_text_comes_back_from_its_block(lines: list[str]) -> None:
    text = "".join(f"{line}\n" for line in lines)
    (found,) = fences(f"Look:\n{fenced(text, 'python file=a.py')}\nDone.")
    assert (found.text, found.info, found.before, found.closed) == (text, "python file=a.py", "Look:", True)
