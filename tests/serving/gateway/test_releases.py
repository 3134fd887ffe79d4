"""What is served to a live request: put in, said in the answer, recorded; and nothing else changes."""

import gzip
import json
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import anthropic
import openai
import pytest

from journeyman import Playbook
from journeyman.core.playbook import Bullet
from journeyman.core.task import Task
from journeyman.experiments.agents import candidate_of
from journeyman.experiments.settings import ContextSettings
from journeyman.optimizers.playbook import files
from journeyman.serving.releases.context import FixedPlaybook
from journeyman.stores.traces import open_traces
from tests.serving.gateway.test_passing import ask
from tests.serving.gateway.test_process import served, stopped, stored, until
from tests.serving.gateway.test_sdks import MESSAGE, choice, completion
from tests.support.gateways import Running, gateway
from tests.support.upstream import EVENTS, Asked, Reply, Upstream, events, ok

pytestmark = pytest.mark.service

BULLETS = (
    Bullet(id="b-1", content="Write amounts in cents.", domain="oslo"),
    Bullet(id="b-2", content="Say “no” to refunds.", section="harmful", domain="oslo"),
)
PLAYBOOK = Playbook(bullets=BULLETS)
CANDIDATE = candidate_of(PLAYBOOK)
USER: Any = [{"role": "user", "content": "Where is order 7?"}]
TEXT = PLAYBOOK.prompt(Task(id="t", question="q", domain="oslo"))


def body(**more: Any) -> bytes:
    return json.dumps({"model": "m", "messages": [{"role": "system", "content": "Be kind."}, *USER], **more}).encode()


@pytest.fixture
def running(up: Upstream) -> Iterator[Running]:
    with gateway(up.url, releases=FixedPlaybook(PLAYBOOK, name="oslo.json")) as made:
        yield made


def sent(up: Upstream) -> Any:
    return json.loads(up.asked[-1].body)


def test_a_playbook_is_put_into_a_chat_and_the_record_says_what_was_sent(running: Running, up: Upstream) -> None:
    status, headers, answer = ask(running.url, body=body(), headers={"x-journeyman-candidate": "adapter-1"})
    assert CANDIDATE is not None
    assert (status, answer, headers["x-journeyman-release"]) == (200, b"{}", CANDIDATE.id)
    assert sent(up) == {**json.loads(body()), "messages": [{"role": "system", "content": f"Be kind.\n\n{TEXT}"}, *USER]}
    assert up.asked[0].header("content-length") == str(len(up.asked[0].body))
    recorded = running.memory.one()
    assert recorded.request == up.asked[0].body
    assert recorded.shown == ("b-1", "b-2")
    assert recorded.labels == {"candidate": f"{CANDIDATE.id},adapter-1", "domain": "oslo"}
    assert f'journeyman_release_served_total{{candidate="{CANDIDATE.id}"}} 1.0' in running.gateway.metrics.text()


@pytest.mark.parametrize("value", ["off", "OFF "])
def test_a_request_that_wants_none_passes_as_it_came(running: Running, up: Upstream, value: str) -> None:
    _, headers, _ = ask(running.url, body=body(), headers={"X-Journeyman-Releases": value})
    assert up.asked[0].body == body()
    assert up.asked[0].header("x-journeyman-releases") is None
    assert "x-journeyman-release" not in headers
    assert (running.memory.one().labels, running.memory.one().shown) == ({}, ())


def test_what_cannot_be_served_passes_as_it_came_and_is_counted(running: Running, up: Upstream) -> None:
    packed = gzip.compress(body())
    assert ask(running.url, body=b"no JSON")[0] == 200
    assert ask(running.url, body=packed, headers={"content-encoding": "gzip"})[0] == 200
    assert [each.body for each in up.asked] == [b"no JSON", packed]
    told = running.gateway.metrics.text()
    assert 'journeyman_release_degraded_total{why="unreadable"} 1.0' in told
    assert 'journeyman_release_degraded_total{why="encoded"} 1.0' in told


