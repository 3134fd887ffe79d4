"""Who answers a live request: the model that a released policy chooses, and learned weights instead of the named model."""

import json
from collections import Counter
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from journeyman import Playbook
from journeyman.core.candidate import Candidate, Kind, ServedModel
from journeyman.core.errors import ReleaseError
from journeyman.core.playbook import Bullet
from journeyman.core.policy import Card
from journeyman.core.rollout import SLOT_KINDS, Arm, EventKind, Rollout, RolloutState, Slot
from journeyman.core.rollout_plan import RolloutPlan
from journeyman.experiments.agents import candidate_of
from journeyman.experiments.router import training
from journeyman.experiments.router.config import RouterConfig
from journeyman.experiments.router.training import Places
from journeyman.experiments.settings import Project
from journeyman.io.files import sha256
from journeyman.models import embedders
from journeyman.optimizers.router import outcomes
from journeyman.optimizers.router.objective import parse
from journeyman.serving.gateway.cascade import AnswerCheck
from journeyman.serving.monitor import Monitor
from journeyman.serving.releases.artifacts import KeepLoaded
from journeyman.stores import open_store
from journeyman.stores.artifacts import Artifacts
from journeyman.stores.rollouts import RolloutStore, open_rollouts
from journeyman.tracing.wire.dialects import Exchange
from tests.contracts.test_rollout_stores import NOON, begun, why
from tests.serving.gateway.test_passing import ask
from tests.serving.releases.test_live import drawing, live, until
from tests.support import ollama, routing
from tests.support.gateways import quick
from tests.support.upstream import Asked, Reply, Upstream, events, failed, ok, upstream

pytestmark = pytest.mark.service

SUM = "How many are 12 apples plus 30 coins? Compute the sum."
VERSE = "Write verse number 7 about stars that dream of ships, with a rhyme."
WEIGHTS = Candidate(kind=Kind.ADAPTER, body="a" * 64)
KEY = {"Authorization": "Bearer the-clients-own-key"}


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return tmp_path


@pytest.fixture
def store(folder: Path) -> Iterator[RolloutStore]:
    with open_rollouts(folder / "journeyman.db") as opened:
        yield opened


@pytest.fixture
def up() -> Iterator[Upstream]:
    with upstream() as made:
        made.answer = lambda asked: ok({})
        yield made


@pytest.fixture
def own() -> Iterator[Upstream]:
    """The server of learned weights."""
    with upstream() as made:
        made.answer = lambda asked: ok({})
        yield made


def body(model: str, question: str = "How much?") -> bytes:
    return json.dumps({"n": 1.0, "model": model, "messages": [{"role": "user", "content": question}]}, indent=1).encode()


def started(store: RolloutStore, candidate: Candidate, share: float, id: str = "r1") -> Rollout:
    slot = Slot(SLOT_KINDS[candidate.kind])
    arm = Arm(name="canary", candidate_id=candidate.id, digest=candidate.digest)
    rollout = replace(begun(id, candidate=candidate, slot=slot), created_at=NOON, arms=(arm,))
    store.start(rollout)
    rollout = rollout.then(EventKind.RAMP, why(), rollout.next_shares(share))
    store.advance(rollout)
    return rollout


def in_production(store: RolloutStore, candidate: Candidate, id: str = "r1") -> None:
    rollout = started(store, candidate, 1.0, id)
    store.advance(rollout.then(EventKind.PROMOTE, why(), {"canary": 1.0}).then(EventKind.CONCLUDE, why()))


def served_at(store: RolloutStore, own: Upstream, **more: Any) -> None:
    store.serve_model(ServedModel(candidate_id=WEIGHTS.id, url=own.url, model="desk-1", at=NOON, **more), why("deployed"))


def known(folder: Path, candidate: Candidate) -> Candidate:
    with open_store(folder / "journeyman.db") as opened:
        opened.add_candidate(candidate)
    return candidate


def policy(folder: Path) -> Candidate:
    """A router that was really trained, kept as training keeps it."""
    rows = outcomes.rows_of_files([routing.write(folder / "outcomes.jsonl", 600)])
    cards = {name: Card(name=name, input_price=1.0, output_price=1.0) for name in routing.RIGHT}
    project = Project(root=folder)
    with open_store(folder / "journeyman.db") as opened:
        places = Places(folder=folder / "router", store=opened, artifacts=Artifacts(project.artifacts))
        config = RouterConfig(objective=parse("quality - 20*cost"))
        trained = training.train(outcomes.table(rows, cards), embedders.load(), config, places)
    return trained.policy.candidate


