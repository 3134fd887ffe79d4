"""What each page shows, and that its fragments are parts of it."""

import json
import re
from datetime import UTC, datetime, timedelta

import pytest

from journeyman.core.reward import Reward
from journeyman.core.trace import ModelCall, Trace
from journeyman.stores.traces.base import AUTO, TraceStore
from journeyman.tracing.importers import jsonl
from journeyman.tracing.redaction import shapes_only
from tests.support.pages import Visitor
from tests.support.watched import NOON, booking, delegated

MARKUP = re.compile(r"<[^>]+>")


def words_of(page: str) -> str:
    """What a reader reads, in one line."""
    return " ".join(MARKUP.sub(" ", page).split())


def titles(page: str) -> list[str]:
    return re.findall(r'<a class="open"[^>]*><bdi>(.*?)</bdi>', page)


@pytest.fixture
def full(store: TraceStore) -> TraceStore:
    """120 traces, a minute apart, of two agents."""
    store.add(
        booking(f"t{n:03}", asked=f"Question {n:03}", agent="desk" if n % 2 else "hotel", at=NOON + timedelta(minutes=n))
        for n in range(120)
    )
    return store


def test_an_empty_store_says_how_traces_come(pages: Visitor) -> None:
    for path in ("/", "/traces", "/sessions", "/performance"):
        pages.read(path)
    assert "No traces yet" in pages.read("/traces")
    assert "No sessions yet" in pages.read("/sessions")


def test_the_list_has_the_newest_first_and_goes_on_where_it_ended(full: TraceStore, pages: Visitor) -> None:
    first = pages.read("/traces")
    assert "120 traces" in words_of(first)
    seen, page = titles(first), first
    for _ in range(2):
        more = re.search(r'<li class="more"><a href="([^"]+)"', page)
        assert more
        page = pages.read(more[1].replace("&amp;", "&"))
        seen += titles(page)
    assert seen == [f"Question {n:03}" for n in reversed(range(120))]
    assert 'class="more"' not in page


def test_a_filter_stays_in_the_address_of_all_that_follows(full: TraceStore, pages: Visitor) -> None:
    page = pages.read("/traces?agent=desk&q=Question")
    assert "60 traces" in words_of(page)
    assert "/traces/t119?q=Question&amp;agent=desk" in page
    assert "/traces.jsonl?q=Question&amp;agent=desk" in page
    assert 'value="desk"' in page


def test_each_filter_finds_its_traces(store: TraceStore, pages: Visitor) -> None:
    store.add(
        [
            booking("a", asked="red", agent="x", model="m1", tool="k1", reward=0.2),
            booking("b", asked="blue", agent="y", model="m2", tool="k2", reward=0.9, at=NOON + timedelta(days=2), fails=True),
        ]
    )
    store.label("a", True, who="ben", at=NOON)
    for query, expected in {
        "agent=x": "red", "model=m2": "blue", "tool=k1": "red", "label=good": "red", "label=none": "blue",
        "min_reward=0.5": "blue", "max_reward=0.5": "red", "since=2026-03-05": "blue", "until=2026-03-05": "red",
        "q=blue": "blue", "q=%22at+six%22+red": "red",
    }.items():  # fmt: skip
        assert titles(pages.read(f"/traces?{query}")) == [expected], query


def test_a_filter_that_means_nothing_is_said_and_shows_no_traces(full: TraceStore, pages: Visitor) -> None:
    page = pages.read("/traces?since=soon", status=400)
    assert "since: &#39;soon&#39; is no time" in page
    assert titles(page) == []
    assert pages.client.get("/traces.jsonl?since=soon").status_code == 400


def test_a_list_that_did_not_change_is_not_sent_again(full: TraceStore, pages: Visitor) -> None:
    again = re.search(r'<ol id="rows"[^>]*hx-get="([^"]+)"', pages.read("/traces"))
    assert again
    poll = again[1].replace("&amp;", "&")
    assert pages.client.get(poll).status_code == 204
    full.add([booking("new", asked="Brand new", at=NOON + timedelta(days=1))])
    answer = pages.client.get(poll)
    assert answer.status_code == 200
    assert answer.text.startswith('<ol id="rows"')
    assert titles(answer.text)[:2] == ["Brand new", "Question 119"]


