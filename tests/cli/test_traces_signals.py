"""`journeyman traces signals` says which signals count here, and `traces label --telling` asks first for contrasts."""

import json
from pathlib import Path

import pytest

from journeyman.cli import main
from journeyman.core.reward import Reward, Source
from journeyman.core.trace import Message, ModelCall, ToolCall, Trace
from journeyman.stores.traces import open_traces
from journeyman.tracing.base import NO_TIME
from tests.support.traces import used

TASKS = 30


def attempt(task: int, number: int, *, agent: str = "desk") -> Trace:
    """One of three attempts at a task, of which the last books another seat."""
    book = ToolCall(id="x1", parent="m1", tool="book", arguments=json.dumps({"seat": 1 + (number == 2)}), result="booked")
    ask = (Message(role="user", text=f"Seat for customer {task}"),)
    call = ModelCall(id="m1", model="m", prompt="", reply="Booked.", messages=ask)
    judge = Reward(name="strict", value=1.0, source=Source.JUDGE)
    tools = (book, used("mail", "Error: no such address", ok=False)) if number == 2 else (book,)
    return Trace(
        id=f"{agent}{task:02}.{number}",
        task_id=f"q{task}",
        candidate_id="base",
        started_at=NO_TIME,
        steps=(call, *tools),
        agent=agent,
        domain="oslo",
        rewards=(judge,),
    )


@pytest.fixture
def store(tmp_path: Path) -> Path:
    with open_traces(tmp_path / "traces.db") as opened:
        opened.add(attempt(task, number) for task in range(TASKS) for number in range(3))
        opened.add([attempt(0, 0, agent="other")])
    return tmp_path / "traces.db"


def label(store: Path) -> None:
    """A person says of each attempt of the desk what is true: the one that booked another seat is wrong."""
    with open_traces(store) as opened:
        for task in range(TASKS):
            for number in range(3):
                opened.label(f"desk{task:02}.{number}", number != 2, who="ada", at=NO_TIME)


def test_without_a_label_it_says_how_often_signals_fire_and_how_to_label(
    store: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["traces", "signals", "--store", str(store)]) == 0
    said = capsys.readouterr()
    assert "tool_errors" in said.out
    assert "of no attempt is known whether it was right" in said.err
    assert "journeyman traces label --telling" in said.err
    assert "What tools refused and took in the end teaches without one: journeyman train playbook --from traces" in said.err


def test_with_labels_it_says_what_each_signal_is_worth_here(store: Path, capsys: pytest.CaptureFixture[str]) -> None:
    label(store)
    assert main(["traces", "signals", "--agent", "desk", "--store", str(store), "--json"]) == 0
    told = json.loads(capsys.readouterr().out.splitlines()[-1])
    assert (told["attempts"], told["labelled"], told["failed"], told["groups"], told["nothing_to_say"]) == (
        90,
        90,
        30,
        30,
        None,
    )
    found = {each["signal"]: each for each in told["signals"]}
    assert found["tool_errors"]["auc"]["value"] == 1
    assert (found["tool_errors"]["fires"], found["tool_errors"]["votes"]) == (30, False)
    twin = found["differs_from_right"]
    assert (twin["votes"], twin["fires"], twin["fail_if_fires"]["value"]) == (True, 30, 1)
    (judge,) = told["judges"]
    assert (judge["judge"], judge["agent"], judge["votes"], judge["sessions"]) == ("strict", "desk", False, 90)


def test_the_table_names_votes_and_judges_and_the_filters_of_list_hold(
    store: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "200")
    label(store)
    assert main(["traces", "signals", "--domain", "oslo", "--store", str(store)]) == 0
    said = capsys.readouterr()
    assert "where it fires 100% failed here" in said.out
    assert "it cannot tell successes from failures" in said.out
    assert "of 91 attempts 90 are known to be right or wrong, 30 wrong, in 30 groups" in said.err
    assert main(["traces", "signals", "--agent", "nobody", "--store", str(store), "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["attempts"] == 0


def test_an_empty_store_says_what_would_fill_it(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with open_traces(tmp_path / "none.db"):
        pass
    assert main(["traces", "signals", "--store", str(tmp_path / "none.db")]) == 0
    assert "There are no traces" in capsys.readouterr().err
