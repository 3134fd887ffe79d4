"""The order desk as a world of plans: its notes, who can do their steps at what price, and what was right.

Clerks are the sizes of the embedded model, with the shop's conventions in their context; papers need no model. It all runs on
this machine and costs nothing: the prices are a list price made up for the embedded sizes, so that there is a choice to make.
"""

import asyncio
import json
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from journeyman.agents import answer
from journeyman.agents.answer import Answer, call_of
from journeyman.agents.attempt import Attempt, attempt_all
from journeyman.agents.workers import Note as Take
from journeyman.agents.workers import SubtaskJob, UnreadableAnswer, Worker, WorkerFailed
from journeyman.core.errors import PlanError, TaskError
from journeyman.core.plan import ExecutionResult, Plan, SubtaskResult
from journeyman.core.playbook import Bullet
from journeyman.core.policy import Card, Ending, Outcome
from journeyman.core.score import Reward
from journeyman.core.task import Split, Task
from journeyman.experiments.wiring import connect, now
from journeyman.models.base import CachedModel, Model, ModelRequest
from journeyman.tasks.desk import INSTRUCTIONS, TOOLS, Note, carry_out, decompose, parse, unsaid
from journeyman.tasks.desk import load as load_desk
from journeyman.tasks.desk import notes as instructions
from journeyman.tasks.desk.world import SHOPS, Desk, rules

__all__ = [
    "MODELS",
    "PRICES",
    "Clerk",
    "Paper",
    "cards",
    "conventions",
    "expert",
    "instructions",
    "judged",
    "plausible",
    "workers",
]

PRICES: Mapping[str, float] = {"embedded:small": 0.076, "embedded:base": 0.349}
"""US dollars for a million tokens, read or written: ten cents for each million parameters. Made up. A transformer's arithmetic
for a token is about twice its parameters (Kaplan et al. 2020, "Scaling Laws", §2.1), so the ratio of the two is not."""
MODELS = tuple(PRICES)
SAFE = MODELS[-1]
_REPLY = 96
"""Tokens that a call takes at most."""


def conventions(shop: str) -> tuple[Bullet, ...]:
    """The shop's conventions, as an expert would write its playbook."""
    return tuple(
        Bullet(id=f"{shop}-{number}", content=rule, domain=shop) for number, rule in enumerate(rules(SHOPS[shop]), start=1)
    )


def cards(models: Sequence[str] = MODELS) -> tuple[Card, ...]:
    """Of the models, then of the tools."""
    return (*(_card(model) for model in models), *(_tool_card(tool) for tool in TOOLS))


def expert(text: str, model: str = SAFE) -> Plan:
    """Who knows the desk decomposes by rules, and gives each call to one model: the careful choice is the large one.

    Raises:
        PlanError: There is no shop in it, or something that the desk does not do.
    """
    plan = decompose(text)
    return plan.with_workers(["" if step.tool else model for step in plan.subtasks])


@dataclass(frozen=True, kw_only=True)
class Clerk:
    """Turns a customer's sentence into its shop's call. A `Worker`."""

    model: Model
    card: Card
    bullets: Callable[[str], Sequence[Bullet]] = conventions
    """What is known of a shop."""

    def estimate(self, job: SubtaskJob) -> float | None:
        # No tokenizer writes more tokens than there are characters.
        asked = self._request(job)
        return self.card.price(sum(len(message.content) for message in asked.messages), _REPLY)

    async def do(self, job: SubtaskJob, note: Take) -> Any:
        request, shop = self._request(job), job.subtask.type
        reply = await self.model.complete(request)
        cost = reply.cost
        if self.card.input_price is not None and reply.input_tokens is not None and reply.output_tokens is not None:
            cost = self.card.price(reply.input_tokens, reply.output_tokens)
        note(replace(call_of(request, reply, shown=self.bullets(shop)), cost=cost))
        try:
            return parse(reply.text, shop)
        except TaskError as error:
            raise UnreadableAnswer(str(error)) from None

    async def close(self) -> None:
        """Give back what the model holds."""
        await self.model.close()

    def _request(self, job: SubtaskJob) -> ModelRequest:
        shop = job.subtask.type
        if shop not in SHOPS:
            raise WorkerFailed(f"the desk has no shop {shop!r}; there are {', '.join(SHOPS)}")
        task = Task(id=job.subtask.id, question=sentence(job), domain=shop, instructions=INSTRUCTIONS)
        return ModelRequest(messages=answer.answer(task, self.bullets(shop), self.model.dialect), task_id=task.id)


