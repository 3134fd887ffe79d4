"""The pages of what was run, learned, proven and served."""

import re
from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from journeyman.cli import main
from journeyman.core.comparison import ComparisonState
from journeyman.core.playbook import Playbook
from journeyman.core.rollout import Cause, EventKind, Rollout, RolloutState
from journeyman.core.turn import LearnSubject, LearnTurn, TurnEvent, TurnSpent, TurnState
from journeyman.optimizers.playbook import edit, files
from journeyman.serving.dashboard.experiments import ProjectStores
from journeyman.serving.dashboard.layout import Guard
from journeyman.serving.dashboard.overview import score_verdict
from journeyman.stats import share_interval
from journeyman.stores import open_store
from journeyman.stores.rollouts import open_rollouts
from journeyman.stores.traces.base import StatisticsGroup, TraceStore
from journeyman.stores.turns import LEASE, open_turns
from journeyman.stores.urls import mark_demo
from tests.serving.dashboard.test_pages import words_of
from tests.serving.dashboard.test_reading import day
from tests.support.pages import Visitor, visitor
from tests.support.projects import CASE, DATES, HELD, LEARNED, NEW, OLD, RUNS, evidence, learn, project
from tests.support.watched import booking

RELEASES = "a-token-for-releases"


@pytest.fixture
def rollout(store: TraceStore, tmp_path: Path) -> Rollout:
    return project(tmp_path / "journeyman.db")


@pytest.fixture
def pages(store: TraceStore, guard: Guard, tmp_path: Path) -> Visitor:
    return visitor(store, guard, project=ProjectStores(tmp_path / "journeyman.db", release_tokens=[RELEASES], folder=tmp_path))


def cause(reason: str) -> Cause:
    return Cause(reason=reason, actor="person:ana", at=datetime.now(UTC))


def title(page: str) -> str:
    found = re.search(r"<title>(.*?) · Journeyman</title>", page)
    assert found
    return found[1]


def test_each_page_of_an_empty_project_says_how_it_fills(pages: Visitor) -> None:
    told = {"/runs": "No run yet", "/evaluations": "No evaluation yet", "/playbooks": "No playbook yet",
            "/releases": "Nothing is released yet", "/audit": "Nothing was moved yet"}  # fmt: skip
    for path, said in told.items():
        assert said in pages.read(path)


def test_without_a_project_the_rail_leads_to_traces_alone(store: TraceStore, guard: Guard) -> None:
    page = visitor(store, guard)
    assert "/runs" not in page.read("/traces")
    page.read("/runs", status=404)


def test_runs_are_listed_with_what_they_came_to(rollout: Rollout, pages: Visitor) -> None:
    text = words_of(pages.read("/runs"))
    assert "BETTER: success 0.50 → 0.75, +0.25 (+0.10 … +0.50) on 4 tasks; look 2" in text
    assert "NOT YET: success 0.50 → 0.75, +0.25 (−0.10 … +0.50) on 4 tasks" in text
    assert text.index(RUNS[1]) < text.index(RUNS[0])
    assert RUNS[0] not in pages.read("/runs?kind=train+router")


def test_the_title_of_a_run_and_of_an_evaluation_is_the_answer(rollout: Rollout, pages: Visitor) -> None:
    assert title(pages.read(f"/runs/{RUNS[1]}")) == f"BETTER +0.25 · {RUNS[1]}"
    assert title(pages.read(f"/evaluations/{RUNS[0]}")) == f"NOT YET +0.25 · {NEW.id}"


def test_a_run_says_in_which_settings_it_differs_from_the_one_before(rollout: Rollout, pages: Visitor) -> None:
    text = words_of(pages.read(f"/runs/{RUNS[1]}"))
    assert "Settings that differ from the run before" in text
    assert "seed 0 1" in text
    # A mean of both sides would be of neither.
    assert f"Attempts, held out, {OLD.id} 4 mean score 0.50 of 4" in text
    assert f"Attempts, held out, {NEW.id} 4 mean score 0.75 of 4" in text


def test_two_runs_are_compared(rollout: Rollout, pages: Visitor) -> None:
    text = words_of(pages.read(f"/runs/compare?a={RUNS[0]}&b={RUNS[1]}"))
    assert "config.seed 0 1" in text
    assert "tick a run under A and another under B" in pages.read("/runs/compare?a=x", status=400)
    pages.read("/runs/compare?a=x&b=y", status=404)


