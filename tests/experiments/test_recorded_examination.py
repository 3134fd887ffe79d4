"""What an examination on recorded requests may conclude: refused, checked or not examinable, and never more."""

import asyncio
from collections.abc import Sequence
from dataclasses import replace
from functools import cache
from typing import Any

import pytest

from benchmarks.bench_examination import (
    CLOSE,
    Clerk,
    EqualWorld,
    checked_once,
    culprits,
    drawn_of,
    lookups,
    placebos,
    playbook,
    recorded,
)
from journeyman.agents.replay import CallBudget, NamedModel, RecordedServer
from journeyman.core.errors import InputError, ModelError, ModelRefused
from journeyman.core.playbook import Bullet, Playbook
from journeyman.core.task import Split, Task, fingerprints
from journeyman.experiments.evaluator import HeldOutEvaluator
from journeyman.experiments.playbook.bullet_examination import concerned, halves, shown
from journeyman.experiments.playbook.examination import (
    Examination,
    ExaminationConfig,
    ExaminationReport,
    asker,
)
from journeyman.experiments.playbook.recorded_tasks import DrawnTasks
from journeyman.experiments.settings import Settings, UpstreamSettings
from journeyman.models.base import Dialect, Model, ModelRequest, Reply
from journeyman.models.scripted import Scripted
from journeyman.stores import Store, open_store
from journeyman.stores.registry import GateVerdict, Registry
from journeyman.tasks import desk
from journeyman.tasks.desk.world import SHOPS, rules
from journeyman.tasks.recorded import RecordedAnswer

GOOD = rules(SHOPS["oslo"])
ALONE = ExaminationConfig(leave_one_out=False)


@cache
def orders(shop: str = "oslo", count: int = 40) -> tuple[Task, ...]:
    return desk.load(shop, sizes={Split.TRAIN: count}).tasks


@cache
def drawn(count: int = 40, told: Sequence[str] = ()) -> DrawnTasks:
    return drawn_of(asyncio.run(recorded(Clerk(orders(count=count)), orders(count=count), told)))


def examined(
    told: Sequence[str], tasks: DrawnTasks | None = None, *, model: Model | None = None, store: Store | None = None, **more: Any
) -> ExaminationReport:
    more = {"config": ALONE, "ask": NamedModel(model or Clerk(orders())), **more}
    examination = Examination(evaluator=HeldOutEvaluator(store=store or open_store("memory:")), **more)
    return asyncio.run(examination.examine(tasks or drawn(), playbook(told, "oslo"), Playbook(), id="e"))


def test_a_playbook_that_mends_what_was_refused_is_checked_and_never_passed() -> None:
    with open_store("memory:") as store:
        report = examined(GOOD, store=store)
        (found,) = store.evaluations()
        assert Registry(store).gate_word(found.candidate_id).verdict is GateVerdict.CHECKED
    assert report.verdict is GateVerdict.CHECKED
    assert not found.passed
    assert found.report["verdict"] == "checked"
    assert len(found.report["pairs"]) == report.conclusion.evaluation.tasks >= 30
    assert "better" not in report.reason.partition(":")[0]


def test_a_look_is_counted_where_the_answers_may_differ_and_free_where_they_cannot() -> None:
    with open_store("memory:") as store:
        assert [examined(GOOD, store=store).conclusion.evaluation.looks for _ in range(3)] == [0, 0, 0]
        clerk = Clerk(orders(), deterministic=False)
        looks = [examined(GOOD, store=store, model=clerk).conclusion.evaluation.looks for _ in range(3)]
        assert looks == [1, 2, 3]


def test_the_two_sided_examination_tells_placebos_as_the_truth_does(capsys: pytest.CaptureFixture[str]) -> None:
    assert asyncio.run(placebos(Clerk, ["oslo", "cairo"], 30))
    lines = capsys.readouterr().out.splitlines()
    nonsense = next(line for line in lines if "nonsense" in line)
    assert float(nonsense.split("not rejected")[1].split()[0]) > 0.8, "the one-sided question lets nonsense pass"
    assert CLOSE == 0.02


