"""What `journeyman train playbook --from traces` says to somebody who uses it for the first time."""

import json
import time
from dataclasses import replace
from pathlib import Path

import pytest

from journeyman.cli import main
from journeyman.core.trace import OWN_AGENT, Message, ModelCall, ToolCall, Trace
from journeyman.models import KEY
from journeyman.models.base import Dialect, ModelRequest, Reply
from journeyman.stores import open_traces
from tests.support.desk_traces import CLERK, recorded

COMMAND = ["train", "playbook", "--from", "traces"]


@pytest.fixture(autouse=True)
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv(KEY, raising=False)
    return tmp_path


def keep(traces: list[Trace]) -> None:
    Path(".journeyman").mkdir(exist_ok=True)
    with open_traces(".journeyman/journeyman.db") as store:
        store.add(traces)


def in_prose(trace: Trace) -> Trace:
    """The same refusal of an API that says what it wants in a sentence, the same to everybody."""
    asked, used = trace.steps
    assert isinstance(used, ToolCall)
    return replace(trace, steps=(asked, replace(used, result="Error: dates must look like DD.MM.YYYY")))


def test_a_dry_run_says_who_is_left_out_and_what_is_asked_of_whom(capsys: pytest.CaptureFixture[str]) -> None:
    keep(recorded("oslo", 0, 120))
    assert main([*COMMAND, "--dry-run"]) == 0
    said = capsys.readouterr().out
    assert "desk/oslo: 120 traces\n" in said
    assert "are left out, so that no request, customer or session is on both sides" in said
    assert "a template puts the evidence into words: no --reflector-model is named, and no OPENAI_API_KEY is set" in said
    assert "and some for each new rule, to see what is lost without it" in said
    assert "never more than 1,500 calls in all (--max-calls)" in said
    assert not Path("playbooks").exists()


def test_what_journeyman_itself_asked_through_the_gateway_is_no_evidence(capsys: pytest.CaptureFixture[str]) -> None:
    traces = recorded("oslo", 0, 40)
    keep([*traces[:30], *(replace(trace, agent=OWN_AGENT) for trace in traces[30:])])
    assert main([*COMMAND, "--dry-run"]) == 0
    said = capsys.readouterr().out
    assert "desk/oslo: 30 traces\n" in said
    assert OWN_AGENT not in said


def test_where_nothing_can_be_told_it_says_what_would_help(capsys: pytest.CaptureFixture[str]) -> None:
    keep([in_prose(trace) for trace in recorded("oslo", 0, 120)])
    assert main([*COMMAND, "--model", CLERK, "--reflector-model", f"{__name__}:Apt"]) == 0
    said = capsys.readouterr().out
    assert "- Write the date as DD.MM.YYYY." in said
    assert "not examinable: " in said
    assert "More requests may tell: run this again when there are more. Or live sessions tell, if you say so: " in said
    assert " --agent desk --domain oslo --force --reason WHY" in said


def test_a_reflector_whose_answers_are_of_no_use_is_named_as_the_cause(capsys: pytest.CaptureFixture[str]) -> None:
    keep(recorded("oslo", 0, 60))
    assert main([*COMMAND, "--reflector-model", f"{__name__}:Useless", "--no-evaluate"]) == 0
    assert "nothing was learned: not put into words: " in capsys.readouterr().out


def test_where_every_rule_waits_for_a_person_it_says_so(capsys: pytest.CaptureFixture[str]) -> None:
    def nameless(trace: Trace) -> Trace:
        asked, *others = trace.steps
        return replace(trace, session=trace.id, steps=(replace(asked, raw={**asked.raw, "request": {}}), *others))

    keep([nameless(trace) for trace in recorded("oslo", 0, 60)])
    assert main([*COMMAND, "--reflector-model", CLERK, "--no-evaluate"]) == 0
    said = capsys.readouterr().out
    assert "unexamined: nothing may be shown before a person has approved it: every rule that was drawn is held" in said
    assert "Approve one that is held: journeyman playbook approve playbooks/desk-oslo.json b-" in said


def test_where_no_rule_was_drawn_it_does_not_say_that_none_is_new(capsys: pytest.CaptureFixture[str]) -> None:
    keep([in_prose(trace) for trace in recorded("oslo", 0, 60)])
    assert main([*COMMAND, "--reflector-model", CLERK, "--no-evaluate"]) == 0
    assert "nothing was learned: the reflector drew no rule from what is there" in capsys.readouterr().out


def test_where_the_recorded_model_is_served_no_more_it_says_so_before_it_asks_and_names_no_other_by_itself(
    capsys: pytest.CaptureFixture[str],
) -> None:
    keep([elsewhere(trace, "http://127.0.0.1:9/v1") for trace in recorded("oslo", 0, 120)])
    assert main(COMMAND) == 2
    said = capsys.readouterr().err
    assert "nobody listens at http://127.0.0.1:9/v1 (" in said
    assert "name a model with --model" in said
    assert "Traceback" not in said


def test_where_it_is_not_recorded_who_answered_a_model_is_asked_for(capsys: pytest.CaptureFixture[str]) -> None:
    keep(recorded("oslo", 0, 120))
    assert main(COMMAND) == 2
    assert "it is not recorded who answered these requests; " in capsys.readouterr().err


def elsewhere(trace: Trace, url: str) -> Trace:
    """The same, of another server."""
    asked, *others = trace.steps
    assert isinstance(asked, ModelCall)
    return replace(trace, steps=(replace(asked, raw={**asked.raw, "base_url": url}), *others))


def test_requests_with_pictures_are_left_out_and_counted(capsys: pytest.CaptureFixture[str]) -> None:
    def shown(trace: Trace) -> Trace:
        asked, *others = trace.steps
        assert isinstance(asked, ModelCall)
        messages = (*asked.messages, Message(role="user", text="[image/png, 3 kB]"))
        return replace(trace, steps=(replace(asked, messages=messages), *others))

    keep([shown(trace) for trace in recorded("oslo", 0, 120)])
    assert main([*COMMAND, "--dry-run"]) == 0
    assert "27 requests with pictures, sounds or files, which are left out)" in capsys.readouterr().out


def test_tasks_of_no_traces_are_no_file(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["dataset", "from-traces", "--output", "tasks.jsonl"]) == 2
    assert "there are no traces in that time; journeyman serve records some" in capsys.readouterr().err
    assert list(Path().iterdir()) == []


def test_a_reflector_that_is_not_there_is_said_at_once(capsys: pytest.CaptureFixture[str]) -> None:
    keep(recorded("oslo", 0, 60))
    began = time.monotonic()
    assert main([*COMMAND, "--reflector-model", "openai:m@http://127.0.0.1:9/v1", "--no-evaluate"]) == 0
    assert "nothing was learned: not put into words: nobody listens at http://127.0.0.1:9/v1" in capsys.readouterr().out
    assert time.monotonic() - began < 20


class Useless:
    """Implements `Model`."""

    name = "useless"
    dialect: Dialect = "full"
    deterministic = True
    text = "I cannot help with that."

    async def complete(self, _: ModelRequest) -> Reply:
        return Reply(text=self.text, model=self.name)

    async def close(self) -> None:
        pass


class Apt(Useless):
    name = "apt"
    text = json.dumps(
        {"insights": [{"verdict": "helpful", "content": "Write the date as DD.MM.YYYY.", "about": "date"}], "shown": []}
    )
