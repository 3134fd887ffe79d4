import random
from collections.abc import Sequence
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from journeyman.core.errors import InputError
from journeyman.core.playbook import (
    Add,
    Batch,
    Bullet,
    Delta,
    Insight,
    Merge,
    MoveTo,
    Playbook,
    Retire,
    Support,
    UpdateBullet,
    bullet_id,
)
from journeyman.models.embedders import HashingEmbedder, Vectors
from journeyman.optimizers.playbook.curator import CurateReport, Curator, Origin, copied

CENTS = "Always convert the amount to cents before you compare two prices."
NEAR = "Always convert the amount to cents before comparing two prices."
YEAR = "Write the year first in every date."
ORIGIN = Origin(batch_id="run/1", at="2026-03-05", run="run", model="reflector")


class Counting:
    """Remembers what it was asked."""

    name = "counting"

    def __init__(self) -> None:
        self.asked: list[str] = []

    def embed(self, texts: Sequence[str]) -> Vectors:
        self.asked.extend(texts)
        return HashingEmbedder().embed(texts)


def curate(playbook: Playbook, *insights: Insight | str, origin: Origin = ORIGIN) -> tuple[Batch, CurateReport]:
    drawn = [Insight(content=insight) if isinstance(insight, str) else insight for insight in insights]
    return Curator(HashingEmbedder()).curate(playbook, drawn, origin)


def learned(*insights: Insight | str) -> Playbook:
    batch, _ = curate(Playbook(), *insights)
    return Playbook().apply(batch)


def also(playbook: Playbook, *deltas: Delta) -> Playbook:
    return playbook.apply(Batch(id=f"by hand {len(playbook.batches)}", deltas=deltas))


def test_what_may_come_back_is_a_bullet_of_its_own_as_often_as_it_does() -> None:
    playbook = learned(YEAR)
    for times in range(1, 4):
        gone = playbook.bullets[-1].id
        playbook = also(playbook, Retire(bullet_id=gone, reason="it lapsed: no longer met"))
        _, report = curate(playbook, YEAR)
        assert [each.reason for each in report.rejected] == ["a bullet that said so was retired"]
        batch, report = curate(playbook, YEAR, origin=replace(ORIGIN, batch_id=f"run/{times + 1}", returning=frozenset({gone})))
        assert not report.rejected
        playbook = playbook.apply(batch)
        assert [bullet.content for bullet in playbook.active] == [YEAR]
        assert len({bullet.id for bullet in playbook.bullets}) == times + 1


def test_what_is_new_is_added_with_where_it_came_from() -> None:
    batch, report = curate(Playbook(), Insight(content=CENTS, domain="oslo", about="money", task_ids=("t1",)))
    (bullet,) = Playbook().apply(batch).bullets
    assert report.added == (bullet.id,) == (bullet_id("oslo", CENTS),)
    assert (bullet.domain, bullet.about, bullet.support, bullet.created_at) == ("oslo", "money", 1, "2026-03-05")
    assert (bullet.provenance.run, bullet.provenance.model, bullet.provenance.tasks) == ("run", "reflector", ("t1",))
    assert batch.id == "run/1"


@pytest.mark.parametrize("again", [CENTS, CENTS.upper(), f"  {CENTS}  ", NEAR])
def test_what_is_there_already_gains_support(again: str) -> None:
    playbook = learned(CENTS)
    batch, report = curate(playbook, Insight(content=again, task_ids=("t2",)))
    (bullet,) = playbook.apply(replace(batch, id="run/2")).bullets
    assert (report.added, report.incremented) == ((), (bullet.id,))
    assert (bullet.content, bullet.support, bullet.provenance.tasks) == (CENTS, 2, ("t2",))


def test_duplicates_within_a_batch_are_one_bullet() -> None:
    batch, report = curate(Playbook(), CENTS, NEAR, CENTS.lower(), YEAR)
    assert (len(report.added), len(report.incremented)) == (2, 2)
    assert sorted(bullet.support for bullet in Playbook().apply(batch).bullets) == [1, 3]