def test_unknown_is_told_apart_from_nothing(store: TraceStore, pages: Visitor) -> None:
    store.add([booking("free", cost=0.0), booking("unpriced", cost=None, reward=None)])
    assert "Cost unknown" in words_of(pages.read("/traces/unpriced"))
    assert "Cost $0 " in words_of(pages.read("/traces/free"))
    rows = pages.read("/traces")
    assert rows.count('title="cost unknown: ') == 1
    assert rows.count(">$0</span>") == 1


def test_a_trace_is_read_as_a_conversation(store: TraceStore, pages: Visitor) -> None:
    store.add([booking(session="visit/1")])
    page = pages.read("/traces/t1")
    text = words_of(page)
    order = [
        "You book tables.",
        "A table for two in Oslo",
        "find_tables",
        "&#34;seats&#34;: 2",
        "18:00",
        "Six is early",
        "There is one at six.",
    ]
    talk = text[text.index("Verdict") if "Verdict" in text else text.index("booked") :]
    places = [talk.index(said) for said in order]
    assert places[:5] == sorted(places[:5])
    for said in (
        "2,500 → 12",
        "$0.025",
        "2.8 s",
        "The table is in the book.",
        "the recorder",
        "b-date · cited",
        "&#34;temperature&#34;: 0.2",
    ):
        assert said in text, said
    assert 'href="/sessions/visit/1"' in page
    assert page.count('<rect class="bar') == 3


def test_nested_agents_their_errors_and_what_was_asked_are_shown(store: TraceStore, pages: Visitor) -> None:
    store.add([delegated()])
    page = pages.read("/traces/deep")
    text = words_of(page)
    for said in ("Plan a week in Oslo", "Done: seven days.", "TimeoutError: no answer", "timed out"):
        assert said in text, said
    assert [depth for depth in re.findall(r'<li class="d(\d) ', page)] == ["0", "1", "2", "0"]
    assert "Tokens unknown" in text
    assert "Cost unknown" in text


def test_rewards_and_labels_say_who_gave_them(store: TraceStore, pages: Visitor) -> None:
    store.add([booking()])
    store.reward("t1", [Reward(name="polite", value=None, evidence="no verdict")], by="judge 2", at=NOON)
    store.label("t1", True, who=AUTO, at=NOON, probability=0.93)
    store.label("t1", False, who="ben", at=NOON + timedelta(hours=1))
    text = words_of(pages.read("/traces/t1"))
    for said in ("polite unknown 1 judge 2 no verdict", "good by auto-labeler (93%)", "bad by ben"):
        assert said in text, said


def test_next_and_previous_stay_within_the_list(full: TraceStore, pages: Visitor) -> None:
    page = pages.read("/traces/t051?agent=desk")
    assert 'id="newer" rel="prev" href="/traces/t053?agent=desk"' in page
    assert 'id="older" rel="next" href="/traces/t049?agent=desk"' in page
    assert 'id="newer"' not in pages.read("/traces/t119")


def test_a_long_text_is_cut_and_can_be_had_whole(store: TraceStore, pages: Visitor) -> None:
    long = "".join(f"{n:06} " for n in range(20_000))
    call = ModelCall(model="m", prompt="p", reply=long, id="c")
    store.add([Trace(id="long", task_id="k", candidate_id="base", started_at=NOON, steps=(call,))])
    page = pages.read("/traces/long")
    assert len(page) < 40_000
    assert "Show all 140,000 characters" in page
    more = re.search(r'<a class="more" href="([^"]+)#x-1-reply"', page)
    assert more
    assert "019999 " in pages.read(more[1])


def test_a_trace_of_very_many_steps_shows_the_first_and_all_on_request(store: TraceStore, pages: Visitor) -> None:
    steps = tuple(ModelCall(model="m", prompt="p", reply=f"reply {n}", id=f"c{n}") for n in range(500))
    store.add([Trace(id="many", task_id="k", candidate_id="base", started_at=NOON, steps=steps)])
    page = pages.read("/traces/many")
    assert "Show 300 more steps" in page
    # The last answer is there to be corrected; its step is not.
    assert ">reply 499</pre>" not in page
    assert ">reply 499</pre>" in pages.read("/traces/many?steps=all")


