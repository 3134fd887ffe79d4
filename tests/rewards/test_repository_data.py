"""Packages that read files which lie beside their code."""

import pytest

from journeyman import sandbox
from journeyman.rewards.repository import verify
from journeyman.tasks.repository import Category, Checks, RepositoryTask
from journeyman.tasks.repository.tree import Tree

CODE = """\
from pathlib import Path


def words():
    return Path(__file__).with_name("words.txt").read_text().split()
"""
TESTS = """\
import pathlib

import words

FOLDER = pathlib.Path(words.__file__).parent


def test_words():
    assert words.words() == ["one", "two"]


def test_they_lie_beside_the_code():
    assert (FOLDER / "words.txt").exists() == True
"""


@pytest.mark.service
@pytest.mark.parametrize("root", ["", "src/"])
async def test_right_code_that_reads_a_file_of_its_package_is_believed(root: str) -> None:
    code, tests = f"{root}words/__init__.py", "tests/test_words.py"
    tree = Tree({code: CODE.encode(), f"{root}words/words.txt": b"one two", tests: TESTS.encode()})
    task = RepositoryTask(
        category=Category.BUG_FIX,
        repository="words",
        tree=tree.digest,
        environment="",
        statement="`words` does not do what it did. Mend it.",
        base={code: CODE.replace("split()", "split('w')")},
        reference={code: CODE},
        checks=Checks(fail_to_pass=(f"{tests}::test_words",), pass_to_pass=(f"{tests}::test_they_lie_beside_the_code",)),
    )
    async with sandbox.started("auto") as box:
        right = await verify(task, tree, task.right(tree).files, box)
        given = await verify(task, tree, task.start(tree).files, box)
    assert (right.value, given.value) == (1.0, 0.0), right.evidence
