from contextlib import suppress
from datetime import UTC, datetime, timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from journeyman.core.errors import InputError
from journeyman.serving.dashboard import layout
from journeyman.stores.traces.base import Query

NOW = datetime(2026, 3, 4, 12, tzinfo=UTC)


def test_no_filters_mean_every_trace() -> None:
    assert layout.query_of(layout.filters_of({"q": " ", "after": "x"}), NOW) == Query()


def test_each_filter_means_what_it_says() -> None:
    typed = {
        "q": "oslo", "agent": "desk", "model": "m", "tool": "t", "label": "good", "error": "no", "min_reward": ".5",
        "max_reward": "1", "since": "24h", "until": "2026-03-04 10:30", "task": "k", "session": "s",
        "domain": "d", "source": "otlp", "candidate": "c",
    }  # fmt: skip
    assert layout.query_of(layout.filters_of(typed), NOW) == Query(
        text="oslo", agent="desk", model="m", tool="t", label=True, failed=False, min_reward=0.5, max_reward=1, task_id="k",
        session="s", since=NOW - timedelta(days=1), until=datetime(2026, 3, 4, 10, 30, tzinfo=UTC),
        domain="d", source="otlp", candidate_id="c",
    )  # fmt: skip


def test_labels_of_people_can_be_asked_for() -> None:
    assert layout.query_of({"label": "none"}, NOW) == Query(labelled=False)
    assert layout.query_of({"label": "some"}, NOW) == Query(labelled=True)
    assert layout.query_of({"label": "bad"}, NOW) == Query(label=False)


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("since", "yesterday"),
        ("until", "99999999w"),
        ("since", "999999w"),
        ("min_reward", "nan"),
        ("label", "x"),
        ("error", "1"),
    ],
)
def test_a_filter_that_means_nothing_is_named(field: str, value: str) -> None:
    with pytest.raises(InputError, match=f"^{field.replace('_', ' ')}: '{value}'"):
        layout.query_of({field: value}, NOW)


@given(st.sampled_from(layout.FIELDS), st.text(st.characters(), min_size=1, max_size=30))
def test_whatever_is_typed_is_a_query_or_a_sentence(field: str, text: str) -> None:
    with suppress(InputError):
        layout.query_of(layout.filters_of({field: text}), NOW)
