from datetime import UTC, datetime
from math import comb

import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.stats import beta

from journeyman.core.playbook import Batch, Bullet, Insight, Playbook, Retire, Vote
from journeyman.core.score import Experience, Reward, Score
from journeyman.core.task import Task
from journeyman.core.trace import ModelCall, Trace
from journeyman.optimizers.playbook.retrieval import chance_of_harm, to_retire, votes

CENTS = Bullet(id="b-1", content="Always use cents.")
YEAR = Bullet(id="b-2", content="Write the year first.")
LOCKED = Bullet(id="b-3", content="Be polite.", locked=True)
PLAYBOOK = Playbook(bullets=(CENTS, YEAR, LOCKED))


def experience(
    value: float | None, *, shown: tuple[str, ...] = ("b-1", "b-2"), cited: tuple[str, ...] = (), id: str = "r/1"
) -> Experience:
    call = ModelCall(model="m", prompt="p", reply="r", shown=shown, cited=cited)
    return Experience(
        Task(id="t", question="q"),
        Trace(id=id, task_id="t", candidate_id="base", started_at=datetime(2026, 3, 5, tzinfo=UTC), steps=(call,)),
        Score(trace_id=id, rewards=(Reward(name="right", value=value),)),
    )


def test_success_credits_what_was_cited() -> None:
    first, second = votes([experience(1.0, cited=("b-2",))], PLAYBOOK, [])
    assert first == Vote(bullet_id="b-1", shown=1)
    assert second == Vote(bullet_id="b-2", shown=1, cited=1, helpful=1)


def test_success_without_a_citation_credits_all_that_was_shown() -> None:
    assert [vote.helpful for vote in votes([experience(1.0)], PLAYBOOK, [])] == [1, 1]


def test_failure_alone_blames_nobody() -> None:
    assert [vote.harmful for vote in votes([experience(0.0, cited=("b-1",))], PLAYBOOK, [])] == [0, 0]


@pytest.mark.parametrize(
    "insight",
    [
        Insight(content="Cents mislead here.", section="harmful", concerns=("b-1",), trace_ids=("r/1",)),
        Insight(content="Never use cents.", trace_ids=("r/1",)),
    ],
)
def test_failure_blames_what_reflection_on_it_speaks_against(insight: Insight) -> None:
    assert [vote.harmful for vote in votes([experience(0.0)], PLAYBOOK, [insight])] == [1, 0]


def test_reflection_on_another_attempt_blames_nobody() -> None:
    insight = Insight(content="Never use cents.", trace_ids=("r/2",))
    assert [vote.harmful for vote in votes([experience(0.0)], PLAYBOOK, [insight])] == [0, 0]


def test_an_unknown_outcome_counts_as_shown_and_no_more() -> None:
    insight = Insight(content="Never use cents.", trace_ids=("r/1",))
    assert votes([experience(None, cited=("b-1",))], PLAYBOOK, [insight]) == (
        Vote(bullet_id="b-1", shown=1, cited=1),
        Vote(bullet_id="b-2", shown=1),
    )


def test_locked_unknown_and_never_shown_bullets_get_no_vote() -> None:
    found = votes([experience(1.0, shown=("b-1", "b-3", "b-9"), cited=("b-2", "b-1"))], PLAYBOOK, [])
    assert found == (Vote(bullet_id="b-1", shown=1, cited=1, helpful=1),)


def test_attempts_add_up_to_one_vote_a_bullet() -> None:
    found = votes([experience(1.0, id="r/1"), experience(1.0, id="r/2"), experience(0.0, id="r/3")], PLAYBOOK, [])
    assert found[0] == Vote(bullet_id="b-1", shown=3, helpful=2)


@given(st.integers(0, 40), st.integers(0, 40))
def test_the_chance_of_harm_is_the_beta_distribution_s(helpful: int, harmful: int) -> None:
    assert chance_of_harm(helpful, harmful) == pytest.approx(beta.cdf(0.5, 1 + helpful, 1 + harmful), abs=1e-9)


@pytest.mark.parametrize(
    ("helpful", "harmful", "retired"), [(0, 3, False), (0, 4, True), (2, 4, False), (3, 9, True), (9, 3, False)]
)
def test_what_harms_more_than_it_helps_is_retired(helpful: int, harmful: int, retired: bool) -> None:
    bullet = Bullet(id="b-1", content="x", helpful=helpful, harmful=harmful)
    assert bool(to_retire(Playbook(bullets=(bullet,)))) is retired


def test_a_locked_or_retired_bullet_is_left_alone() -> None:
    locked = Bullet(id="b-1", content="x", harmful=9, locked=True)
    retired = Bullet(id="b-2", content="y", harmful=9, retired="before")
    assert to_retire(Playbook(bullets=(locked, retired))) == ()


def test_the_reason_has_its_numbers() -> None:
    playbook = Playbook(bullets=(Bullet(id="b-1", content="x", helpful=1, harmful=8),))
    deltas = to_retire(playbook)
    assert deltas == (Retire(bullet_id="b-1", reason="8 harmful votes against 1 helpful: 98.9% sure it harms"),)
    assert playbook.apply(Batch(id="1", deltas=deltas)).active == ()
    assert sum(comb(10, wins) for wins in range(2, 11)) / 1024 == pytest.approx(0.989, abs=5e-4)
