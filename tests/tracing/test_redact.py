"""Secrets are taken out, and nothing else is."""

import gzip
import json
import os
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from journeyman.core.errors import InputError
from journeyman.core.reward import Reward
from journeyman.core.trace import AgentCall, Message, ModelCall, Reasoning, ToolCall, Trace, spoken
from journeyman.tracing.redaction import Redactor
from journeyman.tracing.secrets import is_secret_name
from journeyman.tracing.wire.dialects import Dialect, Exchange
from tests.support.examples import examples
from tests.support.secrets import planted

REDACTOR = Redactor()
AT = datetime(2026, 1, 2, tzinfo=UTC)


@pytest.mark.parametrize("kind", planted())
def test_a_secret_of_each_kind_goes_and_a_marker_says_so(kind: str) -> None:
    for seed in range(50):
        text, secret = planted(seed)[kind]
        for before, after in (("", ""), ("I said: ", " and more"), ('{"text": "', '"}'), ("\n", "\n"), ("è ", " 日本")):
            clean = REDACTOR.text(before + text + after)
            assert secret not in clean
            assert "[redacted " in clean
            assert clean.startswith(before[:1])
            assert REDACTOR.bytes((before + text + after).encode()) == clean.encode()
            assert REDACTOR.suspects((before + text).encode())


@pytest.mark.parametrize("kind", planted())
def test_a_secret_in_a_long_message_goes_from_it_and_from_the_prompt_wherever_it_stands(kind: str) -> None:
    redactor = Redactor()
    for seed in range(5):
        text, secret = planted(seed)[kind]
        for before, after in ((0, 300), (300, 300), (300, 0)):
            said = "Look it up by its number. " * before + f"\n{text}\n" + " Tell the city." * after
            messages = (Message(role="system", text=said), Message(role="user", text="Where is it?"))
            call = ModelCall(id="c", model="m", prompt=spoken(messages), reply="Oslo", messages=messages)
            clean, honest = redactor.steps((call, replace(call, messages=messages[1:], prompt=spoken(messages[1:]))))
            assert isinstance(clean, ModelCall)
            assert isinstance(honest, ModelCall)
            assert secret not in clean.prompt
            assert secret not in clean.messages[0].text
            assert honest.prompt == "user: Where is it?"


def test_a_long_message_is_kept_as_it_is_where_it_holds_no_secret_and_the_next_one_may() -> None:
    messages = (
        Message(role="system", text="Look it up by its number. " * 300),
        Message(role="user", text="my password is hunter2-hunter2"),
    )
    call = ModelCall(id="c", model="m", prompt=spoken(messages), reply="Oslo", messages=messages)
    (clean,) = REDACTOR.steps((call,))
    assert isinstance(clean, ModelCall)
    assert clean.messages[0] == messages[0]
    assert "hunter2" not in clean.prompt + clean.messages[1].text
    alone = replace(call, messages=messages[:1], prompt=spoken(messages[:1]))
    assert REDACTOR.steps((alone,))[0] is alone


@pytest.mark.parametrize("kind", planted())
def test_a_secret_whose_letters_are_escaped_as_in_json_goes_too(kind: str) -> None:
    for seed in range(10):
        text, secret = planted(seed)[kind]
        hidden = "".join(f"\\u{ord(char):04x}" if char.isalnum() and n % 3 == 0 else char for n, char in enumerate(text))
        arguments = f'{{"a": "<b> \\u003c {hidden.replace("/", chr(92) + "/")} \\u003e", "b": 1}}'
        if "\n" in text or '"' in text:
            continue
        clean = REDACTOR.text(arguments)
        assert secret not in json.loads(clean)["a"]
        assert json.loads(clean)["b"] == 1
        assert REDACTOR.suspects(arguments.encode())
        assert REDACTOR.text(clean) == clean


def test_all_kinds_in_one_text_go_together() -> None:
    found = planted(1)
    clean = REDACTOR.text("\n".join(text for text, _ in found.values()))
    assert [kind for kind, (_, secret) in found.items() if secret in clean] == []


