"""When a rule that was learned from traces ends: no longer met, followed in vain, its tool changed, its traces forgotten."""

from collections.abc import Sequence
from dataclasses import replace
from datetime import UTC, datetime, timedelta

from hypothesis import given
from hypothesis import strategies as st

from journeyman.core.playbook import (
    LAPSED,
    Batch,
    Bullet,
    BulletOrigin,
    Delta,
    Evidence,
    Playbook,
    Provenance,
    Retire,
)
from journeyman.core.trace import ModelCall, ToolCall, Trace
from journeyman.optimizers.playbook.decay import Decay, changed_at, comes_back, decayed, forgotten, stands_in
from journeyman.optimizers.playbook.evidence import EvidenceGroup, EvidenceMember, GroupKind, evidence_groups
from journeyman.optimizers.playbook.safeguards import cut_echoes
from journeyman.tracing.evidence import AttemptEvidence, evidence_of
from tests.support.examples import examples

NOON = datetime(2026, 3, 5, 12, tzinfo=UTC)
RULE = Decay()
TOLD = "date: expected a day first, got another"


def order(
    at: int, *, refused: bool = False, shown: tuple[str, ...] = (), argument: str = "date", customer: str = ""
) -> AttemptEvidence:
    schema = {"type": "object", "properties": {argument: {"type": "string"}}}
    asked = ModelCall(
        id=f"c{at}",
        model="m",
        prompt="",
        reply="",
        shown=shown,
        raw={"request": {"user": customer or f"customer {at % 9}"}, "tools": [{"name": "order", "parameters": schema}]},
    )
    used = ToolCall(
        id=f"x{at}",
        parent=asked.id,
        tool="order",
        arguments=f'{{"{argument}": "5 March"}}',
        result=f"Error: {TOLD}" if refused else "OK",
        ok=not refused,
    )
    about = {"task_id": "t", "candidate_id": "base", "started_at": NOON + timedelta(hours=at), "domain": "oslo"}
    return evidence_of(Trace(id=f"t{at}", steps=(asked, used), **about))  # type: ignore[arg-type]


def groups_of(attempts: Sequence[AttemptEvidence]) -> list[EvidenceGroup]:
    return evidence_groups(attempts, cut=cut_echoes)


def learned(attempts: Sequence[AttemptEvidence], **more: object) -> Bullet:
    """A rule drawn from all that these say."""
    groups = groups_of(attempts)
    traces = tuple(dict.fromkeys(trace for group in groups for trace in group.traces))
    told = Provenance(
        origin=BulletOrigin.ENVIRONMENT,
        traces=traces,
        trace_count=len(traces),
        principals=len({person for group in groups for person in group.principals}),
        evidence=" ".join(group.id for group in groups),
    )
    return replace(Bullet(id="b", content="dates: day first", domain="oslo", about="order.date", provenance=told), **more)  # type: ignore[arg-type]


def only(bullet: Bullet) -> Playbook:
    return Playbook(bullets=(bullet,))


def after(playbook: Playbook, deltas: Sequence[Delta]) -> Bullet:
    return playbook.apply(Batch(id="then", deltas=tuple(deltas))).bullets[0]


REFUSED = [order(at, refused=True) for at in range(9)]
EXPIRES = NOON + timedelta(days=90)


def test_a_rule_that_nobody_meets_or_is_shown_expires_and_one_that_is_met_lives_longer() -> None:
    playbook = only(learned(REFUSED, expires_at=EXPIRES.isoformat()))
    elsewhere = [order(at) for at in range(20, 30)]
    assert decayed(playbook, [], elsewhere, EXPIRES - timedelta(days=1), RULE) == []
    (gone,) = decayed(playbook, [], elsewhere, EXPIRES + timedelta(days=1), RULE)
    assert isinstance(gone, Retire)
    assert gone.reason == "it lapsed: neither met nor shown to anybody for 90 days"
    late = EXPIRES + timedelta(days=1)
    for attempts in (REFUSED, [order(1, shown=("b",))]):
        (longer,) = decayed(playbook, groups_of(attempts), attempts, late, RULE)
        assert isinstance(longer, Evidence)
        assert after(playbook, [longer]).expires_at == (late + timedelta(days=90)).isoformat()


def test_a_rule_about_an_argument_that_is_no_longer_declared_goes() -> None:
    attempts = [*REFUSED, order(30, argument="day")]
    (gone,) = decayed(only(learned(REFUSED)), groups_of(attempts), attempts, NOON, RULE)
    assert isinstance(gone, Retire)
    assert gone.reason == "it lapsed: order no longer declares an argument date"
    # By the newest request, in whatever order they come.
    assert decayed(only(learned(REFUSED)), [], [order(30, argument="date"), order(3, argument="day")], NOON, RULE) == []


