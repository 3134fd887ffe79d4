"""A plan as text: one line each, its place, what it waits for, and what became of it."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from journeyman.core.format import money, seconds
from journeyman.core.plan import Plan, Subtask, SubtaskResult, SubtaskState, tree

DIAMOND = Plan(
    instruction="do it all",
    subtasks=(
        Subtask(id="a", text="begin", type="t", worker="small"),
        Subtask(id="b", text="left", tool="saw", after=("a",)),
        Subtask(id="c", text="right", after=("a",)),
        Subtask(id="d", text="join", after=("b", "c")),
        Subtask(id="e", text="alone"),
    ),
)


def test_a_subtask_stands_below_the_deepest_that_it_waits_for_and_names_the_others() -> None:
    assert tree(DIAMOND).splitlines() == [
        "do it all",
        "1 ├─ a: begin  [t] small",
        "2 │  ├─ b: left  [general] saw",
        "2 │  └─ c: right  [general]",
        "3 │     └─ d: join  [general]  (after b)",
        "1 └─ e: alone  [general]",
    ]


def test_after_a_run_each_line_says_what_became_of_it_and_why_where_it_was_not_done() -> None:
    results = {
        "a": SubtaskResult(id="a", state=SubtaskState.SKIPPED, why="the time of 1 s was up"),
        "e": SubtaskResult(id="e", state=SubtaskState.DONE, output="x"),
    }
    lines = tree(DIAMOND, results).splitlines()
    assert lines[1].endswith("– skipped")
    assert lines[5].endswith("✓ done")
    assert lines[-1] == "a: the time of 1 s was up"


def test_a_terminal_obeys_nothing_that_stands_in_a_plan() -> None:
    shown = tree(Plan(instruction="\x1b[2Jdo", subtasks=(Subtask(id="a", text="\x07be\ngin\x9b"),)))
    assert all(letter.isprintable() or letter == "\n" for letter in shown)
    assert len(shown.splitlines()) == 2


words = st.text(max_size=60)


@given(edges=st.lists(st.sets(st.integers(0, 7), max_size=3), min_size=1, max_size=8), text=words, width=st.integers(60, 140))
def test_every_subtask_has_one_line_that_is_not_too_long(edges: list[set[int]], text: str, width: int) -> None:
    subtasks = tuple(
        Subtask(id=f"s{at}", text=text, after=tuple(f"s{n}" for n in sorted(after) if n < at)) for at, after in enumerate(edges)
    )
    lines = tree(Plan(instruction=text, subtasks=subtasks), width=width).splitlines()
    assert len(lines) in (len(subtasks), len(subtasks) + 1)
    assert sorted(each.id for each in subtasks) == sorted(line.split(": ")[0].split()[-1] for line in lines[-len(subtasks) :])
    # However deep it stands, a subtask shows a few letters of its text.
    assert max(map(len, lines)) <= max(width, 24 + 3 * len(subtasks) + 40)


@pytest.mark.parametrize(
    ("value", "said"), [(None, "?"), (0.08, "80 ms"), (4.06, "4.1 s"), (59.96, "1 min 0 s"), (200.0, "3 min 20 s")]
)
def test_times_are_said_as_people_say_them(value: float | None, said: str) -> None:
    assert seconds(value) == said


@pytest.mark.parametrize(
    ("value", "said"), [(None, "?"), (0.0, "$0"), (1.234, "$1.23"), (0.0123, "$0.012"), (1.5e-5, "$1.5e-05")]
)
def test_unknown_money_is_not_none(value: float | None, said: str) -> None:
    assert money(value) == said
