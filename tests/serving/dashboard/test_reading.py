import re
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from itertools import pairwise
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from journeyman.core.reward import Reward
from journeyman.core.trace import ModelCall, ToolCall
from journeyman.serving.dashboard import charts
from journeyman.serving.dashboard.charts import Chart, ChartPoint, Series
from journeyman.serving.dashboard.figures import of_step, over_time
from journeyman.serving.dashboard.trace_page import read, worth
from journeyman.stores.traces.base import Given, Query, StatisticsGroup
from tests.support.watched import NOON, booking, delegated


def test_a_tools_answer_is_shown_with_the_call_and_not_again_as_a_message() -> None:
    found = read(booking(), most=100)
    assert [(block.kind, block.name) for block in found.blocks] == [
        ("model", "gpt-5-mini"), ("tool", "find_tables"), ("model", "gpt-5-mini"), ("reasoning", "reasoning"),
    ]  # fmt: skip
    assert [message.role for block in found.blocks for message in block.said] == ["system", "user"]


def test_sub_agents_stand_below_who_called_them() -> None:
    found = read(delegated(), most=100)
    assert [(block.depth, block.name) for block in found.blocks] == [
        (0, "hotels"),
        (1, "prices"),
        (2, "ask_price"),
        (0, "claude"),
    ]
    assert [block.failed for block in found.blocks] == [False, True, True, False]


def test_what_was_asked_and_answered_is_shown_once() -> None:
    found = read(delegated(), most=100)
    assert (found.asked, found.answered) == ("Plan a week in Oslo", "Done: seven days.")
    again = read(replace(booking(), input="A table for two in Oslo, please", output="There is one at six."), most=100)
    assert (again.asked, again.answered) == (None, None)


def test_bars_stand_where_the_step_ran_and_within_the_line() -> None:
    bars = [block.bar for block in read(booking(), most=100).blocks]
    assert bars[-1] is None  # the reasoning has no time
    first, tool, last = (bar for bar in bars if bar)
    assert (first.left, first.width) == (0, 54.55)
    assert (tool.left, tool.width) == (54.55, 9.09)
    assert last.left + last.width == 100


def test_a_step_of_a_blink_is_seen_and_one_of_unknown_length_is_marked() -> None:
    steps = (
        ToolCall(tool="a", arguments="", result="", started_at=NOON, seconds=100),
        ToolCall(tool="b", arguments="", result="", started_at=NOON + timedelta(seconds=100), seconds=None),
    )
    bars = [block.bar for block in read(replace(booking(), steps=steps), most=9).blocks]
    assert bars[1] is not None
    assert (bars[1].left, bars[1].width, bars[1].known) == (99.2, 0.8, False)


def test_a_trace_without_times_has_no_line() -> None:
    found = read(replace(booking(), steps=(ModelCall(model="m", prompt="p", reply="r"),), ended_at=None), most=9)
    assert (found.blocks[0].bar, found.seconds) == (None, None)


def test_steps_past_the_first_are_counted() -> None:
    found = read(booking(), most=3)
    assert (len(found.blocks), found.left_out) == (3, 1)


def test_a_reward_says_who_gave_it() -> None:
    trace = booking()
    given = [Given(reward=Reward(name="polite", value=None), by="judge 1", at=NOON)]
    trace = replace(trace, rewards=(*trace.rewards, given[0].reward))
    assert [(each.reward.name, each.by) for each in worth(trace, given)] == [("booked", None), ("polite", "judge 1")]


def day(name: str, traces: int, **more: Any) -> StatisticsGroup:
    told = dict(
        name=name, traces=traces, model_calls=1, tool_calls=0, failed_tool_calls=0, errors=1, good=0, bad=0, mean_reward=None,
        rewarded=0, reward_low=None, reward_high=None, input_tokens=0, output_tokens=0, uncounted=0, cost=0.0, unpriced=0,
        timed=1, median_seconds=None, p95_seconds=4.0, p99_seconds=5.0,
    )  # fmt: skip
    return StatisticsGroup(**{**told, **more})


def test_a_day_without_traces_has_its_place_and_what_is_unknown_is_a_gap() -> None:
    days = [day("1970-01-01", 9), day("2026-03-01", 4), day("2026-03-03", 2, cost=None, unpriced=1)]
    traces, cost, seconds = over_time(days, {"agent": "desk"}, Query())
    assert [point.y for point in traces.points] == [4, None, 2]
    assert [point.says for point in traces.points] == [
        "2026-03-01: 4, 1 with errors", "2026-03-02: no traces", "2026-03-03: 2, 1 with errors",
    ]  # fmt: skip
    assert traces.points[0].link == "/traces?agent=desk&since=2026-03-01&until=2026-03-02"
    # A day whose calls have no price costs nobody knows what.
    assert [point.y for point in cost.points] == [0.0, None, None]
    assert [point.y for point in seconds.series[1].points] == [None, None, None]
    wide, narrow = traces.drawings
    assert (wide.narrow, narrow.narrow, len(wide.spots)) == (False, True, 3)


