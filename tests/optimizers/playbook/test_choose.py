"""Which bullets stand in a prompt."""

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from journeyman.agents.answer import answer
from journeyman.core.errors import InputError
from journeyman.core.playbook import (
    Add,
    Batch,
    Bullet,
    Delta,
    MoveTo,
    Playbook,
    Provenance,
    Retire,
    Support,
    UpdateBullet,
    Vote,
)
from journeyman.core.task import Task
from journeyman.models.embedders import Vectors
from journeyman.models.embedders import load as embedder
from journeyman.optimizers.playbook import conflict, files
from journeyman.optimizers.playbook.retrieval import Chooser, chooser, tokens

HASHING = embedder("hashing")
WORDS = st.text(alphabet="abcde ", min_size=1, max_size=60)


def task(question: str, domain: str = "general") -> Task:
    return Task(id="t", question=question, domain=domain)


def bullets(*contents: str, **more: int) -> Playbook:
    return Playbook(bullets=tuple(Bullet(id=f"b-{n}", content=text, **more) for n, text in enumerate(contents)))  # type: ignore[arg-type]


def test_all_are_shown_while_they_fit() -> None:
    playbook = bullets("Write dates as year-month-day.", "Prices are in cents.", "Cities in capitals.")
    assert chooser(playbook, HASHING)(task("Anything at all?")) == playbook.bullets


def test_a_playbook_loaded_from_a_file_gives_the_text_that_an_agent_is_given(tmp_path: Path) -> None:
    many = bullets(*(f"Rule {number}: " + "write amounts in cents. " * 20 for number in range(40)))
    asked = Task(id="t", question="What about rule 7?", instructions="Answer.")
    for name, playbook in (("few", bullets("Write dates as year-month-day.", "Prices in cents.")), ("many", many)):
        files.save(playbook, tmp_path / name)
        (system, _) = answer(asked, chooser(playbook, HASHING)(asked), "full")
        assert system.content == f"Answer.\n\n{Playbook.load(tmp_path / name).prompt(asked)}"
    assert Playbook.load(tmp_path / "few").prompt(task("When?", "oslo")) == ""
    with pytest.raises(InputError, match="is not there"):
        Playbook.load(tmp_path / "none.json")


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


SAID = ("Write prices in cents.", "Never write prices in cents.", "Cities in capitals.", "Write the date last.", "Date first.")
IDS = st.integers(0, 7).map(lambda number: f"b-{number}")
DELTAS: st.SearchStrategy[Delta] = st.one_of(
    st.builds(
        lambda id, text, tasks: Add(bullet=Bullet(id=id, content=text, provenance=Provenance(tasks=tuple(tasks)))),
        IDS,
        st.sampled_from(SAID),
        st.lists(st.sampled_from("xyz"), max_size=2, unique=True),
    ),
    st.builds(lambda id, up, down: Vote(bullet_id=id, helpful=up, harmful=down), IDS, st.integers(0, 2), st.integers(0, 2)),
    st.builds(lambda id: Retire(bullet_id=id, reason="old"), IDS),
    st.builds(lambda id, text: UpdateBullet(bullet_id=id, content=text), IDS, st.sampled_from(SAID)),
    st.builds(lambda id, domain: MoveTo(bullet_id=id, domain=domain), IDS, st.sampled_from(["general", "oslo"])),
    st.builds(lambda id, task: Support(bullet_id=id, task_ids=(task,)), IDS, st.sampled_from("xyz")),
)


@given(
    revisions=st.lists(st.lists(DELTAS, max_size=8), max_size=5),
    budget=st.sampled_from([20, 40, 2000]),
    least=st.integers(1, 2),
)
def test_who_followed_every_revision_chooses_as_who_reads_the_last(
    revisions: list[list[Delta]], budget: int, least: int
) -> None:
    followed, playbook = Chooser(HASHING, budget=budget, min_support=least), Playbook()
    for number, deltas in enumerate(revisions):
        playbook = playbook.apply(Batch(id=str(number), deltas=tuple(deltas)))
        for asked in (task("The price in cents?"), task("The date?", "oslo")):
            assert followed.of(playbook)(asked) == chooser(playbook, HASHING, budget=budget, min_support=least)(asked)


class Counting:
    """Says how many texts were embedded."""

    name = "counting"

    def __init__(self) -> None:
        self.texts = 0

    def embed(self, texts: Sequence[str]) -> Vectors:
        self.texts += len(texts)
        return HASHING.embed(texts)


def test_a_new_revision_costs_what_it_changes_and_not_the_whole_playbook(monkeypatch: pytest.MonkeyPatch) -> None:
    compared: list[str] = []
    contradicts = conflict.contradicts

    def counted(one: conflict.Rule, other: conflict.Rule) -> bool:
        compared.append(other.content)
        return contradicts(one, other)

    monkeypatch.setattr(conflict, "contradicts", counted)
    counting = Counting()
    follow = Chooser(counting, budget=100)
    playbook = bullets(*(f"Check the {'abcdefghij'[n % 10] * (n + 3)} of an order in {n} ways." for n in range(200)))
    follow.of(playbook)(task("Which order?"))
    compared.clear()
    counting.texts = 0
    new = Add(bullet=Bullet(id="new", content="Check the whole order in every way."))
    follow.of(playbook.apply(Batch(id="1", deltas=(new, Vote(bullet_id="b-3", helpful=1)))))(task("Which order?"))
    assert set(compared) <= {"Check the whole order in every way."}
    assert counting.texts == 2


def test_an_earlier_revision_may_still_be_asked() -> None:
    first = bullets("Write prices in cents.")
    second = replace(first, bullets=(*first.bullets, Bullet(id="b-new", content="Cities in capitals.")))
    follow = Chooser(HASHING)
    earlier, later = follow.of(first), follow.of(second)
    assert [len(choose(task("?"))) for choose in (earlier, later, earlier)] == [1, 2, 1]


def test_a_rule_that_one_task_wrote_is_shown_once_a_second_task_or_an_attempt_speaks_for_it() -> None:
    playbook = Playbook(
        bullets=(
            Bullet(id="one", content="One task.", provenance=Provenance(tasks=("t1",))),
            Bullet(id="same", content="The same task twice.", provenance=Provenance(tasks=("t1",))),
            Bullet(id="two", content="Two tasks.", provenance=Provenance(tasks=("t1",))),
            Bullet(id="credited", content="Credited.", provenance=Provenance(tasks=("t1",)), helpful=1),
            Bullet(id="locked", content="Locked.", provenance=Provenance(tasks=("t1",)), locked=True),
            Bullet(id="imported", content="Imported."),
        )
    )
    again = (Support(bullet_id="same", task_ids=("t1",)), Support(bullet_id="two", task_ids=("t2",)))
    playbook = playbook.apply(Batch(id="1", deltas=again))
    assert [bullet.support for bullet in playbook.bullets[1:3]] == [2, 2]
    shown = [bullet.id for bullet in chooser(playbook, HASHING, min_support=2)(task("?"))]
    assert shown == ["two", "credited", "locked", "imported"]
    assert chooser(playbook, HASHING)(task("?")) == playbook.bullets


def test_a_rule_that_is_not_shown_withholds_no_other() -> None:
    playbook = Playbook(
        bullets=(
            Bullet(id="b-0", content="Always write prices in cents.", harmful=1),
            Bullet(id="b-1", content="Never write prices in cents.", provenance=Provenance(tasks=("t1",))),
        )
    )
    assert [bullet.id for bullet in chooser(playbook, HASHING, min_support=2)(task("?"))] == ["b-0"]
