import pytest
from hypothesis import given
from hypothesis import strategies as st

from journeyman.stores.urls import is_url, redacted


@pytest.mark.parametrize(
    ("url", "shown"),
    [
        ("postgresql://me:p@ss:w/rd@h:5/x", "postgresql://me:***@h:5/x"),
        ("postgresql://me@h/x?sslmode=require&password=abc", "postgresql://me@h/x?sslmode=require&password=***"),
        ("postgresql://me@h/x", "postgresql://me@h/x"),
        ("sqlite:////srv/journeyman.db", "sqlite:////srv/journeyman.db"),
        (".journeyman/journeyman.db", ".journeyman/journeyman.db"),
    ],
)
def test_what_is_secret_is_not_shown_and_the_rest_is(url: str, shown: str) -> None:
    assert redacted(url) == shown


@given(st.text(min_size=1).map(lambda text: f"<{text}>"))
def test_no_password_is_ever_shown(password: str) -> None:
    assert password not in redacted(f"postgresql://me:{password}@host/journeyman")


def test_a_path_is_not_a_url() -> None:
    assert [is_url(text) for text in ("memory:", "sqlite:///x", "a/b.db", "C:\\x.db")] == [True, True, False, False]
