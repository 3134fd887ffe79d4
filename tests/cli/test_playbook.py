import json
import shutil
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from journeyman.cli import main
from journeyman.cli.playbook import _READABLE, _WRITABLE, command
from journeyman.core.playbook import Batch, Bullet, Lock, Playbook
from journeyman.optimizers.playbook import edit, files, formats
from tests.support.playbooks import DATA, unpacked

OSLO = Playbook(
    bullets=(
        Bullet(id="b-1", content="Always write the amount in cents.", domain="oslo", helpful=3),
        Bullet(id="b-2", content="Never write the amount in cents.", domain="oslo", harmful=4),
        Bullet(id="b-3", content="Write dates as [bold]year-month-day[/bold].", domain="rome", locked=True),
        Bullet(id="b-4", content="always write the amount in CENTS", domain="oslo", helpful=1),
        Bullet(id="b-5", content="Old.", domain="rome", retired="wrong"),
    )
)


@pytest.fixture
def oslo(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    files.save(OSLO, Path("oslo.json"))
    return tmp_path / "oslo.json"


class Told:
    """What a call has said."""

    def __init__(self, capsys: pytest.CaptureFixture[str]) -> None:
        self._capsys = capsys

    def __call__(self, *arguments: str, code: int = 0) -> str:
        """stdout of `journeyman playbook ARGUMENTS`; stderr is in `err`."""
        assert main(["playbook", *arguments]) == code
        said = self._capsys.readouterr()
        self.err = said.err
        return said.out

    def json(self, *arguments: str) -> dict[str, Any]:
        told: dict[str, Any] = json.loads(self(*arguments, "--json").splitlines()[-1])
        return told


@pytest.fixture
def run(oslo: Path, capsys: pytest.CaptureFixture[str]) -> Told:
    return Told(capsys)


def test_show_lists_active_bullets_and_marks_contradictions(run: Told) -> None:
    out = run("show", "oslo.json")
    assert "contradicts b-2" in " ".join(out.replace("│", " ").split())
    assert "[bold]year" in out
    assert "b-5" not in out
    assert "b-5" in run("show", "oslo.json", "--all")
    assert "b-1" not in run("show", "oslo.json", "--domain", "rome")


def test_an_empty_playbook_is_said_to_be_empty(run: Told) -> None:
    Path("empty.txt").write_text("## STRATEGIES\n")
    run("import", "empty.txt", "--output", "empty.json")
    assert "empty.txt holds no bullets (ace): empty.json is an empty playbook" in run.err
    assert run("show", "empty.json") == "empty.json: 0 bullets, 0 retired. There is nothing to show.\n"
    assert run("show", "oslo.json", "--domain", "bergen").endswith("nothing to show of the domain bergen.\n")
    assert run("diff", "empty.json", "empty.json") == "The playbooks say the same.\n"


def test_brackets_in_ids_times_and_names_are_shown_as_they_are(run: Told) -> None:
    odd = Bullet(id="t[/b]12", content="See [/c] and [red]x\\", domain="[/d]", section="[/e]")
    files.save(Playbook(bullets=(odd, Bullet(id=":smile:", content="Two.", domain="rome"))), Path("odd.json"))
    out = run("show", "odd.json")
    assert all(part in out for part in ("t[/b]12", "[/c]", "[red]x", "[/d]", "[/e]", ":smile:"))
    edit.change(Path("odd.json"), Batch(id="x[/f]", deltas=(Lock(bullet_id="t[/b]12"),), at="[/g]"))
    out = run("log", "odd.json")
    assert "x[/f]: 1 lock" in out
    assert "[/g]" in out


def test_show_as_json_holds_the_rows_of_the_file_with_their_conflicts(run: Told) -> None:
    told = run.json("show", "oslo.json", "--all")
    assert (told["active"], told["retired"]) == (4, 1)
    assert [row["id"] for row in told["bullets"]] == ["b-1", "b-2", "b-3", "b-4", "b-5"]
    assert told["bullets"][0]["conflicts"] == ["b-2"]
    assert told["bullets"][0]["helpful_count"] == 3


def test_diff_says_what_changed_and_ends_well(run: Told) -> None:
    run("retire", "oslo.json", "b-2", "--reason", "it harms")
    assert run("diff", "oslo.json@0", "oslo.json") == "b-2 was retired: it harms\n"
    assert run("diff", "oslo.json", "oslo.json") == "The playbooks say the same.\n"
    told = run.json("diff", "oslo.json@0", "oslo.json")
    assert told["counts"] == {"retired": 1}
    assert told["differences"] == [{"kind": "retired", "id": "b-2", "words": "was retired: it harms"}]


def test_a_playbook_of_another_system_comes_in_and_goes_out_unchanged(run: Told, tmp_path: Path) -> None:
    text = unpacked(DATA / "ace-playbooks" / "appworld_offline_trained_no_gt_playbook.txt.gz")
    Path("ace.txt").write_text(text, encoding="utf-8")
    told = run.json("import", "ace.txt", "--output", "new/ace.json", "--domain", "appworld")
    assert told == {"format": "ace", "bullets": 318, "copies": 8, "output": "new/ace.json"}
    assert "journeyman playbook dedupe new/ace.json" in run.err
    first = files.load("new/ace.json").bullets[0]
    assert (first.domain, first.provenance.model) == ("appworld", "ace.txt")
    run("export", "new/ace.json", "--format", "appworld", "--output", "back.txt")
    assert Path("back.txt").read_text(encoding="utf-8") == text
    assert run.err == "lost: domains are left out (318 of 318 bullets)\n"


def test_a_skillbook_and_the_vectors_beside_it_come_in(run: Told) -> None:
    shutil.copy(DATA / "kayba-ace" / "skillbook_20260318_150822.json", "book.json")
    Path("book.embeddings.npz").write_bytes(b"not read")
    assert run.json("import", "book.json", "--output", "out.json")["format"] == "ace-framework"
    assert "book.embeddings.npz was not read" in run.err
    assert run("export", "out.json", "--format", "ace_framework_v1") == Path("book.json").read_text(encoding="utf-8")
    assert run.err == ""


def test_a_broken_file_is_not_imported_and_nothing_is_written(run: Told) -> None:
    Path("half.json").write_text('{"bullets": [\n{"id": "b-')
    run("import", "half.json", "--output", "new.json", code=2)
    assert run.err.startswith("journeyman: half.json:2: this is not whole JSON (the file is cut off)")
    assert not Path("new.json").exists()


def test_a_skill_is_a_folder_of_its_name(run: Told) -> None:
    told = run.json("export", "oslo.json", "--format", "skill", "--output", "skills/oslo-orders", "--domain", "oslo")
    assert told["output"] == "skills/oslo-orders/SKILL.md"
    assert Path(told["output"]).read_text().startswith("---\nname: oslo-orders\n")


def test_a_skill_comes_back_from_its_folder(run: Told) -> None:
    run("export", "oslo.json", "--format", "skill", "--output", "skills/oslo-orders", "--domain", "oslo")
    told = run.json("import", "skills/oslo-orders", "--output", "back.json")
    assert told["format"] == "skill"
    before, after = (Playbook.load(name) for name in ("oslo.json", "back.json"))
    # Two that say the same in other letters are one.
    assert [bullet.content for bullet in after.active] == [bullet.content for bullet in before.of("oslo")][:2]
    assert {bullet.domain for bullet in after.active} == {"oslo"}


def test_agents_and_claude_files_get_a_part_that_can_be_renewed_without_touching_the_rest(run: Told) -> None:
    Path("AGENTS.md").write_text("# Ours\n\nRun the tests.\n")
    Path("CLAUDE.md").symlink_to("AGENTS.md")
    words = ("export", "oslo.json", "--format", "agents-md", "--output", "CLAUDE.md")
    assert "+## Learned from experience" in run(*words, "--dry-run")
    assert Path("AGENTS.md").read_text() == "# Ours\n\nRun the tests.\n"
    assert run.json(*words)["changed"]
    once = Path("AGENTS.md").read_text()
    assert once.startswith("# Ours\n\nRun the tests.\n\n<!-- journeyman:begin oslo -->\n")
    assert Path("CLAUDE.md").is_symlink()
    assert not run.json(*words)["changed"]
    assert "says so already" in run.err
    assert (run(*words, "--dry-run"), Path("AGENTS.md").read_text()) == ("", once)
    run("retire", "oslo.json", "b-1", "--reason", "no more")
    run(*words)
    again = Path("AGENTS.md").read_text()
    assert again != once
    assert again.startswith("# Ours\n\nRun the tests.\n\n<!-- journeyman:begin oslo -->\n")
    assert again.count("journeyman:begin") == 1
    assert run.json("import", "CLAUDE.md", "--output", "back.json")["format"] == "agents-md"
    run("export", "oslo.json", "--format", "ace", "--name", "x", code=2)
    assert "leave out --name" in run.err


def test_a_prompt_is_called_as_its_file_or_as_it_is_said(run: Told) -> None:
    for format, words, name in (
        ("langfuse", ("--output", "desk-rules.json"), "desk-rules"),
        ("mlflow", ("--output", "desk-rules.json", "--name", "my desk"), "my desk"),
    ):
        run("export", "oslo.json", "--format", format, *words)
        assert json.loads(Path("desk-rules.json").read_text())["name"] == name
        assert run.json("import", "desk-rules.json", "--output", "back.json")["format"] == format


def test_what_an_export_loses_is_said_in_json_too(run: Told) -> None:
    told = run.json("export", "oslo.json", "--format", "ace")
    assert told["losses"] == [
        "retired bullets are left out (1 of 5 bullets)",
        "domains are left out (5 of 5 bullets)",
        "locks are left out (1 of 5 bullets)",
    ]
    assert told["text"].startswith("## STRATEGIES & INSIGHTS\n[b-1] helpful=3 harmful=0 :: Always")


def test_dedupe_writes_nothing_until_it_is_told_where(run: Told) -> None:
    before = Path("oslo.json").read_text()
    told = run.json("dedupe", "oslo.json")
    assert (told["exact"], told["near"], told["output"], told["bullets"]) == (1, 0, None, 3)
    assert told["merges"] == [{"kept": "b-1", "gone": ["b-4"]}]
    assert "nothing was written" in run.err
    run("dedupe", "oslo.json", "--dry-run")
    assert Path("oslo.json").read_text() == before
    run("dedupe", "oslo.json", "--similarity_threshold", "0.9", "--output", "new.json")
    assert files.load("new.json").bullets[0].helpful == 4
    assert Path("oslo.json").read_text() == before
    run("dedupe", "oslo.json", "--in-place")
    assert files.load("oslo.json").bullets[3].retired == "merged into b-1"


def test_only_one_place_to_write_to_may_be_named(run: Told) -> None:
    run("dedupe", "oslo.json", "--in-place", "--output", "x.json", code=2)
    assert "exclude each other" in run.err


def test_prune_retires_and_says_why(run: Told) -> None:
    told = run.json("prune", "oslo.json", "--harmful", "--in-place")
    assert [row["id"] for row in told["retired"]] == ["b-2"]
    assert "4 harmful votes against 0 helpful" in files.load("oslo.json").bullets[1].retired
    run("prune", "oslo.json", code=2)
    assert "say what to retire" in run.err


def test_a_locked_bullet_is_retired_only_after_it_is_unlocked(run: Told) -> None:
    run("retire", "oslo.json", "b-3", "--reason", "x", code=2)
    assert "bullet b-3 is locked" in run.err
    run("unlock", "oslo.json", "b-3")
    assert run.json("retire", "oslo.json", "b-3", "--reason", "x") == {
        "output": "oslo.json",
        "revision": 2,
        "bullets": 3,
        "id": "b-3",
    }
    run("lock", "oslo.json", "b-1")
    assert files.load("oslo.json").bullets[0].locked


def test_the_beginning_of_an_id_is_enough_to_lock_unlock_or_retire(run: Told) -> None:
    playbook = files.load("oslo.json")
    whole = replace(playbook.bullets[0], id="c-3f2a91c04d11")
    files.save(replace(playbook, bullets=(whole, *playbook.bullets[1:])), Path("long.json"))
    assert run.json("lock", "long.json", "c-3f")["id"] == whole.id
    assert files.load("long.json").bullets[0].locked
    run("unlock", "long.json", "c-3")
    assert run.json("retire", "long.json", "c", "--reason", "old")["id"] == whole.id
    run("lock", "long.json", "b-", code=2)
    assert "more than one bullet of long.json has an id that begins so" in run.err


def test_a_bullet_that_is_not_there_is_named(run: Told) -> None:
    run("lock", "oslo.json", "b-9", code=2)
    assert run.err == "journeyman: oslo.json has no bullet b-9; `journeyman playbook show oslo.json --all` lists them\n"


def test_the_log_tells_every_change_and_restore_undoes_them(run: Told) -> None:
    run("lock", "oslo.json", "b-1")
    run("retire", "oslo.json", "b-2", "--reason", "x")
    told = run.json("restore", "oslo.json", "1")
    assert (told["revision"], told["bullets"]) == (3, 4)
    whats = [row["what"].partition(":")[0].partition(" ")[0] for row in run.json("log", "oslo.json")["revisions"]]
    assert whats == ["begun", "lock", "retire", "revision"]
    assert "begun with 5 bullets" in run("log", "oslo.json")
    run("restore", "oslo.json", "9", code=2)
    assert "has no revision 9" in run.err


def test_every_command_has_help_with_an_example(run: Told) -> None:
    for name in command.commands:
        out = run(name, "--help")
        assert f"journeyman playbook {name} " in out
        assert "--json" in out


def test_the_formats_that_are_offered_are_those_that_there_are() -> None:
    assert (_READABLE, _WRITABLE) == (formats.READABLE, formats.WRITABLE)


def test_help_imports_nothing_heavy() -> None:
    script = (
        "import sys; from journeyman.cli import main; main(['playbook', 'import', '--help']); "
        "print([name for name in ('numpy', 'pydantic', 'rich', 'scipy') if name in sys.modules])"
    )
    out = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True).stdout
    assert out.splitlines()[-1] == "[]"
