"""A text goes into the body of a request at one place, and every other byte stays."""

import asyncio
import json
import random
import time
from collections.abc import Mapping
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from journeyman.agents.splice import RequestBody, UnreadableBody
from journeyman.core.errors import StoreError
from journeyman.core.playbook import Place
from journeyman.serving.releases.context import (
    Degraded,
    Injected,
    ServedContext,
    ServedRelease,
    SessionArm,
    inject,
)
from journeyman.tracing.wire.dialects import Dialect
from tests.support.examples import examples

TEXT = 'Strategies: "quoted" \\ and\n[b-1] Grüße, 東京 🙂'
DIALECTS = (Dialect.CHAT, Dialect.RESPONSES, Dialect.MESSAGES)
PLACES: tuple[Place, ...] = ("system_end", "system_start", "user_first")


class Writer:
    """Writes JSON as clients do who write it by hand: blanks, escapes, numbers and keys as they like."""

    _CHARACTERS = ("a", "Z", " ", "7", "é", "東", "🙂", "{", "}", "[", "]", ",", ":", "\u2028", "\x85")
    _ESCAPES = ("\\n", "\\\\", '\\"', "\\/", "\\u00e9", "\\uD83D\\ude42", "\\u0000", "\\ud83d", '\\"messages\\": [', "system")
    _NUMBERS = ("1", "-0", "1.0", "1e3", "0.10", "1E+2", "12345678901234567890", "-1.5e-7", "true", "false", "null")
    _KEYS = ("metadata", "system", "messages", "role", "content", "instructions", "input", "tools", "é", "type", "text", "")

    def __init__(self, seed: int) -> None:
        self.chance = random.Random(seed)

    def blank(self) -> str:
        return self.chance.choice(("", "", "", " ", "\n  ", "\t", "\r\n"))

    def string(self, most: int = 8) -> str:
        pieces = (*self._CHARACTERS, *self._ESCAPES)
        return '"' + "".join(self.chance.choice(pieces) for _ in range(self.chance.randrange(most))) + '"'

    def key(self, name: str) -> str:
        if name and self.chance.random() < 0.1:
            name = f"\\u{ord(name[0]):04x}{name[1:]}"
        return f'"{name}"'

    def value(self, depth: int = 2) -> str:
        kind = self.chance.randrange(4 if depth else 2)
        if kind == 0:
            return self.string()
        if kind == 1:
            return self.chance.choice(self._NUMBERS)
        if kind == 2:
            return self.list(*(self.value(depth - 1) for _ in range(self.chance.randrange(3))))
        return self.object(*((self.chance.choice(self._KEYS), self.value(depth - 1)) for _ in range(self.chance.randrange(3))))

    def list(self, *values: str) -> str:
        inner = ",".join(f"{self.blank()}{each}{self.blank()}" for each in values)
        return f"[{inner or self.blank()}]"

    def object(self, *members: tuple[str, str]) -> str:
        said = (f"{self.blank()}{self.key(name)}{self.blank()}:{self.blank()}{value}{self.blank()}" for name, value in members)
        return "{" + (",".join(said) or self.blank()) + "}"

    def parts(self, kind: str = "text") -> str:
        marked = (("cache_control", '{"type":"ephemeral"}'),) * self.chance.randrange(2)
        text = (("type", f'"{kind}"'), ("text", self.string()), *marked)
        other = (("type", '"image_url"'), ("text", '{"no": "text"}'))
        some = self.chance.sample([text, text, other], self.chance.randrange(4))
        return self.list(*(self.object(*each) for each in some))

    def content(self, kind: str = "text") -> str:
        return self.chance.choice((self.string(), self.string(), self.parts(kind)))

    def message(self, role: str, kind: str = "text") -> str:
        members = [
            ("role", f'"{role}"'),
            ("content", self.content(kind)),
            *([("name", self.string())] * self.chance.randrange(2)),
        ]
        self.chance.shuffle(members)
        if self.chance.random() < 0.1:
            # The last of two counts.
            members.insert(0, ("content", self.value()))
        return self.object(*members)

    def messages(self, *before: str, kind: str = "text") -> str:
        roles = [*before, "user", *self.chance.choices(("assistant", "user", "tool", "system"), k=self.chance.randrange(4))]
        return self.list(*(self.message(role, kind) for role in roles))

    def body(self, dialect: Dialect) -> bytes:
        before = self.chance.choices(("system", "developer"), k=self.chance.randrange(3)) if dialect is Dialect.CHAT else []
        kind = "input_text" if dialect is Dialect.RESPONSES else "text"
        said = self.messages(*before, kind=kind)
        members = [("model", self.string()), ("metadata", self.value()), ("tools", self.value()), ("é", self.value())]
        if dialect is Dialect.RESPONSES:
            members.append(("input", self.chance.choice((self.string(), said))))
            members += [("instructions", self.chance.choice((self.string(), "null")))] * self.chance.randrange(2)
        else:
            members.append(("messages", said))
        if dialect is Dialect.MESSAGES:
            members += [("system", self.content())] * self.chance.randrange(2)
        self.chance.shuffle(members)
        if self.chance.random() < 0.1:
            members.insert(0, self.chance.choice(members[-1:]))
        return f"{self.blank()}{self.object(*members)}{self.blank()}".encode()