def test_sessions_are_listed_and_read_in_their_order(store: TraceStore, pages: Visitor) -> None:
    store.add(booking(f"s{n}", asked=f"Turn {n}", session="visit 1", at=NOON + timedelta(minutes=n)) for n in range(3))
    page = pages.read("/sessions")
    assert titles(page) == ["Turn 0"]
    assert "3 traces" in words_of(page)
    link = re.search(r'<a class="open"[^>]*href="(/sessions/[^"]+)"', page)
    assert link
    assert titles(pages.read(link[1])) == ["Turn 0", "Turn 1", "Turn 2"]
    pages.read("/sessions/none", status=404)


def test_statistics_count_what_the_filters_leave(full: TraceStore, pages: Visitor) -> None:
    full.add([booking("bad", agent="desk", tool="pay", fails=True, at=NOON + timedelta(days=1))])
    text = words_of(pages.read("/performance"))
    assert "Traces 121" in text
    assert "desk 61" in text
    assert "pay 1 1 100%" in text
    assert "Traces 60" in words_of(pages.read("/performance?agent=hotel"))
    assert pages.read("/performance").count('<figure class="chart">') == 4


def test_statistics_say_how_far_people_agree_beyond_chance(full: TraceStore, pages: Visitor) -> None:
    for who, words in (("ada", (True, False) * 6), ("bob", (True, False) * 5 + (True, True)), (AUTO, (True,) * 4)):
        for number, good in enumerate(words):
            full.label(f"t{number:03}", good, who=who, at=NOON)
    page = pages.read("/performance")
    assert re.search(r"ada and bob success 12 92% Cohen&#39;s κ 0\.83 \(0\.\d\d … 1\.00\) on 12 t011", words_of(page))
    assert '<a href="/traces/t011">' in page
    assert AUTO not in page


def test_of_too_few_traces_no_number_is_said(full: TraceStore, pages: Visitor) -> None:
    for who in ("ada", "bob"):
        full.label("t000", True, who=who, at=NOON)
        full.label("t001", False, who=who, at=NOON)
    assert "ada and bob success 2 100% too few to say: 2 judged by several, 10 are needed" in words_of(
        pages.read("/performance")
    )


def test_the_export_is_the_traces_of_the_list_and_can_be_read_again(full: TraceStore, pages: Visitor) -> None:
    answer = pages.client.get("/traces.jsonl?agent=hotel")
    assert answer.headers["content-disposition"] == 'attachment; filename="traces.jsonl"'
    found = [jsonl.parse(json.loads(line), name="x").trace for line in answer.text.splitlines()]
    assert [trace.id for trace in found] == [f"t{n:03}" for n in range(0, 120, 2)]
    assert found[0] == full.get("t000")


def test_what_is_not_there_is_404_as_a_page_and_as_a_sentence(pages: Visitor) -> None:
    assert "There is no such trace" in pages.read("/traces/none", status=404)
    answer = pages.client.get("/traces/none", headers={"hx-request": "true", "accept": "text/html"})
    assert (answer.status_code, answer.text) == (404, "There is no such trace, or it was pruned.")
    assert pages.client.get("/static/none.js").status_code == 404


@pytest.mark.parametrize(
    ("address", "status"),
    [
        ("/traces/%00", 404), ("/traces/~!!!", 404), ("/traces/%ff", 404), ("/traces/..%2f..%2fetc", 404), ("/sessions/", 404),
        ("/traces?after=x", 400), ("/sessions?after=x", 400), ("/traces?" + "a=1&" * 200, 400), ("/traces?q=%ed%a0%80", 200),
        ("/traces?q=*%20AND%20(", 200), ("/static/..%2fguard.py", 404), ("/traces?until=9999-12-31T23:59:59-14:00", 400),
    ],
)  # fmt: skip
def test_an_address_that_nobody_made_is_answered(pages: Visitor, address: str, status: int) -> None:
    assert pages.client.get(address).status_code == status