@dataclass(frozen=True, kw_only=True)
class Paper:
    """One of the desk's tools. A `Worker`."""

    card: Card

    def estimate(self, job: SubtaskJob) -> float | None:
        return 0.0

    async def do(self, job: SubtaskJob, note: Take) -> Any:
        kinds = {id: (job.plan.by_id[id].gives or ("call",))[0] for id in job.inputs}
        try:
            return carry_out(self.card.name, [(kinds[id], value) for id, value in job.inputs.items()])
        except (TaskError, PlanError) as error:
            raise WorkerFailed(str(error)) from None


def workers(
    models: Sequence[str] = MODELS, *, bullets: Callable[[str], Sequence[Bullet]] = conventions, replies: Path | None = None
) -> Mapping[str, Worker]:
    """Everybody at the desk, by name.

    Args:
        models: Who can be a clerk.
        bullets: What a clerk is told of a shop: the expert's conventions, or a learned playbook's.
        replies: A folder for what deterministic models replied, so that nothing is decoded twice.

    Raises:
        ModelRefused: There is no such model, or it lacks a key.
        MissingExtra: What it needs is not installed.
    """
    crew: dict[str, Worker] = {tool: Paper(card=_tool_card(tool)) for tool in TOOLS}
    for name in models:
        model: Model = connect(name)
        if replies is not None and model.deterministic:
            model = CachedModel(model, replies / f"{name.replace(':', '-').replace('/', '-')}.jsonl")
        crew[name] = Clerk(model=model, card=_card(name), bullets=bullets)
    return crew


def sentence(job: SubtaskJob) -> str:
    """What the clerk is to turn into a call: what an earlier step says, else the subtask's words if the note holds them, else
    that sentence of the note that is this shop's: plans of learned planners may have no words of their own."""
    step = job.subtask
    if handed := [value for id, value in job.inputs.items() if "sentence" in job.plan.by_id[id].gives]:
        return str(handed[-1])
    try:
        own = [each.text for each in decompose(job.instruction).subtasks if each.type == step.type and not each.after]
    except PlanError:
        return step.text
    if step.text in own or not own:
        return step.text
    alike = [each.id for each in job.plan.subtasks if each.type == step.type and "sentence" not in each.takes]
    return own[min(alike.index(step.id), len(own) - 1)] if step.id in alike else step.text


async def plausible(job: SubtaskJob, output: Any) -> Reward | None:
    """A check for an orchestrator that needs no answer key: does the sentence bear out what the call says? One that it does not
    goes to the next worker. `None` for papers."""
    if job.subtask.tool:
        return None
    try:
        strange = unsaid(sentence(job), output)
    except TaskError as error:
        return Reward(name="plausible", value=0.0, evidence=str(error))
    return Reward(name="plausible", value=0.0 if strange else 1.0, evidence=", ".join(strange))


def judged(note: Note, result: ExecutionResult) -> ExecutionResult:
    """With a verdict on each step and on the whole, by what the note says is right. A step whose worker gave no answer has
    none, and the whole is not a success then."""
    verdicts = {id: _right(note, result.plan, each) for id, each in result.results.items()}
    results = {id: each.judged(verdicts[id]) for id, each in result.results.items()}
    trace = replace(result.trace, task_id=note.id, raw={**result.trace.raw, "split": note.split.value})
    complete = _matches(note.plan, result.plan)
    success = complete and all(verdicts[step.id] is True for step in result.plan.subtasks)
    return replace(result, results=results, trace=trace, success=success)


def _right(note: Note, plan: Plan, result: SubtaskResult) -> bool | None:
    """`None` where there is nothing to compare with."""
    here, there = _places(plan), {place: id for id, place in _places(note.plan).items()}
    wanted = note.expected.get(there.get(here.get(result.id, ("", (), 0)), ""))
    return None if wanted is None or result.output is None else bool(result.output == wanted)


