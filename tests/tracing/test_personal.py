"""Personal data is masked, by names that are the same for the same, and nothing else is."""

import random
from pathlib import Path

import pytest

from journeyman.core.trace import ModelCall, Trace
from journeyman.tracing.personal import Personal, project_key
from journeyman.tracing.redaction import Redactor
from tests.support.personal import PLANTED, planted
from tests.tracing.test_redact import AT

KEY = b"k" * 32


@pytest.mark.parametrize("kind", PLANTED)
def test_personal_data_of_each_kind_goes_wherever_it_stands(kind: str) -> None:
    chance = random.Random(kind)
    personal = Personal(KEY)
    missed = []
    for _ in range(200):
        text, value = planted(kind, chance)
        for before, after in (("", ""), ("I said: ", ", and more."), ('{"text": "', '"}'), ("\n", "\n"), ("è ", " 日本")):
            clean = personal.text(before + text + after)
            if value in clean:
                missed.append((before, text))
            assert clean.startswith(before[:1])
    assert missed == []


def test_the_same_has_the_same_name_and_another_key_gives_another() -> None:
    one, other = Personal(KEY), Personal(b"x" * 32)
    said = "write to Ada.Lovelace@example.org or ada.lovelace@example.org, not to bob@example.org"
    clean = one.text(said)
    first, again, bob = (word.strip(",") for word in clean.split() if word.startswith("[EMAIL_"))
    assert first == again != bob
    assert one.text(clean) == clean
    assert other.text(said) != clean
    assert one.found == {"email": 3}


@pytest.mark.parametrize(
    "text",
    [
        "git clone git@github.com:org/repo.git",
        "np@self.weight and a @ b.T",
        "Co-Authored-By: Bot <noreply@anthropic.com>",
        "react@18.2.0 and lodash@4.17.x",
        "2026-09-01 12:30:15.123456 +0200",
        "+2026-09-01\n+20260901\n+1234567890",
        "127.0.0.1:8080 10.0.12.255 v1.23.4567",
        "1234567890123456 0000000000000000 4111-1111",
        "sha256:4539578763621486aa id=call_4539578763621486",
        "550e8400-e29b-41d4-a716-446655440000",
        "$ 1,234,567.89 and 0.30000000000000004",
        "@@ -120,12 +120,15 @@ def test()",
        "DE99 1234 5678 9012 3456 78",
        "1699999999 1699999999999 ticks",
        "port 05432 and row 012345",
        "0x1F 0755 077 00:11:22:33:44:55",
    ],
)
def test_what_only_looks_like_it_stays(text: str) -> None:
    assert Personal(KEY).text(text) == text


def test_names_that_a_source_knows_of_are_masked_in_all_texts() -> None:
    personal = Personal(KEY, ["Ada Lovelace", "root", "Bob  Jones"])
    clean = personal.text("ada lovelace asked Bob Jones, root and Adan Lovelacey")
    assert clean.count("[PERSON_") == 2
    assert clean.endswith("root and Adan Lovelacey")
    who = personal.person("Ada Lovelace <ada@example.org>")
    assert "ada" not in who.lower()
    assert personal.person(who) == who
    assert clean.split()[0] == who.split()[0]


def test_a_trace_is_masked_in_every_text_and_not_in_its_ids() -> None:
    said = "mail ada@example.org"
    call = ModelCall(id="+49 30 1234567", model="m", prompt=f"user: {said}", reply=said, raw={"who": "ada@example.org"})
    trace = Trace(id="+49 30 1234567", task_id="t", candidate_id="base", started_at=AT, steps=(call,), input=said)
    clean = Redactor((), Personal(KEY)).trace(trace)
    assert "ada@" not in repr(clean)
    assert (clean.id, clean.calls[0].id) == (trace.id, call.id)
    assert Redactor().trace(trace) == trace


def test_a_project_has_one_key_that_is_its_own(tmp_path: Path) -> None:
    key = project_key(tmp_path / ".journeyman")
    assert project_key(tmp_path / ".journeyman") == key != project_key(tmp_path / "other")
    assert (tmp_path / ".journeyman" / "key").stat().st_mode & 0o077 == 0
