"""Server-sent events are the same events wherever the network cut them."""

from itertools import pairwise

from hypothesis import given
from hypothesis import strategies as st

from journeyman.io.http_client import EventParser, ServerSentEvent, is_event_stream, sent_events

ENDS = st.sampled_from(["\n", "\r\n", "\r"])
LINES = st.one_of(
    st.just(""),
    st.builds(
        "data:{}{}".format,
        st.sampled_from(["", " ", "  "]),
        st.text(st.characters(codec="utf-8", exclude_characters="\r\n"), max_size=12),
    ),
    st.builds("event: {}".format, st.sampled_from(["delta", "done", ""])),
    st.sampled_from([": ping", "id: 7", "retry: 5", "data", "unknown: x", "datax: y"]),
)


@st.composite
def streams(draw: st.DrawFn) -> bytes:
    return "".join(draw(st.lists(st.builds("{}{}".format, LINES, ENDS), max_size=20))).encode()


def by_the_standard(body: bytes) -> list[ServerSentEvent]:
    """The standard's own algorithm, a line at a time; what is not ended by an empty line is an event as well."""
    text = body.decode(errors="replace").removeprefix("\ufeff").replace("\r\n", "\n").replace("\r", "\n")
    found: list[ServerSentEvent] = []
    data: list[str] = []
    name = ""
    for line in [*text.split("\n"), ""]:
        field, _, value = line.partition(":")
        value = value[1:] if value.startswith(" ") else value
        if not line:
            found += [ServerSentEvent(name or "message", "\n".join(data))] if data else []
            name, data = "", []
        elif field == "data":
            data.append(value)
        elif field == "event":
            name = value
    return found


@given(streams())
def test_a_stream_is_read_as_the_standard_says(body: bytes) -> None:
    assert list(sent_events(body)) == by_the_standard(body)


@given(streams(), st.lists(st.integers(0, 200), max_size=30))
def test_wherever_a_stream_is_cut_its_events_are_the_same(body: bytes, cuts: list[int]) -> None:
    parser = EventParser()
    places = [0, *sorted(cut for cut in cuts if cut <= len(body)), len(body)]
    found = [event for begin, end in pairwise(places) for event in parser.feed(body[begin:end])]
    assert [*found, *parser.end()] == list(sent_events(body))


def test_a_character_of_several_bytes_may_be_cut() -> None:
    body = "data: naïve 🦄\n\n".encode()
    parser = EventParser()
    found = [event for byte in body for event in parser.feed(bytes([byte]))]
    assert found == [ServerSentEvent("message", "naïve 🦄")]


@given(st.binary(max_size=200))
def test_any_bytes_can_be_read(body: bytes) -> None:
    for event in sent_events(body):
        assert isinstance(event.data, str)


def test_an_answer_that_is_json_is_no_stream() -> None:
    assert is_event_stream(b'\xef\xbb\xbfdata: {"a": 1}\n\n')
    assert is_event_stream(b": OPENROUTER PROCESSING\n\n")
    assert not is_event_stream(b'{"data": 1}')
    assert not is_event_stream(b"")