def models(asked: list[Asked]) -> list[str]:
    return [json.loads(each.body)["model"] for each in asked]


def arms(exchange: Exchange) -> list[str]:
    return [where["arm"] for where in exchange.served.get("release", ())]


def fell_back(exchange: Exchange) -> bool:
    return any(where["fell_back"] for where in exchange.served.get("release", ()))


def test_a_released_policy_chooses_where_the_client_leaves_it_open(folder: Path, store: RolloutStore, up: Upstream) -> None:
    chosen = policy(folder)
    with live(folder / "journeyman.db", up) as (running, releases):
        assert ask(running.url, body=body("auto"))[0] == 200
        in_production(store, chosen)
        assert until(lambda: releases.state()["slots"])
        for question in (SUM, VERSE):
            status, headers, _ = ask(running.url, body=body("auto", question), headers={"X-Journeyman-Session": question})
            assert (status, headers["x-journeyman-release"]) == (200, chosen.id)
        ask(running.url, body=body("gpt-9", SUM))
    # Nobody had released a policy when the first came; the last one knew what it wanted.
    assert models(up.asked) == ["auto", "counter", "poet", "gpt-9"]
    # Every other byte is as it came.
    assert [up.asked[1].body, up.asked[2].body] == [body("counter", SUM), body("poet", VERSE)]
    first, *routed, last = running.memory.exchanges
    assert (first.served, last.served) == ({}, {})
    for exchange, worker in zip(routed, ("counter", "poet"), strict=True):
        choice = exchange.served["route"]
        assert (choice["worker"], choice["policy"], choice["propensity"]) == (worker, chosen.id, 1.0)
        assert {each["worker"] for each in choice["forecasts"]} == set(routing.RIGHT)
        assert exchange.labels["candidate"] == chosen.id


def _said(model: str, *, streamed: bool) -> Reply:
    """The cheap workers answer in a form that nobody asked for."""
    text = "42" if model == "sage" else "<answer>42</answer>"
    if not streamed:
        message = {"role": "assistant", "content": text}
        return ok({"id": f"c-{model}", "model": model, "choices": [{"index": 0, "finish_reason": "stop", "message": message}]})
    chunk = {"id": f"c-{model}", "object": "chat.completion.chunk", "model": model}
    deltas = ({"role": "assistant", "content": text[:1]}, {"content": text[1:]})
    chunks = [{**chunk, "choices": [{"index": 0, "delta": each, "finish_reason": None}]} for each in deltas]
    chunks.append({**chunk, "choices": [{"index": 0, "delta": {}, "finish_reason": "stop"}]})
    return events(*(json.dumps(each) for each in chunks), "[DONE]")


@pytest.mark.parametrize("streamed", [False, True])
def test_what_checks_say_is_no_good_is_asked_of_a_better_model_and_never_seen(
    folder: Path, store: RolloutStore, up: Upstream, streamed: bool
) -> None:
    in_production(store, policy(folder))
    up.answer = lambda asked: _said(json.loads(asked.body)["model"], streamed=streamed)
    with live(folder / "journeyman.db", up, check=AnswerCheck(["format_compliance"])) as (running, _):
        status, headers, answer = ask(running.url, body=body("auto", SUM))
        ask(running.url, body=body("counter", SUM))
        discarded, given, named = running.memory.some(3)
    assert status == 200
    assert answer == b"".join(_said("sage", streamed=streamed).pieces)
    # Whoever names a model gets its answer, whatever that is.
    assert models(up.asked) == ["counter", "sage", "counter"]
    assert (given.served["route"]["worker"], given.served["route"]["escalated"]) == ("counter", "sage")
    assert (json.loads(given.request)["model"], json.loads(discarded.request)["model"]) == ("sage", "counter")
    assert discarded.response == b"".join(_said("counter", streamed=streamed).pieces)
    assert discarded.id != given.id == headers["x-journeyman-request-id"]
    assert "escalated" not in discarded.served["route"]
    assert not named.served


def test_where_nobody_better_answers_the_first_answer_is_given(folder: Path, store: RolloutStore, up: Upstream) -> None:
    in_production(store, policy(folder))
    up.answer = lambda asked: failed(500) if b'"sage"' in asked.body else _said("counter", streamed=False)
    with live(folder / "journeyman.db", up, check=AnswerCheck(["format_compliance"])) as (running, _):
        status, _, answer = ask(running.url, body=body("auto", SUM))
        (given,) = running.memory.some(1)
    assert (status, answer) == (200, _said("counter", streamed=False).pieces[0])
    assert (models(up.asked), json.loads(given.request)["model"]) == (["counter", "sage"], "counter")