ORDINARY = [
    "The key to success is the token economy, said the secretary; her password is strong.",
    'logprobs: {"token": " Hello", "logprob": -0.31}, {"token": "world", "logprob": -1.5}',
    '{"usage": {"prompt_tokens": 1234567, "completion_tokens": 89, "max_tokens": 100000}}',
    "def login(user: str, password: str, token: str | None = None) -> Session: ...",
    "client = OpenAI(api_key=os.environ['OPENAI_API_KEY'], password=get_password())",
    "api_key=${API_KEY} password: <your password> --password PASSWORD secret = None",
    '{"password": {"type": "string", "minLength": 8}, "api_key": "string", "secret": "***"}',
    "call_aHFvcOCBnUSBGb47m72g1qAH chatcmpl-9XKqyzJGHmJVkuhw4yNBjBjVjhPHR toolu_01A09q90qw90lq917835lq9",
    "4a02dcbc0e3ace4d398988d60a33e73afad4d201deb426303159f086cadad20f f47ac10b-58cc-4372-a567-0e02b2c3d479",
    "https://example.org:8080/a@b http://localhost:11434/v1 see mailto:kim@example.org and sk-learn-classifier-for-text-2",
    "task-0001-of-the-desk risk-assessment-2024-for-everyone disk-usage-report-20240101",
    "data:image/png;base64,iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk",
    "basic understanding of bearer instruments; Basic information: see Bearer authentication documentation",
    "AKIAness and asian food; hf_transfer; ghp_ is a prefix; eyJ begins many tokens",
    "git+https://github.com/owner/repo.git@0123456789abcdef0123456789abcdef01234567",
    "postgresql://USER:PASSWORD@HOST/DATABASE and postgresql://${USER}:${PASS}@db/x",
]


@pytest.mark.parametrize("text", ORDINARY)
def test_ordinary_text_stays_as_it_is(text: str) -> None:
    assert REDACTOR.text(text) is text


def test_ids_that_are_secrets_go_and_name_the_same_things_still() -> None:
    (one, other) = (planted(seed)["openai"][1] for seed in (1, 2))
    call = ModelCall(
        model="m", prompt="", reply="", id=one, response_id=one,
        messages=(Message(role="tool", text="", answers=other), Message(role=one, text="")),
    )  # fmt: skip
    tools = tuple(ToolCall(tool="t", arguments="", result="", id=id, parent=one) for id in (one + "1", other))
    trace = Trace(
        id=one, task_id="t", candidate_id=one, other_candidates=(other,), started_at=AT,
        steps=(call, *tools, replace(call, id="next", continues=one)),
    )  # fmt: skip
    clean = REDACTOR.trace(trace)
    assert one not in repr(clean)
    assert other not in repr(clean)
    first, *found, last = clean.steps
    assert isinstance(first, ModelCall)
    assert isinstance(last, ModelCall)
    assert {step.parent for step in found} == {first.id} == {last.continues}
    assert found[0].id != found[1].id == first.messages[0].answers
    assert clean.candidate_ids == (clean.id, found[1].id)
    assert REDACTOR.trace(clean) is clean


@examples(5)
@given(
    st.text(st.characters(codec=None), max_size=300)
    | st.text("sk-proj:= \"'{}passwordtokenBearer0123456789eyJ.\\", max_size=200)
)
def test_redacting_twice_is_redacting_once(text: str) -> None:
    once = REDACTOR.text(text)
    assert REDACTOR.text(once) == once


@examples(3)
@given(st.binary(max_size=300))
def test_bytes_that_are_no_text_stay_whole(body: bytes) -> None:
    if not REDACTOR.suspects(body):
        assert REDACTOR.bytes(body) == body


@pytest.mark.parametrize(
    ("name", "secret"),
    [
        *(
            (name, True)
            for name in ("Authorization", "x-api-key", "apiKey", "OPENAI_API_KEY", "password", "db.password", "Set-Cookie")
        ),
        *(
            (name, True)
            for name in ("client_secret", "accessToken", "refresh_token", "aws_secret_access_key", "token", "privateKey")
        ),
        *(
            (name, False)
            for name in ("max_tokens", "input_tokens", "token_count", "tokens", "eos_token", "key", "author", "keys")
        ),
        *(
            (name, False)
            for name in ("gen_ai.usage.input_tokens", "llm.token_count.prompt", "password_reset_url", "monkey", "cookie_policy")
        ),
    ],
)
def test_names_of_secrets_are_told_from_counts_of_tokens(name: str, secret: bool) -> None:
    assert is_secret_name(name) is secret


def whole(secret: str, value: Any) -> Trace:
    """A trace with a secret in every place that holds text."""
    raw = {"headers": {"authorization": value, "n": 3}, "list": [{"text": secret}], "max_tokens": 100, secret: 1}
    said = (Message(role="user", text=secret), Message(role="tool", text=secret, answers="t"))
    return Trace(
        id="1", task_id="t", candidate_id="base", started_at=AT, error=secret, session=secret, agent=secret, input=secret,
        output=secret, tasks_created=(secret,), tasks_completed=(secret,), tasks_failed=(secret,), raw=raw,
        rewards=(Reward(name="r", value=1.0, evidence=secret),),
        steps=(
            ModelCall(id="c", model="m", prompt=secret, reply=secret, messages=said, error=secret, raw=raw),
            ToolCall(id="t", parent="c", tool="x", arguments=secret, result=secret, error=secret, raw=raw),
            Reasoning(id="r", text=secret, raw=raw),
            AgentCall(id="a", agent="b", input=secret, output=secret, error=secret, raw=raw),
        ),
    )  # fmt: skip


