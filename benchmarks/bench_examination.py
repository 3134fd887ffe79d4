"""What an examination on recorded requests concludes, beside the truth: of placebos, a culprit, a lookup, an equal candidate.

    python benchmarks/bench_examination.py placebos --model embedded:base --shops oslo,cairo --orders 40
    python benchmarks/bench_examination.py culprits --model embedded:base --shops lima --orders 48
    python benchmarks/bench_examination.py lookups
    python benchmarks/bench_examination.py equal --runs 1000
    python benchmarks/bench_examination.py equal --model embedded:base    # 20 candidates that say the same in other words

Orders are recorded at the order desk as a gateway would: the question, the call, what the shop's API says of it. Without
`--model` an obedient clerk answers: it writes each field as the last rule on it says, and without one as every house's first.
It shows what the examination makes of answers; what a model makes of rules only a model shows. The exit code is 1 when a
bar is missed.
"""

import argparse
import asyncio
import json
import random
import re
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from itertools import pairwise
from pathlib import Path

from journeyman.agents.answer import terse_rules
from journeyman.agents.attempt import Attempt
from journeyman.agents.replay import NamedModel, RecordedRequest
from journeyman.core.evaluation import Evaluation
from journeyman.core.playbook import Bullet, Playbook
from journeyman.core.score import Reward, Score
from journeyman.core.task import Split, Task
from journeyman.core.trace import Message, ModelCall, ToolCall, Trace
from journeyman.experiments.evaluator import HeldOutEvaluator
from journeyman.experiments.playbook.bullet_examination import LeftOut
from journeyman.experiments.playbook.examination import (
    Examination,
    ExaminationConfig,
    ExaminationReport,
    conclude,
)
from journeyman.experiments.playbook.recorded_tasks import DrawnTasks, RecordedTask, draw
from journeyman.models import load
from journeyman.models.base import CachedModel, Dialect, Model, ModelRequest, PromptMessage, Reply
from journeyman.stores import open_store
from journeyman.stores.registry import GateVerdict
from journeyman.tasks import desk
from journeyman.tasks.desk.world import CONVENTIONS, SHOPS, call, faults, rules
from journeyman.tasks.recorded import RecordedAnswer, TaskKind
from journeyman.tracing.evidence import evidence_of
from journeyman.tracing.wire.dialects import Dialect as WireDialect

START = datetime(2026, 1, 1, tzinfo=UTC)
NONSENSE = (
    "dates: like 5-mar",
    "prices: with currency, like 12.50 EUR",
    "skus: blue/mug",
    "amounts: with pcs",
    "cities: three capital letters, like OSL",
    "address: town",
)
CLOSE, FAR_GAIN, EQUAL = 0.02, 0.02, 0.05
SETTINGS = ("skus", "amounts", "address", "cities", "dates", "prices")
_LOOKUP = re.compile(r'asked "([^"]*)", write (\{.*\})')


class Clerk:
    """Obeys the rules that it is told, to the letter. Implements `Model`."""

    name = "clerk"
    dialect: Dialect = "terse"

    def __init__(self, tasks: Iterable[Task], *, deterministic: bool = True) -> None:
        self.deterministic = deterministic
        shops = {task.question: desk.read({"shop": "", **json.loads(task.answer)}) for task in tasks}
        self.orders = shops
        self.values = {
            rule: (convention.about, number)
            for convention in CONVENTIONS
            for number, value in enumerate(convention.values)
            for rule in value.rules
        }

    async def complete(self, request: ModelRequest) -> Reply:
        told, question = (message.content for message in request.messages)
        said = [rule.removeprefix("- ") for rule in told.splitlines()[1:]]
        known = [found for rule in said if (found := _LOOKUP.fullmatch(rule)) and _alike(found[1], question)]
        if known:
            return Reply(text=known[0][2], model=self.name)
        house = dict(self.values[rule] for rule in said if rule in self.values)
        text = json.dumps(call(self.orders[question], house))
        # A rule that is no house's is written behind what it speaks of, as one does who does not understand it.
        for rule in said:
            if rule not in self.values and not _LOOKUP.fullmatch(rule):
                text = _spoiled(text, rule)
        return Reply(text=text, model=self.name)

    async def close(self) -> None:
        """There is nothing to give back."""


def _alike(one: str, other: str) -> bool:
    a, b = ({*re.findall(r"\w+", text.lower())} for text in (one, other))
    return len(a & b) >= 0.8 * len(a | b)


