"""Texts of a module in which one function is another, or none is."""

import random
from typing import Any

import pytest

from journeyman.tasks.repository import rewriting
from journeyman.tasks.repository.mutations import functions

MODULE = '''"""Words."""


def joined(words, glue=" ", *more, last=None, **rest):
    """Words in a row.

    >>> joined(["a", "b"])
    'a b'
    """
    # How it is done.
    found = [word for word in words]
    total = glue.join(found)

    def tail(text):
        nonlocal total
        total = total + text
        kept = total
        return kept

    try:
        return tail(str(last or ""))
    except ValueError as error:
        return str(error)


class Box:
    def size(self, unit: int = 1) -> int:
        width = unit
        return width * 2
'''


def loaded(text: str) -> dict[str, Any]:
    names: dict[str, Any] = {}
    exec(compile(text, "module", "exec"), names)
    return names


def test_a_renamed_module_does_the_same_with_other_local_names() -> None:
    text = rewriting.renamed(MODULE)
    was, now = loaded(MODULE), loaded(text)
    for words, last in ([["a", "b"], "x"], [[], None]):
        assert now["joined"](words, last=last) == was["joined"](words, last=last)
    assert now["Box"]().size(unit=3) == 6
    assert "found" not in now["joined"].__code__.co_varnames
    assert "# How" not in text
    assert now["joined"].__doc__ == was["joined"].__doc__


def test_what_sees_its_names_keeps_them() -> None:
    text = "def f(a):\n    b = a\n    return locals()\n"
    assert loaded(rewriting.renamed(text))["f"](1) == {"a": 1, "b": 1}


def test_a_function_without_its_body_keeps_signature_and_docstring() -> None:
    function = rewriting.function_of(MODULE, "joined")
    assert function is not None
    text = rewriting.without_body(MODULE, function)
    assert "How it is done" not in text
    names = loaded(text)
    assert names["joined"].__doc__ == loaded(MODULE)["joined"].__doc__
    with pytest.raises(NotImplementedError):
        names["joined"]([])
    assert names["Box"]().size() == 2


def test_signature_and_parameters_are_what_a_caller_gives() -> None:
    joined, size = functions(MODULE)
    assert rewriting.signature(joined) == "joined(words, glue=' ', *more, last=None, **rest)"
    assert rewriting.parameters(joined) == ("words", "glue", "last", "more", "rest")
    assert rewriting.parameters(size) == ("unit",)


@pytest.mark.parametrize("words", ["One line.", 'He said "x"\n\n>>> 1\n1', "A \\n backslash"])
def test_a_docstring_is_taken_out_and_another_put_in(words: str) -> None:
    for name in ("joined", "Box.size"):
        function = rewriting.function_of(MODULE, name)
        assert function is not None
        without = rewriting.without_docstring(MODULE, function)
        bare = rewriting.function_of(without, name)
        assert bare is not None
        assert rewriting.docstring(bare) == ""
        text = rewriting.with_docstring(without, bare, words)
        again = rewriting.function_of(text, name)
        assert again is not None
        assert rewriting.docstring(again) == words
        assert rewriting.same_but_for_docstring(MODULE, text, name)
        other = "Box.size" if name == "joined" else "joined"
        assert not rewriting.same_but_for_docstring(MODULE, text, other)
        assert not rewriting.same_but_for_docstring(MODULE, text.replace("* 2", "* 3"), name)


def test_mutants_of_one_function_are_the_same_each_time_and_of_all_kinds_first() -> None:
    found = rewriting.mutants(MODULE, "Box.size", random.Random(1))
    assert found == rewriting.mutants(MODULE, "Box.size", random.Random(1))
    assert {each.function for each in found} == {"Box.size"}
    kinds = [each.kind for each in found]
    assert len(set(kinds[: len(set(kinds))])) == len(set(kinds))
    assert rewriting.of_rows(rewriting.as_rows(found)) == found


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("import inspect\n", "inspect"),
        ("f.__code__.co_consts\n", "__code__"),
        ("getattr(f, '__code__')\n", "__code__"),
        ("open('parcels/rates.py')\n", "__file__"),
        ("assert f(1) == 2\n", ""),
        ("from importlib import reload\n", "importlib"),
    ],
)
def test_code_that_reads_code_is_told(text: str, found: str) -> None:
    assert rewriting.looks_at_code(text) == found
