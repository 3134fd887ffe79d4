"""What was put into a prompt can be taken out of it again, and nothing else is."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from journeyman.agents import answer, coder
from journeyman.core.playbook import Bullet
from journeyman.core.task import Task
from journeyman.models.base import Dialect

_text = st.text(max_size=40)
_bullets = st.lists(
    st.builds(
        lambda at, text, bad: Bullet(id=f"b-{at}", content=text, section="harmful" if bad else "helpful"),
        st.integers(0, 99),
        _text,
        st.booleans(),
    ),
    max_size=4,
)


@pytest.mark.parametrize("dialect", ["full", "terse"])
@given(bullets=_bullets, instructions=_text)
def test_a_prompt_without_its_bullets_is_the_prompt_that_had_none(
    dialect: Dialect, bullets: list[Bullet], instructions: str
) -> None:
    task = Task(id="t", question="What?", instructions=instructions)
    for write in (answer.answer, coder.write):
        with_bullets, bare = write(task, bullets, dialect)[0].content, write(task, (), dialect)[0].content
        assert answer.without_bullets(with_bullets, terse=dialect == "terse") == bare
        assert answer.without_bullets(bare, terse=dialect == "terse") == bare


@given(bullets=_bullets.filter(bool), text=_text)
def test_what_was_put_into_a_live_request_can_be_taken_out_of_it(bullets: list[Bullet], text: str) -> None:
    put = answer.strategies(bullets)
    places = (f"{text}\n\n{put}", f"{put}\n\n{text}") if text else (put,)
    assert [answer.without_bullets(each) for each in places] == [text] * len(places)


def test_what_stands_behind_the_bullets_stays() -> None:
    shown = answer.answer(Task(id="t", question="What?", instructions="Do it."), [Bullet(id="b", content="x")], "full")[
        0
    ].content
    assert answer.without_bullets(f"{shown}\nBe quick.\n[no] more") == "Do it.\nBe quick.\n[no] more"


def test_a_citation_goes_and_the_answer_stays() -> None:
    assert answer.without_citation("Since 2+2.\n**Used: b-1**\nAnswer: 4") == "Since 2+2.\nAnswer: 4"
    assert answer.without_citation("I used: nothing\n") == "I used: nothing\n"
