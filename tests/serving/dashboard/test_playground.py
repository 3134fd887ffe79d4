"""A recorded step is asked again with another playbook or another model, from a trace's page."""

import re
import socketserver
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import replace
from datetime import UTC, datetime
from html import unescape
from pathlib import Path
from typing import Any

import pytest

from journeyman.cli.trace_view import show_answers
from journeyman.core.candidate import Candidate, Kind
from journeyman.core.playbook import Bullet, Playbook
from journeyman.core.reward import Reward
from journeyman.core.trace import OWN_AGENT, Message, ModelCall, Trace
from journeyman.experiments import playground
from journeyman.experiments.playbook.from_traces import gather
from journeyman.experiments.playbook.recorded_tasks import of_live_traffic
from journeyman.experiments.playground import ReplayedStep, ReplayServers, StepAnswer
from journeyman.experiments.settings import Settings, UpstreamSettings
from journeyman.optimizers.playbook import files
from journeyman.serving.dashboard.experiments import ProjectStores
from journeyman.serving.dashboard.layout import Guard
from journeyman.stores import open_store
from journeyman.stores.traces.base import Query, TraceStore
from tests.serving.dashboard.test_pages import words_of
from tests.support.llm_server import Answer, LLMServer, completion, error, serving
from tests.support.pages import Visitor, visitor
from tests.support.projects import CASE, NEW, project

pytestmark = pytest.mark.service

RELEASES = "a-token-for-releases"
KEYS = "A_SERVERS_KEY"
NOON = datetime(2026, 3, 4, 12, tzinfo=UTC)


def answers(body: dict[str, Any]) -> Answer:
    """A city, as the prompt wants it."""
    told = CASE.content in str(body["messages"])
    return completion("Oslo" if told else "Bergen", model=body["model"])


@pytest.fixture
def model() -> Iterator[LLMServer]:
    with serving() as server:
        server.default = answers
        yield server


def asked(url: str, *, id: str = "t1", question: str = "Where is Norway's king?", reply: str = "Bergen", **told: Any) -> Trace:
    """A trace of one question that a server at a URL answered."""
    call = ModelCall(
        id="c1", model="gpt-5-mini", prompt=f"user: {question}", reply=reply, cost=0.0004,
        messages=(Message(role="system", text="One word."), Message(role="user", text=question)),
        input_tokens=20, output_tokens=2, seconds=0.5, raw={"request": told, "base_url": url, "upstream": "mine"},
    )  # fmt: skip
    return Trace(id=id, task_id="k", candidate_id="base", started_at=NOON, steps=(call,), source="gateway", agent="desk")


def pages_before(url: str, store: TraceStore, guard: Guard, folder: Path) -> Visitor:
    """Of a gateway that knows one server."""
    there = UpstreamSettings(base_url=url, apis=("openai",), key_env=KEYS)
    servers = ReplayServers(settings=Settings(upstreams={"mine": there}), servers={"mine": there})
    stores = ProjectStores(folder / "journeyman.db", release_tokens=[RELEASES], folder=folder)
    return visitor(store, guard, project=stores, servers=servers)


@pytest.fixture
def pages(store: TraceStore, guard: Guard, tmp_path: Path, model: LLMServer) -> Visitor:
    project(tmp_path / "journeyman.db")
    store.add([asked(model.url)])
    return pages_before(model.url, store, guard, tmp_path)


def form(page: str, method: str) -> dict[str, str]:
    """The fields of a form as a browser without a script sends them: what is hidden, typed or chosen."""
    (body,) = re.findall(rf'<form class="\w+" method="{method}" action="/playground">(.*?)</form>', page, re.DOTALL)
    fields = {name: value for name, value in re.findall(r'<input[^>]*name="(\w+)" value="([^"]*)"', body)}
    for name, options in re.findall(r'<select name="(\w+)">(.*?)</select>', body):
        chosen = re.search(r'value="([^"]*)" selected', options) or re.search(r'value="([^"]*)"', options)
        fields[name] = chosen[1] if chosen else ""
    return {name: unescape(value) for name, value in fields.items()}