def test_an_evaluation_opens_at_the_lost_tasks_with_the_words_that_differ_marked(rollout: Rollout, pages: Visitor) -> None:
    page = pages.read(f"/evaluations/{RUNS[1]}")
    assert re.findall(r'<a class="chip plain"[^>]*aria-current="true"[^>]*>([^<]+)</a>', page) == ["Lost 1"]
    assert "One mug to lima" in page
    assert "a mug to <del>Lima</del>" in page
    assert "a mug to <ins>LIMA</ins>" in page
    assert "oslo" not in page
    assert f"/traces?task=lima&amp;candidate={NEW.id}" in page


def test_every_number_of_tasks_leads_to_so_many_rows(rollout: Rollout, pages: Visitor) -> None:
    page = pages.read(f"/evaluations/{RUNS[1]}")
    links = re.findall(r'href="(\?show=\w+)"[^>]*data-n="(\d+)"', page)
    assert [int(n) for _, n in links] == [1, 2, 1, 4]
    for link, n in links:
        shown = pages.read(f"/evaluations/{RUNS[1]}{link}")
        assert shown.count('<tr><th scope="row"><span class="id">') == int(n)


def test_a_playbook_shows_each_bullet_with_what_stands_behind_it_and_what_is_new(rollout: Rollout, pages: Visitor) -> None:
    page = pages.read(f"/playbooks/{NEW.id}")
    text = words_of(page)
    assert "2 shown to the agent" in text
    assert "<ins>Cities in capital letters.</ins>" in page
    assert "<ins>Write dates" not in page
    # Nobody judged the new one: that is not nothing.
    assert "general 0 unknown 5 t1 t2 t3 and 4 more" in text
    assert "general 12 9 of 10 4" in text
    assert "held: it grants a power" in text
    assert f"/playbooks/{OLD.id}" in page
    assert "<del>" not in page
    assert "2 " in words_of(pages.read("/playbooks"))


def test_releases_say_what_is_in_production_and_what_is_on_its_way(rollout: Rollout, pages: Visitor) -> None:
    text = words_of(pages.read("/releases"))
    assert "context:desk/oslo nothing: requests pass as they come" in text
    assert "BETTER: success +0.20 (+0.07 … +0.33) on 240 sessions; 60 of them with the candidate" in text


def test_a_rollout_says_whether_to_go_on_with_its_band_and_its_limits(rollout: Rollout, pages: Visitor) -> None:
    page = pages.read(f"/releases/{rollout.id}")
    text = words_of(page)
    assert title(page) == "BETTER +0.20 · context:desk/oslo"
    assert page.count('<path class="band candidate"') == 1
    assert "after 240 sessions: +20 (+7 … +33)" in page
    assert "This band holds at every moment" in text
    assert "success decides 60 sessions 180 +0.200 (+0.067 … +0.333)" in text
    assert "✓ better" in text
    assert re.findall(r'<button name="kind" value="(\w+)"', page) == ["ramp", "hold", "promote", "rollback", "close"]


def test_too_few_sessions_are_no_picture_and_no_verdict(rollout: Rollout, pages: Visitor, tmp_path: Path) -> None:
    with open_rollouts(tmp_path / "journeyman.db") as kept:
        told = evidence(4, 0.2, 0.1).summary["metrics"]["success"] | {"canary": 0, "production": 4}
        kept.add_evidence(rollout.id, evidence(4, 0.2, 0.1)._replace(summary={"metrics": {"success": told}}))
    assert "CANNOT BE SAID : one side has no session yet" in words_of(pages.read(f"/releases/{rollout.id}"))


def test_what_a_person_does_to_a_rollout_is_done_with_a_reason_and_kept(
    rollout: Rollout, pages: Visitor, guard: Guard, tmp_path: Path
) -> None:
    form: dict[str, Any] = {"token": guard.form_token, "rollout": rollout.id, "key": RELEASES}
    status, said = pages.send("/releases/move", **form, kind="rollback", reason=" ")
    assert (status, "reason" in said) == (409, True)
    assert pages.send("/releases/move", **form, kind="explode", reason="why not")[0] == 400
    assert pages.send("/releases/move", **(form | {"token": "0" * 64}), kind="rollback", reason="x")[0] == 403
    status, said = pages.send("/releases/move", **(form | {"key": "another"}), kind="rollback", reason="it quotes old prices")
    assert (status, "Only who has the token" in said) == (409, True)
    assert pages.send("/releases/move", **form, kind="rollback", reason="it quotes old prices")[0] == 303
    with open_rollouts(tmp_path / "journeyman.db") as kept:
        ended = kept.rollout(rollout.id)
    assert ended is not None
    assert (ended.state, ended.events[-1].cause.actor) == (RolloutState.ROLLED_BACK, "person:ana")
    assert "it quotes old prices" in pages.read("/audit")
    over = words_of(pages.read(f"/releases/{rollout.id}"))
    assert ("ended here" in over, "100% not reached" in over) == (True, True)
    assert pages.send("/releases/move", **form, kind="rollback", reason="again")[0] == 409


