"""Replies are kept: what a deterministic model once said it says again without being asked."""

import asyncio
from dataclasses import replace
from pathlib import Path

import pytest

from journeyman.core.messages import ToolUse
from journeyman.models.base import CachedModel, Dialect, ModelRequest, PromptMessage, Reply, ToolOffer
from journeyman.models.scripted import Scripted


class Counts:
    """A model that says how often it was asked."""

    name = "counts"
    dialect: Dialect = "full"

    def __init__(self, *, deterministic: bool = True) -> None:
        self.deterministic = deterministic
        self.asked = 0

    async def complete(self, request: ModelRequest) -> Reply:
        self.asked += 1
        number = self.asked
        await asyncio.sleep(0)
        return Reply(text=f"{request.messages[-1].content} {number}", model="counts", input_tokens=3, seconds=0.5)

    async def close(self) -> None:
        pass


def ask(text: str, temperature: float | None = None, seed: int | None = None) -> ModelRequest:
    return ModelRequest(messages=(PromptMessage("user", text),), temperature=temperature, seed=seed)


def replies(model: CachedModel, *requests: ModelRequest) -> list[str]:
    async def all_of_them() -> list[Reply]:
        return list(await asyncio.gather(*(model.complete(request) for request in requests)))

    return [reply.text for reply in asyncio.run(all_of_them())]


def test_the_same_question_is_asked_once_also_by_several_at_once_and_by_the_next_process(tmp_path: Path) -> None:
    model = Counts()
    kept = CachedModel(model, tmp_path / "replies.jsonl")
    assert replies(kept, ask("a"), ask("a"), ask("b")) == ["a 1", "a 1", "b 2"]
    again = CachedModel(model, tmp_path / "replies.jsonl")
    assert replies(again, ask("a"), ask("b")) == ["a 1", "b 2"]
    assert model.asked == 2
    assert again.asked == 0


def test_what_a_reply_took_is_kept_with_it_and_what_was_not_counted_stays_unknown(tmp_path: Path) -> None:
    replies(CachedModel(Counts(), tmp_path / "r.jsonl"), ask("a"))
    reply = asyncio.run(CachedModel(Counts(), tmp_path / "r.jsonl").complete(ask("a")))
    assert (reply.input_tokens, reply.output_tokens, reply.seconds) == (3, None, 0.5)


@pytest.mark.parametrize("model", [Counts(deterministic=False), Counts()], ids=["not deterministic", "sampled without a seed"])
def test_what_could_be_another_reply_next_time_is_not_kept(model: Counts, tmp_path: Path) -> None:
    kept = CachedModel(model, tmp_path / "r.jsonl")
    request = ask("a", temperature=1.0 if model.deterministic else None)
    assert replies(kept, request) + replies(kept, request) == ["a 1", "a 2"]
    assert not (tmp_path / "r.jsonl").exists()


def test_a_broken_line_costs_that_reply_alone(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    file = tmp_path / "r.jsonl"
    replies(CachedModel(Counts(), file), ask("a"), ask("b"))
    first, second = file.read_text().splitlines()
    file.write_text(f"{first}\n{second[:20]}\n")
    model = Counts()
    assert replies(CachedModel(model, file), ask("a"), ask("b")) == ["a 1", "b 1"]
    assert "1 of 2" in caplog.text


def test_calls_are_kept_and_other_tools_are_another_question(tmp_path: Path) -> None:
    call = ToolUse("look", "{}", "c1")
    model = Scripted(lambda request: Reply(text=str(len(request.tools)), model="s", calls=(call,) * len(request.tools)))
    offer = ToolOffer(name="look", description="", parameters={})
    asked = [replace(ask("a"), tools=offers) for offers in ((), (offer,), (offer, offer))]
    first = [asyncio.run(CachedModel(model, tmp_path / "r.jsonl").complete(each)) for each in asked]
    again = [asyncio.run(CachedModel(model, tmp_path / "r.jsonl").complete(each)) for each in asked]
    assert [reply.calls for reply in again] == [reply.calls for reply in first] == [(), (call,), (call, call)]
    assert len(model.requests) == 3
