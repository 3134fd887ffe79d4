import shutil
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from journeyman.rewards.base import UNREACHABLE
from journeyman.rewards.static import SyntaxValidationReward, json_fault, python_fault
from tests.support.traces import said

REWARD = SyntaxValidationReward()


def block(language: str, code: str) -> str:
    return f"```{language}\n{code}\n```"


GOOD = [
    ("python", "def f(x):\n    return x\n"),
    ("python", "x = '\\d'"),
    ("json", '{"a": [1, 2.5, null]}'),
    ("bash", "for f in *; do echo $f; done"),
    ("js", "const f = (x) => x + 1;"),
    ("js", "import fs from 'fs';\nexport const x = 1;"),
]
BAD = [
    ("python", "def f(:\n    return"),
    ("python", "x = '\0'"),
    ("python", "(" * 10_000),
    ("json", "{a: 1}"),
    ("json", "[" * 100_000),
    ("bash", "for f in *; do echo"),
    ("js", "const f = (x => ;"),
]


@pytest.mark.parametrize(("language", "code"), GOOD)
def test_what_can_be_parsed_is_one(language: str, code: str) -> None:
    if language == "js" and not shutil.which("node"):
        pytest.skip("node is not installed")
    assert REWARD.compute(said(block(language, code))).score == 1.0


@pytest.mark.parametrize(("language", "code"), BAD, ids=range(len(BAD)))
def test_what_cannot_be_parsed_is_zero_and_the_evidence_names_the_language(language: str, code: str) -> None:
    if language == "js" and not shutil.which("node"):
        pytest.skip("node is not installed")
    found = REWARD.compute(said(block(language, code)))
    assert found.score == 0.0
    assert "code is not well-formed: " in found.details["evidence"]
    assert len(found.details["evidence"]) < 300


def test_one_bad_block_among_good_ones_is_zero() -> None:
    assert REWARD.compute(said(block("python", "x = 1") + "\n" + block("json", "{"))).score == 0.0


@pytest.mark.parametrize("reply", ["no code at all", block("", "x ="), block("rust", "fn main( {}"), block("python", "  ")])
def test_nothing_to_parse_is_unknown(reply: str) -> None:
    assert REWARD.compute(said(reply)).score is None


def test_a_language_whose_parser_is_missing_is_unknown(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", "")
    found = REWARD.compute(said(block("bash", "echo 1")))
    assert (found.score, found.details["evidence"]) == (None, "bash is not installed")
    assert found.details[UNREACHABLE], "it is asked again once bash is there"


def test_nothing_of_the_code_is_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    mark = tmp_path / "was-run"
    monkeypatch.setenv("BASH_ENV", str(tmp_path / "env.sh"))
    (tmp_path / "env.sh").write_text(f"touch {mark}")
    codes = [
        ("python", f"open({str(mark)!r}, 'w')"),
        ("bash", f"touch {mark}; $(touch {mark})"),
        ("js", f"require('fs').writeFileSync({str(mark)!r}, '')"),
    ]
    for language, code in codes:
        REWARD.compute(said(block(language, code)))
    assert not mark.exists()


@given(st.text())
def test_any_text_gets_a_verdict(text: str) -> None:
    assert isinstance(python_fault(text), str)
    assert isinstance(json_fault(text), str)