def test_a_playbook_that_is_too_long_is_not_put_in_and_counted(up: Upstream) -> None:
    with gateway(up.url, releases=FixedPlaybook(PLAYBOOK, ContextSettings(max_tokens=10))) as running:
        _, headers, _ = ask(running.url, body=body())
        assert 'journeyman_release_degraded_total{why="too_long"} 1.0' in running.gateway.metrics.text()
    assert up.asked[0].body == body()
    assert "x-journeyman-release" not in headers


def test_embeddings_and_what_is_only_passed_on_are_left_alone(running: Running, up: Upstream) -> None:
    for path in ("/v1/embeddings", "/v1/messages/count_tokens", "/v1/completions"):
        ask(running.url, path, body())
        assert up.asked[-1].body == body()
    assert "journeyman_release_degraded_total{" not in running.gateway.metrics.text()


def test_domains_do_not_see_each_others_bullets(up: Upstream) -> None:
    both = Playbook(bullets=(*BULLETS, Bullet(id="b-3", content="Speak Danish.", domain="aarhus")))
    with gateway(up.url, releases=FixedPlaybook(both)) as running:
        for domain, expected in (("oslo", ("b-1", "b-2")), ("aarhus", ("b-3",)), ("rome", ()), ("", ())):
            ask(running.url, body=body(), headers={"x-journeyman-domain": domain} if domain else {})
            deadline = time.monotonic() + 5
            while len(running.memory.exchanges) < len(up.asked) and time.monotonic() < deadline:
                time.sleep(0.005)
            assert running.memory.exchanges[-1].shown == expected
    assert up.asked[-1].body == up.asked[-2].body == body()


def test_a_session_keeps_the_bullets_that_it_was_given_first(up: Upstream) -> None:
    """What a model is told does not change while it works, and a provider's cache of it holds."""
    words = ("refunds", "parcels", "invoices", "returns", "passwords", "opening hours")
    many = Playbook(bullets=tuple(Bullet(id=f"b-{word}", content=f"About {word}: " + f"{word} " * 20) for word in words))
    releases = FixedPlaybook(many, ContextSettings(select="retrieved"), token_budget=60)
    with gateway(up.url, releases=releases) as running:

        def shown(question: str, **labels: str) -> tuple[str, ...]:
            said = json.dumps({"messages": [{"role": "user", "content": question}]}).encode()
            before = len(running.memory.exchanges)
            ask(running.url, body=said, headers={f"x-journeyman-{name}": value for name, value in labels.items()})
            return running.memory.some(before + 1)[-1].shown

        assert shown("tell me about refunds") == shown("tell me about refunds") == ("b-refunds",)
        assert shown("tell me about parcels") == ("b-parcels",)
        assert shown("tell me about invoices", session="s") == ("b-invoices",)
        assert shown("tell me about returns", session="s") == ("b-invoices",)
        assert shown("tell me about returns", session="t") == ("b-returns",)


def test_a_stream_comes_event_by_event_with_a_playbook_put_in(running: Running, up: Upstream) -> None:
    said = [json.dumps({"choices": [{"index": 0, "delta": {"content": f"w{number} "}}]}) for number in range(40)]
    up.replies.append(events(*said, "[DONE]", pause=0.02))
    arrived: list[float] = []
    with (
        openai.OpenAI(base_url=f"{running.url}/v1", api_key="k", max_retries=0) as client,
        client.chat.completions.create(model="m", messages=USER, stream=True) as stream,
    ):
        text = ""
        for each in stream:
            arrived.append(time.monotonic())
            text += each.choices[0].delta.content or ""
    assert text == "".join(f"w{number} " for number in range(40))
    # Some may come together on a busy machine, but not all.
    assert arrived[-1] - arrived[0] > 0.4
    assert sent(up)["messages"] == [{"role": "system", "content": TEXT}, *USER]


