"""`journeyman store`: what is in it, and that it comes back as it was."""

import gzip
import json
import sqlite3
from pathlib import Path
from typing import Any

import pytest

from journeyman.cli import main
from journeyman.stores import open_store
from journeyman.stores.engine import HEAD
from tests.support import postgres


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    return tmp_path


def collected(name: str) -> None:
    Path(f"{name}.jsonl").write_text(json.dumps({"messages": [{"role": "user", "content": f"say {name}"}]}) + "\n")
    assert main(["collect", f"{name}.jsonl"]) == 0


def told(capsys: pytest.CaptureFixture[str], *arguments: str) -> dict[str, Any]:
    capsys.readouterr()
    assert main(["store", *arguments, "--json"]) == 0
    found: dict[str, Any] = json.loads(capsys.readouterr().out.splitlines()[-1])
    return found


@pytest.mark.parametrize("arguments", [["status"], ["backup", "b.db"], ["migrate"], ["vacuum"]])
def test_where_there_is_no_store_none_is_made(capsys: pytest.CaptureFixture[str], folder: Path, arguments: list[str]) -> None:
    assert main(["store", *arguments]) == 2
    assert "yet; journeyman collect, serve or train begin one" in capsys.readouterr().err
    assert list(folder.iterdir()) == []


def test_its_version_size_and_rows_are_told(capsys: pytest.CaptureFixture[str]) -> None:
    collected("a")
    found = told(capsys, "status")
    assert (found["step"], found["newest"], found["rows"]["traces"]) == (HEAD, HEAD, 1)
    assert found["bytes"] > 10_000
    assert main(["store", "status"]) == 0
    assert "traces" in capsys.readouterr().out


def test_a_backup_that_is_made_while_somebody_writes_comes_back_as_it_was(capsys: pytest.CaptureFixture[str]) -> None:
    collected("a")
    with open_store(".journeyman/journeyman.db"):
        told(capsys, "backup", "monday.db")
    assert main(["store", "backup", "monday.db"]) == 2
    assert "write over it with --force" in capsys.readouterr().err
    collected("b")
    assert told(capsys, "status")["rows"]["traces"] == 2
    assert main(["store", "restore", "monday.db"]) == 2
    assert "say --force, which keeps it beside" in capsys.readouterr().err
    kept = told(capsys, "restore", "monday.db", "--force")["before"]
    assert told(capsys, "status")["rows"]["traces"] == 1
    assert told(capsys, "status", "--store", str(kept))["rows"]["traces"] == 2
    told(capsys, "restore", "monday.db", "--store", "elsewhere/new.db")
    assert told(capsys, "status", "--store", "elsewhere/new.db")["rows"]["traces"] == 1


@pytest.mark.parametrize("content", [b"", b"no database " * 100])
def test_what_is_no_backup_changes_nothing(capsys: pytest.CaptureFixture[str], content: bytes) -> None:
    collected("a")
    Path("other.db").write_bytes(content)
    assert main(["store", "restore", "other.db", "--force"]) == 2
    assert "other.db is no" in capsys.readouterr().err
    assert told(capsys, "status")["rows"]["traces"] == 1


def test_an_older_store_is_brought_up_to_date_when_it_is_said(capsys: pytest.CaptureFixture[str]) -> None:
    kept = Path(__file__).parents[1] / "golden" / "kept" / "store-0002.db.gz"
    Path("old.db").write_bytes(gzip.decompress(kept.read_bytes()))
    before = told(capsys, "status", "--store", "old.db")["step"]
    assert told(capsys, "migrate", "--dry-run", "--store", "old.db") == {
        "store": "sqlite:///old.db", "before": before, "after": HEAD, "dry_run": True,
    }  # fmt: skip
    assert told(capsys, "status", "--store", "old.db")["step"] == before
    assert told(capsys, "migrate", "--store", "old.db")["after"] == HEAD


def test_room_that_was_given_up_goes_back_to_the_disk(capsys: pytest.CaptureFixture[str]) -> None:
    collected("a")
    file = ".journeyman/journeyman.db"
    with sqlite3.connect(file) as here:
        here.execute("create table documents_of_old (text)")
        here.execute("insert into documents_of_old values (zeroblob(2000000))")
        here.execute("drop table documents_of_old")
    here.close()
    found = told(capsys, "vacuum")
    assert found["after"] < found["before"] - 1_500_000
    assert told(capsys, "status")["rows"]["traces"] == 1


@pytest.mark.postgres
def test_a_store_on_postgresql_is_told_kept_brought_back_and_vacuumed(capsys: pytest.CaptureFixture[str]) -> None:
    collected_line = json.dumps({"messages": [{"role": "user", "content": "say a"}]}) + "\n"
    Path("a.jsonl").write_text(collected_line)
    Path("b.jsonl").write_text(collected_line.replace("say a", "say b"))
    with postgres.database() as url:
        assert main(["collect", "a.jsonl", "--store", url]) == 0
        assert told(capsys, "status", "--store", url)["rows"]["traces"] == 1
        told(capsys, "backup", "monday.dump", "--store", url)
        assert main(["collect", "b.jsonl", "--store", url]) == 0
        assert main(["store", "restore", "monday.dump", "--store", url]) == 2
        assert "holds a store already" in capsys.readouterr().err
        told(capsys, "restore", "monday.dump", "--force", "--store", url)
        assert told(capsys, "status", "--store", url)["rows"]["traces"] == 1
        assert told(capsys, "migrate", "--store", url)["after"] == HEAD
        assert told(capsys, "vacuum", "--store", url)["after"] > 0