def test_where_nobody_may_change_releases_over_http_the_page_says_the_commands(
    store: TraceStore, guard: Guard, rollout: Rollout, tmp_path: Path
) -> None:
    pages = visitor(store, guard, project=ProjectStores(tmp_path / "journeyman.db"))
    page = pages.read(f"/releases/{rollout.id}")
    assert '<form class="moves"' not in page
    assert f"journeyman releases rollback {rollout.id} --reason TEXT" in page
    form: dict[str, Any] = {"token": guard.form_token, "rollout": rollout.id, "key": "", "kind": "rollback", "reason": "x"}
    assert pages.send("/releases/move", **form)[0] == 409


def test_the_audit_says_whether_its_chain_is_whole(rollout: Rollout, pages: Visitor) -> None:
    text = words_of(pages.read("/audit"))
    assert "The chain is whole" in text
    assert "person:ada ramp" in text or "person:ada" in text


def test_what_is_not_there_is_said_with_the_nearest(rollout: Rollout, pages: Visitor) -> None:
    for path in ("/runs/none", "/evaluations/none", "/playbooks/none", "/releases/none"):
        assert "none" in pages.read(path, status=404)


def test_the_command_says_the_same_sentence(
    rollout: Rollout, tmp_path: Path, capsys: pytest.CaptureFixture[str], pages: Visitor
) -> None:
    assert main(["evaluations", "show", RUNS[1], "--store", str(tmp_path / "journeyman.db")]) == 0
    sentence = "BETTER: success 0.50 → 0.75, +0.25 (+0.10 … +0.50) on 4 tasks; look 2"
    assert sentence in " ".join(capsys.readouterr().out.split())
    assert sentence.replace("BETTER", "BETTER ") in words_of(pages.read(f"/evaluations/{RUNS[1]}"))


def test_what_traces_taught_is_told_from_evidence_to_rollout(rollout: Rollout, pages: Visitor, tmp_path: Path) -> None:
    assert "Nothing was learned from traces yet" in pages.read("/learn")
    with open_store(tmp_path / "journeyman.db") as kept:
        learn(kept)
    page = pages.read("/learn")
    text = words_of(page)
    assert "desk / oslo" in text
    assert "✓ checked right on the calls that can be checked" in text
    assert "110 traces read 40 learned from 37 with evidence 2 groups of evidence 1 put into words 1 rule " in text
    assert "order · city rejected 18 20 1 rule refused: Pay nothing" in text
    assert "left out: 2 people have met it, and 3 are needed" in text
    assert f'href="/releases/{rollout.id}"' in page
    assert f'href="/playbooks/{NEW.id}"' in page


@pytest.fixture
def file(rollout: Rollout, tmp_path: Path) -> Path:
    """What a run learned, as it lies in the project's folder."""
    path = tmp_path / str(LEARNED["playbook_path"])
    path.parent.mkdir()
    files.save(Playbook(bullets=(DATES, CASE, HELD)), path)
    with open_store(tmp_path / "journeyman.db") as kept:
        learn(kept)
    return path


def test_what_waits_for_a_person_is_decided_where_it_is_read(file: Path, pages: Visitor, guard: Guard) -> None:
    page = pages.read("/learn")
    assert "1 held for a person" in words_of(page)
    assert HELD.content in page
    form: dict[str, Any] = {"token": guard.form_token, "run": "traces-desk-oslo", "bullet": HELD.id, "key": RELEASES}
    told: dict[str, Any] = {"reason": "the house gives it", "what": "approve"}
    assert pages.send("/playbooks/decide", **(form | {"key": "another"}), **told)[0] == 403
    assert pages.send("/playbooks/decide", **(form | {"token": "0" * 64}), **told)[0] == 403
    assert pages.send("/playbooks/decide", **form, what="approve", reason=" ")[0] == 400
    assert pages.send("/playbooks/decide", **(form | {"run": "nobody"}), **told)[0] == 404
    assert pages.send("/playbooks/decide", **form, what="explode", reason="x")[0] == 400
    assert len(files.load(file).held) == 1
    assert pages.send("/playbooks/decide", **form, **told)[0] == 303
    assert not files.load(file).held
    assert "the house gives it" in edit.journal_of(file).read_text()
    assert "held for a person, in" not in pages.read("/learn")