def test_what_a_browser_loads_is_ours_and_keeps(full: TraceStore, pages: Visitor) -> None:
    page = pages.read("/traces")
    loaded = re.findall(r'(?:src|href)="(/static/[^"]+)"', page)
    assert {path.split("?")[0] for path in loaded} == {
        "/static/dashboard.css", "/static/dashboard.js", "/static/htmx.min.js", "/static/mark.svg",
    }  # fmt: skip
    for path in loaded:
        answer = pages.client.get(path)
        assert answer.status_code == 200
        assert "immutable" in answer.headers["cache-control"]
    assert not re.search(r"https?://(?!www\.w3\.org)", page.replace("http://localhost", ""))
    assert not re.search(r"<script>|<style|\sstyle=|\son\w+=", page)


def test_an_address_that_is_no_page_leads_on(pages: Visitor) -> None:
    page = pages.read("/rnus", status=404)
    assert "There is no such page." in page
    assert 'href="/sessions"' in page
    assert 'name="q"' in page
    assert pages.client.get("/rnus").text == "There is no such page."


def test_traces_that_name_no_agent_are_found_by_the_link_of_their_row(full: TraceStore, pages: Visitor) -> None:
    full.add([booking("nobody", asked="Who am I?", agent=None)])
    link = re.search(r'href="(/traces[^"]+)" data-n="\d+">unknown</a>', pages.read("/performance"))
    assert link
    assert titles(pages.read(link[1].replace("&amp;", "&"))) == ["Who am I?"]
    assert "Traces 1 " in words_of(pages.read(link[1].replace("/traces", "/performance").replace("&amp;", "&")))


def test_a_row_says_what_was_said_in_a_clients_json_and_in_a_runs_prompt(store: TraceStore, pages: Visitor) -> None:
    request = json.dumps({"user_id": "demo", "new_message": {"parts": [{"text": "Cancel my flight"}]}})
    prompt = "[system]\nThink step by step.\n\n[user]\nHow many pears?\n\n[assistant]\nFour."
    call = ModelCall(model="m", prompt=prompt, reply="r", id="c")
    run = Trace(id="run", task_id="k", candidate_id="base", started_at=NOON, steps=(call,))
    store.add([booking("json", asked=request), run])
    assert sorted(titles(pages.read("/traces"))) == ["Cancel my flight", "How many pears?"]
    assert "<bdi>How many pears?</bdi>" in pages.read("/traces/run")


def test_where_no_words_were_kept_a_row_says_so_and_what_is_known(store: TraceStore, pages: Visitor) -> None:
    store.add([shapes_only(booking())])
    assert "gpt-5-mini · 2.5k→12 tokens · content not recorded" in words_of(pages.read("/traces"))
    assert "content not recorded" in pages.read("/traces/t1")


def test_small_json_in_evidence_is_shown_pair_by_pair(store: TraceStore, pages: Visitor) -> None:
    store.add([booking()])
    told = json.dumps({"db": True, "hash": "a" * 64})
    store.reward("t1", [Reward(name="state", value=1.0, evidence=told)], by="tau_bench", at=NOON)
    page = pages.read("/traces/t1")
    assert "<dt>db</dt><dd>true</dd>" in page
    assert f'<dd title="{"a" * 64}">{"a" * 23}…</dd>' in page


def test_a_page_is_compressed_and_its_form_token_never_stands_twice_alike(full: TraceStore, pages: Visitor) -> None:
    packed = pages.client.get("/traces", headers={"accept": "text/html", "accept-encoding": "gzip"})
    assert packed.headers["content-encoding"] == "gzip"
    assert int(packed.headers["content-length"]) < len(packed.text) / 5
    assert "accept-encoding" in packed.headers["vary"].lower()
    tokens = [re.findall(r'name="token" value="([0-9a-f]+)"', pages.read("/traces"))[0] for _ in range(2)]
    assert tokens[0] != tokens[1]
    for token in tokens:
        assert pages.send("/labels", token=token, trace="t001", good="yes")[0] == 303
    assert pages.send("/labels", token=tokens[0][:32], trace="t001", good="yes")[0] == 403


def test_times_of_today_are_short(store: TraceStore, pages: Visitor) -> None:
    now = datetime.now(UTC)
    store.add([booking(at=now), booking("old", at=NOON)])
    page = pages.read("/traces")
    assert f">{now:%H:%M:%S}</time>" in page
    assert ">2026-03-04 12:00</time>" in page
