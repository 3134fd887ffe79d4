from hypothesis import given
from hypothesis import strategies as st

from journeyman.cli.console import Column, fitted

WORDS = st.text(st.characters(categories=["L", "N"], max_codepoint=0x250), max_size=40)


def lines(columns: list[Column], width: int) -> list[str]:
    return [line for row in fitted(columns, width) for line in row]


def three(asked: str = "Where is the order with the green trays?") -> list[Column]:
    return [
        Column(name="id", words=True, least=6, cells=["0123456789"]),
        Column(name="asked", words=True, least=10, cells=[asked]),
        Column(name="cost", spare=2, cells=["$0.1234"]),
        Column(name="time", spare=1, cells=["251 ms"]),
        Column(name="label", spare=3, cells=[""]),
    ]


def test_where_there_is_room_everything_is_whole_but_empty_columns() -> None:
    head, row = lines(three(), 120)
    assert head.split() == ["id", "asked", "cost", "time"]
    assert row.split("  ")[:2] == ["0123456789", "Where is the order with the green trays?"]


def test_the_least_important_column_goes_first_and_no_number_is_cut() -> None:
    assert lines(three(), 26)[0].split() == ["id", "asked", "time"]
    assert lines(three(), 26)[1].endswith("251 ms")
    assert lines(three(), 18)[0].split() == ["id", "asked"]


@given(st.lists(st.tuples(WORDS, WORDS, st.integers(0, 10**9)), min_size=1, max_size=4), st.integers(30, 150))
def test_no_line_is_wider_than_the_terminal(rows: list[tuple[str, str, int]], width: int) -> None:
    columns = [
        Column(name="id", words=True, least=8, cells=[id for id, _, _ in rows]),
        Column(name="asked", words=True, least=20, cells=[asked for _, asked, _ in rows]),
        Column(name="number", spare=1, cells=[str(number) for _, _, number in rows]),
    ]
    found = lines(columns, width)
    assert len(found) == len(rows) + 1
    assert all(len(line) <= width for line in found)


def test_where_not_even_the_least_has_room_the_widest_words_give_way_and_no_first_column() -> None:
    columns = [
        Column(name="id", words=True, least=1000, cells=["0123456789"]),
        Column(name="asked", words=True, wraps=True, least=30, cells=["Where is the order with the green trays?"]),
        Column(name="cost", cells=["$0.1234"]),
    ]
    found = lines(columns, 36)
    assert found[1].split() == ["0123456789", "Where", "is", "the", "$0.1234"]
    assert " ".join(" ".join(line.split()) for line in found[2:]) == "order with the green trays?"
    assert all(len(line) <= 36 for line in found)
    assert "0123456789" in lines(columns, 12)[1]


def test_a_wide_character_takes_two_places() -> None:
    columns = [
        Column(name="id", words=True, least=8, cells=["\u6771\u4eac\u306e\u6ce8\u6587", "Oslo"]),
        Column(name="n", cells=["1", "2"]),
    ]
    assert lines(columns, 80) == ["id          n", "\u6771\u4eac\u306e\u6ce8\u6587  1", "Oslo        2"]
    assert lines(columns, 10) == ["id       n", "\u6771\u4eac\u306e\u2026  1", "Oslo     2"]
