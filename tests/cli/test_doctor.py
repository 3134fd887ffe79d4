import json
import sqlite3
from pathlib import Path

import pytest

from journeyman.cli import main
from journeyman.cli.doctor import _REQUIREMENT, HealthCheck, examine, package
from journeyman.core.errors import MissingExtra
from journeyman.core.installation import advised, installing
from journeyman.stores import open_store
from journeyman.stores.engine import HEAD

pytestmark = pytest.mark.service


def examined(start: Path, **environment: str) -> dict[str, HealthCheck]:
    return {check.name: check for check in examine(start, environment)}


def test_a_working_installation_is_said_to_work(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(tmp_path)
        assert main(["doctor"]) == 0
    out = capsys.readouterr().out
    first, *others = out.splitlines()
    assert first == "Everything needed works."
    assert len(others) <= 60
    assert sum(line.split()[1] == "embedded" for line in others if line.startswith("  ")) == 1
    assert list(tmp_path.iterdir()) == []


def test_json_is_the_last_line_and_says_the_same(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["doctor", "--json"]) == 0
    told = json.loads(capsys.readouterr().out.splitlines()[-1])
    assert told["ok"] is True
    assert set(told["checks"][0]) == {"group", "name", "state", "detail", "mend", "needed"}


def test_a_key_is_never_shown(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("OPENAI_API_KEY", "sk-secret")
    monkeypatch.setenv("JOURNEYMAN_STORE", "postgresql://me:secret@127.0.0.1:1/x")
    for arguments in (["doctor"], ["doctor", "--json"]):
        main(arguments)
        told = capsys.readouterr()
        assert "secret" not in told.out + told.err
    found = examined(tmp_path, OPENAI_API_KEY="sk-secret")
    assert found["OPENAI_API_KEY"].state == "ok"
    assert found["OPENAI_BASE_URL"].state == "no"


def test_a_package_that_is_missing_or_too_old_comes_with_what_to_type() -> None:
    missing = package("no-such-package", "1.0", "embedded")
    assert (missing.state, missing.mend, missing.works) == ("missing", installing("embedded"), True)
    assert not package("no-such-package", None, None).works
    old = package("click", "999.1", None)
    assert (old.state, old.works) == ("broken", False)
    assert old.detail.endswith("and 999.1 or newer is needed")
    assert package("click", "8.2", None).state == "ok"


def test_an_extra_is_added_to_the_installation_that_is_there(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    clone = tmp_path / "my clone"
    clone.mkdir()
    note = json.dumps({"dir_info": {"editable": True}, "url": clone.as_uri()})
    assert installing("ray", note) == f"pip install -e '{clone}[ray]'"
    gone = '{"url": "file:///x/journeyman.whl", "archive_info": {}}'
    assert installing("ray", gone) == "pip install '/x/journeyman.whl[ray]'", "no index is known to have it"
    assert installing(None, "{}") == "pip install --force-reinstall journeyman"
    wheel = tmp_path / "journeyman-0.1.0-py3-none-any.whl"
    wheel.touch()
    assert installing("ray", json.dumps({"url": wheel.as_uri(), "archive_info": {}})) == f"pip install '{wheel}[ray]'"
    commit = json.dumps({"url": "https://host/j.git", "vcs_info": {"vcs": "git", "commit_id": "ab12"}})
    assert installing("ray", commit) == "pip install 'journeyman[ray] @ git+https://host/j.git@ab12'"
    monkeypatch.chdir(clone)
    assert installing("ray", note) == "pip install -e '.[ray]'"


def test_what_pipx_and_uv_look_after_stays_theirs(tmp_path: Path) -> None:
    assert installing("ray", "{}", "/srv/ada/.local/pipx/venvs/journeyman") == "pipx install --force 'journeyman[ray]'"
    assert installing("ray", "{}", "/srv/ada/.local/share/uv/tools/journeyman") == "uv tool install --force 'journeyman[ray]'"
    (tmp_path / "pyvenv.cfg").write_text("home = /usr/bin\nuv = 0.9.1\n")
    assert installing("ray", "{}", str(tmp_path)) == "uv pip install 'journeyman[ray]'"


def test_what_a_program_is_told_to_install_is_right_for_how_it_was_installed_and_stays_so() -> None:
    told = str(MissingExtra("x is missing: pip install 'journeyman[ray]', or leave it out"))
    assert told == f"x is missing: {installing('ray')}, or leave it out"
    assert str(MissingExtra(told)) == told
    assert advised("pip install journeyman and") == f"{installing(None)} and"
    url = "pip install 'journeyman[ray] @ git+https://host/j.git@ab12'"
    for kept in ("pip install wandb", "pip install journeyman-extra", "uv pip install 'journeyman[ray]'", url):
        assert advised(kept) == kept


def test_every_package_and_wall_is_a_line_when_all_of_it_is_asked_for(capsys: pytest.CaptureFixture[str]) -> None:
    main(["doctor", "--verbose"])
    out = capsys.readouterr().out
    assert out.startswith("Everything needed works.\n")
    assert "pydantic" in out


def test_every_extra_is_looked_at() -> None:
    groups = {check.group for check in examine()}
    assert {"core", "extra: embedded", "extra: datasets", "extra: postgres", "embedded model", "project", "machine"} <= groups


def test_what_serves_learned_weights_is_looked_for_on_the_path(tmp_path: Path) -> None:
    server = tmp_path / "llama-server"
    server.write_text("#!/bin/sh\n")
    server.chmod(0o755)
    found = examined(tmp_path, PATH=str(tmp_path))
    assert (found["llama-server"].state, found["llama-server"].detail) == ("ok", str(server))
    assert (found["ollama"].state, found["ollama"].works) == ("no", True)


def test_requirements_with_extras_of_their_own_are_understood() -> None:
    found = _REQUIREMENT.match("llama-cpp-python[server]>=0.3.16; extra == 'gguf'")
    assert found is not None
    assert found.groupdict() == {"name": "llama-cpp-python", "least": "0.3.16", "extra": "gguf"}


def test_a_store_is_found_where_the_settings_say(tmp_path: Path) -> None:
    (tmp_path / "journeyman.toml").write_text('[store]\nurl = "mine.db"\n')
    assert "not there yet" in examined(tmp_path)["store"].detail
    open_store(tmp_path / "mine.db").close()
    assert f"mine.db: schema step {HEAD}" in examined(tmp_path)["store"].detail


def test_a_store_from_the_future_and_a_file_that_is_none_are_broken(tmp_path: Path) -> None:
    file = tmp_path / "mine.db"
    open_store(file).close()
    db = sqlite3.connect(file)
    with db:
        db.execute("update alembic_version set version_num = '9999'")
    db.close()
    newer = examined(tmp_path, JOURNEYMAN_STORE=str(file))["store"]
    assert (newer.state, newer.mend) == ("broken", f"install the newer Journeyman, as this was: {installing(None)}")
    file.write_text("no database " * 100)
    damaged = examined(tmp_path, JOURNEYMAN_STORE=str(file))["store"]
    assert not damaged.works
    assert "file is not a database; move it away" in damaged.detail


@pytest.mark.parametrize(("url", "state"), [("memory:", "ok"), ("mysql://h/x", "broken"), ("postgresql://h:port/x", "broken")])
def test_a_store_that_cannot_be_is_broken(tmp_path: Path, url: str, state: str) -> None:
    assert examined(tmp_path, JOURNEYMAN_STORE=url)["store"].state == state


def test_settings_that_cannot_be_read_are_broken(tmp_path: Path) -> None:
    (tmp_path / "journeyman.toml").write_text("[plybook]\n")
    settings = examined(tmp_path)["settings"]
    assert not settings.works
    assert "did you mean playbook?" in settings.detail