def test_a_false_bullet_is_named_and_goes_and_the_rest_is_examined_on_the_other_half() -> None:
    false = "amounts: three digits"
    config = ExaminationConfig(min_groups=10)
    report = examined([*GOOD, false], config=config)
    assert [each.content for each in report.dropped] == [false]
    assert false not in {bullet.content for bullet in report.playbook.active}
    half, other = halves(drawn().tasks)
    assert {pair.task_id for pair in report.conclusion.evaluation.pairs} <= {each.task.id for each in other}
    assert report.verdict is GateVerdict.CHECKED
    assert len(half) + len(other) == len(drawn().tasks)


class Distracted(Clerk):
    """Overlooks the rule on amounts in some orders, unless it is told of the rush as well."""

    async def complete(self, request: ModelRequest) -> Reply:
        system, user = request.messages
        if "rush" not in system.content and len(user.content) % 2:
            told = "\n".join(line for line in system.content.splitlines() if "three digits" not in line)
            request = replace(request, messages=(replace(system, content=told), user))
        return await super().complete(request)


def test_a_good_bullet_that_seems_to_harm_beside_a_false_one_stays() -> None:
    false = "amounts: three digits"
    report = examined([*GOOD, false], model=Distracted(orders()), config=ExaminationConfig(min_groups=10))
    assert [each.content for each in report.dropped] == [false]


class Firm(Clerk):
    """Follows the first rule on a setting, and overlooks what another one says of it."""

    async def complete(self, request: ModelRequest) -> Reply:
        system, user = request.messages
        first, *said = system.content.splitlines()
        told = "\n".join([first, *reversed(said)])
        return await super().complete(replace(request, messages=(replace(system, content=told), user)))


@pytest.mark.parametrize("false", ["amounts: three digits", "dates: year first, with dashes"])
def test_a_false_bullet_that_is_overlooked_beside_the_true_one_is_named_by_itself(false: str) -> None:
    report = examined([*GOOD, false], model=Firm(orders()), config=ExaminationConfig(min_groups=10))
    assert [each.content for each in report.dropped] == [false]
    assert "cannot hold beside it" in report.dropped[0].reason
    assert report.conclusion.evaluation.candidate == 1


def test_what_does_other_than_was_recorded_goes_though_nothing_is_lost_by_it() -> None:
    nowhere = replace(playbook(["amounts: three digits"], "oslo").bullets[0], id="b-f", about="")
    book = replace(playbook(GOOD, "oslo"), bullets=(*playbook(GOOD, "oslo").bullets, nowhere))
    examination = Examination(evaluator=HeldOutEvaluator(store=open_store("memory:")), ask=NamedModel(Firm(orders())))
    (gone,) = asyncio.run(examination.examine(drawn(), book, Playbook(), id="e")).dropped
    assert (gone.bullet_id, gone.gain) == ("b-f", 0)
    assert gone.reason.startswith("by itself it does other than what was recorded: 0 of")


def test_by_itself_means_beside_what_is_served_as_requests_were_recorded_with_it() -> None:
    """What a field holds is refused under the name that a served rule gives it: without that rule nothing could be mended."""
    served = tuple(rule for rule in GOOD if not rule.startswith("cities"))
    requests = drawn(40, served)
    book, baseline = playbook(GOOD, "oslo"), playbook(GOOD, "oslo")
    baseline = replace(baseline, bullets=tuple(each for each in book.bullets if each.content in served))
    false = replace(book.bullets[0], id="b-f", content="cities: small letters", about="order.city")
    (true,) = [each for each in book.bullets if each not in baseline.bullets]
    examination = Examination(
        evaluator=HeldOutEvaluator(store=open_store("memory:")),
        ask=NamedModel(Firm(orders())),
        config=ExaminationConfig(min_groups=5),
    )
    both = replace(book, bullets=(*book.bullets, false))
    report = asyncio.run(examination.examine(requests, both, baseline, id="e"))
    assert [each.content for each in report.dropped] == [false.content]
    assert true in report.playbook.active
    assert report.verdict is GateVerdict.CHECKED


