from hypothesis import given
from hypothesis import strategies as st

from journeyman.rewards.blocks import CodeBlock, blocks, last_blocks
from tests.support.traces import said


def test_blocks_come_in_order_with_their_language_by_its_long_name() -> None:
    text = "a\n```py\nx = 1\n```\nb\n~~~bash title=run\nls\n~~~\n```\nno language\n```\n```{.JSON}\n{}\n```"
    assert blocks(text) == (
        CodeBlock("python", "x = 1\n"),
        CodeBlock("shell", "ls\n"),
        CodeBlock("", "no language\n"),
        CodeBlock("json", "{}\n"),
    )


def test_a_fence_inside_of_a_longer_one_is_code() -> None:
    assert blocks("````python\ns = '''\n```js\n```\n'''\n````") == (CodeBlock("python", "s = '''\n```js\n```\n'''\n"),)


def test_a_block_that_is_not_closed_ends_with_the_text() -> None:
    assert blocks("```python\nx = 1") == (CodeBlock("python", "x = 1\n"),)


def test_a_block_in_a_list_loses_its_indentation() -> None:
    assert blocks("1. run\n   ```python\n   if x:\n       y\n   ```") == (CodeBlock("python", "if x:\n    y\n"),)


def test_of_a_session_only_what_was_typed_is_kept() -> None:
    assert blocks("```python\n>>> x = [\n...   1]\n>>> x\n[1]\n```") == (CodeBlock("python", "x = [\n  1]\nx\n"),)
    assert blocks("```console\n$ ls\na b\n```") == (CodeBlock("shell", "ls\n"),)


def test_the_last_reply_with_code_counts_and_drafts_do_not() -> None:
    trace = said("```python\ndraft\n```", "```python\nfinal\n```\n```toml\nx\n```", "done, see above")
    assert last_blocks(trace, {"python"}) == (CodeBlock("python", "final\n"),)
    assert last_blocks(trace, {"json"}) == ()


CODE = st.text(alphabet=st.characters(exclude_characters="`~\n\r", exclude_categories=["Cs"]), max_size=20)


@given(st.lists(st.tuples(st.sampled_from(["python", "json", "shell", ""]), CODE), max_size=5))
def test_what_was_fenced_comes_back(pieces: list[tuple[str, str]]) -> None:
    text = "words\n".join(f"```{language}\nx{code}\n```\n" for language, code in pieces)
    assert blocks(text) == tuple(CodeBlock(language, f"x{code}\n") for language, code in pieces)


@given(st.text(alphabet="`~ \nab>$."))
def test_any_text_can_be_looked_through(text: str) -> None:
    assert all(block.code in (block.code + text) for block in blocks(text))
    assert sum(len(block.code) for block in blocks(text)) <= len(text) + 1