def test_a_bullet_is_locked_and_retired_on_its_playbooks_page(file: Path, pages: Visitor, guard: Guard) -> None:
    assert "Lock or retire" in pages.read(f"/playbooks/{NEW.id}")
    form: dict[str, Any] = {"token": guard.form_token, "run": "traces-desk-oslo", "bullet": CASE.id, "key": RELEASES}
    assert pages.send("/playbooks/decide", **form, what="lock", reason="it is in the contract")[0] == 303
    # What is offered is what the file allows now, whatever this version held when it was examined.
    page = pages.read(f"/playbooks/{NEW.id}")
    assert "locked in the file since" in page
    assert re.findall(r'name="what" value="(unlock|lock|retire)"', page).count("unlock") == 1
    status, said = pages.send("/playbooks/decide", **form, what="retire", reason="no longer")
    assert (status, f"bullet {CASE.id} is locked" in said) == (400, True)
    assert pages.send("/playbooks/decide", **form, what="unlock", reason="it is not")[0] == 303
    assert "Unlock" not in pages.read(f"/playbooks/{NEW.id}")
    assert pages.send("/playbooks/decide", **form, what="retire", reason="no longer")[0] == 303
    assert "retired in the file since: no longer" in words_of(pages.read(f"/playbooks/{NEW.id}"))
    (retired,) = [each for each in files.load(file).bullets if each.retired]
    assert (retired.id, retired.retired) == (CASE.id, "no longer (ana)")


def test_two_versions_of_a_playbook_are_held_beside_each_other(rollout: Rollout, pages: Visitor) -> None:
    text = words_of(pages.read(f"/playbooks/{NEW.id}?beside={OLD.id}"))
    assert f"{CASE.id} is new" in text
    assert "Cities in capital letters." in text
    pages.read(f"/playbooks/{NEW.id}?beside=none", status=404)


def test_the_rail_says_how_many_there_are(rollout: Rollout, store: TraceStore, pages: Visitor) -> None:
    store.add(booking(f"b{n}") for n in range(3))
    text = words_of(pages.read("/audit"))
    learn = "Learn Documents Tasks Datasets Learning Runs 2 Evaluations 2"
    assert re.search(rf"Traces \d+ Sessions Performance {learn} Ship Playbooks 2 Releases", text)


def test_a_page_is_found_by_the_other_names_that_people_look_for(rollout: Rollout, pages: Visitor) -> None:
    page = pages.read("/audit")
    for said in ("Training progress", "Model performance", "System health", "A/B test results", "Resource utilization"):
        link = re.search(rf'<a href="([^"]+)">{said}</a>', page)
        assert link, said
        pages.read(link[1])


def test_the_newest_trace_is_one_click_away_and_two_runs_are_three(rollout: Rollout, store: TraceStore, pages: Visitor) -> None:
    store.add([booking("newest", asked="What is new?", at=datetime.now(UTC))])
    assert '<a href="/traces/newest">What is new?</a>' in pages.read("/")
    # The two that ran last are chosen already.
    chosen = re.findall(r'name="(a|b)" value="([^"]+)"[^>]* checked', pages.read("/runs"))
    assert dict(chosen) == {"a": RUNS[0], "b": RUNS[1]}


def test_who_is_not_let_in_learns_no_number(rollout: Rollout, store: TraceStore, tmp_path: Path) -> None:
    pages = visitor(store, Guard(["secret"]), project=ProjectStores(tmp_path / "journeyman.db"))
    assert 'class="count"' not in pages.read("/login")


# The first page.


def _recorded(store: TraceStore, days_ago: float, rewards: Sequence[float]) -> None:
    at = datetime.now(UTC) - timedelta(days=days_ago)
    store.add(booking(f"{days_ago}-{n}", at=at, reward=value) for n, value in enumerate(rewards))


def test_the_overview_of_an_empty_project_says_what_to_type(pages: Visitor) -> None:
    page = pages.read("/")
    assert title(page) == "Overview"
    assert "OPENAI_BASE_URL=http://localhost:8000/v1" in page


def test_the_overview_says_whether_it_is_getting_better_and_what_needs_a_person(
    store: TraceStore, rollout: Rollout, pages: Visitor
) -> None:
    _recorded(store, 10, [0.0] * 40 + [1.0] * 10)
    _recorded(store, 1, [1.0] * 45 + [0.0] * 5)
    page = pages.read("/")
    text = words_of(page)
    assert title(page) == "BETTER +0.70 · Overview"
    assert "BETTER : score, this week beside the week before, 0.20 → 0.90, +0.70 (+0.5" in text
    assert re.search(r"Score, 7 days 0\.90 0\.7\d … 0\.9\d · 50 scored the week before 0\.20", text)
    assert "context:desk/oslo BETTER: success +0.20" in text
    assert f"{NEW.id} passed its gate" not in text
    assert "50 Traces this week" in text