def sent(pages: Visitor, path: str, **typed: str) -> str:
    """Choose, read the price, ask; the page that shows what came."""
    asked = form(pages.read(path), "get") | typed
    priced = pages.client.get("/playground", params=asked, headers={"accept": "text/html"})
    assert priced.status_code == 200, priced.text
    answer = pages.client.post(
        "/playground",
        data={**form(priced.text, "post"), "key": RELEASES},
        headers={"accept": "text/html", "sec-fetch-site": "same-origin"},
        follow_redirects=False,
    )
    assert answer.status_code == 303, answer.text
    return pages.read(answer.headers["location"])


def test_a_step_is_asked_again_with_a_playbook_from_the_traces_page_and_the_difference_is_shown(
    pages: Visitor, guard: Guard, store: TraceStore, model: LLMServer
) -> None:
    assert pages.send("/labels", token=guard.form_token, trace="t1", metric="correct_answer", value="Oslo")[0] == 303
    (button,) = re.findall(r'<a class="again" href="([^"]+)"', pages.read("/traces/t1"))
    before = words_of(pages.read(unescape(button)))
    assert ("✗ wrong" in before, "when it was recorded it cost $0.0004" in before) == (True, True)
    assert model.bodies == []
    page = sent(pages, unescape(button), playbook=NEW.id)
    assert ("<del>Bergen</del>" in page, "<ins>Oslo</ins>" in page) == (True, True)
    assert "<title>✓ right · Step 1 · Playground · Journeyman</title>" in page
    assert ("20 → 2" in page, "7 → 3" in page) == (True, True)
    (body,) = model.bodies
    assert [each["role"] for each in body["messages"]] == ["system", "user"]
    assert CASE.content in body["messages"][0]["content"]


def test_another_model_is_asked_at_the_same_server(pages: Visitor, model: LLMServer) -> None:
    page = sent(pages, "/playground?trace=t1", model="gpt-5")
    assert model.bodies[0]["model"] == "gpt-5"
    assert CASE.content not in str(model.bodies[0])
    assert "gpt-5</td>" in page
    assert ("<del>" in page, "nobody can say" in words_of(page).lower()) == (False, True)


def test_where_no_price_is_known_that_is_said_before_anything_is_spent(pages: Visitor, model: LLMServer) -> None:
    told = words_of(pages.read("/playground?trace=t1&step=1"))
    assert "its provider alone says what it costs" in told


def test_what_was_asked_is_an_attempt_of_our_own_and_no_evidence(pages: Visitor, guard: Guard, store: TraceStore) -> None:
    assert pages.send("/labels", token=guard.form_token, trace="t1", metric="correct_answer", value="Oslo")[0] == 303
    sent(pages, "/playground?trace=t1&step=1", playbook=NEW.id)
    (kept,) = store.traces(Query(task_id="playground"))
    assert (kept.agent, kept.source, kept.held_out, kept.candidate_id) == (OWN_AGENT, "run", True, NEW.id)
    assert kept.raw["playground"] == {"trace": "t1", "step": 1, "by": "ana"}
    (slot,) = [each for each in gather(iter([kept])) if each.slot.agent == OWN_AGENT]
    assert (slot.attempts, sum(slot.left_out.values())) == ((), 1)
    assert of_live_traffic([kept], least=0) == ()
    assert "playground" in pages.read("/traces?task=playground")


def test_who_has_no_release_token_or_no_forms_token_spends_nothing(pages: Visitor, guard: Guard, model: LLMServer) -> None:
    fields: dict[str, Any] = {"trace": "t1", "step": "1", "server": "mine", "model": "gpt-5-mini", "playbook": ""}
    assert pages.send("/playground", token=guard.form_token, key="another", **fields)[0] == 403
    assert pages.send("/playground", token="0" * 64, key=RELEASES, **fields)[0] == 403
    assert model.bodies == []


def test_nobody_is_asked_but_the_gateways_own_servers(
    pages: Visitor, guard: Guard, store: TraceStore, model: LLMServer
) -> None:
    """What a trace says of where it came from is a stranger's word."""
    fields: dict[str, Any] = {"token": guard.form_token, "key": RELEASES, "trace": "t1", "step": "1", "playbook": ""}
    status, said = pages.send("/playground", server="http://169.254.169.254", model="m", **fields)
    assert (status, "is none of mine" in unescape(said)) == (400, True)
    assert model.bodies == []


