"""An episode of several agents, taken apart into what each of them did."""

from datetime import UTC, datetime

from hypothesis import given
from hypothesis import strategies as st

from journeyman.core.reward import Reward
from journeyman.core.trace import AgentCall, ModelCall, Step, ToolCall, Trace
from journeyman.tracing.evidence import by_role, evidence_of, principal_of

AT = datetime(2026, 11, 27, tzinfo=UTC)


def episode(*steps: Step, agent: str | None = "head") -> Trace:
    return Trace(id="e", task_id="", candidate_id="base", started_at=AT, steps=steps, agent=agent, label=False, domain="shops",
                 rewards=(Reward(name="success", value=0.0),))  # fmt: skip


def called(id: str, parent: str | None, refused: str = "") -> tuple[ModelCall, ToolCall]:
    use = ToolCall(tool="order", arguments="{}", result=refused or "OK", ok=not refused, id=f"{id}/use", parent=id)
    return ModelCall(model="m", prompt="p", reply="", id=id, parent=parent), use


def test_a_refusal_counts_for_the_agent_whose_call_it_was_and_the_verdict_for_whoever_answers_for_the_whole() -> None:
    buying = AgentCall(agent="buyer", input="buy it", id="w1", parent="a/use")
    selling = AgentCall(agent="seller", input="sell it", id="w2", parent="a")
    again = AgentCall(agent="buyer", input="buy more", error="gone", id="w3")
    steps = (*called("a", None), buying, *called("b", "w1", "Error: no such sku"), selling, *called("c", "w2"), again,
             *called("d", "w3"))  # fmt: skip
    head, buyer, seller = by_role(episode(*steps))
    assert [trace.agent for trace in (head, buyer, seller)] == ["head", "buyer", "seller"]
    assert [[call.ok for call in evidence_of(trace).calls] for trace in (head, buyer, seller)] == [
        [True],
        [False, True],
        [True],
    ]
    assert ([trace.label for trace in (head, buyer)], head.rewards[0].value, buyer.rewards) == ([False, None], 0.0, ())
    assert (buyer.input, buyer.error, seller.error) == ("buy it", "gone", None)


def test_an_episode_is_one_vote_of_the_customer_that_any_of_its_requests_names() -> None:
    asked, use = called("a", None)
    told = ModelCall(model="m", prompt="p", reply="", id="a", raw={"request": {"user": "ada"}})
    work = AgentCall(agent="buyer", id="w", parent="a")
    named = by_role(episode(told, use, work, *called("b", "w")))
    assert len({principal_of(part) for part in named}) == 1
    assert principal_of(named[1])[1]
    nameless = by_role(episode(asked, use, work, *called("b", "w")))
    assert len({principal_of(part) for part in nameless}) == 1


def test_of_one_agent_nothing_is_changed() -> None:
    alone = episode(*called("a", None))
    assert by_role(alone) == (alone,)
    own = episode(AgentCall(agent="head", id="w"), *called("a", "w"))
    assert by_role(own) == (own,)


NAMES = st.sampled_from(["1", "2", "3", "4", ""])


@given(st.lists(st.tuples(NAMES, NAMES, st.sampled_from(["head", "buyer", "seller", ""])), max_size=8))
def test_no_step_is_lost_or_told_twice_whatever_the_parents_are(drawn: list[tuple[str, str, str]]) -> None:
    steps: list[Step] = [
        AgentCall(agent=agent, id=id, parent=parent or None)
        if agent
        else ToolCall(tool="t", arguments="{}", result="", id=id, parent=parent or None)
        for id, parent, agent in drawn
    ]
    parts = by_role(episode(*steps))
    assert sorted(map(repr, steps)) == sorted(repr(step) for part in parts for step in part.steps)
    assert len({part.agent for part in parts}) == len(parts)