def _answers(asked: Asked) -> Reply:
    stream = json.loads(asked.body).get("stream")
    if asked.path.endswith("/chat/completions"):
        piece = {"id": "c", "object": "chat.completion.chunk", "created": 1, "model": "m"}
        said = [json.dumps({**piece, "choices": [{"index": 0, "delta": {"content": word}}]}) for word in ("In", " Oslo.")]
        return events(*said, "[DONE]", pause=0.01) if stream else ok(completion(choice(content="In Oslo.")))
    if asked.path.endswith("/responses"):
        text = {"type": "output_text", "text": "In Oslo.", "annotations": []}
        message = {"type": "message", "id": "m1", "role": "assistant", "status": "completed", "content": [text]}
        whole = {"id": "r", "object": "response", "model": "m", "output": [message], "status": "completed"}
        done = {"type": "response.completed", "sequence_number": 2, "response": whole}
        delta = {"type": "response.output_text.delta", "sequence_number": 1, "delta": "In Oslo.", "item_id": "m1"}
        return events(json.dumps(delta), json.dumps(done), pause=0.01) if stream else ok(whole)
    blocks = [{"type": "text", "text": "In Oslo."}]
    if not stream:
        return ok({**MESSAGE, "content": blocks, "stop_reason": "end_turn"})
    told: list[dict[str, Any]] = [
        {"type": "message_start", "message": MESSAGE},
        {"type": "content_block_start", "index": 0, "content_block": {"type": "text", "text": ""}},
        {"type": "content_block_delta", "index": 0, "delta": {"type": "text_delta", "text": "In Oslo."}},
        {"type": "content_block_stop", "index": 0},
        {"type": "message_delta", "delta": {"stop_reason": "end_turn"}, "usage": {"output_tokens": 2}},
        {"type": "message_stop"},
    ]
    pieces = tuple(f"event: {each['type']}\ndata: {json.dumps(each)}\n\n".encode() for each in told)
    return Reply(headers=(EVENTS,), pieces=pieces, pause=0.01)


def _walk(client: openai.OpenAI, claude: anthropic.Anthropic, *, stream: bool) -> list[str]:
    """What each of three clients is answered."""
    if not stream:
        chat = client.chat.completions.create(model="m", messages=USER).choices[0].message.content
        response = client.responses.create(model="m", input="Where is order 7?").output_text
        message = claude.messages.create(model="c", max_tokens=9, messages=USER, system="Be kind.").content[0]
        return [chat or "", response, message.text]  # type: ignore[union-attr]
    with client.chat.completions.create(model="m", messages=USER, stream=True) as pieces:
        chat = "".join(each.choices[0].delta.content or "" for each in pieces)
    with client.responses.create(model="m", input="Where is order 7?", stream=True) as told:
        response = "".join(each.delta for each in told if each.type == "response.output_text.delta")
    system: Any = [{"type": "text", "text": "Be kind."}]
    with claude.messages.stream(model="c", max_tokens=9, messages=USER, system=system) as said:
        return [chat, response, "".join(said.text_stream)]


@pytest.mark.parametrize("stream", [False, True], ids=["whole", "stream"])
def test_stock_clients_are_served_a_playbook_by_the_command(tmp_path: Path, up: Upstream, stream: bool) -> None:
    up.answer = _answers
    files.save(PLAYBOOK, tmp_path / "oslo.json")
    assert CANDIDATE is not None
    with served(tmp_path, "--upstream", up.url, "--no-pages", "--playbook", "oslo.json") as (url, process):
        with (
            openai.OpenAI(base_url=f"{url}/v1", api_key="k", max_retries=0) as client,
            anthropic.Anthropic(base_url=url, api_key="k", max_retries=0) as claude,
        ):
            assert _walk(client, claude, stream=stream) == ["In Oslo."] * 3
        # What is served is what was read, whatever becomes of the file.
        files.save(Playbook(), tmp_path / "oslo.json")
        state = json.loads(ask(url, "/health", None, "GET")[2])["releases"]
        assert (state["candidate"], state["bullets"], state["digest"]) == (CANDIDATE.id, {"oslo": 2}, files.digest(PLAYBOOK))
        assert until(lambda: stored(url) == 3)
        for asked in list(up.asked):
            # The answer is what the upstream says to the same request, byte for byte.
            direct = b"".join(_answers(asked).pieces)
            assert ask(url, asked.path, asked.body, headers={"X-Journeyman-Releases": "off"})[2] == direct
        assert stopped(process) == 0
    chat, response, message = (json.loads(each.body) for each in up.asked[:3])
    assert chat["messages"] == [{"role": "system", "content": TEXT}, *USER]
    assert response["instructions"] == TEXT
    put = f"Be kind.\n\n{TEXT}"
    assert message["system"] == ([{"type": "text", "text": put}] if stream else put)
    with open_traces(tmp_path / ".journeyman" / "journeyman.db") as store:
        traces = [trace for trace in store.traces() if trace.candidate_id != "base"]
    assert len(traces) == 3
    for trace in traces:
        assert (trace.candidate_id, trace.domain, trace.shown) == (CANDIDATE.id, "oslo", frozenset({"b-1", "b-2"}))
        assert TEXT in trace.calls[0].prompt
        assert trace.reply == "In Oslo."