@pytest.mark.parametrize("kind", ["openai", "json password", "pem", "url"])
def test_no_field_of_a_trace_keeps_a_secret(kind: str) -> None:
    text, secret = planted(3)[kind]
    clean = REDACTOR.trace(whole(text, "by its name alone"))
    assert secret not in repr(clean)
    assert "by its name alone" not in repr(clean)
    assert clean.steps[0].raw["max_tokens"] == 100
    assert [step.id for step in clean.steps] == ["c", "t", "r", "a"]
    assert REDACTOR.trace(clean) == clean


def test_a_trace_without_secrets_is_the_same_object() -> None:
    trace = whole("nothing to hide", None)
    assert REDACTOR.trace(trace) is trace


def test_a_mapping_that_has_no_end_is_cut() -> None:
    deep: dict[str, Any] = {}
    at = deep
    for _ in range(5000):
        at["below"] = at = {}
    at["text"] = "x"
    clean = REDACTOR.trace(replace(whole("x", None), raw=deep))
    assert json.dumps(clean.raw).count("below") <= 102


def test_an_exchange_is_cleaned_in_both_directions() -> None:
    text, secret = planted(4)["anthropic"]
    body = json.dumps({"messages": [{"role": "user", "content": text}]}).encode()
    exchange = Exchange(
        id="x",
        dialect=Dialect.CHAT,
        request=body,
        response=body,
        status=200,
        started_at=AT,
        seconds=1.0,
        labels={"session": secret},
    )
    clean = REDACTOR.exchange(exchange)
    assert secret not in repr(clean)
    assert json.loads(clean.request)["messages"][0]["role"] == "user"


def test_patterns_of_the_user_go_too() -> None:
    redactor = Redactor((r"ACME-\d{6}", r"(?i)project\s+\w+"))
    assert redactor.text("ACME-123456 of PROJECT Falcon") == "[redacted pattern] of [redacted pattern]"
    assert redactor.text("ACME-123 " * 1000 + "ACME-654321") == "ACME-123 " * 1000 + "[redacted pattern]"
    assert redactor.suspects(b"anything")


@pytest.mark.parametrize(
    "pattern",
    [
        "(a+)+$",
        "(a|ab)*c",
        r"(\w+\s?)*$",
        r"(a*)*b",
        r"(?:x[a-z]+)+y",
        r"(a?){30}a{30}",
        r"\w*\w*\w*\w*;",
        "(",
        "a*",
        "",
        r"\w*\w*x",
    ],
)
def test_a_pattern_that_cannot_be_used_is_refused_in_one_sentence(pattern: str) -> None:
    with pytest.raises(InputError, match="the pattern"):
        Redactor((pattern,))


@pytest.mark.parametrize(
    "pattern",
    [r"(?:[A-Z]+-)+\d+", r"(?:\d{1,3}\.){3}\d{1,3}", r"\b[\w.]{1,64}@[\w.]{1,64}\b", r"(?:\.\w+)+x", "kim|lee", r"\d+"],
)
def test_ordinary_patterns_are_taken(pattern: str) -> None:
    assert Redactor((pattern,)).text("#") == "#"


def test_a_text_that_takes_a_pattern_too_long_is_taken_out() -> None:
    redactor = Redactor((r"x[a ]*[a ]*y",))
    clean = redactor.text("begin " + ("x" + "a" * 1000) * 2000)
    assert clean.endswith("[redacted pattern]")
    assert clean.startswith("begin ")


@pytest.mark.parametrize(
    "name", ["tau-bench", "langfuse-traces", "langsmith-runs", "swe-agent-trajs", "inspect-logs", "otlp-genai"]
)
def test_nothing_is_taken_out_of_real_records_that_hold_no_secret(name: str) -> None:
    folder = os.environ.get("JOURNEYMAN_DATA")
    if folder is None:
        pytest.skip("JOURNEYMAN_DATA names no folder with the full data sets")
    read = 0
    for file in sorted(path for path in (Path(folder) / name).rglob("*") if path.is_file() and path.suffix != ".eval"):
        body = gzip.decompress(file.read_bytes()) if file.suffix == ".gz" else file.read_bytes()
        for line in body.splitlines():
            read += len(line)
            clean = REDACTOR.bytes(line)
            assert clean is line, clean[max(0, clean.find(b"[redacted ") - 60) :][:120]
    assert read > 50_000