def test_learned_weights_answer_their_share_of_sessions_and_none_after_a_rollback(
    folder: Path, store: RolloutStore, up: Upstream, own: Upstream
) -> None:
    known(folder, WEIGHTS)
    served_at(store, own, replaces=("gpt-*",))
    with live(folder / "journeyman.db", up) as (running, releases):

        def chats(model: str = "gpt-9") -> None:
            for number in range(20):
                headers = {"X-Journeyman-Session": f"s{number}", **KEY}
                assert ask(running.url, body=body(model), headers=headers)[0] == 200

        rollout = started(store, WEIGHTS, 0.5)
        assert until(lambda: drawing(releases))
        chats()
        chats()
        assert len(own.asked) + len(up.asked) == 40
        assert len(own.asked) > 5
        assert len(up.asked) > 5
        # Its server is asked for its own model, without the key that was meant for another one.
        assert {each.body for each in own.asked} == {body("desk-1")}
        assert {each.header("authorization") for each in own.asked} == {None}
        assert {each.body for each in up.asked} == {body("gpt-9")}
        of_session: dict[str, set[str]] = {}
        for exchange in running.memory.exchanges:
            (arm,) = arms(exchange)
            of_session.setdefault(exchange.labels["session"], set()).add(arm)
            assert (exchange.labels.get("candidate") == WEIGHTS.id) == (arm == "canary")
        assert Counter(map(len, of_session.values())) == {1: 20}
        # A request for another model is none of theirs, nor of the test.
        before = len(running.memory.exchanges)
        chats("claude")
        assert not any(map(arms, running.memory.exchanges[before:]))
        own.asked.clear()
        store.advance(rollout.then(EventKind.ROLLBACK, why("it harms")))
        assert until(lambda: not drawing(releases))
        chats()
        assert not own.asked
        assert {each.body for each in up.asked[-20:]} == {body("gpt-9")}


def test_production_answers_what_a_candidate_does_not_which_counts_as_its_failure_and_stops_it(
    folder: Path, store: RolloutStore, up: Upstream, own: Upstream
) -> None:
    known(folder, WEIGHTS)
    served_at(store, own)
    own.answer = lambda asked: failed(500)
    with live(folder / "journeyman.db", up) as (running, releases):
        started(store, WEIGHTS, 0.5)
        assert until(lambda: drawing(releases))
        for number in range(40):
            assert ask(running.url, body=body("m"), headers={"X-Journeyman-Session": f"s{number}"})[0] == 200
        # Nobody has seen a failure, and the gateway's own brake has.
        tried = [each for each in running.memory.exchanges if fell_back(each)]
        assert 3 <= len(tried) <= 5
        assert len(own.asked) == len(tried)
        assert all(each.request == body("m") for each in tried)
        assert until(lambda: (found := store.rollout("r1")) is not None and found.state is RolloutState.ROLLED_BACK)
    assert {arm for each in tried for arm in arms(each)} == {"canary"}


def test_what_production_does_not_answer_either_is_not_the_candidates_failure(
    folder: Path, store: RolloutStore, up: Upstream, own: Upstream
) -> None:
    known(folder, WEIGHTS)
    served_at(store, own)
    own.answer = up.answer = lambda asked: failed(400)
    with live(folder / "journeyman.db", up) as (running, releases):
        started(store, WEIGHTS, 1.0)
        assert until(lambda: drawing(releases))
        for number in range(10):
            assert ask(running.url, body=body("m"), headers={"X-Journeyman-Session": f"s{number}"})[0] == 400
        assert not any(map(fell_back, running.memory.exchanges))
        assert not releases.state()["brakes"]


def test_route_weights_and_context_come_together(folder: Path, store: RolloutStore, up: Upstream, own: Upstream) -> None:
    chosen, weights = policy(folder), known(folder, WEIGHTS)
    playbook = candidate_of(Playbook(bullets=(Bullet(id="b-1", content="Say the price in cents."),)))
    assert playbook is not None
    known(folder, playbook)
    served_at(store, own, replaces=("counter",))
    with live(folder / "journeyman.db", up) as (running, releases):
        for number, each in enumerate((chosen, weights, playbook)):
            in_production(store, each, f"r{number}")
        assert until(lambda: len(releases.state()["slots"]) == 3)
        ask(running.url, body=body("auto", SUM))
        ask(running.url, body=body("auto", VERSE))
    assert (models(own.asked), models(up.asked)) == (["desk-1"], ["poet"])
    assert all(b"Say the price in cents." in each.body for each in (*own.asked, *up.asked))
    by_weights, by_poet = running.memory.exchanges
    assert by_weights.labels["candidate"] == f"{playbook.id},{chosen.id},{weights.id}"
    assert by_poet.labels["candidate"] == f"{playbook.id},{chosen.id}"
    assert by_weights.shown == ("b-1",)


