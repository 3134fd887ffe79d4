import random
import time
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from journeyman.core.errors import PlaybookError
from journeyman.core.playbook import (
    Add,
    Batch,
    Bullet,
    Delta,
    Evidence,
    Hold,
    Lock,
    Merge,
    MoveTo,
    Playbook,
    Provenance,
    Retire,
    Support,
    UpdateBullet,
    Vote,
    bullet_id,
    normalised,
)
from journeyman.core.release import Stage

IDS = st.sampled_from(["b-1", "b-2", "b-3", "b-4"])
WORDS = st.sampled_from(["Use cents.", "use cents", "Never guess.", "Write the year first."])
DOMAINS = st.sampled_from(["oslo", "rome"])
COUNTS = st.integers(0, 3)
TASKS = st.lists(st.sampled_from(["t1", "t2", "t3"]), max_size=2).map(tuple)
BULLETS = st.builds(
    Bullet,
    id=IDS,
    content=WORDS,
    domain=DOMAINS,
    support=COUNTS,
    helpful=COUNTS,
    harmful=COUNTS,
    locked=st.booleans(),
    retired=st.sampled_from(["", "", "old"]),
    held=st.sampled_from(["", "", "it names money"]),
    expires_at=st.sampled_from(["", "2026-06-01"]),
    provenance=st.builds(Provenance, tasks=TASKS),
)
DELTAS: st.SearchStrategy[Delta] = st.one_of(
    st.builds(Add, bullet=BULLETS),
    st.builds(Support, bullet_id=IDS, task_ids=TASKS),
    st.builds(Vote, bullet_id=IDS, shown=COUNTS, cited=COUNTS, helpful=COUNTS, harmful=COUNTS),
    st.builds(UpdateBullet, bullet_id=IDS, content=WORDS, section=st.sampled_from([None, "neutral"])),
    st.builds(Merge, kept=IDS, gone=st.lists(IDS, max_size=3).map(tuple)),
    st.builds(Retire, bullet_id=IDS, reason=st.sampled_from(["", "wrong", "worse"])),
    st.builds(Lock, bullet_id=IDS, locked=st.booleans()),
    st.builds(Hold, bullet_id=IDS, reason=st.sampled_from(["", "", "it's money", "checks"]), by=st.sampled_from(["", "ada"])),
    st.builds(
        Evidence,
        bullet_id=IDS,
        traces=TASKS,
        trace_count=COUNTS,
        principals=COUNTS,
        expires_at=st.sampled_from(["", "2026-07-01"]),
    ),
    st.builds(MoveTo, bullet_id=IDS, stage=st.sampled_from([None, Stage.PRODUCTION]), domain=st.one_of(st.none(), DOMAINS)),
    st.builds(MoveTo, bullet_id=IDS, stage=st.sampled_from([Stage.SHADOW, Stage.PRODUCTION]), by_gate=st.just(True)),
)
PLAYBOOKS = st.lists(BULLETS, max_size=4, unique_by=lambda bullet: bullet.id).map(lambda found: Playbook(bullets=tuple(found)))
LISTS = st.lists(DELTAS, max_size=8)


def batch(*deltas: Delta, id: str = "run/1") -> Batch:
    return Batch(id=id, deltas=deltas, at="2026-03-05T12:00:00Z")


def only(playbook: Playbook) -> Bullet:
    (bullet,) = playbook.bullets
    return bullet


A = Bullet(id="b-1", content="Use cents.")
B = Bullet(id="b-2", content="Always use cents.")


@given(PLAYBOOKS, LISTS, st.randoms())
def test_the_order_of_deltas_within_a_batch_does_not_matter(
    playbook: Playbook, deltas: list[Delta], chance: random.Random
) -> None:
    shuffled = list(deltas)
    chance.shuffle(shuffled)
    assert playbook.apply(batch(*deltas)) == playbook.apply(batch(*shuffled))