class Always:
    """Serves one context to everybody."""

    def __init__(self, place: Place = "system_end", **more: Any) -> None:
        about: dict[str, Any] = {"candidate_id": "c", "digest": "d", "domain": "general", "shown": ("b-1",), "tokens": 9}
        self.one = ServedContext(**{"text": TEXT, "place": place, "max_tokens": 10, **about, **more})

    async def served(self, labels: Mapping[str, str], body: RequestBody, *, production: bool = False) -> ServedRelease:
        return ServedRelease(self.one)

    def ended(self, where: SessionArm, *, failed: bool) -> None:
        raise AssertionError("nobody is on an arm")

    def state(self) -> Mapping[str, Any]:
        return {}


def put(body: bytes, dialect: Dialect = Dialect.CHAT, place: Place = "system_end") -> bytes:
    found = asyncio.run(inject(Always(place), {}, dialect, "", body))
    assert (found.degraded, found.served.context is not None) == (None, True)
    return found.body


def left_alone(releases: Always, dialect: Dialect, encoding: str, body: bytes) -> Degraded | None:
    """Why a body goes on as it came."""
    found = asyncio.run(inject(releases, {}, dialect, encoding, body))
    assert found == Injected(body, ServedRelease(), found.degraded)
    return found.degraded


def _into(content: Any, place: Place, kind: str) -> Any:
    """What becomes of a content, told by what it means and not by where it stands."""
    if content is None or content == "":
        return TEXT
    if isinstance(content, str):
        return f"{content}\n\n{TEXT}" if place == "system_end" else f"{TEXT}\n\n{content}"
    texts = [at for at, part in enumerate(content) if part["type"] == kind]
    if texts:
        at = texts[-1 if place == "system_end" else 0]
        return [*content[:at], {**content[at], "text": _into(content[at]["text"], place, kind)}, *content[at + 1 :]]
    new = {"type": kind, "text": TEXT}
    return [*content, new] if place == "system_end" else [new, *content]


def _meant(body: dict[str, Any], dialect: Dialect, place: Place) -> dict[str, Any]:
    name = "input" if dialect is Dialect.RESPONSES else "messages"
    kind = "input_text" if dialect is Dialect.RESPONSES else "text"
    said = body[name]
    if place == "user_first":
        if isinstance(said, str):
            return {**body, name: _into(said, place, kind)}
        at = next(at for at, each in enumerate(said) if each["role"] == "user")
    elif dialect is not Dialect.CHAT:
        top = "instructions" if dialect is Dialect.RESPONSES else "system"
        return {**body, top: _into(body.get(top), place, "text")}
    else:
        leading = next(at for at, each in enumerate(said) if each["role"] not in ("system", "developer"))
        if not leading:
            return {**body, name: [{"role": "system", "content": TEXT}, *said]}
        at = leading - 1 if place == "system_end" else 0
    return {**body, name: [*said[:at], {**said[at], "content": _into(said[at]["content"], place, kind)}, *said[at + 1 :]]}


@pytest.mark.parametrize("dialect", DIALECTS)
@pytest.mark.parametrize("place", PLACES)
@examples(10)
@given(seed=st.integers(0, 1 << 62))
def test_every_byte_but_the_text_stays_and_without_it_the_body_is_as_it_was(dialect: Dialect, place: Place, seed: int) -> None:
    body = Writer(seed).body(dialect)
    new = put(body, dialect, place)
    assert json.loads(new) == _meant(json.loads(body), dialect, place)
    edit = RequestBody(body, dialect).edit(TEXT, place)
    assert new[: edit.start] == body[: edit.start]
    behind = edit.start + len(edit.piece)
    assert new[behind:] == body[edit.end :]
    assert body[edit.start : edit.end] in (b"", b"null")
    assert new[: edit.start] + body[edit.start : edit.end] + new[behind:] == body


@examples(5)
@given(body=st.binary(max_size=60), dialect=st.sampled_from(DIALECTS), place=st.sampled_from(PLACES), cut=st.integers(0, 200))
def test_what_cannot_be_read_is_left_alone(body: bytes, dialect: Dialect, place: Place, cut: int) -> None:
    whole = Writer(cut).body(dialect)
    for broken in (body, whole.strip()[: cut % len(whole.strip())], whole + body.strip()):
        found = asyncio.run(inject(Always(place), {}, dialect, "", broken))
        if found.degraded is None:
            json.loads(broken)
        else:
            assert (found.degraded, found.body) == (Degraded.UNREADABLE, broken)