def test_the_link_of_a_day_leaves_no_more_than_was_counted() -> None:
    noon = datetime(2026, 3, 1, 12, tzinfo=UTC)
    assert of_step("2026-03-01", Query(since=noon)) == {"since": noon.isoformat(), "until": "2026-03-02"}
    assert of_step("2026-03-01", Query(until=noon)) == {"since": "2026-03-01", "until": noon.isoformat()}


def test_traces_of_one_morning_are_drawn_in_smaller_steps() -> None:
    steps = [day("2026-03-01T09:55", 4), day("2026-03-01T10:05", 2)]
    (traces, *_) = over_time(steps, {"agent": "desk"}, Query(), timedelta(minutes=5))
    assert traces.title == "Traces every 5 minutes, with errors marked"
    assert [(point.y, point.says) for point in traces.points][1:] == [
        (None, "2026-03-01 10:00: no traces"), (2, "2026-03-01 10:05: 2, 1 with errors"),
    ]  # fmt: skip
    assert traces.points[0].link == "/traces?agent=desk&since=2026-03-01T09%3A55&until=2026-03-01T10%3A00"
    assert [tick.text for tick in traces.drawings[0].xs] == ["09:55", "10:00", "10:05"]


def test_no_days_make_no_charts() -> None:
    assert over_time([], {}, Query()) == []


def test_of_very_many_points_all_stand_in_the_table_and_the_last_is_drawn() -> None:
    points = tuple(ChartPoint(x=float(n), y=n / 600, low=n / 700, high=n / 500, says=f"after {n}") for n in range(600))
    chart = Chart(title="Gain", says="it grows", series=(Series(name="gain", points=points),))
    for drawing in chart.drawings:
        assert len(drawing.spots) < 200
        assert drawing.spots[-1].says == "after 599"
        # The line itself goes through every point.
        assert len(re.findall(r"-?[\d.]+", dict(drawing.shapes)["line candidate"])) == 2 * 600
        assert all(round(later.x - one.x, 2) >= 4 for one, later in pairwise(drawing.spots[:-1]))


def test_weeks_of_a_season_begin_with_their_mondays_and_lead_to_their_traces() -> None:
    weeks = [day("2026-03-02", 4), day("2026-03-16", 2, errors=0)]
    (traces, *_) = over_time(weeks, {}, Query(since=datetime(2026, 3, 4, tzinfo=UTC)), timedelta(weeks=1))
    assert traces.title == "Traces by week, with errors marked"
    assert [point.says for point in traces.points] == [
        "2026-03-02 to 2026-03-08: 4, 1 with errors", "2026-03-09 to 2026-03-15: no traces", "2026-03-16 to 2026-03-22: 2",
    ]  # fmt: skip
    assert traces.points[2].link == "/traces?since=2026-03-16&until=2026-03-23"
    assert "since=2026-03-04T" in traces.points[0].link
    (long, *_) = over_time([day("2026-03-02", 4)], {}, Query(), timedelta(weeks=4))
    assert long.title == "Traces every 4 weeks, with errors marked"


def test_of_two_lines_one_says_both() -> None:
    *_, times = over_time([day("2026-03-01", 4, median_seconds=2.0), day("2026-03-02", 4)], {}, Query())
    assert [point.says for point in times.points if point.says] == [
        "2026-03-01: median 2.0 s, p95 4.0 s", "2026-03-02: median ?, p95 4.0 s",
    ]  # fmt: skip
    assert len(times.drawings[0].spots) == 2


@given(st.lists(st.tuples(st.floats(0, 640), st.floats(0, 190)), min_size=2, max_size=60))
def test_what_a_line_says_in_steps_ends_where_it_should(places: list[tuple[float, float]]) -> None:
    rounded = [(round(x, 1), round(y, 1)) for x, y in places]
    path = charts.line(rounded)
    numbers = [float(each) for each in re.findall(r"-?[\d.]+(?:e[+-]?\d+)?", path)]
    across, down = numbers[0::2], numbers[1::2]
    assert len(across) == len(down) == len(places)
    assert sum(across) == pytest.approx(rounded[-1][0], abs=0.1)
    assert sum(down) == pytest.approx(rounded[-1][1], abs=0.1)


@given(st.integers(1, 10**6))
def test_ticks_of_whole_numbers_are_whole_and_few(most: int) -> None:
    ticks = charts.nice_ticks(0, most, least=1.0)
    assert all(tick == int(tick) for tick in ticks)
    assert ticks[0] == 0
    assert ticks[-1] >= most
    assert 2 <= len(ticks) <= 5