@given(PLAYBOOKS, LISTS, LISTS)
def test_merging_a_batch_again_changes_nothing(playbook: Playbook, first: list[Delta], second: list[Delta]) -> None:
    one, two = batch(*first), batch(*second, id="run/2")
    merged = playbook.apply(one, two)
    assert merged.apply(one) is merged
    assert playbook.apply(one, one, two, one) == merged


@given(PLAYBOOKS, LISTS, LISTS)
def test_batches_merged_together_are_batches_merged_in_turn(
    playbook: Playbook, first: list[Delta], second: list[Delta]
) -> None:
    one, two = batch(*first), batch(*second, id="run/2")
    assert playbook.apply(one, two) == playbook.apply(one).apply(two)


@given(PLAYBOOKS, LISTS)
def test_a_locked_bullet_never_changes_unless_a_person_unlocks_it(playbook: Playbook, deltas: list[Delta]) -> None:
    unlocked = {delta.bullet_id for delta in deltas if isinstance(delta, Lock) and not delta.locked}
    moved = {delta.bullet_id for delta in deltas if isinstance(delta, MoveTo) and delta.by_gate}
    merged = {bullet.id: bullet for bullet in playbook.apply(batch(*deltas)).bullets}
    for bullet in playbook.bullets:
        if bullet.locked and bullet.id not in unlocked:
            now = merged[bullet.id]
            assert now is bullet or (bullet.id in moved and now.stage is not bullet.stage)
            assert replace(now, stage=bullet.stage, updated_at=bullet.updated_at) == bullet


@given(PLAYBOOKS, LISTS)
def test_bullets_stay_in_place_and_no_id_is_used_twice(playbook: Playbook, deltas: list[Delta]) -> None:
    before = [bullet.id for bullet in playbook.bullets]
    after = [bullet.id for bullet in playbook.apply(batch(*deltas)).bullets]
    assert after[: len(before)] == before
    assert len(set(after)) == len(after)


@given(PLAYBOOKS, LISTS)
def test_counts_only_grow_and_a_retired_bullet_keeps_its_text_and_reason(playbook: Playbook, deltas: list[Delta]) -> None:
    merged = {bullet.id: bullet for bullet in playbook.apply(batch(*deltas)).bullets}
    for old in playbook.bullets:
        new = merged[old.id]
        for count in ("shown", "cited", "helpful", "harmful", "support"):
            assert getattr(new, count) >= getattr(old, count) >= 0
        if old.retired:
            assert (new.content, new.retired, new.stage, new.domain) == (old.content, old.retired, old.stage, old.domain)


@given(PLAYBOOKS, LISTS)
def test_bullets_that_nobody_spoke_of_are_the_same_objects(playbook: Playbook, deltas: list[Delta]) -> None:
    named = {id for delta in deltas for id in _named(delta)}
    merged = {bullet.id: bullet for bullet in playbook.apply(batch(*deltas)).bullets}
    for bullet in playbook.bullets:
        if bullet.id not in named:
            assert merged[bullet.id] is bullet


def _named(delta: Delta) -> tuple[str, ...]:
    match delta:
        case Add():
            return (delta.bullet.id,)
        case Merge():
            return (delta.kept, *delta.gone)
        case _:
            return (delta.bullet_id,)


def test_a_new_bullet_gets_the_batch_s_time() -> None:
    bullet = only(Playbook().apply(batch(Add(bullet=A))))
    assert bullet.created_at == bullet.updated_at == "2026-03-05T12:00:00Z"


def test_adding_what_is_there_adds_its_support_alone() -> None:
    again = replace(A, content="use cents", support=2, helpful=9, provenance=Provenance(tasks=("t2",)))
    start = replace(A, provenance=Provenance(tasks=("t1",)))
    bullet = only(Playbook(bullets=(start,)).apply(batch(Add(bullet=again))))
    assert (bullet.content, bullet.support, bullet.helpful) == ("Use cents.", 3, 0)
    assert bullet.provenance.tasks == ("t1", "t2")