def _places(plan: Plan) -> Mapping[str, tuple[str, tuple[str, ...], int]]:
    """A step's type, the types it follows, and which of its like it is: a planner may call the same step by another id."""
    seen: dict[tuple[str, tuple[str, ...]], int] = {}
    found = {}
    for step in plan.subtasks:
        kind = (step.type, tuple(sorted(plan.by_id[id].type for id in step.after)))
        found[step.id] = (*kind, seen.get(kind, 0))
        seen[kind] = seen.get(kind, 0) + 1
    return found


def _matches(wanted: Plan, made: Plan) -> bool:
    """Whether all that is wanted is done, and nothing else."""
    return sorted(_places(wanted).values()) == sorted(_places(made).values())


def _card(model: str) -> Card:
    price = PRICES.get(model)
    size = model.removeprefix("embedded:")
    described = f"the desk's {size} clerk" if model in PRICES else ""
    return Card(name=model, description=described, gives=("call",), input_price=price, output_price=price)


def _tool_card(tool: str) -> Card:
    described, takes, gives = TOOLS[tool]
    return Card(name=tool, description=described, kind="tool", takes=takes, gives=(gives,), call_price=0.0)


# What each size of the embedded model makes of customers' sentences: a line for each, as `train router` reads them.

SIZES: Mapping[Split, int] = {Split.TRAIN: 100, Split.VALIDATION: 25, Split.HELD_OUT: 100}
"""Sentences of each shop."""


def measure(
    models: Sequence[str] = MODELS,
    *,
    sizes: Mapping[Split, int] = SIZES,
    shops: Sequence[str] = tuple(SHOPS),
    seed: int = 0,
    replies: Path | None = None,
) -> tuple[Mapping[str, Any], ...]:
    """Let each model do each sentence, with the shop's conventions told; the desk says what is right.

    Args:
        replies: A folder for what deterministic models replied, so that nothing is decoded twice.

    Returns:
        Objects with "id", "request", "type" (the shop), "split", and "outcomes" by model.
    """
    tasks = [task for shop in shops for task in load_desk(shop, sizes=sizes, seed=seed).tasks]
    crew = workers(models, replies=replies)

    async def ask() -> dict[str, list[Attempt]]:
        found = {}
        for name in models:
            worker = crew[name]
            assert isinstance(worker, Clerk)
            found[name] = await _attempts(worker.model, tasks, name)
            await worker.model.close()
        return found

    attempts = asyncio.run(ask())
    return tuple(
        {
            "id": f"{seed}-{task.id}",
            "request": task.question,
            "type": task.domain,
            "split": task.split.value,
            "outcomes": {name: _plain(outcome_of(attempts[name][at], crew[name].card)) for name in models},
        }
        for at, task in enumerate(tasks)
    )


def outcome_of(attempt: Attempt, card: Card) -> Outcome:
    """What became of one sentence, at the card's price."""
    trace = attempt.trace
    known = trace.input_tokens is not None and trace.output_tokens is not None
    success = attempt.score.total
    ending = Ending.RIGHT if success == 1 else Ending.WRONG
    if trace.error is not None or success is None:
        ending, success = Ending.ERROR, None
    elif not _readable(trace.reply):
        ending = Ending.FORMAT
    return Outcome(
        ending=ending,
        success=success,
        cost=card.price(trace.input_tokens or 0, trace.output_tokens or 0) if known else trace.cost,
        seconds=trace.calls[0].seconds if trace.calls else None,
        input_tokens=trace.input_tokens,
        output_tokens=trace.output_tokens,
    )


async def _attempts(model: Model, tasks: Sequence[Task], name: str) -> list[Attempt]:
    agent = Answer(model=model, choose=lambda task: conventions(task.domain))
    return await attempt_all(agent, tasks, Desk(), prefix=f"outcomes/{name}", clock=now)


def _plain(outcome: Outcome) -> Mapping[str, Any]:
    known = {
        "ending": outcome.ending.value,
        "success": outcome.success,
        "cost": None if outcome.cost is None else round(outcome.cost, 9),
        "seconds": None if outcome.seconds is None else round(outcome.seconds, 4),
        "input_tokens": outcome.input_tokens,
        "output_tokens": outcome.output_tokens,
    }
    return {name: value for name, value in known.items() if value is not None}


def _readable(reply: str) -> bool:
    with suppress(ValueError):
        return isinstance(json.loads(reply), dict)
    return False
