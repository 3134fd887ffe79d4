"""`journeyman settings`, and where a setting comes from: the file, the environment, an option."""

import json
import os
import re
import subprocess
import sys
import tomllib
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from journeyman import TrainingConfig
from journeyman.cli import main
from journeyman.core.errors import InputError
from journeyman.core.trace import Trace
from journeyman.experiments import place, settings
from journeyman.stores import RunRecord, open_store, open_traces

NOON = datetime(2026, 3, 4, 12, tzinfo=UTC)


@pytest.fixture(autouse=True)
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    # Whoever runs the tests may have set some, for other tests.
    for name in [each for each in os.environ if each.startswith(place.PREFIX)]:
        monkeypatch.delenv(name)


def shown(capsys: pytest.CaptureFixture[str], *arguments: str) -> dict[str, Any]:
    assert main(["settings", *arguments, "--json"]) == 0
    found: dict[str, Any] = json.loads(capsys.readouterr().out.splitlines()[-1])["settings"]
    return found


def test_what_is_said_later_wins_and_everything_says_where_it_was_said(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    Path("journeyman.toml").write_text("[gate]\nmin_gain = 0.1\nmin_tasks = 40\n\n[examination]\nheld_out = 50\n")
    monkeypatch.setenv("JOURNEYMAN_GATE__MIN_GAIN", "0.2")
    gate = shown(capsys, "gate")
    assert {name: (each["value"], each["origin"]) for name, each in gate.items()} == {
        "gate.alpha": (0.05, "default"),
        "gate.min_gain": (0.2, "JOURNEYMAN_GATE__MIN_GAIN"),
        "gate.min_clusters": (10, "default"),
        "gate.guardrails": ([], "default"),
        "gate.min_tasks": (40, f"{Path('journeyman.toml').resolve()}:3"),
    }
    config = settings.configured(TrainingConfig, {"min_gain": 0.3})
    assert (config.min_gain, config.min_tasks, config.held_out, config.alpha) == (0.3, 40, 50, 0.05)


def test_a_table_shows_every_setting_that_the_tree_has(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["settings"]) == 0
    out, err = capsys.readouterr()
    assert "file: none; write one: journeyman settings init" in err
    lines = [line for line in out.splitlines()[1:] if not line.startswith(" ")]
    assert [line.split()[0] for line in lines] == [each.name for each in settings.listed(settings.load())]


def test_the_file_that_is_written_says_nothing_until_a_mark_is_taken_off(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["settings", "init"]) == 0
    text = Path("journeyman.toml").read_text()
    assert all(each["origin"] == "default" for each in shown(capsys).values())
    # With every mark taken off that stands before a value, it says the defaults, and all of them.
    opened = re.sub(r"^# (\[?[\w.]+\]?(?: = .+)?)$", r"\1", text, flags=re.MULTILINE)
    said = tomllib.loads(opened)
    del said["upstreams"], said["prices"], said["alerts"]["channels"]
    given = {f"{section}.{name}": value for section, values in said.items() for name, value in values.items()}
    known = {each.name: each.value for each in settings.listed(settings.load()) if each.value is not None}
    assert given == json.loads(json.dumps(known))
    assert main(["settings", "init"]) == 2
    assert "is there already, and is left as it is" in capsys.readouterr().err
    assert Path("journeyman.toml").read_text() == text


def test_the_password_of_a_store_is_not_shown(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("JOURNEYMAN_STORE", "postgresql://me:secret@host/db")
    store = shown(capsys, "store")["store.url"]
    assert (store["value"], store["origin"]) == ("postgresql://me:***@host/db", "JOURNEYMAN_STORE")
    assert main(["settings"]) == 0
    assert "secret" not in "".join(capsys.readouterr())


@pytest.mark.parametrize(
    ("name", "value", "message"),
    [
        ("JOURNEYMAN_GATE__MIN_TASK", "3", "there is no setting gate.min_task; did you mean gate.min_tasks?"),
        ("JOURNEYMAN_GATE__MIN_TASKS", "many", "gate.min_tasks is 'many', and must be a whole number"),
        ("JOURNEYMAN_GATES__ALPHA", "0.1", "there is no section gates; there are store, models, playbook, traces, gate"),
    ],
)
def test_a_variable_that_says_what_no_setting_is_is_named(
    name: str, value: str, message: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(name, value)
    with pytest.raises(InputError, match=f"^{name}: {re.escape(message)}"):
        settings.load()


def test_names_of_before_are_taken_in_a_file_and_from_programs() -> None:
    Path("journeyman.toml").write_text('[gate]\nleast_gain = 0.1\n\n[models]\ngenerator = "scripted:x"\n')
    config = settings.configured(TrainingConfig, {})
    assert (config.min_gain, config.generator_model) == (0.1, "scripted:x")
    with pytest.warns(DeprecationWarning, match="least_tasks is called min_tasks now"):
        assert TrainingConfig(least_tasks=7).min_tasks == 7  # type: ignore[call-arg]


def test_a_section_that_is_none_is_answered_with_those_that_there_are(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["settings", "gates"]) == 2
    assert "there is no section gates; there are store, models, playbook, traces, gate" in capsys.readouterr().err


def test_what_init_wrote_is_read_by_every_command(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["settings", "init"]) == 0
    project = settings.load()
    here: dict[str, Any] = {"project": str(project.folder), "store": project.store_url}
    assert settings.configured(TrainingConfig, {}, project) == TrainingConfig(**here)


@pytest.mark.parametrize(
    "text",
    [
        'store = "postgresql://u:hunter2@h/d"',
        '[store]\nurl = ["postgresql://u:hunter2@h/d"]',
        '[serve]\ntoken_env = ["hunter2"]',
        '[serve]\ntoken_env = "hunter2-and-more"',
    ],
)
def test_what_may_be_a_secret_is_in_no_complaint(text: str) -> None:
    Path("journeyman.toml").write_text(text)
    with pytest.raises(InputError) as refused:
        settings.load()
    assert "hunter2" not in str(refused.value)


@pytest.mark.parametrize(
    ("models", "environment", "message"),
    [
        (
            'base_url = "http://evil.example/v1"\nkey_env = "OPENAI_API_KEY"',
            {},
            "sends OPENAI_API_KEY, the key of api.openai.com",
        ),
        (
            'base_url = "http://evil.example/v1"',
            {"JOURNEYMAN_MODELS__KEY_ENV": "MY_KEY"},
            "is said by a file, and its key by JOURNEY",
        ),
    ],
)
def test_a_file_sends_no_key_of_the_users_to_a_server_of_its_own(
    models: str, environment: dict[str, str], message: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    Path("journeyman.toml").write_text(f"[models]\n{models}\n")
    for name, value in environment.items():
        monkeypatch.setenv(name, value)
    with pytest.raises(InputError, match=message):
        settings.load()


def test_names_of_before_are_taken_from_the_environment_too(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("JOURNEYMAN_GATE__LEAST_GAIN", "0.1")
    monkeypatch.setenv("JOURNEYMAN_MODELS__GENERATOR", "scripted:x")
    project = settings.load()
    config = settings.configured(TrainingConfig, {}, project)
    assert (config.min_gain, config.generator_model) == (0.1, "scripted:x")
    assert project.origins[("gate", "min_gain")] == "JOURNEYMAN_GATE__LEAST_GAIN"


def test_variables_that_contradict_each_other_are_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("JOURNEYMAN_GATE__ALPHA", "0.1")
    monkeypatch.setenv("JOURNEYMAN_GATE__ALPHA__X", "3")
    with pytest.raises(InputError, match="JOURNEYMAN_GATE__ALPHA"):
        settings.load()


def test_options_of_the_commands_that_train_nothing_are_settings_too(capsys: pytest.CaptureFixture[str]) -> None:
    Path("journeyman.toml").write_text(
        "[curve]\nwindow = 4\n[plan]\ndeadline = 9.5\n[serve]\nport = 4100\npages = false\n[collect]\nexecutions = 7\n"
    )
    found = shown(capsys)
    expected = {"curve.window": 4, "plan.deadline": 9.5, "serve.port": 4100, "serve.pages": False, "collect.executions": 7}
    assert {name: found[name]["value"] for name in expected} == expected
    rows = [{"task_id": n, "score": n % 2} for n in range(20)]
    Path("rows.jsonl").write_text("\n".join(map(json.dumps, rows)))
    for options, window in (((), 4), (("--window", "3"), 3)):
        assert main(["curve", "rows.jsonl", "--json", *options]) == 0
        assert json.loads(capsys.readouterr().out)["window"] == window
    assert main(["curve", "rows.jsonl", "--part", "0.7"]) == 2
    assert "--part is 0.7, and must lie above 0 and at most at 0.5" in capsys.readouterr().err


def test_the_seed_of_one_training_is_no_others() -> None:
    Path("journeyman.toml").write_text("[pretrain]\nseed = 7\nsize = 'small'\n")
    pretraining = settings.configured(settings.PretrainConfig, {"size": "tiny"})
    assert (pretraining.seed, pretraining.size) == (7, "tiny")
    assert settings.configured(TrainingConfig, {}).seed == 0


def test_no_file_names_who_works_or_which_model_is_sent_a_key() -> None:
    """It may have come with somebody's data."""
    for name in ("workers_from", "models", "planner"):
        Path("journeyman.toml").write_text(f'[plan]\n{name} = "evil:CREW"\n')
        with pytest.raises(InputError, match=f"there is no setting plan.{name}"):
            settings.load()


def test_a_variable_that_nobody_reads_is_said_with_the_one_that_may_be_meant(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    settings._warn_once.cache_clear()
    for name in ("GATE_MIN_GAIN", "STOR", "MIN_TASKS", "GATE_LEAST_GAIN", "MY_TOKEN", "USER", "SANDBOX_TOKEN", "DATA"):
        monkeypatch.setenv(f"JOURNEYMAN_{name}", "0.1")
    for _ in range(2):
        settings.load()
    said = "the variable JOURNEYMAN_{} is read by nobody; did you mean JOURNEYMAN_{}?".format
    assert sorted(caplog.messages) == [
        said("GATE_LEAST_GAIN", "GATE__LEAST_GAIN"),
        said("GATE_MIN_GAIN", "GATE__MIN_GAIN"),
        said("MIN_TASKS", "GATE__MIN_TASKS"),
        said("STOR", "STORE"),
    ]


def test_every_variable_that_some_part_reads_is_known_here() -> None:
    """Those of the host's secrets, which the audit of sandboxes plants, are read by no part; what an agent behind walls is told
    is no setting."""
    source = Path(settings.__file__).parents[1]
    within = source / "agents" / "inside"
    files = (file for file in source.rglob("*.py") if within not in file.parents)
    named = {name for file in files for name in re.findall(r"\"(JOURNEYMAN_[A-Z]+(?:_[A-Z]+)*)\"", file.read_text())}
    assert {name for name in named if "SECRET" not in name} == place.READ


def test_a_setting_without_its_section_is_told_where_it_belongs(capsys: pytest.CaptureFixture[str]) -> None:
    for text in ("min_gain = 0.1\n", "[min_gain]\nvalue = 0.1\n"):
        Path("journeyman.toml").write_text(text)
        assert main(["settings"]) == 2
        said = capsys.readouterr().err
        assert "journeyman.toml:1: there is no section min_gain; min_gain is a setting of [gate], and belongs under it" in said
    Path("journeyman.toml").unlink()
    assert main(["settings", "gat"]) == 2
    said = capsys.readouterr().err
    assert "upstreams, " in said
    assert "did you mean gate?" in said
    assert main(["settings", "upstreams", "--json"]) == 0


def test_a_store_that_somebody_named_and_that_is_not_there_is_no_empty_one(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    reads = (["traces", "list"], ["traces", "search", "x"], ["traces", "show", "x"], ["runs", "list"], ["releases", "list"])
    for read in reads:
        assert main([*read, "--store", "nowhere.db"]) == 2
        assert "there is no store at sqlite:///nowhere.db, which --store names; name one" in capsys.readouterr().err
    assert main(["route", "train", "--store", "nowhere.db"]) == 2
    assert main(["traces", "list"]) == 0
    assert "There are no traces in" in capsys.readouterr().err
    monkeypatch.setenv("JOURNEYMAN_STORE", "/nonexistent/x.db")
    for read in reads:
        assert main(read) == 2
        assert "no store at sqlite:////nonexistent/x.db, which JOURNEYMAN_STORE names" in capsys.readouterr().err
    assert list(Path().iterdir()) == []


@pytest.mark.parametrize("variable", ["", "STORE=named.db", "GATE__MIN_GAIN=0.1", "DATA=/data"])
@pytest.mark.parametrize(
    ("text", "alone"),
    [
        ("", True),
        ("# [gate]\n# min_gain = 0.1\n", True),
        ("[store]\nurl = 'kept/here.db'\n", True),
        ("[store]\nurl = 'sqlite:///here.db'\n", True),
        ("store.url = 'postgresql://u:secret@h/d'\n", True),
        ("[store]\nurl = 'here.db'\nartifacts = 'a'\n", False),
        ("[store]\n", False),
        ("[gate]\nmin_gain = 0.2\n", False),
        ("[store]\nurl = 3\n", False),
    ],
)
def test_where_the_store_is_is_the_same_without_the_other_settings(
    text: str, alone: bool, variable: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    if variable:
        name, value = variable.split("=")
        monkeypatch.setenv(f"JOURNEYMAN_{name}", value)
    Path("journeyman.toml").write_text(text)
    Path("within").mkdir()
    monkeypatch.chdir("within")
    found = place.store_place()
    assert (found is not None) == (alone and "GATE" not in variable)
    if found is not None:
        project = settings.load()
        assert (found.url, found.origin) == (project.store_url, project.origins.get(("store", "url")))


@pytest.mark.parametrize("command", [["traces", "list"], ["runs", "list"], ["store", "status"]])
def test_a_command_that_only_looks_at_the_store_loads_nothing_that_checks_computes_or_paints(command: list[str]) -> None:
    Path("journeyman.toml").write_text("# [gate]\n")
    with open_traces(".journeyman/journeyman.db") as traces, open_store(".journeyman/journeyman.db") as store:
        traces.add([Trace(id="t1", task_id="t", candidate_id="base", started_at=NOON)])
        store.add_run(RunRecord(id="r1", kind="train playbook", config={}, started_at=NOON))
    heavy = ("alembic", "numpy", "pydantic", "rich.console", "journeyman.experiments.settings")
    code = f"import sys; from journeyman.cli import main; print(main({command}), [n for n in {heavy} if n in sys.modules])"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert any(each in done.stdout for each in ("t1", "r1", "traces"))
    assert done.stdout.splitlines()[-1] == "0 []"