def test_weights_that_nobody_serves_or_that_are_not_what_was_deployed_are_not_served(
    folder: Path, store: RolloutStore, up: Upstream, own: Upstream
) -> None:
    file = folder / "model.gguf"
    file.write_bytes(b"GGUF whatever")
    known(folder, WEIGHTS)
    with live(folder / "journeyman.db", up) as (running, releases):
        in_production(store, WEIGHTS)
        assert until(lambda: releases.state()["unservable"])
        assert "no server answers with the weights" in releases.state()["unservable"][WEIGHTS.id]
        served_at(store, own, file=str(file), digest=sha256(file))
        assert until(lambda: not releases.state()["unservable"])
        ask(running.url, body=body("m"))
        file.write_bytes(b"GGUF something else")
    with live(folder / "journeyman.db", up) as (running, releases):
        assert "is not what was deployed as desk-1" in releases.state()["unservable"][WEIGHTS.id]
        ask(running.url, body=body("m"))
    assert (models(own.asked), models(up.asked)) == (["desk-1"], ["m"])


def test_weights_that_are_needed_go_on_being_served(folder: Path, store: RolloutStore, own: Upstream) -> None:
    known(folder, WEIGHTS)
    served_at(store, own)
    in_production(store, WEIGHTS)
    nowhere = ServedModel(candidate_id=WEIGHTS.id, url="", model="desk-1", at=NOON)
    with pytest.raises(ReleaseError, match=r"answers the requests of weights:\*/\*; take it out of there first"):
        store.serve_model(nowhere, why("it is old"))
    store.undo(Slot.parse("weights"), why("it is old"))
    store.serve_model(nowhere, why("it is old"))
    assert not store.live().models
    assert store.verify() is None


def test_ollama_keeps_both_sides_of_an_open_rollout_loaded(folder: Path, store: RolloutStore, own: Upstream) -> None:
    new, known_elsewhere = (Candidate(kind=Kind.ADAPTER, body=letter * 64) for letter in "bc")
    now = [0.0]
    keep = KeepLoaded({"box": quick("http://127.0.0.1:1/v1")}, clock=lambda: now[0])
    monitor = Monitor(store, clock=lambda: NOON, keep_loaded=keep)

    def looked(seconds: float) -> list[tuple[str, Any]]:
        now[0] += seconds
        before = len(box.kept_loaded)
        assert monitor.once() is not None
        keep.wait(10)
        return box.kept_loaded[before:]

    with ollama.serving(folder / "blobs") as box:
        for name in ("desk-1:latest", "desk-2:latest"):
            box.models[name] = {"request": {}, "size": 1, "digest": "d"}
        served = {"desk-1": (WEIGHTS, f"{box.url}/v1"), "desk-2": (new, f"{box.url}/v1"), "m": (known_elsewhere, own.url)}
        for name, (candidate, url) in served.items():
            store.serve_model(ServedModel(candidate_id=known(folder, candidate).id, url=url, model=name, at=NOON), why())
        in_production(store, WEIGHTS)
        assert looked(0) == []

        arm = Arm(name="production", candidate_id=WEIGHTS.id, digest=WEIGHTS.digest)
        rollout = replace(
            begun("r2", candidate=new, slot=Slot.parse("weights"), baseline=arm, plan=RolloutPlan(holdback=0.5)),
            created_at=NOON,
        )
        store.start(rollout)
        both = [("desk-1", "600s"), ("desk-2", "600s")]
        assert [looked(seconds) for seconds in (0, 60, 179, 1)] == [both, [], [], both]
        # Also while the new one is in production, and some are held back.
        for kind, shares in ((EventKind.RAMP, {"canary": 0.5}), (EventKind.PROMOTE, {"canary": 0.5})):
            rollout = rollout.then(kind, why(), shares)
            store.advance(rollout)
        assert looked(240) == both
        # A server that is gone, or that is no Ollama, harms nobody.
        store.advance(rollout.then(EventKind.CONCLUDE, why()))
        other = replace(arm, candidate_id=new.id)
        store.start(begun("r3", candidate=known_elsewhere, slot=Slot.parse("weights:desk"), baseline=other))
        nowhere = ServedModel(candidate_id=new.id, url="box", model="desk-2", at=NOON)
        store.serve_model(nowhere, why())
        assert looked(240) == []
    assert [each.path for each in own.asked] == ["/api/version"]
