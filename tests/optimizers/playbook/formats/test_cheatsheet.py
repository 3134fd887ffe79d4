import pytest

from journeyman.core.errors import PlaybookError
from journeyman.optimizers.playbook import files

SHEET = """<cheatsheet>
Version: 1.2

## Reusable Code Snippets and Solution Strategies
<memory_item>
<description>
Add the digits before you divide. (Reference: Q1, Q7)
</description>
<example>
x = sum(digits)
y = x / 2
</example>
</memory_item>
** Count: 3

GENERAL META-REASONING STRATEGIES
<memory_item>
<description>Check the result.</description>
</memory_item>
</cheatsheet>
"""


def test_a_cheatsheet_is_read_item_by_item() -> None:
    one, two = files.loads(SHEET).bullets
    assert one.content == "Add the digits before you divide. (Reference: Q1, Q7)\nx = sum(digits)\ny = x / 2"
    assert (one.section, one.shown) == ("Reusable Code Snippets and Solution Strategies", 3)
    assert (two.content, two.section, two.shown) == ("Check the result.", "GENERAL META-REASONING STRATEGIES", 0)


def test_a_cheatsheet_that_ends_within_an_item_is_refused_with_the_line() -> None:
    with pytest.raises(PlaybookError, match=r"x\.txt:17: an item begins here and does not end"):
        files.loads(SHEET[: SHEET.index("Check")], "x.txt")