@pytest.mark.parametrize(
    ("dialect", "body"),
    [
        (Dialect.CHAT, b'{"messages": [{"role": "user", "content": "caf\xe9"}]}'),
        (Dialect.CHAT, b'{"messages": []}'),
        (Dialect.CHAT, b'{"messages": "hi"}'),
        (Dialect.CHAT, b'{"messages": ["hi"]}'),
        (Dialect.CHAT, b'{"messages": [{"role": "system", "content": 7}]}'),
        (Dialect.CHAT, b'{"messages": [{"role": "system"}]}'),
        (Dialect.CHAT, b'{"metadata": {"messages": [{"role": "user", "content": "hi"}]}}'),
        (Dialect.CHAT, b'{"messages": [{"role": "user", "content": "hi"}]} {}'),
        (Dialect.CHAT, b'\xef\xbb\xbf{"messages": [{"role": "user", "content": "hi"}]}'),
        (Dialect.CHAT, b"[" * 100_000),
        (Dialect.RESPONSES, b'{"model": "m"}'),
        (Dialect.RESPONSES, b'{"input": "hi", "instructions": ["no text"]}'),
        (Dialect.MESSAGES, b'{"system": "s"}'),
        (Dialect.MESSAGES, b'{"messages": [{"role": "user", "content": "hi"}], "system": {"text": "s"}}'),
    ],
)
def test_a_shape_that_is_not_known_is_left_alone(dialect: Dialect, body: bytes) -> None:
    assert left_alone(Always(), dialect, "", body) is Degraded.UNREADABLE


def test_a_system_message_in_the_middle_is_not_touched() -> None:
    """It is another one in the next request, and what the provider has cached would be lost."""
    said = [{"role": "user", "content": "hi"}, {"role": "developer", "content": "be brief"}]
    new = json.loads(put(json.dumps({"messages": said}).encode()))
    assert new["messages"] == [{"role": "developer", "content": TEXT}, *said]


def test_a_part_that_is_marked_to_be_cached_stays_the_last() -> None:
    part = {"type": "text", "text": "You are kind.", "cache_control": {"type": "ephemeral"}}
    body: dict[str, Any] = {
        "system": [{"type": "text", "text": "Hello."}, part],
        "messages": [{"role": "user", "content": "hi"}],
    }
    new = json.loads(put(json.dumps(body).encode(), Dialect.MESSAGES))
    assert new["system"] == [body["system"][0], {**part, "text": f"You are kind.\n\n{TEXT}"}]


def test_what_is_put_in_is_the_same_for_every_request_of_a_conversation() -> None:
    said = [{"role": "system", "content": "s"}, {"role": "user", "content": "one"}]
    first = put(json.dumps({"messages": said}).encode())
    more = [
        *said,
        {"role": "assistant", "content": "two"},
        {"role": "system", "content": "now"},
        {"role": "user", "content": "3"},
    ]
    assert put(json.dumps({"messages": more}).encode()).startswith(first.removesuffix(b"]}"))


def test_why_a_request_goes_on_as_it_came() -> None:
    class Gone(Always):
        async def served(self, labels: Mapping[str, str], body: RequestBody, *, production: bool = False) -> ServedRelease:
            raise StoreError("the store is away")

    body = Writer(1).body(Dialect.CHAT)
    assert left_alone(Always(), Dialect.CHAT, "gzip", body) is Degraded.ENCODED
    assert left_alone(Always(tokens=11), Dialect.CHAT, "", body) is Degraded.TOO_LONG
    assert left_alone(Gone(), Dialect.CHAT, "identity", body) is Degraded.UNDECIDED


def test_a_question_and_a_beginning_are_told_whatever_they_are_written_as() -> None:
    for body, question in (
        (b'{"messages": [{"role": "user", "content": "caf\\u00e9 \xf0\x9f\x99\x82"}]}', "café 🙂"),
        (
            b'{"messages": [{"role": "system", "content": "s"}, {"role": "user", "content": [{"type": "text", "text": "a"}]}]}',
            "a",
        ),
        (b'{"messages": [{"role": "assistant", "content": "s"}]}', ""),
    ):
        assert RequestBody(body, Dialect.CHAT).question == question
    assert RequestBody(b'{"input": "what?"}', Dialect.RESPONSES).question == "what?"
    kept = [RequestBody(b'{"input": "%b", "conversation": "c1"}' % word, Dialect.RESPONSES).beginning for word in (b"a", b"b")]
    assert kept[0] == kept[1]
    with pytest.raises(UnreadableBody):
        RequestBody(b'{"messages": [{"role": "assistant", "content": "s"}]}', Dialect.CHAT).edit("x", "user_first")


def test_a_long_body_is_read_in_little_more_than_the_time_that_a_parser_takes() -> None:
    said = [{"role": "user", "content": f"Hello {number} " * 200} for number in range(200)]
    body = json.dumps({"messages": [{"role": "system", "content": "s"}, *said]}).encode()

    def seconds(work: Any) -> float:
        began = time.process_time()
        for _ in range(20):
            work()
        return time.process_time() - began

    def put_in() -> bytes:
        return RequestBody(body, Dialect.CHAT).edit(TEXT, "system_end").of(body)

    parsing = min(seconds(lambda: json.loads(body)) for _ in range(3))
    assert min(seconds(put_in) for _ in range(3)) < 4 * parsing + 0.01
