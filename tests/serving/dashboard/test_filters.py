import re
from contextlib import suppress
from datetime import UTC, datetime, timedelta
from html import unescape
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from journeyman.core.errors import InputError
from journeyman.serving.dashboard import layout
from journeyman.serving.dashboard.experiments import ProjectStores
from journeyman.serving.dashboard.layout import Guard
from journeyman.stores.traces.base import Query, TraceStore
from tests.support.pages import Visitor, visitor
from tests.support.watched import booking

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


def named(page: str) -> list[str]:
    return re.findall(r'name="name" value="([^"]*)"', page)


def test_filters_are_kept_under_a_name_found_again_and_deleted(store: TraceStore, guard: Guard, tmp_path: Path) -> None:
    store.add([booking("t1"), booking("t2", agent="night")])

    def pages() -> Visitor:
        return visitor(store, guard, project=ProjectStores(tmp_path / "journeyman.db", folder=tmp_path))

    here = pages()
    assert "Keep this view" not in here.read("/traces")
    assert "Keep this view" in here.read("/traces?agent=night&error=no")
    token = guard.form_token
    sent = here.send("/views", name="  The  night <desk> ", token=token, filters="?agent=night&error=no", what="save")
    assert sent == (303, "")
    # Another process over the same project, as another person would see it.
    text = pages().read("/traces")
    assert named(text) == ["The night &lt;desk&gt;"]
    (address,) = re.findall(r'<a href="(/traces[^"]*)"><bdi>The night', text)
    found = here.read(unescape(address))
    assert 'data-count="1"' in found
    assert "Keep this view" not in found
    # The same name is the same view, with other filters.
    here.send("/views", name="The night <desk>", token=token, filters="?agent=night", what="save")
    assert re.findall(r'<a href="(/traces[^"]*)"><bdi>The night', here.read("/traces")) == ["/traces?agent=night"]
    assert here.send("/views", name="The night <desk>", token=token, filters="", what="delete") == (303, "")
    assert named(here.read("/traces")) == []


@pytest.mark.parametrize(
    ("name", "filters", "what", "said"),
    [
        (" ", "?agent=a", "save", "1 to 60 characters"),
        ("n" * 61, "?agent=a", "save", "1 to 60 characters"),
        ("all", "", "save", "set one first"),
        ("soon", "?since=soon", "save", "is no time"),
        ("x", "?agent=a", "rename", "one of save, delete"),
    ],
)
def test_a_view_that_means_nothing_is_refused_in_a_sentence(
    name: str, filters: str, what: str, said: str, store: TraceStore, guard: Guard, tmp_path: Path
) -> None:
    pages = visitor(store, guard, project=ProjectStores(tmp_path / "journeyman.db", folder=tmp_path))
    status, text = pages.send("/views", token=guard.form_token, name=name, filters=filters, what=what)
    assert status == 400
    assert said in text
    assert not (tmp_path / ".journeyman/views.json").exists()


@pytest.mark.parametrize("broken", ["{", "[]", '{"a": {"agent": 1}}', '{"a": {"colour": "red"}}'])
def test_a_list_is_shown_also_where_its_views_cannot_be_read(
    broken: str, store: TraceStore, guard: Guard, tmp_path: Path
) -> None:
    store.add([booking("t1")])
    (tmp_path / ".journeyman").mkdir()
    (tmp_path / ".journeyman/views.json").write_text(broken)
    text = visitor(store, guard, project=ProjectStores(tmp_path / "journeyman.db", folder=tmp_path)).read("/traces")
    assert 'data-count="1"' in text
    assert "No views: " in text
    assert "views.json" in text