def test_votes_add_up() -> None:
    one = Vote(bullet_id="b-1", shown=1, helpful=1)
    bullet = only(Playbook(bullets=(A,)).apply(batch(one, one, Vote(bullet_id="b-1", shown=1, harmful=1))))
    assert (bullet.shown, bullet.cited, bullet.helpful, bullet.harmful) == (3, 0, 2, 1)
    assert bullet.confidence == 3 / 5


def test_a_delta_to_an_unknown_bullet_does_nothing() -> None:
    gone = "b-9"
    deltas = (
        Vote(bullet_id=gone, shown=1),
        Retire(bullet_id=gone, reason="x"),
        Merge(kept=gone, gone=("b-1",)),
        Lock(bullet_id=gone),
    )
    assert Playbook(bullets=(A,)).apply(batch(*deltas)).bullets == (A,)


def test_one_of_several_new_texts_wins_and_the_version_grows_once() -> None:
    texts = [UpdateBullet(bullet_id="b-1", content="Cents."), UpdateBullet(bullet_id="b-1", content="Use euro cents.")]
    bullet = only(Playbook(bullets=(A,)).apply(batch(*texts)))
    assert (bullet.content, bullet.version) == ("Use euro cents.", 2)


def test_merging_sums_the_counts_into_the_one_that_is_kept() -> None:
    first = replace(A, shown=5, helpful=2, support=3)
    second = replace(B, shown=4, helpful=1, harmful=1, cited=1)
    kept, gone = Playbook(bullets=(first, second)).apply(batch(Merge(kept="b-1", gone=("b-2", "b-1")))).bullets
    assert (kept.shown, kept.cited, kept.helpful, kept.harmful, kept.support) == (9, 1, 3, 1, 4)
    assert gone.retired == "merged into b-1"
    assert gone.content == B.content


def test_two_bullets_merged_into_each_other_leave_one() -> None:
    both = batch(Merge(kept="b-1", gone=("b-2",)), Merge(kept="b-2", gone=("b-1",)))
    assert [bullet.id for bullet in Playbook(bullets=(A, B)).apply(both).active] == ["b-1"]


def test_domains_are_not_merged() -> None:
    playbook = Playbook(bullets=(A, replace(B, domain="rome")))
    assert playbook.apply(batch(Merge(kept="b-1", gone=("b-2",)))).bullets == playbook.bullets


def test_a_lock_holds_for_its_whole_batch() -> None:
    bullet = only(Playbook(bullets=(A,)).apply(batch(Retire(bullet_id="b-1", reason="x"), Lock(bullet_id="b-1"))))
    assert bullet.locked
    assert not bullet.retired


def test_a_retired_bullet_stays_and_its_id_is_not_used_again() -> None:
    playbook = Playbook(bullets=(A,)).apply(batch(Retire(bullet_id="b-1", reason="it misled")))
    again = playbook.apply(batch(Add(bullet=A), id="run/2"))
    assert only(again).retired == "it misled"
    assert again.active == ()


def test_moving_changes_only_what_is_said() -> None:
    bullet = only(Playbook(bullets=(A,)).apply(batch(MoveTo(bullet_id="b-1", stage=Stage.PRODUCTION))))
    assert bullet == replace(A, stage=Stage.PRODUCTION, updated_at="2026-03-05T12:00:00Z")


@pytest.mark.parametrize(("was", "stage"), [(Stage.SHADOW, Stage.PRODUCTION), (Stage.PRODUCTION, Stage.SHADOW)])
def test_a_person_locks_the_words_and_the_gate_decides_on_the_stage(was: Stage, stage: Stage) -> None:
    playbook = Playbook(bullets=(replace(A, locked=True, stage=was),))
    assert only(playbook.apply(batch(MoveTo(bullet_id="b-1", stage=stage)))).stage is was
    moved = only(playbook.apply(batch(MoveTo(bullet_id="b-1", stage=stage, by_gate=True))))
    assert (moved.stage, moved.locked, moved.content) == (stage, True, A.content)
    with pytest.raises(PlaybookError, match="it decides on the stage alone"):
        MoveTo(bullet_id="b-1", stage=stage, domain="rome", by_gate=True)