def test_domains_are_isolated() -> None:
    rome = Insight(content=CENTS, domain="rome")
    batch, report = curate(learned(Insight(content=CENTS, domain="oslo")), rome, replace(rome, domain="lima"))
    assert len(report.added) == 2
    assert not any(isinstance(delta, Support) for delta in batch.deltas)


def test_near_rules_that_contradict_are_both_kept_and_reported() -> None:
    never = CENTS.replace("Always", "Never")
    _, report = curate(learned(CENTS), never)
    assert report.added == (bullet_id("general", never),)
    assert report.conflicts == ((bullet_id("general", never), bullet_id("general", CENTS)),)


def test_rules_for_one_setting_conflict_within_a_batch_too() -> None:
    iso, german = (
        Insight(content="Dates look like 2026-03-05.", about="dates"),
        Insight(content="Day, month, year!", about="dates"),
    )
    _, report = curate(Playbook(), iso, german)
    assert len(report.added) == 2
    assert len(report.conflicts) == 1
    _, later = curate(learned(iso), german)
    assert later.conflicts == ((bullet_id("general", german.content), bullet_id("general", iso.content)),)


def test_near_rules_that_differ_in_a_number_are_both_kept() -> None:
    _, report = curate(learned("Round every price to 2 decimals."), "Round every price to 3 decimals.")
    assert (len(report.added), report.conflicts) == (1, ())


def test_the_same_words_with_the_opposite_verdict_are_left_to_votes() -> None:
    _, report = curate(learned(YEAR), Insight(content=YEAR, section="harmful"))
    assert (report.added, report.incremented) == ((), ())
    assert "opposite verdict" in report.rejected[0].reason


def test_what_was_retired_is_not_learned_again() -> None:
    playbook = also(learned(CENTS), Retire(bullet_id=bullet_id("general", CENTS), reason="it misled"))
    batch, report = curate(playbook, CENTS)
    assert batch.deltas == ()
    assert [rejection.reason for rejection in report.rejected] == ["a bullet that said so was retired"]


def test_what_was_merged_away_supports_what_was_kept() -> None:
    old, kept = bullet_id("general", CENTS), bullet_id("general", YEAR)
    _, report = curate(also(learned(CENTS, YEAR), Merge(kept=kept, gone=(old,))), CENTS)
    assert report.incremented == (kept,)


def test_new_words_of_a_bullet_are_known_and_so_are_its_old_ones() -> None:
    id = bullet_id("general", CENTS)
    playbook = also(learned(CENTS), UpdateBullet(bullet_id=id, content=YEAR))
    _, report = curate(playbook, YEAR, CENTS)
    assert report.incremented == (id, id)


def test_a_bullet_that_was_moved_is_not_born_again_where_it_was() -> None:
    playbook = also(learned(CENTS), MoveTo(bullet_id=bullet_id("general", CENTS), domain="oslo"))
    assert "moved" in curate(playbook, CENTS)[1].rejected[0].reason
    assert curate(playbook, Insight(content=CENTS, domain="oslo"))[1].incremented == (bullet_id("general", CENTS),)


def test_what_was_rejected_once_is_not_considered_again() -> None:
    question = "A shop sells three blue mugs to a lady in Oslo who pays on the fifth of March."
    taken = "Three blue mugs to a lady in Oslo who pays on the fifth of March."
    _, first = curate(Playbook(), taken, "  ", origin=replace(ORIGIN, questions=(question,)))
    assert [rejection.reason for rejection in first.rejected] == ["it says nothing", "it is copied from a training task"]
    _, second = curate(Playbook(), taken, origin=replace(ORIGIN, rejected=frozenset(each.id for each in first.rejected)))
    assert [rejection.reason for rejection in second.rejected] == ["it was rejected before"]


def test_nothing_rejected_is_embedded_and_nothing_is_embedded_twice() -> None:
    embedder = Counting()
    curator = Curator(embedder)
    batch, _ = curator.curate(Playbook(), [Insight(content=CENTS), Insight(content="")], ORIGIN)
    playbook = Playbook().apply(batch)
    curator.curate(playbook, [Insight(content=CENTS.upper()), Insight(content=YEAR)], ORIGIN)
    assert embedder.asked == [CENTS, YEAR]