def _spoiled(text: str, rule: str) -> str:
    told = json.loads(text)
    field = next((c.field for c in CONVENTIONS if c.about == rule.partition(":")[0]), "")
    if field in told["arguments"]:
        told["arguments"][field] = f"{told['arguments'][field]} {rule.partition(':')[2].strip()}"
    return json.dumps(told)


async def reply(model: Model, question: str, told: Sequence[str]) -> str:
    prompt = (PromptMessage("system", terse_rules(told)), PromptMessage("user", question))
    return (await model.complete(ModelRequest(messages=prompt))).text


async def recorded(model: Model, tasks: Sequence[Task], told: Sequence[str] = ()) -> list[Trace]:
    """What a gateway records of a clerk who is told so much, and of the shop's API."""
    found = []
    for at, task in enumerate(tasks):
        said = json.loads(await reply(model, task.question, told))
        wrong = faults(json.dumps(said), json.loads(task.answer))
        asked = ModelCall(
            model="clerk",
            prompt="",
            reply="",
            messages=(Message(role="system", text="reply"), Message(role="user", text=task.question)),
            id=f"call{at}",
            raw={"dialect": "openai.chat", "request": {"user": f"cust{at % 25}"}, "base_url": "http://localhost/v1"},
        )
        used = ToolCall(
            tool=said["name"],
            arguments=json.dumps(said["arguments"]),
            result="Error: " + "\n".join(wrong) if wrong else "OK",
            ok=not wrong,
            parent=asked.id,
            id=f"tool{at}",
        )
        when = START + timedelta(minutes=at)
        found.append(
            Trace(
                id=f"trace{at}",
                task_id=task.id,
                candidate_id="base",
                started_at=when,
                steps=(asked, used),
                domain=task.domain,
                session=f"s{at}",
                source="gateway",
            )
        )
    return found


def drawn_of(traces: Sequence[Trace], far: Iterable[int] = ()) -> DrawnTasks:
    return draw([evidence_of(trace) for trace in traces], far=frozenset(far))


def playbook(told: Sequence[str], domain: str) -> Playbook:
    # What a field is called is another setting than what stands in it.
    fields = {convention.about: convention.field for convention in CONVENTIONS} | {"address": "address"}
    bullets = (
        Bullet(id=f"b-{at}", content=rule, domain=domain, about=f"order.{fields.get(rule.partition(':')[0], '')}")
        for at, rule in enumerate(told)
    )
    return Playbook(bullets=tuple(bullets))


async def examined(
    model: Model,
    drawn: DrawnTasks,
    told: Sequence[str],
    domain: str,
    config: ExaminationConfig | None = None,
    *,
    served: Sequence[str] = (),
) -> ExaminationReport:
    with open_store("memory:") as store:
        examination = Examination(
            evaluator=HeldOutEvaluator(store=store),
            ask=NamedModel(model),
            config=config or ExaminationConfig(leave_one_out=False),
        )
        return await examination.examine(drawn, playbook(told, domain), playbook(served, domain), id="bench")


async def truth(model: Model, tasks: Sequence[Task], told: Sequence[str]) -> float:
    """The share of orders that the shop really takes."""
    replies = [await reply(model, task.question, told) for task in tasks]
    return sum(not faults(said, json.loads(task.answer)) for said, task in zip(replies, tasks, strict=True)) / len(tasks)


