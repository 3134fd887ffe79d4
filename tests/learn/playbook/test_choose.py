"""Which bullets stand in a prompt."""

from hypothesis import given
from hypothesis import strategies as st

from journeyman.embed import load as embedder
from journeyman.learn.playbook.choose import chooser, tokens
from journeyman.playbook import Bullet, Playbook
from journeyman.task import Task

HASHING = embedder("hashing")
WORDS = st.text(alphabet="abcde ", min_size=1, max_size=60)


def task(question: str, domain: str = "general") -> Task:
    return Task(id="t", question=question, domain=domain)


def bullets(*contents: str, **more: int) -> Playbook:
    return Playbook(bullets=tuple(Bullet(id=f"b-{n}", content=text, **more) for n, text in enumerate(contents)))  # type: ignore[arg-type]


def test_all_are_shown_while_they_fit() -> None:
    playbook = bullets("Write dates as year-month-day.", "Prices are in cents.", "Cities in capitals.")
    assert chooser(playbook, HASHING)(task("Anything at all?")) == playbook.bullets


def test_else_the_best_for_the_task_in_the_order_of_the_playbook() -> None:
    playbook = bullets(
        "Write a city by its code of three letters.",
        "Write the price of an order in cents.",
        "Greet nobody.",
        "Round the price of an order up.",
    )
    budget = tokens(playbook.bullets[1]) + tokens(playbook.bullets[3])
    chosen = chooser(playbook, HASHING, budget=budget)(task("What is the price of this order?"))
    assert [bullet.id for bullet in chosen] == ["b-1", "b-3"]


def test_confidence_decides_between_equals() -> None:
    playbook = Playbook(
        bullets=(
            Bullet(id="b-0", content="Check the price of the order.", helpful=1, harmful=4),
            Bullet(id="b-1", content="Check the order of the price.", helpful=5),
        )
    )
    chosen = chooser(playbook, HASHING, budget=tokens(playbook.bullets[0]))(task("The price of the order?"))
    assert [bullet.id for bullet in chosen] == ["b-1"]


def test_bullets_of_other_domains_and_retired_ones_are_not_shown() -> None:
    playbook = Playbook(
        bullets=(
            Bullet(id="b-0", content="One.", domain="oslo"),
            Bullet(id="b-1", content="Two.", domain="lima"),
            Bullet(id="b-2", content="Three.", domain="oslo", retired="harmful"),
        )
    )
    choose = chooser(playbook, HASHING)
    assert [bullet.id for bullet in choose(task("?", "oslo"))] == ["b-0"]
    assert [bullet.id for bullet in choose(task("?", "lima"))] == ["b-1"]
    assert choose(task("?", "rome")) == ()


def test_of_two_that_contradict_each_other_one_is_shown() -> None:
    playbook = Playbook(
        bullets=(
            Bullet(id="b-0", content="Always write prices in cents.", helpful=1),
            Bullet(id="b-1", content="Never write prices in cents.", helpful=4),
        )
    )
    assert [bullet.id for bullet in chooser(playbook, HASHING)(task("?"))] == ["b-1"]


@given(contents=st.lists(WORDS, max_size=12), question=WORDS, budget=st.integers(1, 120))
def test_the_budget_is_kept_and_nothing_is_shown_twice(contents: list[str], question: str, budget: int) -> None:
    playbook = bullets(*contents)
    chosen = chooser(playbook, HASHING, budget=budget)(task(question))
    assert sum(map(tokens, chosen)) <= budget
    assert list(chosen) == [bullet for bullet in playbook.bullets if bullet in chosen]
    left = budget - sum(map(tokens, chosen))
    usable = chooser(playbook, HASHING, budget=10**6)(task(question))
    assert all(bullet in chosen or tokens(bullet) > left for bullet in usable), "what still fits is shown"