def test_of_two_parts_of_one_rule_neither_goes() -> None:
    """Each by itself leaves half of it undone; without either something is lost."""

    class Halves(Clerk):
        async def complete(self, request: ModelRequest) -> Reply:
            system, user = request.messages
            parts = [line for line in system.content.splitlines() if line in ("- day first", "- with dots")]
            told = [line for line in system.content.splitlines() if line not in parts]
            told += ["- dates: day first, with dots"] if len(parts) == 2 else ["- dates: day and short month"] * len(parts)
            return await super().complete(replace(request, messages=(replace(system, content="\n".join(told)), user)))

    told = [rule for rule in GOOD if not rule.startswith("dates")]
    book = playbook([*told, "day first", "with dots"], "oslo")
    examination = Examination(evaluator=HeldOutEvaluator(store=open_store("memory:")), ask=NamedModel(Halves(orders())))
    assert asyncio.run(examination.examine(drawn(), book, Playbook(), id="e")).dropped == ()


def test_no_good_bullet_goes() -> None:
    report = examined(GOOD, config=ExaminationConfig())
    assert report.dropped == ()
    assert len(report.bullets) == len(GOOD)


def test_the_culprit_of_one_shop_is_named_in_every_setting() -> None:
    assert asyncio.run(culprits(Clerk, ["tokyo"], 60))


def test_fewer_than_thirty_groups_are_not_examinable() -> None:
    few = replace(drawn(), tasks=drawn().tasks[:20])
    report = examined(GOOD, few)
    assert report.verdict is GateVerdict.NOT_EXAMINABLE
    assert "30 are needed" in report.reason


def test_groups_count_and_not_requests() -> None:
    of_five = tuple(replace(each, task=replace(each.task, cluster=f"g{at % 5}")) for at, each in enumerate(drawn().tasks))
    report = examined(GOOD, replace(drawn(), tasks=of_five))
    assert report.verdict is GateVerdict.NOT_EXAMINABLE
    assert "5 clusters" in report.reason


def test_where_nothing_was_recorded_no_model_is_asked() -> None:
    budget = CallBudget()
    nobody = NamedModel(Scripted(), budget=budget)
    report = examined(GOOD, DrawnTasks(tasks=(), attempts=7), ask=nobody, budget=budget)
    assert report.verdict is GateVerdict.NOT_EXAMINABLE
    assert budget.calls == 0


def test_who_no_longer_makes_accepted_calls_is_refused() -> None:
    accepted = drawn(40, GOOD)
    assert accepted.kinds == {"accepted": 40}
    # The base clerk is the candidate here, and what was recorded is what the good rules made.
    examination = Examination(
        evaluator=HeldOutEvaluator(store=open_store("memory:")), ask=NamedModel(Clerk(orders())), config=ALONE
    )
    bad = playbook(["amounts: three digits", *[rule for rule in GOOD if not rule.startswith("amounts")]], "oslo")
    report = asyncio.run(examination.examine(accepted, bad, playbook(GOOD, "oslo"), id="e"))
    assert report.verdict is GateVerdict.REFUSED
    assert "no longer made" in report.reason


def test_a_candidate_without_a_gain_is_refused() -> None:
    report = examined(["amounts: plain number"])
    assert report.verdict is GateVerdict.REFUSED
    assert report.reason.startswith("no gain is shown")


def test_a_lookup_of_training_answers_is_refused_or_gains_nothing_far_away() -> None:
    assert asyncio.run(lookups(2))


def test_an_equal_candidate_is_seldom_checked() -> None:
    assert sum(checked_once(EqualWorld(groups=40, of_each=2), seed, looks=5) for seed in range(20)) <= 2


class Away:
    """A model that answers nobody, or only the first few."""

    name = "away"
    dialect: Dialect = "terse"
    deterministic = False

    def __init__(self, clerk: Clerk, answers: int) -> None:
        self.clerk, self.answers = clerk, answers

    async def complete(self, request: ModelRequest) -> Reply:
        self.answers -= 1
        if self.answers < 0:
            raise ModelError("away: nobody answers")
        return await self.clerk.complete(request)

    async def close(self) -> None:
        """There is nothing to give back."""


def test_a_model_that_is_away_is_unknown_and_not_wrong() -> None:
    report = examined(GOOD, model=Away(Clerk(orders()), 60))
    assert report.verdict is GateVerdict.NOT_EXAMINABLE
    assert "could not be compared" in report.reason
    assert report.conclusion.evaluation.losses == 0