def placebo_rules(shop: str, unnamed: Sequence[str]) -> dict[str, Sequence[str]]:
    """The playbooks that are examined, by what they are."""
    house = SHOPS[shop]
    good = rules(house)
    other = next(there for here, there in pairwise([*SHOPS, *SHOPS]) if here == shop)
    found: dict[str, Sequence[str]] = {
        "learned": good,
        "nonsense": NONSENSE,
        "another shop's": rules(SHOPS[other]),
        "half": good[: len(good) // 2],
    }
    for about in unnamed[:1]:
        convention = next(each for each in CONVENTIONS if each.about == about)
        poison = convention.values[(house[about] + 1) % len(convention.values)].rules[0]
        kept = [rule for rule in good if not rule.startswith(f"{about}:")]
        found[f"poisoned ({about})"] = [*kept, poison]
    return found


def unnamed_settings(drawn: DrawnTasks) -> list[str]:
    """Settings of which no recorded refusal speaks."""
    answers = [RecordedAnswer.loads(each.task.answer) for each in drawn.tasks]
    named = {name for each in answers for fault in each.faults for name in (fault.argument, fault.expected_name)}
    return [
        each.about for each in CONVENTIONS if each.about != "address" and each.field not in named and each.about in SETTINGS
    ]


async def placebos(models: Callable[[Sequence[Task]], Model], shops: Sequence[str], orders: int) -> bool:
    """T6: the two-sided examination is near the truth for every playbook; the one-sided question is not."""
    fine = True
    for shop in shops:
        tasks = desk.load(shop, sizes={Split.TRAIN: orders}).tasks
        model = models(tasks)
        drawn = drawn_of(await recorded(model, tasks))
        by_question = {task.question: task for task in tasks}
        meant = [by_question[each.task.question] for each in drawn.tasks]
        for name, told in placebo_rules(shop, unnamed_settings(drawn)).items():
            report = await examined(model, drawn, told, shop)
            two_sided = report.conclusion
            share = _share(two_sided.evaluation.candidate, two_sided.evaluation.tasks, two_sided.accepted)
            true = await truth(model, meant, told)
            close = abs(share - true) <= CLOSE
            fine &= close
            print(
                f"{shop:6} {name:18} n {len(meant):3} two-sided {share:.3f}  truth {true:.3f}  "
                f"not rejected {two_sided.one_sided.candidate or 0:.3f}  {report.verdict.value:14} {'' if close else 'MISSED'}",
                flush=True,
            )
    return fine


def _share(examined: float | None, tasks: int, accepted: Evaluation) -> float:
    right = (examined or 0) * tasks + (accepted.candidate or 0) * accepted.tasks
    return right / max(1, tasks + accepted.tasks)


async def culprits(
    models: Callable[[Sequence[Task]], Model], shops: Sequence[str], orders: int, settings: Sequence[str] = SETTINGS
) -> bool:
    """T6b: of a playbook with one false bullet the false one is named, and no other."""
    named = wrongly = cases = harmless = 0
    for shop in shops:
        tasks = desk.load(shop, sizes={Split.TRAIN: orders}).tasks
        model = models(tasks)
        drawn = drawn_of(await recorded(model, tasks))
        good = list(rules(SHOPS[shop]))
        for about in settings:
            convention = next(each for each in CONVENTIONS if each.about == about)
            false = convention.values[(SHOPS[shop][about] + 1) % len(convention.values)].rules[0]
            config = ExaminationConfig(most_tasks=orders, min_groups=10)
            began = time.process_time()
            report = await examined(model, drawn, [*good, false], shop, config)
            gone = [each.content for each in report.dropped]
            cases += 1
            named += false in gone
            wrongly += len(set(gone) - {false})
            own = next(each for each in report.bullets if each.content == false)
            harmless += false not in gone and own.gain <= 0
            print(
                f"{shop:6} {false:34} without it {own.gain:+.3f} ({own.low:+.3f} to {own.high:+.3f}) {_alone(own)} "
                f"dropped {gone}  {report.verdict.value} {time.process_time() - began:.0f} s",
                flush=True,
            )
    print(f"named {named} of {cases}, harmless as the model does not follow it {harmless}, good ones dropped {wrongly}")
    return named >= cases * 46 / 48 and wrongly <= max(1, cases // 48)


def _alone(found: LeftOut) -> str:
    return f"alone {found.by_itself.better} better {found.by_itself.worse} worse" if found.by_itself else ""


async def lookups(runs: int = 20) -> bool:
    """T11: a playbook that is a lookup of the answers that it was learned from."""
    fine = 0
    for seed in range(runs):
        shop = list(SHOPS)[seed % len(SHOPS)]
        tasks = desk.load(shop, sizes={Split.TRAIN: 160}, seed=seed).tasks
        learned, later = tasks[:60], tasks[60:]
        near = [replace(each, id=f"{each.id}n", question=f"{each.question.rstrip('.?')}, thank you.") for each in learned[:50]]
        clerk = Clerk([*tasks, *near])
        asked = [*near, *later]
        drawn = drawn_of(await recorded(clerk, asked), far=range(len(near), len(asked)))
        told = [f'asked "{each.question}", write {each.answer}' for each in learned]
        report = await examined(clerk, drawn, told, shop)
        far = report.conclusion.far.gain or 0.0
        fine += report.verdict is GateVerdict.REFUSED or far <= FAR_GAIN
        gain = report.conclusion.evaluation.gain
        print(f"{shop:6} gain {gain:+.3f}, far half {far:+.3f}: {report.verdict.value}", flush=True)
    print(f"refused, or at most {FAR_GAIN} on the far half: {fine} of {runs}")
    return fine == runs


@dataclass(frozen=True, slots=True, kw_only=True)
class EqualWorld:
    """Requests of which baseline and candidate are equally often right, in groups that go together."""

    groups: int = 60
    of_each: int = 3
    right: float = 0.5
    together: float = 0.5
    """How far the requests of a group go together: the share whose verdict is the group's."""


def equal_attempts(world: EqualWorld, seed: int) -> tuple[list[RecordedTask], list[Attempt], list[Attempt]]:
    chance = random.Random(seed)
    request = RecordedRequest(dialect=WireDialect.CHAT, base_url="")
    answer = RecordedAnswer(kind=TaskKind.CALL, tool="order", arguments={}).dumps()
    trace = Trace(id="t", task_id="t", candidate_id="base", started_at=START)
    tasks = list[RecordedTask]()
    before, after = list[Attempt](), list[Attempt]()
    for group in range(world.groups):
        of_group = [chance.random() < world.right for _ in range(2)]
        for number in range(world.of_each):
            id = f"{group}.{number}"
            task = Task(id=id, question=id, answer=answer, split=Split.HELD_OUT, cluster=f"g{group}")
            tasks.append(
                RecordedTask(task=task, kind=TaskKind.CALL, request=request, trace_id=id, tool="order", far=group % 2 == 1)
            )
            for side, common in zip((before, after), of_group, strict=True):
                good = common if chance.random() < world.together else chance.random() < world.right
                score = Score(trace_id=id, rewards=(Reward(name="recorded", value=float(good)),))
                side.append(Attempt(task, trace, score))
    return tasks, before, after


def checked_once(world: EqualWorld, seed: int, looks: int = 10) -> bool:
    """Whether an equal candidate is `checked` at one of several looks at windows that grow."""
    tasks, before, after = equal_attempts(world, seed)
    for look in range(looks):
        most = len(tasks) * (look + 1) // looks
        found = conclude(tasks[:most], before[:most], after[:most], looks=look)
        if found.verdict is GateVerdict.CHECKED:
            return True
    return False


def equal(runs: int) -> bool:
    """T12: how often an equal candidate is `checked`."""
    fine = True
    for world in (EqualWorld(), EqualWorld(together=0.9), EqualWorld(groups=100, of_each=2, right=0.9, together=0.3)):
        found = sum(checked_once(world, seed) for seed in range(runs))
        fine &= found <= EQUAL * runs
        print(f"{world}: checked in {found} of {runs} runs of 10 looks", flush=True)
    return fine


async def paraphrased(models: Callable[[Sequence[Task]], Model], shops: Sequence[str], orders: int, runs: int) -> bool:
    """T12 with a model: all of a shop's rules but one are served, and the candidate says the same in other words."""
    found = 0
    for run in range(runs):
        shop = shops[run % len(shops)]
        tasks = desk.load(shop, sizes={Split.TRAIN: orders}).tasks
        meant = random.Random(run).sample(CONVENTIONS, len(CONVENTIONS) - 1)
        served, same = ([each.values[SHOPS[shop][each.about]].rules[at] for each in meant] for at in (0, 1))
        model = models(tasks)
        drawn = drawn_of(await recorded(model, tasks, served))
        report = await examined(model, drawn, same, shop, served=served)
        found += report.verdict is GateVerdict.CHECKED
        numbers = report.conclusion.evaluation
        print(
            f"{shop:6} {', '.join(each.about for each in meant):24} {numbers.baseline} → {numbers.candidate}  {report.verdict}",
            flush=True,
        )
    print(f"checked in {found} of {runs} runs")
    return found <= EQUAL * runs


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("what", choices=("placebos", "culprits", "lookups", "equal"))
    parser.add_argument("--model", help="Who answers; an obedient clerk without one.")
    parser.add_argument("--cache", type=Path, help="A file in which a model's replies are kept.")
    parser.add_argument("--shops", default=",".join(SHOPS))
    parser.add_argument("--settings", default=",".join(SETTINGS), help="On which a false bullet is added.")
    parser.add_argument("--orders", type=int, default=60)
    parser.add_argument("--runs", type=int, default=1000)
    given = parser.parse_args()
    named = load(given.model) if given.model else None

    def models(tasks: Sequence[Task]) -> Model:
        if named is None:
            return Clerk(tasks)
        return CachedModel(named, given.cache) if given.cache else named

    shops = given.shops.split(",")
    ways: Mapping[str, Callable[[], bool]] = {
        "placebos": lambda: asyncio.run(placebos(models, shops, given.orders)),
        "culprits": lambda: asyncio.run(culprits(models, shops, given.orders, given.settings.split(","))),
        "lookups": lambda: asyncio.run(lookups()),
        "equal": lambda: (
            equal(given.runs) if named is None else asyncio.run(paraphrased(models, shops, given.orders, min(given.runs, 20)))
        ),
    }
    return 0 if ways[given.what]() else 1


if __name__ == "__main__":
    raise SystemExit(main())