def test_half_a_character_from_a_model_stops_nothing() -> None:
    _, report = curate(Playbook(), "Use \ud800 cents")
    assert len(report.added) == 1


@pytest.mark.parametrize("threshold", [0, -1, 1.5])
def test_an_impossible_threshold_is_refused(threshold: float) -> None:
    with pytest.raises(InputError, match="similarity threshold"):
        Curator(HashingEmbedder(), threshold)


QUESTION = "Janet's ducks lay 16 eggs per day. She eats three for breakfast every morning and bakes muffins for her friends."


@pytest.mark.parametrize(
    ("content", "taken"),
    [
        ("Remember: she eats three for breakfast every morning and bakes muffins.", True),
        ("Ducks lay 16 eggs per day.", True),
        ("Note: ducks lay 16 eggs per day", True),
        ("eggs per day", False),
        ("Subtract what is eaten before you sell the rest.", False),
        ("She eats three; write each such amount down before you go on.", False),
    ],
)
def test_text_taken_from_a_task_is_recognised(content: str, taken: bool) -> None:
    assert copied(content, [QUESTION]) is taken
    assert copied(content, []) is False


WORDS = ("always never convert the amount to cents euros before after you compare two 2 prices", "write round first year date")
CONTENTS = st.lists(st.sampled_from(" ".join(WORDS).split()), min_size=1, max_size=7).map(" ".join)
INSIGHTS = st.builds(
    Insight,
    content=st.one_of(CONTENTS, st.sampled_from([CENTS, NEAR, YEAR])),
    section=st.sampled_from(["helpful", "harmful"]),
    domain=st.sampled_from(["oslo", "rome"]),
    about=st.sampled_from(["", "money"]),
    task_ids=st.sampled_from([(), ("t1",), ("t2",)]),
)
ROUNDS = st.lists(st.lists(INSIGHTS, max_size=6), min_size=1, max_size=4)


@given(st.lists(INSIGHTS, max_size=10), st.randoms())
def test_the_order_of_insights_does_not_matter(insights: list[Insight], chance: random.Random) -> None:
    shuffled = list(insights)
    chance.shuffle(shuffled)
    assert curate(Playbook(), *insights) == curate(Playbook(), *shuffled)


@given(ROUNDS, st.randoms(use_true_random=False))
def test_what_a_curator_remembers_never_changes_a_decision(rounds: list[list[Insight]], chance: random.Random) -> None:
    curator = Curator(HashingEmbedder())
    playbook = Playbook()
    earlier = [playbook]
    for number, insights in enumerate(rounds):
        batch, report = curator.curate(playbook, insights, replace(ORIGIN, batch_id=f"run/{number}"))
        assert (replace(batch, id="run/1"), report) == curate(playbook, *insights)
        assert len(report.added) + len(report.incremented) + len(report.rejected) == len(insights)
        playbook = playbook.apply(batch)
        assert [delta.bullet.id for delta in batch.deltas if isinstance(delta, Add)] == list(report.added)
        assert {*report.added, *report.incremented} <= {bullet.id for bullet in playbook.active}
        active = playbook.active
        if active:
            id = chance.choice(active).id
            changes: list[Delta] = [Retire(bullet_id=id, reason="x"), UpdateBullet(bullet_id=id, content=YEAR)]
            playbook = also(playbook, chance.choice([*changes, MoveTo(bullet_id=id, domain="rome")]))
        earlier.append(playbook)
        if chance.random() < 0.3:
            playbook = chance.choice(earlier)


def test_an_update_to_another_playbook_s_bullet_is_no_duplicate_of_it() -> None:
    curator = Curator(HashingEmbedder())
    curator.curate(Playbook(bullets=(Bullet(id="b-1", content=CENTS),)), [], ORIGIN)
    _, report = curator.curate(Playbook(bullets=(Bullet(id="b-2", content=YEAR),)), [Insight(content=NEAR)], ORIGIN)
    assert len(report.added) == 1