@pytest.mark.parametrize("most", [1, 2, 50, 79, 200])
def test_the_calls_of_an_examination_are_planned_and_never_exceeded(most: int) -> None:
    budget = CallBudget(max_calls=most)
    report = examined(GOOD, ask=NamedModel(Clerk(orders()), budget=budget), budget=budget, config=ExaminationConfig())
    assert budget.calls <= most
    assert report.conclusion.evaluation.unknown == 0
    assert report.conclusion.evaluation.unknown_attempts == 0
    assert len(report.spared) + len(report.bullets) in (0, len(GOOD))


def test_at_most_two_hundred_requests_are_answered_by_both_sides() -> None:
    budget = CallBudget()
    config = ExaminationConfig(leave_one_out=False, most_tasks=10, trials=2)
    examined(GOOD, ask=NamedModel(Clerk(orders()), budget=budget), budget=budget, config=config)
    assert budget.calls == 2 * 10 * 2


def test_what_the_playbook_was_learned_from_is_left_out() -> None:
    known = fingerprints([each.task.question for each in drawn().tasks[:5]])
    told = replace(playbook(GOOD, "oslo"), trained_on=known)
    examination = Examination(
        evaluator=HeldOutEvaluator(store=open_store("memory:")), ask=NamedModel(Clerk(orders())), config=ALONE
    )
    report = asyncio.run(examination.examine(drawn(), told, Playbook(), id="e"))
    assert len(report.conclusion.evaluation.contaminated) == 5
    assert sum(report.kinds.values()) == len(drawn().tasks) - 5


def test_an_empty_playbook_cannot_be_examined() -> None:
    with pytest.raises(InputError, match="nothing to examine"):
        examined([])


def test_a_bullet_concerns_the_requests_that_it_is_shown_to_and_those_of_its_tool() -> None:
    tasks = drawn().tasks
    bullet = Bullet(id="b", content="x", domain="oslo", about="quote.date")
    book = Playbook(bullets=(bullet,))
    assert {each.tool for each in concerned(bullet, book, tasks)} == {"quote"}
    dated = Bullet(id="d", content="x", domain="oslo", about="order.date")
    of_it = concerned(dated, Playbook(bullets=(dated,)), drawn(80).tasks)
    assert {each.tool for each in of_it} == {"order"}
    assert all("date" in RecordedAnswer.loads(each.task.answer).arguments for each in of_it)
    other = replace(bullet, domain="lima")
    assert concerned(other, Playbook(bullets=(other,)), tasks) == []
    assert shown(book, replace(tasks[0].task, domain="general")) == (bullet,)


def test_a_key_goes_to_the_server_that_the_settings_name_and_to_no_other() -> None:
    upstreams = {"mine": UpstreamSettings(base_url="http://llm.internal/v1", key_env="MINE")}
    env = {"MINE": "k1", "OPENAI_API_KEY": "k2", "ANTHROPIC_API_KEY": "k3"}
    ask = asker(Settings(upstreams=upstreams), environment=env)
    assert isinstance(ask, RecordedServer)
    request = drawn().tasks[0].request

    def key(url: str, upstream: str = "") -> str:
        return ask.key(replace(request, base_url=url, upstream=upstream))

    assert key("http://llm.internal/v1", "mine") == "k1"
    assert key("http://elsewhere/v1", "mine") == ""
    assert key("https://api.openai.com/v1", "openai") == "k2"
    assert key("http://api.openai.com/v1") == ""
    assert key("https://api.anthropic.com") == "k3"
    assert key("https://api.openai.com.evil.example/v1") == ""


def test_a_model_that_somebody_names_is_asked_instead(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OPENAI_API_KEY", "k")
    over_http = asker(Settings(), model="openai:big@http://127.0.0.1:9/v1", environment={"OPENAI_API_KEY": "k"})
    assert isinstance(over_http, RecordedServer)
    request = drawn().tasks[0].request
    aimed = over_http.aim(request)
    assert (aimed.model, aimed.base_url, over_http.key(aimed)) == ("big", "http://127.0.0.1:9/v1", "k")
    assert isinstance(asker(Settings(), model="scripted:hello"), NamedModel)


def test_a_model_that_refuses_for_good_is_no_verdict() -> None:
    with pytest.raises(ModelRefused, match="Nothing could be examined"):
        examined(GOOD, model=Scripted(lambda _: ModelRefused("no key"), dialect="terse"))