def test_an_answer_that_did_not_come_is_kept_and_shown(pages: Visitor, store: TraceStore, model: LLMServer) -> None:
    model.default = lambda body: error(500, "overloaded")
    page = words_of(sent(pages, "/playground?trace=t1&step=1"))
    assert "answered 500" in page
    (kept,) = store.traces(Query(task_id="playground"))
    assert kept.error is not None
    assert len(model.bodies) == 1


@pytest.mark.parametrize(
    ("path", "status", "said"),
    [
        ("/playground?trace=nobody", 404, "no such trace"),
        ("/playground?trace=t1&step=7", 400, "those are 1"),
        ("/playground?trace=t1&step=x", 400, "no number of a step"),
        ("/playground?trace=t1&step=1&playbook=nobody", 400, "nobody"),
        ("/playground?trace=t1&step=1&server=elsewhere", 400, "is none of mine"),
    ],
)
def test_what_cannot_be_asked_is_said_in_one_sentence(pages: Visitor, path: str, status: int, said: str) -> None:
    assert said in unescape(pages.read(path, status))


# What strangers wrote, and servers that misbehave.

ATTACK = "</td><script>alert(1)</script><img src=x onerror=alert(2)>"


def test_nothing_that_a_stranger_wrote_is_markup_on_the_page(
    store: TraceStore, guard: Guard, tmp_path: Path, model: LLMServer
) -> None:
    project(tmp_path / "journeyman.db")
    recorded = asked(model.url, question=ATTACK, reply=ATTACK)
    store.add([replace(recorded, steps=(replace(recorded.calls[0], model=ATTACK),), domain=ATTACK)])
    model.default = lambda body: completion(f"{ATTACK} {body['model']}", model=ATTACK)
    pages = pages_before(model.url, store, guard, tmp_path)
    for page in (pages.read("/playground?trace=t1"), sent(pages, "/playground?trace=t1", model=f"m{ATTACK}")):
        assert page.count("&lt;script&gt;alert(1)") > 2
        assert not re.search(r"<script>alert|<img src=x", page)
    assert model.bodies[0]["model"] == f"m{ATTACK}"


@pytest.mark.parametrize("model_name", ["openai:evil", "http://169.254.169.254/v1", "evil@http://169.254.169.254", "../../v2"])
def test_the_name_of_a_model_leads_to_no_other_server(pages: Visitor, model: LLMServer, model_name: str) -> None:
    sent(pages, "/playground?trace=t1", model=model_name)
    assert [each["model"] for each in model.bodies] == [model_name]


def test_a_step_with_a_huge_input_is_shown_in_part_and_sent_whole(
    store: TraceStore, guard: Guard, tmp_path: Path, model: LLMServer
) -> None:
    project(tmp_path / "journeyman.db")
    question = "Where is Norway's king? " * 350_000
    store.add([asked(model.url, question=question)])
    pages = pages_before(model.url, store, guard, tmp_path)
    assert len(pages.read("/playground?trace=t1")) < 100_000
    assert len(sent(pages, "/playground?trace=t1")) < 100_000
    assert model.bodies[0]["messages"][-1]["content"] == question


def test_a_playbook_of_ten_megabytes_is_shown_in_part_and_sent_whole(pages: Visitor, tmp_path: Path, model: LLMServer) -> None:
    bullets = tuple(Bullet(id=f"b-{n}", content=f"{n} " + "Write it out. " * 7000) for n in range(100))
    large = Candidate(kind=Kind.PLAYBOOK, body=files.dumps(Playbook(bullets=bullets)))
    with open_store(tmp_path / "journeyman.db") as kept:
        kept.add_candidate(large)
    page = sent(pages, "/playground?trace=t1", playbook=large.id)
    assert len(page) < 200_000
    assert len(model.bodies[0]["messages"][0]["content"]) > 9_000_000


