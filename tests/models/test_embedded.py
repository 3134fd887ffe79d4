"""The model that ships with the package: it answers in batches, always the same, and knows its job."""

import asyncio
import json
import subprocess
import sys
import time
from collections.abc import Sequence

import pytest

from journeyman.agents import answer
from journeyman.core.errors import MissingExtra, ModelRefused
from journeyman.core.installation import installing
from journeyman.core.playbook import Bullet
from journeyman.core.task import Split
from journeyman.models import load
from journeyman.models.base import Model, ModelRequest, PromptMessage, Reply
from journeyman.tasks import desk
from journeyman.tasks.desk.world import SHOPS, faults, rules

pytest.importorskip("torch", reason="needs the extra: pip install 'journeyman[embedded]'")

pytestmark = pytest.mark.training

SIZES = ("base", "small")


@pytest.fixture(scope="module", params=SIZES)
def model(request: pytest.FixtureRequest) -> Model:
    return load(f"embedded:{request.param}")


def requests(told: bool, number: int = 12) -> list[ModelRequest]:
    bullets = [Bullet(id=f"b-{n}", content=rule) for n, rule in enumerate(rules(SHOPS["oslo"]))] if told else []
    tasks = desk.load("oslo", sizes={Split.HELD_OUT: number}).tasks
    return [ModelRequest(messages=answer.answer(task, bullets, "terse"), task_id=task.id) for task in tasks]


async def ask(model: Model, asked: list[ModelRequest]) -> list[Reply]:
    return list(await asyncio.gather(*(model.complete(request) for request in asked)))


async def test_replies_belong_to_their_requests_in_whatever_order_they_are_made(model: Model) -> None:
    asked = requests(told=True)
    forwards = [reply.text for reply in await ask(model, asked)]
    backwards = [reply.text for reply in await ask(model, asked[::-1])]
    assert backwards[::-1] == forwards


async def test_a_reply_is_the_same_alone_and_in_a_batch(model: Model) -> None:
    asked = requests(told=True)
    together = [reply.text for reply in await ask(model, asked)]
    alone = [(await model.complete(request)).text for request in asked]
    assert alone == together


async def test_it_counts_tokens_costs_nothing_and_says_why_it_stopped(model: Model) -> None:
    [reply] = await ask(model, requests(told=False, number=1))
    assert reply.input_tokens is not None
    assert reply.output_tokens is not None
    assert 10 < reply.input_tokens < 80
    assert 10 < reply.output_tokens < 80
    assert (reply.cost, reply.finish) == (0.0, "stop")


async def test_max_tokens_cuts_the_reply_off_and_says_so(model: Model) -> None:
    request = ModelRequest(messages=requests(told=False, number=1)[0].messages, max_tokens=4)
    reply = await model.complete(request)
    assert (reply.output_tokens, reply.finish) == (4, "length")


async def test_sampling_depends_on_the_seed_and_not_on_the_neighbours(model: Model) -> None:
    messages = requests(told=False, number=1)[0].messages
    hot = [ModelRequest(messages=messages, temperature=1.5, seed=seed) for seed in range(-3, 3)]
    together = [reply.text for reply in await ask(model, hot)]
    assert len(set(together)) > 1
    assert (await model.complete(hot[3])).text == together[3]


async def test_what_nobody_waits_for_any_more_is_not_decoded(model: Model, monkeypatch: pytest.MonkeyPatch) -> None:
    begun: list[int] = []

    def decode(group: Sequence[ModelRequest]) -> list[Reply]:
        begun.append(len(group))
        time.sleep(0.05)
        return [Reply(text="", model="")] * len(group)

    monkeypatch.setattr("journeyman.models.local.BATCH", 4)
    monkeypatch.setattr(model, "_decode", decode)
    asking = asyncio.create_task(ask(model, requests(told=False)))
    while not begun:
        await asyncio.sleep(0.001)
    asking.cancel()
    await asyncio.wait([asking])
    await model.close()
    assert begun == [4]


async def test_text_from_outside_its_world_is_answered_and_not_an_error(model: Model) -> None:
    reply = await model.complete(ModelRequest(messages=(PromptMessage("user", "Où est la bibliothèque? 图书馆在哪里 \x00"),)))
    assert reply.finish in ("stop", "length")


async def test_a_prompt_longer_than_its_memory_is_cut_and_answered(model: Model) -> None:
    reply = await model.complete(ModelRequest(messages=(PromptMessage("user", "three blue mugs " * 2000),)))
    assert reply.input_tokens is not None
    assert reply.input_tokens <= 1024


@pytest.mark.parametrize("size", SIZES)
async def test_it_obeys_conventions_that_stand_in_its_context(size: str) -> None:
    model = load(f"embedded:{size}")
    tasks = desk.load("oslo", sizes={Split.HELD_OUT: 40}).tasks
    told, untold = await ask(model, requests(told=True, number=40)), await ask(model, requests(told=False, number=40))
    right = [sum(not faults(r.text, json.loads(t.answer)) for r, t in zip(side, tasks, strict=True)) for side in (told, untold)]
    assert right[0] >= {"base": 36, "small": 24}[size]
    assert right[1] <= 16


def test_an_unknown_size_is_refused_with_the_sizes_there_are() -> None:
    with pytest.raises(ModelRefused, match=r"no embedded model 'giant'; there are: base, small"):
        load("embedded:giant")


def test_without_torch_one_sentence_says_which_extra_to_install() -> None:
    hide = "import sys; sys.modules['torch'] = None; from journeyman.models import load; load('embedded')"
    run = subprocess.run([sys.executable, "-c", hide], capture_output=True, text=True, check=False)
    assert f"{MissingExtra.__name__}: " in run.stderr
    assert installing("embedded") in run.stderr


def test_torch_is_not_loaded_before_the_model_is() -> None:
    code = (
        "import sys, journeyman.models, journeyman.experiments.playbook.training, journeyman.cli; print('torch' in sys.modules)"
    )
    assert subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout == "False\n"
