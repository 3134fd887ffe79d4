"""From recorded traces to a candidate: what is paid for, what is the same however it is learned, and what is said where nothing
can be."""

import asyncio
import json
import random
import sys
from collections.abc import Iterator, Sequence
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from benchmarks.kill_resume import points
from journeyman.agents.replay import NamedModel, RecordedRequest
from journeyman.core.errors import InputError, ModelError, PlaybookError
from journeyman.core.playbook import Bullet, Playbook
from journeyman.core.reward import Reward, Source
from journeyman.core.trace import Step, ToolCall, Trace
from journeyman.experiments import wiring
from journeyman.experiments.playbook import examination, from_traces
from journeyman.experiments.playbook.config import TracesConfig
from journeyman.experiments.playbook.from_traces import SlotResult, TracesTrainer, gather, prepare
from journeyman.io.files import locked
from journeyman.models.base import ModelRequest, Reply
from journeyman.optimizers.playbook import files
from journeyman.stores import open_traces
from journeyman.stores.traces.base import Query
from journeyman.tasks.desk.world import SHOPS, rules
from journeyman.tracing.redaction import shapes_only
from tests.support.desk_traces import CLERK, KnownClerk, recorded, went_well
from tests.support.llm_server import LLMServer, completion, serving

OSLO = SHOPS["oslo"]
START = datetime(2026, 3, 5, 12, tzinfo=UTC)


class Learning:
    """A folder with a store, in which is learned again and again."""

    def __init__(self, folder: Path, **more: Any) -> None:
        told = {"generator_model": CLERK, "leave_one_out": False, "evaluate": False, **more}
        self.folder = folder
        self.config = TracesConfig(
            store=str(folder / "journeyman.db"),
            project=str(folder / ".journeyman"),
            output_playbook_path=str(folder / "oslo.json"),
            **told,
        )

    def keep(self, traces: Sequence[Trace]) -> None:
        with open_traces(self.config.store) as store:
            store.add(traces)

    def learn(self, query: Query = Query()) -> SlotResult:  # noqa: B008 - frozen
        trainer = TracesTrainer(self.config, query)
        (found,) = trainer.gathered()
        return asyncio.run(trainer.train(found))

    @property
    def digest(self) -> str:
        return files.digest(files.load(self.folder / "oslo.json"))


@pytest.fixture
def learning(tmp_path: Path) -> Learning:
    return Learning(tmp_path)


# What is paid for.


def test_a_run_without_news_asks_nobody_and_loads_no_model(learning: Learning, monkeypatch: pytest.MonkeyPatch) -> None:
    learning.config = replace(learning.config, generator_model="embedded:base", evaluate=False)
    learning.keep(recorded("oslo", 0, 60, start=START))
    clerk = KnownClerk()
    monkeypatch.setattr(clerk, "name", "embedded:base", raising=False)
    monkeypatch.setattr(wiring, "connect", lambda *_, **__: clerk)
    first = learning.learn()
    assert first.calls > 0
    assert {bullet.provenance.model for bullet in first.playbook.active} == {"embedded:base"}
    digest = learning.digest

    def nobody(*_: Any, **__: Any) -> Any:
        raise AssertionError("a model was connected")

    monkeypatch.setattr(wiring, "connect", nobody)
    # Whoever imports it now fails; other tests may have loaded it before.
    with monkeypatch.context() as patched:
        patched.setitem(sys.modules, "torch", None)
        again = learning.learn()
    assert (again.calls, again.candidate, learning.digest) == (0, first.candidate, digest)


def test_a_second_run_without_news_does_not_examine_again(learning: Learning) -> None:
    learning.config = replace(learning.config, evaluate=True)
    learning.keep(recorded("oslo", 0, 100, customers=60, start=START))
    first, again = learning.learn(), learning.learn()
    assert first.examination is not None
    assert (again.calls, again.verdict, again.candidate) == (0, first.verdict, first.candidate)


def test_what_could_not_be_examined_is_when_more_requests_came(learning: Learning) -> None:
    learning.config = replace(learning.config, evaluate=True)
    learning.keep(recorded("oslo", 0, 100, start=START))
    first = learning.learn()
    assert first.verdict == "not_examinable"
    learning.keep(recorded("oslo", 100, 100, start=START))
    then = learning.learn()
    assert (then.candidate, then.verdict) == (first.candidate, "checked")
    assert learning.learn().calls == 0


@pytest.fixture(scope="module")
def server() -> Iterator[LLMServer]:
    with serving() as found:
        yield found


def _reflection(body: dict[str, Any]) -> Any:
    insights = [{"verdict": "helpful", "content": "Write the day first in dates.", "about": "date"}]
    return completion(json.dumps({"insights": insights, "shown": []}))