@pytest.mark.parametrize(
    "headers",
    [
        {"origin": "http://evil.example", "sec-fetch-site": "cross-site"},
        {"origin": "http://localhost:9999", "sec-fetch-site": "same-site"},
        {"origin": "http://evil.example"},
    ],
)
def test_a_form_of_another_origin_spends_nothing(
    pages: Visitor, guard: Guard, store: TraceStore, model: LLMServer, headers: dict[str, str]
) -> None:
    fields = {"token": guard.form_token, "key": RELEASES, "trace": "t1", "step": "1"}
    answer = pages.client.post("/playground", data=fields, headers={"accept": "text/html", **headers})
    assert (answer.status_code, "sent by another site, so nothing was done" in answer.text) == (403, True)
    assert (model.bodies, list(store.traces(Query(task_id="playground")))) == ([], [])


@pytest.mark.parametrize("token", [None, "", "0", "0" * 64, "no hexadecimal digits"])
def test_a_form_without_the_pages_own_token_spends_nothing(pages: Visitor, model: LLMServer, token: str | None) -> None:
    fields: dict[str, Any] = {"key": RELEASES, "trace": "t1", "step": "1", **({} if token is None else {"token": token})}
    status, said = pages.send("/playground", **fields)
    assert (status, "so nothing was done" in said, model.bodies) == (403, True, [])


def test_of_two_at_once_one_is_asked_and_the_other_told_to_wait(
    pages: Visitor, guard: Guard, store: TraceStore, model: LLMServer
) -> None:
    go, first = threading.Event(), list[int]()
    model.default = lambda body: replace(answers(body), once=go)
    fields: dict[str, Any] = {"key": RELEASES, "trace": "t1", "step": "1"}
    asking = threading.Thread(target=lambda: first.append(pages.send("/playground", token=guard.form_token, **fields)[0]))
    asking.start()
    until = time.monotonic() + 20
    while not model.bodies and time.monotonic() < until:
        time.sleep(0.01)
    status, said = pages.send("/playground", token=guard.form_token, **fields)
    go.set()
    asking.join(timeout=20)
    assert (status, "wait for its answer" in said, first) == (409, True, [303])
    assert (len(model.bodies), len(list(store.traces(Query(task_id="playground"))))) == (1, 1)
    assert pages.send("/playground", token=guard.form_token, **fields)[0] == 303


def test_a_key_that_a_server_says_again_is_not_shown_even_in_part(
    pages: Visitor, store: TraceStore, model: LLMServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    key = "kq7-" + "0123456789abcdef" * 3
    monkeypatch.setenv(KEYS, key)
    wrong = f"{'x' * 150} wrong key: {key}"
    for answer in (error(401, wrong), error(200, wrong), Answer(body=wrong), Answer(status=403, body=f"{'x' * 190}{key}")):
        model.answers.append(answer)
        page = sent(pages, "/playground?trace=t1")
        assert ('class="error"' in page, "kq7" in page) == (True, False)
    assert [each["authorization"] for each in model.headers] == [f"Bearer {key}"] * 4
    assert "kq7" not in repr(list(store.traces(Query(task_id="playground"))))


HALF = completion("Oslo").body[:60]


@pytest.mark.parametrize(
    ("answer", "said"),
    [
        (Answer(body=HALF), "no answer that can be used: unreadable: the answer is no JSON object"),
        (replace(completion("Oslo"), cut=True), "hung up before its answer was whole"),
        (Answer(body=""), "no answer that can be used: empty: there was no answer"),
        (Answer(body="[]"), "no answer that can be used"),
        (Answer(body='{"choices": "none"}'), "no text"),
        (Answer(body='data: {"choices": [{"delta": {"content": "Os"}}]}\n\n'), "no answer that can be used"),
    ],
    ids=["half", "cut", "empty", "list", "strange", "stream"],
)
def test_half_an_answer_is_no_answer_and_said_in_one_sentence(
    pages: Visitor, store: TraceStore, model: LLMServer, answer: Answer, said: str
) -> None:
    model.default = lambda body: answer
    page = sent(pages, "/playground?trace=t1")
    assert said in words_of(page)
    (kept,) = store.traces(Query(task_id="playground"))
    assert (kept.output or "", len(kept.rewards)) == ("", 0)


@contextmanager
def endless(piece: bytes, pause: float) -> Iterator[str]:
    """A server that begins an answer and never ends it."""
    over = threading.Event()

    class Handler(socketserver.BaseRequestHandler):
        def handle(self) -> None:
            self.request.recv(65536)
            with suppress(OSError):
                self.request.sendall(b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\n\r\n")
                while not over.wait(pause):
                    self.request.sendall(piece)

    class Server(socketserver.ThreadingTCPServer):
        daemon_threads = True

    with Server(("127.0.0.1", 0), Handler) as server:
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.05}, daemon=True)
        thread.start()
        try:
            yield f"http://127.0.0.1:{server.server_address[1]}/v1"
        finally:
            over.set()
            server.shutdown()
            thread.join(timeout=10)


