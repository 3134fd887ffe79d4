"""Files out of replies: every way that models write them is read, and none leads out of the folder."""

from pathlib import PurePosixPath

import pytest
from hypothesis import given
from hypothesis import strategies as st

from journeyman.agents.coder import MOST_FILES, safe, written
from journeyman.io.markdown import fenced

PART = st.text("abcXYZ019_-", min_size=1, max_size=8).filter(lambda part: part[0] not in "-")
PATHS = st.builds(
    lambda parts, end: "/".join(parts) + end, st.lists(PART, min_size=1, max_size=3), st.sampled_from([".py", ".txt"])
)
CONTENT = st.lists(
    st.text(st.characters(blacklist_categories=["Cs", "Cc"]), max_size=20) | st.sampled_from(["```", "````py", "~~~"])
)


@pytest.mark.parametrize(
    "reply",
    [
        "```python file=app.py\nx = 1\n```",
        "Sure!\n\n```python filename='app.py'\nx = 1\n```\nDone.",
        '```py title="app.py"\nx = 1\n```',
        "```app.py\nx = 1\n```",
        "```python app.py\nx = 1\n```",
        "```python:app.py\nx = 1\n```",
        "**app.py**\n```python\nx = 1\n```",
        "### `app.py`\n\n```python\nx = 1\n```",
        "1. File: app.py\n```\nx = 1\n```",
        "app.py:\n~~~~python\nx = 1\n~~~~",
        "```python file=./app.py\r\nx = 1\r\n```\r\n",
    ],
)
def test_the_ways_that_models_name_a_file(reply: str) -> None:
    found = written(reply)
    assert (dict(found.files), found.faults) == ({"app.py": "x = 1\n"}, ())


def test_a_name_in_a_comment_on_the_first_line_counts() -> None:
    assert list(written("```python\n# file: a/b.py\nx = 1\n```").files) == ["a/b.py"]
    assert list(written("```js\n// app.js\nlet x\n```").files) == ["app.js"]


def test_examples_of_use_without_a_name_are_no_files() -> None:
    reply = "```python file=a.py\nx = 1\n```\nRun it:\n```sh\npython a.py\n```"
    assert list(written(reply).files) == ["a.py"]


def test_the_only_block_of_python_is_the_main_program() -> None:
    assert dict(written("```python\nprint(1)\n```").files) == {"main.py": "print(1)\n"}
    assert written("```python\na\n```\n```python\nb\n```").faults == (
        "no fenced block names a file; begin each with its name, as in ```python file=main.py",
    )


def test_of_two_blocks_with_one_name_the_last_one_counts() -> None:
    assert dict(written("```py file=a.py\n1\n```\nBetter:\n```py file=a.py\n2\n```").files) == {"a.py": "2\n"}


def test_a_file_that_was_cut_off_is_refused_and_said() -> None:
    found = written("```python file=a.py\nx = 1\n```\n```python file=b.py\nx =")
    assert list(found.files) == ["a.py"]
    assert "the block of 'b.py' has no end" in found.faults[0]


@pytest.mark.parametrize(
    "name",
    [
        "../x.py",
        "/etc/passwd",
        "a/../../x.py",
        "C:\\x.py",
        "a\\b.py",
        "~/x.py",
        ".",
        "a//../b.py",
        "x\x00.py",
        "-rf.py",
        "a\n.py",
    ],
)
def test_a_name_that_leads_elsewhere_is_refused(name: str) -> None:
    path, fault = safe(name)
    assert path == ""
    assert "is no path that can be used" in fault


def test_a_reply_with_too_much_is_refused_whole() -> None:
    many = "\n".join(f"```py file=f{n}.py\n```" for n in range(MOST_FILES + 1))
    assert not written(many).files
    assert not written(f"```py file=a.py\n{'x' * 1_000_001}\n```").files


@given(st.dictionaries(PATHS, CONTENT, min_size=1, max_size=4))
def test_files_come_back_as_they_were_written(files: dict[str, list[str]]) -> None:
    texts = {path: "".join(f"{line}\n" for line in lines) for path, lines in files.items()}
    reply = "\n\n".join(fenced(text, f"python file={path}") for path, text in texts.items())
    assert (dict(written(reply).files), written(reply).faults) == (texts, ())


FENCES = st.sampled_from(
    ["```", "````", "~~~", "```python file=", "../", "a.py", "/", "# file: ", "**b.py**", "\n", " ", "\r\n", "\\"]
)


@given(st.lists(FENCES | st.text(max_size=5), max_size=30).map("".join))
def test_whatever_a_reply_holds_no_path_leaves_the_folder(reply: str) -> None:
    for path in written(reply).files:
        assert not PurePosixPath(path).is_absolute()
        assert ".." not in PurePosixPath(path).parts
        assert path.isprintable()
        assert "\\" not in path