def test_a_rule_that_is_followed_in_vain_goes_though_it_helped_for_long() -> None:
    helped = [order(at, shown=("b",)) for at in range(10, 200)]
    in_vain = [order(at, refused=True, shown=("b",)) for at in range(200, 206)]
    attempts = [*REFUSED, *helped, *in_vain]
    playbook = only(learned(REFUSED))
    assert decayed(playbook, groups_of(attempts[:-6]), attempts[:-6], NOON, RULE) == []
    (gone,) = decayed(playbook, groups_of(attempts), attempts, NOON, RULE)
    assert isinstance(gone, Retire)
    assert gone.reason.startswith("it lapsed: 6 of 6 requests that were shown it were refused for the same all the same")
    assert changed_at(playbook, groups_of(attempts), attempts, RULE) == NOON + timedelta(hours=200)
    assert changed_at(only(learned(REFUSED, locked=True)), groups_of(attempts), attempts, RULE) is None


def test_a_rule_that_lapsed_may_come_back_when_the_house_does_again_what_it_did_before() -> None:
    quiet = [order(at) for at in range(20, 60)]
    anew = [order(at, refused=True) for at in range(60, 69)]
    lapsed = learned(REFUSED, retired=f"{LAPSED}followed in vain", updated_at=(NOON + timedelta(hours=15)).isoformat())

    def back(bullet: Bullet, attempts: Sequence[AttemptEvidence]) -> bool:
        (group,) = groups_of(attempts)
        return comes_back(bullet, group, attempts, RULE.least)

    assert back(lapsed, [*REFUSED, *quiet, *anew])
    # The same was refused all along; it is not met anew; one person alone meets it; somebody decided against the rule.
    assert not back(lapsed, [*REFUSED, *anew])
    assert not back(lapsed, [*REFUSED, *quiet])
    assert not back(lapsed, [*REFUSED, *quiet, *(order(at, refused=True, customer="one") for at in range(60, 69))])
    assert not back(replace(lapsed, retired="not wanted"), [*REFUSED, *quiet, *anew])


def test_one_person_alone_and_a_few_slips_retire_nothing() -> None:
    playbook = only(learned(REFUSED))
    one = [order(at, refused=True, shown=("b",), customer="one") for at in range(20, 60)]
    slips = [order(at, refused=at % 10 == 0, shown=("b",)) for at in range(20, 120)]
    for attempts in (one, slips):
        assert not any(isinstance(each, Retire) for each in decayed(playbook, groups_of(attempts), attempts, NOON, RULE))
        assert changed_at(playbook, groups_of(attempts), attempts, RULE) is None


@given(
    refused=st.lists(st.booleans(), max_size=40),
    shown=st.lists(st.booleans(), min_size=40, max_size=40),
    days=st.integers(0, 400),
)
@examples(0.5)
def test_decay_touches_no_locked_bullet_none_of_another_origin_and_does_not_hang_on_the_order(
    refused: list[bool], shown: list[bool], days: int
) -> None:
    attempts = [order(at, refused=bad, shown=("b",) * shown[at]) for at, bad in enumerate(refused)]
    now, groups = NOON + timedelta(days=days), groups_of(attempts)
    expires = EXPIRES.isoformat()
    spared = (learned(REFUSED, locked=True, expires_at=expires), replace(learned(REFUSED), provenance=Provenance(run="r")))
    for bullet in spared:
        assert decayed(only(bullet), groups, attempts, now, RULE) == []
    playbook = only(learned(REFUSED, expires_at=expires))
    found = decayed(playbook, groups, attempts, now, RULE)
    assert decayed(playbook, groups_of(attempts[::-1]), attempts[::-1], now, RULE) == found
    assert len(found) <= 1
    once = playbook.apply(Batch(id="1", deltas=tuple(found)))
    assert decayed(once, groups, attempts, now, RULE) == []


# Forgetting.


def group(people: Sequence[tuple[str, str]], said: str = "no") -> EvidenceGroup:
    members = tuple(EvidenceMember(trace_id=trace, principal=person, said=said) for trace, person in sorted(set(people)))
    return EvidenceGroup(kind=GroupKind.REJECTED, domain="oslo", tool="order", argument="", template=said, members=members)


def without(groups: Sequence[EvidenceGroup], gone: set[str]) -> list[EvidenceGroup]:
    left = (replace(each, members=tuple(m for m in each.members if m.trace_id not in gone)) for each in groups)
    return [each for each in left if each.members]


def bullet_of(groups: Sequence[EvidenceGroup], **more: object) -> Bullet:
    traces = tuple(dict.fromkeys(trace for each in groups for trace in each.traces))
    told = Provenance(
        origin=BulletOrigin.ENVIRONMENT,
        traces=traces,
        trace_count=len(traces),
        principals=len({person for each in groups for person in each.principals}),
        evidence=" ".join(each.id for each in groups),
    )
    return replace(Bullet(id="b", content="c", provenance=told), **more)  # type: ignore[arg-type]