@pytest.mark.parametrize(
    ("piece", "pause", "said"),
    [
        (b'data: {"choices": [{"delta": {"content": "Oslo "}}]}\n\n', 0.05, "did not answer within 0.5 s"),
        (b'data: {"choices": [{"delta": {"content": "' + b"x" * 2_000_000 + b'"}}]}\n\n', 0.0, "too long to be read"),
    ],
    ids=["slow", "fast"],
)
def test_an_answer_without_end_is_given_up(
    store: TraceStore, guard: Guard, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, piece: bytes, pause: float, said: str
) -> None:
    project(tmp_path / "journeyman.db")
    # Nobody waits here for two minutes, and 16 MB are read in less than these.
    monkeypatch.setattr(playground, "_SECONDS", 0.5 if pause else 60.0)
    with endless(piece, pause) as url:
        store.add([asked(url)])
        page = sent(pages_before(url, store, guard, tmp_path), "/playground?trace=t1")
    assert said in words_of(page)
    (kept,) = store.traces(Query(task_id="playground"))
    assert (kept.error is not None, kept.steps) == (True, ())


def test_a_trace_that_only_says_that_it_was_asked_here_breaks_no_page(pages: Visitor, store: TraceStore) -> None:
    for number, told in enumerate(["no mapping", {"trace": "t1", "step": "1x"}, {"trace": ["t1"], "step": None}, {}]):
        store.add([replace(asked("", id=f"liar{number}"), raw={"playground": told})])
        assert "Asked again</th>" not in pages.read(f"/playground?trace=t1&answer=liar{number}")


def test_a_limit_in_the_words_of_another_api_promises_nothing_about_the_cost(
    store: TraceStore, guard: Guard, tmp_path: Path, model: LLMServer
) -> None:
    project(tmp_path / "journeyman.db")
    step = ReplayedStep.of(asked("https://api.openai.com/v1", max_output_tokens=1))
    known = UpstreamSettings(base_url="https://api.openai.com/v1", apis=("openai",))
    ask = ReplayServers(settings=Settings(upstreams={"mine": known}), servers={"mine": known}).asker(step.request, "mine")
    most, plain = step.most(ask), ReplayedStep.of(asked("https://api.openai.com/v1")).most(ask)
    assert most is not None
    assert plain is not None
    assert most >= plain


@pytest.mark.parametrize(
    ("answer", "said"),
    [
        ({"verdict": Reward(name="right", value=1.0, evidence="as it should be")}, "✓ right"),
        ({"verdict": Reward(name="right", value=0.0, evidence="it was Oslo")}, "✗ wrong: it was Oslo"),
        ({"verdict": Reward(name="right", value=0.0)}, "✗ wrong"),
        ({"verdict": Reward(name="right", value=0.5, evidence="half")}, "0.50: half"),
        ({"verdict": Reward(name="right", value=None)}, "nobody can say"),
        ({}, "nobody can say"),
        ({"error": "ModelBusy: no", "verdict": Reward(name="right", value=1.0)}, "ModelBusy: no"),
    ],
)
def test_a_verdict_is_said_in_the_same_words_on_the_page_and_in_the_terminal(
    answer: dict[str, Any], said: str, capsys: pytest.CaptureFixture[str]
) -> None:
    judged = StepAnswer(model="m", text="Bergen", **answer)
    assert judged.judged == said
    show_answers(StepAnswer(model="m", text="Oslo"), judged)
    assert said in capsys.readouterr().out
