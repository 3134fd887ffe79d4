"""What servers write into headers is how long to wait, whatever they write."""

from datetime import UTC, datetime, timedelta
from email.utils import format_datetime

import pytest
from hypothesis import given
from hypothesis import strategies as st

from journeyman.io.retry import retry_after


@pytest.mark.parametrize(
    ("headers", "seconds"),
    [
        ({}, None),
        ({"retry-after": "3"}, 3),
        ({"retry-after": "1.5"}, 1.5),
        ({"retry-after": "-2"}, 0),
        ({"retry-after": "soon"}, None),
        ({"retry-after-ms": "250", "retry-after": "1"}, 0.25),
        ({"retry-after-ms": "soon", "retry-after": "2"}, 2),
        ({"retry-after-ms": "soon"}, None),
        ({"retry-after": "Wed, 21 Oct 2015 07:28:00 GMT"}, 0),
    ],
)
def test_a_number_or_a_past_date_is_understood(headers: dict[str, str], seconds: float | None) -> None:
    assert retry_after(headers) == seconds


def test_a_date_is_so_far_away() -> None:
    there = format_datetime(datetime.now(UTC) + timedelta(hours=1), usegmt=True)
    assert 3500 < (retry_after({"retry-after": there}) or 0) <= 3600


@given(st.text(), st.text())
def test_whatever_a_server_writes_is_seconds_or_nothing(said: str, exact: str) -> None:
    found = retry_after({"retry-after": said, "retry-after-ms": exact})
    assert found is None or found >= 0