def test_a_conversation_stays_one_trace_with_a_playbook_put_in(tmp_path: Path, up: Upstream) -> None:
    up.answer = _answers
    files.save(PLAYBOOK, tmp_path / "oslo.json")
    more = [*USER, {"role": "assistant", "content": "In Oslo."}, {"role": "user", "content": "And 8?"}]
    with served(tmp_path, "--upstream", up.url, "--no-pages", "--playbook", "oslo.json") as (url, process):
        for messages in (USER, more):
            ask(url, body=json.dumps({"model": "m", "messages": messages}).encode())
        assert stopped(process) == 0
    assert up.asked[1].body.startswith(up.asked[0].body.removesuffix(b"]}"))
    with open_traces(tmp_path / ".journeyman" / "journeyman.db") as store:
        (trace,) = store.traces()
    assert [call.shown for call in trace.calls] == [("b-1", "b-2")] * 2


def test_the_playbook_of_the_settings_starts_at_their_file_and_none_is_none(tmp_path: Path, up: Upstream) -> None:
    (tmp_path / "work").mkdir()
    files.save(PLAYBOOK, tmp_path / "oslo.json")
    (tmp_path / "journeyman.toml").write_text('[serve]\nplaybook = "oslo.json"\n[context]\nplace = "user_first"\n')
    for arguments, expected in (((), f"{TEXT}\n\nWhere is order 7?"), (("--playbook", "none"), "Where is order 7?")):
        with served(tmp_path / "work", "--upstream", up.url, "--no-pages", "--no-record", *arguments) as (url, process):
            ask(url, body=body())
            assert sent(up)["messages"][1]["content"] == expected
            assert stopped(process) == 0


@pytest.mark.parametrize(
    ("content", "said"),
    [
        (None, "is not there"),
        ("What is this?", "playbook"),
        ('{"bullets": []}', "holds no bullets"),
        ('[{"content": "half \\ud800 of it"}]', "half a surrogate pair"),
    ],
)
def test_a_playbook_that_cannot_be_served_is_refused_in_a_sentence(tmp_path: Path, content: str | None, said: str) -> None:
    if content is not None:
        (tmp_path / "p.json").write_text(content)
    command = [sys.executable, "-m", "journeyman", "serve", "--port", "0", "--playbook", "p.json"]
    ended = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, timeout=60, check=False)
    assert ended.returncode == 2, ended.stderr
    assert said in ended.stderr
    assert "p.json" in ended.stderr
    assert len(ended.stderr.strip().splitlines()) == 1


def test_what_the_command_says_of_it(tmp_path: Path, up: Upstream) -> None:
    files.save(Playbook(bullets=(*BULLETS, Bullet(id="b-3", content="x", domain="rome"))), tmp_path / "p.json")
    (tmp_path / "journeyman.toml").write_text("[context]\nmax_tokens = 50\n")
    with served(tmp_path, "--upstream", up.url, "--no-pages", "--no-record", "--playbook", "p.json") as (_, process):
        assert stopped(process) == 0
    told = (tmp_path / "stderr").read_text()
    assert "puts in p.json: 2 bullets of oslo, 1 bullet of rome (candidate " in told
    assert "chats must name their domain for it: X-Journeyman-Domain" in told
    assert "raise it, or set context.select to retrieved" in told
