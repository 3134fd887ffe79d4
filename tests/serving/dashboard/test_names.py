from urllib.parse import unquote

import pytest
from hypothesis import given
from hypothesis import strategies as st

from journeyman.serving.dashboard.layout import decoded, encoded, id_of, local, name

ANY = st.text(st.characters(), max_size=40)


@given(ANY)
def test_the_address_of_an_id_leads_back_to_it(id: str) -> None:
    assert id_of(name(id)) == id
    assert id_of(unquote(name(id))) == id


@given(ANY)
def test_no_browser_takes_a_name_for_a_way_to_elsewhere(id: str) -> None:
    written = name(id)
    assert written.isascii()
    assert not {"?", "#", "\\", " ", '"', "<"} & set(written)
    assert not {"", ".", ".."} & set(written.split("/")) or id == ""


@pytest.mark.parametrize("id", ["chat-1", "runs/2026/a.jsonl:3", "b2@x+y=z,w"])
def test_a_plain_id_stands_in_the_address_as_it_is(id: str) -> None:
    assert name(id) == id


@given(st.dictionaries(st.text(st.characters(), min_size=1, max_size=8), st.text(st.characters(), min_size=1, max_size=12)))
def test_fields_come_back_as_they_were_sent(fields: dict[str, str]) -> None:
    assert decoded(encoded(fields)[1:].encode()) == fields


@given(st.binary(max_size=60))
def test_any_query_can_be_read(query: bytes) -> None:
    decoded(query)


@pytest.mark.parametrize(
    "path", ["//evil.example", "https://evil.example", "/\\evil.example", "javascript:alert(1)", "", "/a\nb"]
)
def test_a_way_back_leads_nowhere_else(path: str) -> None:
    assert local(path) == "/"


def test_a_way_back_keeps_its_filters() -> None:
    assert local("/traces?agent=desk&q=a%20b") == "/traces?agent=desk&q=a%20b"
