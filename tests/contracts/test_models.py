"""What every model client promises. A new one joins by a line in `MODELS`."""

import asyncio
import json
from collections.abc import AsyncIterator, Callable
from contextlib import AbstractContextManager, nullcontext
from pathlib import Path
from typing import Any

import pytest

from journeyman.core.errors import ModelError
from journeyman.io.retry import RetryPolicy
from journeyman.models import load
from journeyman.models.base import Limited, Model, ModelRequest, PromptMessage
from journeyman.models.openai import OpenAI
from journeyman.models.recorded import RecordedModel
from journeyman.models.scripted import Scripted
from tests.support.llm_server import Answer, LLMServer, completion, error, serving

KNOWN = [f"what is {number}?" for number in range(20)]


def answer_to(question: str) -> str:
    return f"the answer to {question}"


def scripted(folder: Path, url: str) -> Model:
    def say(request: ModelRequest) -> str | Exception:
        asked = request.messages[-1].content
        return answer_to(asked) if asked in KNOWN else ModelError("not in the script")

    return Scripted(say)


def recorded(folder: Path, url: str) -> Model:
    rows = [json.dumps({"question": question, "output": answer_to(question)}) for question in KNOWN]
    (folder / "outputs.jsonl").write_text("\n".join(rows), encoding="utf-8")
    return RecordedModel(str(folder / "outputs.jsonl"))


def over_http(folder: Path, url: str) -> Model:
    return OpenAI("test-model", base_url=url, max_retries=0)


def limited(folder: Path, url: str) -> Model:
    return Limited(over_http(folder, url), 3, patience=RetryPolicy(retries=1, first_wait=0.01))


MODELS: dict[str, Callable[[Path, str], Model]] = {
    "scripted": scripted,
    "recorded": recorded,
    "openai": over_http,
    "limited": limited,
}
SERVED = {"openai", "limited"}


def serve(body: dict[str, Any]) -> Answer:
    asked = body["messages"][-1]["content"]
    return completion(answer_to(asked)) if asked in KNOWN else error(500, "no idea")


@pytest.fixture(params=MODELS)
async def model(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[Model]:
    server: AbstractContextManager[LLMServer | None] = serving() if request.param in SERVED else nullcontext()
    with server as running:
        if running is not None:
            running.default = serve
        made = MODELS[request.param](tmp_path, running.url if running is not None else "")
        yield made
        await made.close()


def ask(question: str) -> ModelRequest:
    return ModelRequest(messages=(PromptMessage("system", "be brief"), PromptMessage("user", question)))


async def test_a_question_gets_its_answer(model: Model) -> None:
    reply = await model.complete(ask(KNOWN[3]))
    assert reply.text == answer_to(KNOWN[3])
    assert reply.model


async def test_many_questions_at_once_get_their_own_answers(model: Model) -> None:
    replies = await asyncio.gather(*(model.complete(ask(question)) for question in KNOWN))
    assert [reply.text for reply in replies] == [answer_to(question) for question in KNOWN]


async def test_what_it_cannot_answer_is_a_model_error(model: Model) -> None:
    with pytest.raises(ModelError):
        await model.complete(ask("something else"))
    assert (await model.complete(ask(KNOWN[0]))).text == answer_to(KNOWN[0])


async def test_the_same_question_gets_the_same_answer_from_one_that_says_so(model: Model) -> None:
    if model.deterministic:
        assert await model.complete(ask(KNOWN[1])) == await model.complete(ask(KNOWN[1]))


async def test_its_name_is_what_a_user_would_type(model: Model) -> None:
    again = load(model.name)
    assert again.name == model.name
    assert again.dialect == model.dialect
    await again.close()


async def test_closing_twice_is_closing_once(model: Model) -> None:
    await model.complete(ask(KNOWN[0]))
    await model.close()
    await model.close()
