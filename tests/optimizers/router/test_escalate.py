"""Models are asked one after the other until the verifier is content; every call is in the log."""

import pytest

from journeyman.core.errors import InputError, ModelError
from journeyman.core.policy import Ending
from journeyman.models.base import ModelRequest, PromptMessage, Reply
from journeyman.models.scripted import Scripted
from journeyman.optimizers.router.cascade import NEVER, AgreementVerifier, AnswerAgreement, Cascade, CascadeCall, CheckVerifier
from journeyman.tasks.answers import final_number

REQUEST = ModelRequest(messages=(PromptMessage(role="user", content="6 times 7?"),), task_id="t1")


def read(text: str) -> str | None:
    found = final_number(text)
    return None if found is None else f"{found:f}"


def agree(*skill: float) -> AgreementVerifier:
    return AgreementVerifier(AnswerAgreement(skill=skill, chance=0.2), read)


async def test_two_that_agree_spare_the_third() -> None:
    dear, log = Scripted("It is 42."), list[CascadeCall]()
    cascade = Cascade(
        {"a": Scripted("42"), "b": Scripted("The answer is 42."), "dear": dear}, [NEVER, 0.9], agree(0.7, 0.7, 0.95), log.append
    )
    reply = await cascade.complete(REQUEST)
    assert reply.text == "42"
    assert reply.raw["cascade"] == ["a", "b"]
    assert [(call.worker, call.accepted, call.outcome.ending) for call in log] == [
        ("a", False, Ending.UNJUDGED),
        ("b", True, Ending.UNJUDGED),
    ]
    assert {call.task_id for call in log} == {"t1"}
    assert dear.requests == []


async def test_those_that_differ_ask_the_third_and_most_is_believed_of_whom_most_is_known() -> None:
    cascade = Cascade({"a": Scripted("41"), "b": Scripted("43"), "dear": Scripted("42")}, [NEVER, 0.9], agree(0.6, 0.6, 0.95))
    reply = await cascade.complete(REQUEST)
    assert (reply.text, reply.raw["given"]) == ("42", "dear")


async def test_a_provider_that_fails_is_no_wrong_answer() -> None:
    log: list[CascadeCall] = []
    cascade = Cascade({"down": Scripted(), "up": Scripted("42")}, [0.5], agree(0.9, 0.8), log.append)
    assert (await cascade.complete(REQUEST)).text == "42"
    assert [(call.outcome.ending, call.score is None) for call in log] == [(Ending.ERROR, True), (Ending.UNJUDGED, False)]
    assert "ModelError" in log[0].error


async def test_the_last_one_failing_leaves_the_best_answer_so_far() -> None:
    cascade = Cascade({"up": Scripted("42"), "down": Scripted()}, [NEVER], agree(0.8, 0.9))
    assert (await cascade.complete(REQUEST)).text == "42"


async def test_all_failing_is_the_last_ones_error() -> None:
    with pytest.raises(ModelError, match="no reply left"):
        await Cascade({"a": Scripted(), "b": Scripted()}, [0.5], agree(0.8, 0.9)).complete(REQUEST)


async def test_an_answer_that_nobody_can_read_goes_on_and_is_given_only_if_nothing_else_is() -> None:
    cascade = Cascade({"a": Scripted("no idea"), "b": Scripted("42")}, [0.1], agree(0.8, 0.9))
    assert (await cascade.complete(REQUEST)).text == "42"
    lost = Cascade({"a": Scripted("no idea"), "b": Scripted()}, [0.1], agree(0.8, 0.9))
    assert (await lost.complete(REQUEST)).text == "no idea"


async def test_any_check_is_a_verifier_and_the_best_liked_is_given() -> None:
    async def judged(request: ModelRequest, reply: Reply) -> float:
        return len(reply.text) / 10

    cascade = Cascade({"a": Scripted("four"), "b": Scripted("one")}, [0.5], CheckVerifier(judged))
    assert (await cascade.complete(REQUEST)).text == "four"
    plain = Cascade(
        {"a": Scripted("fortytwo"), "b": Scripted()}, [0.5], CheckVerifier(lambda request, reply: len(reply.text) / 10)
    )
    assert (await plain.complete(REQUEST)).text == "fortytwo"
    await plain.close()


async def test_what_was_not_counted_stays_unknown() -> None:
    reply = await Cascade({"a": Scripted("42"), "b": Scripted("42")}, [NEVER], agree(0.8, 0.9)).complete(REQUEST)
    assert reply.cost is None


def test_thresholds_that_do_not_fit_are_refused() -> None:
    with pytest.raises(InputError, match="a cascade of 2 models has 1 thresholds, not 2"):
        Cascade({"a": Scripted(), "b": Scripted()}, [0.5, 0.5], agree(0.8, 0.9))