TRACES = st.lists(st.tuples(st.sampled_from([f"t{at}" for at in range(12)]), st.sampled_from("abcde")), min_size=1, max_size=12)
NAMED = st.sets(st.sampled_from([f"t{at}" for at in range(12)]))


@st.composite
def stores(draw: st.DrawFn) -> list[EvidenceGroup]:
    """Each trace is of one person."""
    owner = dict(draw(TRACES))
    some = draw(st.lists(st.sets(st.sampled_from(sorted(owner)), min_size=1), min_size=1, max_size=2))
    return [group([(trace, owner[trace]) for trace in traces], said=f"no {at}") for at, traces in enumerate(some)]


@given(groups=stores(), gone=NAMED)
@examples()
def test_what_is_left_is_what_would_be_counted_without_the_traces(groups: list[EvidenceGroup], gone: set[str]) -> None:
    left = without(groups, gone)
    found = after(only(bullet_of(groups)), forgotten(only(bullet_of(groups)), groups, left, 3))
    told, counted = found.provenance, bullet_of(left).provenance
    assert (told.trace_count, told.principals) == (counted.trace_count, counted.principals)
    assert set(told.traces) == set(counted.traces)
    fell = any(trace in gone for each in groups for trace in each.traces)
    assert bool(found.retired) == (fell and counted.principals < 3)


@given(groups=stores())
@examples(0.5)
def test_to_forget_nothing_changes_nothing(groups: list[EvidenceGroup]) -> None:
    assert forgotten(only(bullet_of(groups)), groups, groups, 3) == []
    assert forgotten(only(bullet_of(groups)), [], [], 3) == []


@given(groups=stores(), first=NAMED, second=NAMED, pruned=st.integers(0, 5), least=st.integers(1, 4))
@examples()
def test_to_forget_twice_or_one_after_the_other_is_to_forget_once(
    groups: list[EvidenceGroup], first: set[str], second: set[str], pruned: int, least: int
) -> None:
    born = bullet_of(groups)
    counts = {name: getattr(born.provenance, name) + pruned for name in ("trace_count", "principals")}
    playbook = only(replace(born, provenance=replace(born.provenance, **counts)))
    one, both = without(groups, first), without(groups, first | second)
    at_once = after(playbook, forgotten(playbook, groups, both, least))
    then = only(after(playbook, forgotten(playbook, groups, one, least)))
    again = only(after(then, forgotten(then, one, both, least)))
    if not then.bullets[0].retired:
        assert again.bullets[0].provenance == at_once.provenance
    assert bool(again.bullets[0].retired) == bool(at_once.retired)
    assert forgotten(again, both, both, least) == []


@given(groups=stores(), gone=NAMED)
@examples(0.5)
def test_a_locked_bullet_stays_and_a_persons_rule_needs_nobody_beside(groups: list[EvidenceGroup], gone: set[str]) -> None:
    left = without(groups, gone)
    locked = only(bullet_of(groups, locked=True))
    assert after(locked, forgotten(locked, groups, left, 3)) == locked.bullets[0]
    born = bullet_of(groups)
    said = only(replace(born, provenance=replace(born.provenance, origin=BulletOrigin.PERSON)))
    found = after(said, forgotten(said, groups, left, 3))
    assert bool(found.retired) == (found.provenance.principals == 0)


def test_what_was_pruned_for_its_age_goes_on_counting() -> None:
    groups = [group([(f"t{at}", f"p{at}") for at in range(4)])]
    born = bullet_of(groups)
    playbook = only(replace(born, provenance=replace(born.provenance, trace_count=100, principals=40)))
    found = after(playbook, forgotten(playbook, groups, without(groups, {"t0", "t1"}), 3))
    assert (found.provenance.trace_count, found.provenance.principals, found.retired) == (98, 38, "")


def test_what_stands_in_for_a_served_rule_is_about_the_same_and_brings_nothing_else() -> None:
    old, other = (Bullet(id=id, content=id, domain="oslo", about=f"order.{id}") for id in ("date", "price"))
    new, more = replace(old, id="n", content="otherwise"), replace(other, id="m", about="order.sku")
    served = Playbook(bullets=(old, other))
    assert stands_in(Playbook(bullets=(other, new)), served)
    assert stands_in(only(other), served), "to take one back brings nothing"
    assert not stands_in(Playbook(bullets=(old, other, new)), served), "beside what is served it stands in for nothing"
    assert not stands_in(Playbook(bullets=(other, new, more)), served)
    assert not stands_in(Playbook(bullets=(other, replace(new, domain="lima"))), served)
    assert not stands_in(only(new), Playbook())