def test_where_weeks_say_nothing_the_overview_begins_with_what_was_brought_into_production(
    store: TraceStore, rollout: Rollout, pages: Visitor, tmp_path: Path
) -> None:
    _recorded(store, 1, [1.0] * 45 + [0.0] * 5)
    with open_rollouts(tmp_path / "journeyman.db") as kept:
        assert title(pages.read("/")) == "CANNOT BE SAID · Overview"
        promoted = rollout.then(EventKind.PROMOTE, cause("it is better"), {"canary": 0.9})
        kept.advance(promoted)
        page = pages.read("/")
        assert title(page) == "BETTER +0.20 · Overview"
        assert words_of(page).count("context:desk/oslo BETTER : success +0.20 (+0.07 … +0.33) on 240 sessions") == 1
        kept.advance(promoted.then(EventKind.CONCLUDE, cause("nobody is held back"), {}))
        assert title(pages.read("/")) == "BETTER +0.20 · Overview"
        kept.undo(rollout.slot, cause("it quotes old prices"))
        assert title(pages.read("/")) == "CANNOT BE SAID · Overview"


def test_without_scores_the_overview_says_so_and_shows_no_nought(store: TraceStore, pages: Visitor) -> None:
    store.add([booking("plain", at=datetime.now(UTC), reward=None, cost=None)])
    text = words_of(pages.read("/"))
    assert "CANNOT BE SAID : no trace of this week has a score" in text
    assert "Score, 7 days unknown nothing is scored" in text
    assert "Cost, 7 days unknown" in text


@given(
    before=st.tuples(st.integers(0, 300), st.floats(0, 1)),
    after=st.tuples(st.integers(0, 300), st.floats(0, 1)),
)
def test_weeks_are_compared_by_intervals_that_hold_both(before: tuple[int, float], after: tuple[int, float]) -> None:
    def week(count: int, mean: float) -> StatisticsGroup:
        low, high = share_interval(count, count * mean, count * mean)
        known = (mean, low, high) if count else (None, None, None)
        return day("w", count, rewarded=count, mean_reward=known[0], reward_low=known[1], reward_high=known[2])

    found = score_verdict(week(*before), week(*after))
    if found.state is ComparisonState.CANNOT_BE_SAID:
        assert not before[0] or not after[0]
    else:
        assert found.low is not None
        assert found.gain is not None
        assert found.high is not None
        assert found.low <= found.gain <= found.high


@pytest.mark.parametrize("beside", ["store", "project", ""])
def test_pages_over_what_a_demo_wrote_say_so_and_no_others_do(
    beside: str, store: TraceStore, guard: Guard, tmp_path: Path
) -> None:
    kept, folder = tmp_path / "kept", tmp_path / "project"
    if beside:
        mark_demo({"store": kept, "project": folder}[beside])
    pages = visitor(store, guard, project=ProjectStores(kept / "journeyman.db", folder=folder))
    for path, status in (("/", 200), ("/traces", 200), ("/releases", 200), ("/nowhere", 404)):
        text = pages.read(path, status)
        assert (">DEMO</strong>" in text) == ("<title>DEMO · " in text) == bool(beside), path


def test_turns_that_nobody_asked_for_stand_where_what_was_learned_does(
    rollout: Rollout, pages: Visitor, tmp_path: Path
) -> None:
    assert "nobody asked for" not in pages.read("/learn")
    at = datetime(2026, 3, 5, 12, tzinfo=UTC)
    begun = TurnEvent(number=0, state=TurnState.RUNNING, at=at, spent=TurnSpent(cpu_seconds=30))
    subject = LearnSubject("playbook", "desk", "oslo")
    turn = LearnTurn(
        id="t1", subject=subject, began=at, trigger="<b>60</b> new traces", data_digest="d", seen=60, events=(begun,)
    )
    with open_turns(tmp_path / "journeyman.db") as store:
        store.lease(LEASE, "us", at, 60)
        store.begin(turn, "us")
        page = pages.read("/learn")
        assert "playbook desk/oslo t1" in words_of(page)
        assert "◐ running" in words_of(page)
        assert "&lt;b&gt;60&lt;/b&gt; new traces" in page
        spent = TurnSpent(cost=None, cpu_seconds=12.5)
        store.keep(turn.then(TurnState.LEARNED, at, spent=spent, reason="right on the calls that can be checked"), "us")
    text = words_of(pages.read("/learn"))
    assert "✓ learned ? 12.5 s right on the calls that can be checked" in text
