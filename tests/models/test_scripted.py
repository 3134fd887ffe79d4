import pytest

from journeyman.core.errors import ModelBusy, ModelError
from journeyman.models.base import ModelRequest, PromptMessage, Reply
from journeyman.models.scripted import Always, Scripted


def ask(text: str) -> ModelRequest:
    return ModelRequest(messages=(PromptMessage("user", text),))


async def test_it_says_its_lines_in_order_and_remembers_what_it_was_asked() -> None:
    model = Scripted("one", "two")
    assert [(await model.complete(ask(text))).text for text in ("a", "b")] == ["one", "two"]
    assert [request.messages[0].content for request in model.requests] == ["a", "b"]


async def test_it_fails_loudly_when_the_script_runs_out() -> None:
    model = Scripted("one")
    await model.complete(ask("a"))
    with pytest.raises(ModelError, match="no reply left for request 2: 'what now"):
        await model.complete(ask("what now"))


async def test_an_exception_in_the_script_is_raised() -> None:
    model = Scripted(ModelBusy("wait", retry_after=1.0), "ok")
    with pytest.raises(ModelBusy):
        await model.complete(ask("a"))
    assert (await model.complete(ask("a"))).text == "ok"


async def test_a_function_is_a_script_without_an_end() -> None:
    model = Scripted(lambda request: request.messages[-1].content.upper())
    assert [(await model.complete(ask("a"))).text for _ in range(3)] == ["A", "A", "A"]


async def test_a_whole_reply_is_given_as_it_is() -> None:
    reply = Reply(text="a", model="m", input_tokens=3, cost=0.1)
    assert await Scripted(reply).complete(ask("a")) is reply


async def test_one_answer_to_everything() -> None:
    assert (await Always("42").complete(ask("a"))).text == "42"