@given(PLAYBOOKS, LISTS)
def test_nothing_but_a_person_s_word_lets_what_is_held_be_shown(playbook: Playbook, deltas: list[Delta]) -> None:
    approved = {delta.bullet_id for delta in deltas if isinstance(delta, Hold) and not delta.reason}
    held = {delta.bullet_id for delta in deltas if isinstance(delta, Hold) and delta.reason}
    merged = playbook.apply(batch(*deltas))
    active = {bullet.id for bullet in merged.active}
    assert not active & {bullet.id for bullet in playbook.bullets if bullet.held and bullet.id not in approved - held}
    locked = {bullet.id for bullet in merged.bullets if bullet.locked}
    assert active & held <= locked
    assert {bullet.id for bullet in merged.bullets if not bullet.retired} == active | {bullet.id for bullet in merged.held}


def test_held_and_approved_in_one_batch_is_held_and_a_held_bullet_takes_nothing_from_an_active_one() -> None:
    playbook = Playbook(bullets=(A, replace(B, held="it names money")))
    both = (Hold(bullet_id="b-1"), Hold(bullet_id="b-1", reason="it's odd"))
    assert [bullet.id for bullet in playbook.apply(batch(*both)).held] == ["b-1", "b-2"]
    assert playbook.apply(batch(Merge(kept="b-2", gone=("b-1",)), Merge(kept="b-1", gone=("b-2",)))).bullets == playbook.bullets
    born = (Add(bullet=replace(A, id="b-3")), Add(bullet=replace(A, id="b-3", held="checks")))
    assert playbook.apply(batch(*born)).held[-1].id == "b-3"


def test_evidence_replaces_what_stood_behind_a_bullet_and_leaves_the_rest() -> None:
    start = replace(A, provenance=Provenance(run="r", tasks=("t1",), traces=("x",), trace_count=9, principals=4, evidence="e"))
    told = Evidence(bullet_id="b-1", traces=("y",), trace_count=5, principals=3, expires_at="2026-06-01")
    bullet = only(Playbook(bullets=(start,)).apply(batch(told)))
    assert bullet.provenance == replace(start.provenance, traces=("y",), trace_count=5, principals=3)
    assert (bullet.expires_at, bullet.version) == ("2026-06-01", 1)


@pytest.mark.parametrize("count", ["shown", "cited", "helpful", "harmful"])
def test_a_count_below_zero_cannot_be_written(count: str) -> None:
    with pytest.raises(PlaybookError, match="below 0"):
        Vote(**{"bullet_id": "b-1", count: -1})  # type: ignore[arg-type]
    with pytest.raises(PlaybookError, match="below 0"):
        replace(A, **{count: -1})  # type: ignore[arg-type]


def test_case_space_and_closing_punctuation_make_no_new_strategy() -> None:
    assert bullet_id("oslo", " Use  CENTS. ") == bullet_id("oslo", "use cents")
    assert bullet_id("oslo", "use cents") != bullet_id("rome", "use cents")
    assert normalised("Ends with; ") == "ends with"


def test_a_thousand_deltas_into_a_hundred_thousand_bullets_are_cheap() -> None:
    bullets = tuple(Bullet(id=f"b-{number}", content="") for number in range(100_000))
    deltas = tuple(Vote(bullet_id=f"b-{number * 7}", shown=1) for number in range(1000))
    playbook = Playbook(bullets=bullets)
    started = time.process_time()
    playbook.apply(batch(*deltas))
    assert time.process_time() - started < 1