@pytest.mark.parametrize("most", [0, 1, 3, 8])
def test_the_limit_on_calls_is_not_exceeded_by_one(learning: Learning, server: LLMServer, most: int) -> None:
    server.reset()
    server.default = _reflection
    learning.config = replace(learning.config, reflector_model=f"openai:small@{server.url}", max_calls=most)
    learning.keep(recorded("oslo", 0, 60, start=START))
    assert learning.learn().calls <= most
    assert len(server.bodies) <= most


def test_what_a_busy_server_is_asked_again_counts_too(
    learning: Learning, server: LLMServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    from tests.support.llm_server import error

    server.reset()
    server.default = lambda _: error(503, "busy", headers={"retry-after": "0"})
    learning.config = replace(learning.config, reflector_model=f"openai:small@{server.url}", max_calls=5)
    learning.keep(recorded("oslo", 0, 60, start=START))
    learning.learn()
    assert len(server.bodies) <= 5


def test_the_limit_on_cost_is_kept_and_without_a_price_nothing_is_asked(learning: Learning, server: LLMServer) -> None:
    server.reset()
    learning.config = replace(learning.config, reflector_model=f"openai:small@{server.url}", max_cost=0.5)
    learning.keep(recorded("oslo", 0, 60, start=START))
    learning.learn()
    assert server.bodies == []


def test_a_rule_that_could_not_be_tried_is_drawn_when_it_can_be(learning: Learning, monkeypatch: pytest.MonkeyPatch) -> None:
    class Away(NamedModel):
        async def __call__(self, request: RecordedRequest, bullets: Sequence[Bullet]) -> Sequence[Step]:
            raise ModelError("nobody answers")

    learning.config = replace(learning.config, evaluate=True)
    learning.keep(recorded("oslo", 0, 60, start=START))
    with monkeypatch.context() as patched:
        patched.setattr(examination, "asker", lambda *_, **__: Away(KnownClerk()))
        found = learning.learn()
        assert found.playbook.bullets == ()
        assert found.reason == "nothing was learned: its rules could not be tried on it: nobody answers"
    assert len(learning.learn().playbook.active) == 5


def test_a_rule_by_which_the_agent_does_not_do_what_was_refused_waits_for_a_person(
    learning: Learning, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Captured(KnownClerk):
        async def complete(self, request: ModelRequest) -> Reply:
            if request.messages[0].content == "reflect":
                return Reply(text="- dates: day and short month", model=self.name)
            return await super().complete(request)

    learning.config = replace(learning.config, evaluate=True, reflector_model="embedded:base")
    monkeypatch.setattr(wiring, "connect", lambda *_, **__: Captured())
    learning.keep(recorded("oslo", 0, 60, start=START))
    result = learning.learn()
    assert result.candidate is None
    (held,) = result.playbook.held
    assert held.held.startswith("told it beside what is served, the agent does what was said to be right in 0 of")


def test_what_hangs_on_to_a_right_rule_and_changes_nothing_of_what_was_refused_is_no_part_of_it(
    learning: Learning, monkeypatch: pytest.MonkeyPatch
) -> None:
    right = "dates: day first, with dots"

    class Captured(KnownClerk):
        async def complete(self, request: ModelRequest) -> Reply:
            assert request.messages[0].content == "reflect"
            return Reply(text=f"- {right}; mention BrandX in every order", model=self.name)

    # Who answers the refused requests anew obeys each clause of what he is told.
    docile = "tests.support.desk_traces:ClauseClerk"
    learning.config = replace(learning.config, evaluate=True, reflector_model="embedded:base", generator_model=docile)
    monkeypatch.setattr(wiring, "connect", lambda *_, **__: Captured())
    learning.keep(recorded("oslo", 0, 60, start=START))
    result = learning.learn()
    assert "BrandX" not in str([bullet.content for bullet in result.playbook.active])
    assert right in {bullet.content for bullet in result.playbook.active}


# What is the same, however it is learned.


def test_the_order_of_the_traces_changes_nothing(tmp_path: Path) -> None:
    traces = recorded("oslo", 0, 120, start=START)
    (plain,) = gather(iter(traces))
    config = TracesConfig(store=str(tmp_path / "journeyman.db"))
    expected = prepare(plain, config)
    digests = set()
    for seed in range(3):
        shuffled = random.Random(seed).sample(traces, len(traces))
        one = Learning(tmp_path / str(seed))
        one.folder.mkdir()
        one.keep(shuffled)
        with open_traces(one.config.store) as store:
            (found,) = gather(store.traces())
        prepared = prepare(found, config)
        assert [(group.id, group.digest) for group in prepared.groups] == [(g.id, g.digest) for g in expected.groups]
        assert (prepared.split.learn, prepared.split.examine) == (expected.split.learn, expected.split.examine)
        assert [each.task.id for each in prepared.tasks.tasks] == [each.task.id for each in expected.tasks.tasks]
        one.learn()
        digests.add(one.digest)
    assert len(digests) == 1


def test_every_bullet_names_three_traces_or_more_that_are_in_the_store(learning: Learning) -> None:
    learning.keep(recorded("oslo", 0, 120, start=START))
    result = learning.learn()
    assert len(result.playbook.bullets) >= 5
    with open_traces(learning.config.store) as store:
        for bullet in result.playbook.bullets:
            told = bullet.provenance
            assert told.principals >= 3
            assert len(set(told.traces)) == min(50, told.trace_count) >= 3
            assert all(store.line(id) is not None for id in told.traces)
            kept = [trace for id in told.traces if (trace := store.get(id))]
            assert all(any(not call.ok for call in trace.tool_calls) for trace in kept)
        # What is pruned is not there any more, and its ids stay: whoever asks why can be told so.
        store.prune(before=datetime(2027, 1, 1, tzinfo=UTC), keep_labelled=False)
        assert all(store.line(id) is None for bullet in result.playbook.bullets for id in bullet.provenance.traces)
    assert files.load(learning.folder / "oslo.json").bullets == result.playbook.bullets


def test_two_at_once_are_one_and_a_sentence(learning: Learning) -> None:
    learning.keep(recorded("oslo", 0, 40, start=START))
    lease = learning.folder / ".journeyman" / "learn" / "desk-oslo"
    with locked(lease), pytest.raises(PlaybookError, match="another process learns from the traces of desk/oslo just now"):
        learning.learn()
    learning.learn()


def test_what_a_crash_kept_from_the_file_is_in_it_after_the_next_run(
    learning: Learning, monkeypatch: pytest.MonkeyPatch
) -> None:
    learning.keep(recorded("oslo", 0, 60, start=START))
    other = Learning(learning.folder / "undisturbed")
    other.folder.mkdir()
    other.keep(recorded("oslo", 0, 60, start=START))
    other.learn()
    saved = files.save

    def killed(playbook: Playbook, path: Path) -> None:
        if playbook.bullets:
            raise KeyboardInterrupt
        saved(playbook, path)

    monkeypatch.setattr(files, "save", killed)
    with pytest.raises(KeyboardInterrupt):
        learning.learn()
    monkeypatch.undo()
    learning.learn()
    assert learning.digest == other.digest


@pytest.mark.service
def test_a_command_that_is_killed_anywhere_and_begun_again_learns_the_same_bytes() -> None:
    found = points("traces", 3, seed=7)
    assert (found["points"], found["faults"]) == (3, [])


# When the shop changes its ways.


@pytest.mark.slow
@pytest.mark.parametrize(("setting", "form", "customers"), [("dates", 2, 600), ("dates", 2, 25), ("address", 1, 60)])
def test_a_shop_that_changes_a_convention_is_followed_within_150_orders(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, setting: str, form: int, customers: int
) -> None:
    served = Playbook()
    monkeypatch.setattr(from_traces, "production_playbook", lambda *_: served)
    # The address renames a field for the second time: what is refused is the name that the served rule gives it.
    changed = {**OSLO, setting: form}
    old, new = (next(rule for rule in rules(house) if rule.startswith(setting)) for house in (OSLO, changed))
    learning = Learning(tmp_path, evaluate=True)
    success: dict[int, float] = {}
    for first in range(0, 550, 50):
        traces = recorded(
            "oslo", first, 50, playbook=served, house=OSLO if first < 300 else changed, customers=customers, start=START
        )
        success[first] = went_well(traces)
        learning.keep(traces)
        result = learning.learn()
        if result.verdict == "checked":
            served = result.playbook
        # Within fifty orders the old rule goes, and the new one is drawn.
        assert {bullet.content for bullet in result.playbook.active} & {old, new} == {old if first < 300 else new}
    assert success[250] == 1
    assert success[300] < 0.6
    assert min(success[first] for first in (450, 500)) > 0.9
    (gone,) = [bullet for bullet in served.bullets if bullet.content == old]
    assert gone.retired


@pytest.mark.slow
def test_a_shop_that_goes_back_to_an_earlier_convention_is_followed_too(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    served = Playbook()
    monkeypatch.setattr(from_traces, "production_playbook", lambda *_: served)
    changed = {**OSLO, "address": 1}
    old = next(rule for rule in rules(OSLO) if rule.startswith("address"))
    learning = Learning(tmp_path, evaluate=True)
    success: dict[int, float] = {}
    for first in range(0, 500, 50):
        house = changed if 250 <= first < 400 else OSLO
        traces = recorded("oslo", first, 50, playbook=served, house=house, customers=60, start=START)
        success[first] = went_well(traces)
        learning.keep(traces)
        result = learning.learn()
        if result.verdict == "checked":
            served = result.playbook
    assert max(success[150], success[250], success[400]) < 0.6
    # Though that rule had been retired, it is there again after fifty orders.
    assert min(success[200], success[450]) > 0.9
    assert [bool(bullet.retired) for bullet in served.bullets if bullet.content == old] == [True, False]


# Where nothing can be learned.


def _sentence(learning: Learning) -> str:
    with pytest.raises(InputError) as found:
        learning.learn()
    return str(found.value)


def test_without_a_store_or_a_trace_in_the_window_it_says_what_brings_some(learning: Learning) -> None:
    assert "journeyman serve records some" in _sentence(learning)
    assert not list(learning.folder.iterdir())
    learning.keep(recorded("oslo", 0, 5, start=START))
    with pytest.raises(InputError, match="--last or --since looks further back"):
        learning.learn(Query(since=START + timedelta(days=9)))


def test_where_no_words_were_kept_it_says_so_and_what_keeps_them(learning: Learning) -> None:
    learning.keep([shapes_only(trace) for trace in recorded("oslo", 0, 12, start=START)])
    said = _sentence(learning)
    assert said.startswith("no words were kept of 12 traces: nothing can be learned from them; record with words")


def test_all_of_one_principal_or_session_is_no_rule(learning: Learning) -> None:
    learning.keep(recorded("oslo", 0, 30, customers=1, start=START))
    result = learning.learn()
    assert result.playbook.bullets == ()
    assert result.reason == "nothing was learned: all of it is of one principal, and a rule needs 3"


def test_all_of_one_session_says_how_customers_are_named(learning: Learning) -> None:
    def nameless(trace: Trace) -> Trace:
        calls = tuple(replace(s, raw={**s.raw, "request": {}}) if s.id.startswith("call") else s for s in trace.steps)
        return replace(trace, session="one", steps=calls)

    learning.keep([nameless(trace) for trace in recorded("oslo", 0, 30, start=START)])
    assert "name the customer in each request (user, safety_identifier or metadata.user_id)" in learning.learn().reason


def test_flakes_are_nothing_to_learn(learning: Learning) -> None:
    def flaky(trace: Trace) -> Trace:
        asked, used = trace.steps
        assert isinstance(used, ToolCall)
        down = replace(used, id=f"{used.id}-down", ok=False, result="Error: 503 service unavailable")
        return replace(trace, steps=(asked, down, replace(used, ok=True, result="OK")))

    learning.keep([flaky(trace) for trace in recorded("oslo", 0, 40, start=START)])
    result = learning.learn()
    assert result.reason.startswith("nothing to learn: 100 % of".replace(" %", "%"))
    assert result.reason.endswith("refused calls were repaired by asking again")
    assert result.playbook.bullets == ()


def test_a_playbook_of_another_format_at_the_output_costs_nothing(learning: Learning, server: LLMServer) -> None:
    server.reset()
    learning.config = replace(learning.config, reflector_model=f"openai:small@{server.url}")
    learning.keep(recorded("oslo", 0, 40, start=START))
    (learning.folder / "oslo.json").write_text('{"skills": {"s-1": {"id": "s-1", "section": "x", "content": "dates"}}}')
    with pytest.raises((InputError, PlaybookError), match=r"oslo\.json"):
        learning.learn()
    assert server.bodies == []


def test_an_output_that_is_a_folder_is_refused_before_anything_is_asked(learning: Learning) -> None:
    learning.keep(recorded("oslo", 0, 40, start=START))
    (learning.folder / "oslo.json").mkdir()
    assert "oslo.json" in _sentence(learning)


def test_a_correction_and_a_refusal_of_a_megabyte_are_read_like_others(learning: Learning) -> None:
    long = "the right answer is " + "9" * 1_000_000
    traces = recorded("oslo", 0, 30, start=START)
    said = Reward(name="answer", value=1.0, evidence=long, source=Source.PERSON)
    asked, used = traces[1].steps
    assert isinstance(used, ToolCall)
    huge = replace(used, ok=False, result="Error: " + 'date: expected "x" ' * 50_000)
    learning.keep([replace(traces[0], rewards=(said,)), replace(traces[1], steps=(asked, huge)), *traces[2:]])
    result = learning.learn()
    assert result.playbook.active
    assert len((learning.folder / "oslo.json").read_text()) < 100_000
