import ast
import json
import sys
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from radon.visitors import ComplexityVisitor

from journeyman.core.errors import InputError
from journeyman.rewards.development import code_measures
from journeyman.rewards.development.code_measures import V2, Architecture, ComplianceProfile, as_json, complies, load
from journeyman.rewards.development.work import DevelopmentWork, functions
from tests.support.traces import done

SMALL = "def f(a):\n    return a\n"


def judged(
    text: str, before: str | None = None, profile: ComplianceProfile = V2, *, soft: bool = True
) -> tuple[float | None, list[str]]:
    work = DevelopmentWork(trace=done(), before={} if before is None else {"a.py": before}, after={"a.py": text})
    result = Architecture(profile, soft).compute(work)
    return result.score, list(result.details.get("violations", ()))


def long_function(lines: int, name: str = "long") -> str:
    return f"def {name}(a):\n" + "    a += 1\n" * (lines - 2) + "    return a\n"


@pytest.mark.parametrize(
    ("limit", "within", "beyond"),
    [
        ("file_lines", "x = 1\n" * 400, "x = 1\n" * 401),
        ("classes", "class A: ...\n" * 5, "class A: ...\n" * 6),
        ("functions", SMALL * 10, SMALL * 11),
        ("enums", "class A(Enum): ...\n" * 3, "class A(enum.Enum): ...\n" * 4),
        ("function_lines", long_function(30), long_function(31)),
        ("class_lines", "class A:\n" + "    x = 1\n" * 199, "class A:\n" + "    x = 1\n" * 200),
        ("parameters", "def f(a, b, c, *, d, e): ...\n", "def f(a, b, c, *, d, **e): ...\n\n\ndef g(a, b, c, d, e, f): ...\n"),
        ("parameters", "class A:\n    def f(self, a, b, c, d, e): ...\n", "class A:\n    def f(self, a, b, c, d, e, f): ...\n"),
        (
            "complexity",
            "def f(a):\n" + "    if a: a = 0\n" * 9,
            "def f(a):\n" + "    if a: a = 0\n" * 10,
        ),
        (
            "nesting",
            "def f(a):\n    for b in a:\n        with b:\n            if b:\n                pass\n",
            "def f(a):\n for b in a:\n  with b:\n   if b:\n    while b:\n     pass\n",
        ),
        (
            "inheritance",
            "class A: ...\nclass B(A): ...\nclass C(B): ...\n",
            "class A(Foreign): ...\nclass B(A): ...\nclass C(B): ...\n",
        ),
    ],
)
def test_each_limit_of_v2_holds_at_its_number_and_not_beyond(limit: str, within: str, beyond: str) -> None:
    assert judged(within) == (1.0, [])
    score, violations = judged(beyond)
    assert score is not None
    assert score < 1.0
    assert all(f" {limit} " in violation for violation in violations)
    assert violations


@pytest.mark.parametrize("text", ["x = " + "1 + " * 900 + "1\n", "x = " + "not " * 900 + "1\n", "x = " + "-" * 300 + "1\n"])
def test_code_nested_too_deep_to_be_measured_complies_with_nothing(text: str) -> None:
    assert judged(text)[0] == 0.0


def test_a_chain_of_elif_is_one_level_and_a_chain_of_if_in_else_too_deep() -> None:
    flat = "def f(a):\n    if a == 1:\n        return 1\n" + "".join(
        f"    elif a == {n}:\n        return {n}\n" for n in range(2, 8)
    )
    assert judged(flat) == (1.0, [])


def test_a_class_that_inherits_from_itself_ends() -> None:
    assert judged("class A(B): ...\nclass B(A): ...\n")[0] is not None


def test_a_file_of_more_than_600_lines_is_a_critical_fault() -> None:
    work = DevelopmentWork(trace=done(), after={"a.py": "x = 1\n" * 601})
    assert "file_lines 601" in str(Architecture().compute(work).details["critical"])
    work = DevelopmentWork(trace=done(), after={"a.py": "x = 1\n" * 600})
    assert Architecture().compute(work).details["critical"] == []


def test_what_was_too_long_before_is_not_held_against_the_one_who_came_later() -> None:
    before = long_function(80) + "\n\n" + SMALL
    score, violations = judged(long_function(80) + "\n\ndef f(a):\n    return a + 1\n", before)
    assert (score, violations) == (1.0, [])


def test_making_a_long_function_longer_is() -> None:
    _, violations = judged(long_function(81), long_function(80))
    assert "function_lines 81, allowed 30" in violations[0]


def test_making_a_long_function_shorter_is_not() -> None:
    assert judged(long_function(60), long_function(80)) == (1.0, [])


def test_many_tiny_functions_do_not_hide_a_huge_file() -> None:
    score, _ = judged("".join(f"def f{n}(a):\n    return a\n" for n in range(500)))
    assert score is not None
    assert score < 0.85


def test_a_hard_profile_is_all_or_nothing() -> None:
    assert judged(long_function(31), soft=False)[0] == 0.0
    assert judged(long_function(30), soft=False)[0] == 1.0


def test_a_forbidden_import_is_found_in_every_spelling_and_is_critical() -> None:
    profile = ComplianceProfile(forbidden_imports=("pickle", "os.system"))
    for text in ("import pickle\n", "from pickle import loads\n", "from os import system\n", "def f():\n    import pickle.x\n"):
        work = DevelopmentWork(trace=done(), after={"a.py": text})
        assert "forbidden_imports" in str(Architecture(profile).compute(work).details["critical"]), text
    for text in ("import pickles\n", "from os import path\n", "from . import pickle\n"):
        assert judged(text, profile=profile) == (1.0, []), text


@given(st.lists(st.sampled_from(["if a:", "for x in a:", "while a:", "with a:", "try:", "elif a:", "else:"]), max_size=8))
def test_nesting_never_exceeds_the_blocks_written(blocks: list[str]) -> None:
    lines, depth = ["def f(a):"], 1
    for block in blocks:
        if block in ("elif a:", "else:"):
            continue
        lines.append("    " * depth + block)
        depth += 1
    lines.append("    " * depth + "pass")
    closing = [
        "    " * level + "finally:\n" + "    " * (level + 1) + "pass"
        for level, line in reversed(list(enumerate(lines)))
        if line.strip() == "try:"
    ]
    tree = ast.parse("\n".join([*lines, *closing]))
    function = tree.body[0]
    assert isinstance(function, ast.FunctionDef)
    assert code_measures.nesting(function.body) == depth - 1


def test_complexity_is_radons_on_real_code() -> None:
    """But for `else` of a loop or of a `try`, functions within functions, and what stands in an `assert`."""
    compared = 0
    for name in ("textwrap", "shlex", "csv", "bisect", "heapq", "string"):
        tree = ast.parse(Path(sys.modules.get(name, __import__(name)).__file__ or "").read_text("utf-8"))
        for _, function in functions(tree):
            plain = not any(
                isinstance(node, ast.Lambda | ast.FunctionDef | ast.Assert)
                or (not isinstance(node, ast.If | ast.IfExp) and getattr(node, "orelse", []))
                for node in ast.walk(function)
                if node is not function
            )
            if plain:
                assert code_measures.complexity(function) == ComplexityVisitor.from_ast(function).functions[0].complexity
                compared += 1
    assert compared > 50


def test_a_profile_written_as_json_is_read_as_the_same(tmp_path: Path) -> None:
    profile = ComplianceProfile(name="ours", function_lines=None, forbidden_imports=("pickle",))
    (tmp_path / "p.json").write_text(json.dumps(as_json(profile)))
    assert load(tmp_path / "p.json") == profile


def test_a_profile_in_toml_changes_what_it_names_and_leaves_the_rest(tmp_path: Path) -> None:
    path = tmp_path / "strict.toml"
    path.write_text('function_lines = 20\nenums = false\nforbidden_imports = ["pickle"]\n')
    assert load(path) == ComplianceProfile(name="strict", function_lines=20, enums=None, forbidden_imports=("pickle",))


def test_every_fault_of_a_profile_is_named_at_once(tmp_path: Path) -> None:
    path = tmp_path / "bad.toml"
    path.write_text('function_line = 20\nclasses = "many"\nnesting = -1\nforbidden_imports = "os"\ncomplexity = true\n')
    with pytest.raises(InputError) as error:
        load(path)
    told = str(error.value)
    assert "do you mean 'function_lines'" in told
    for name in ("classes", "nesting", "forbidden_imports", "complexity"):
        assert name in told


def test_a_preset_that_is_not_there_is_one_sentence() -> None:
    with pytest.raises(InputError, match="neither a file nor a preset; presets: V2"):
        load("V3")


@pytest.mark.service
def test_only_a_part_of_the_standard_library_complies_with_v2() -> None:
    root = Path(ast.__file__).parent
    texts = [path.read_text("utf-8") for path in sorted(root.glob("[a-g]*.py"))]
    share = sum(complies(text) for text in texts) / len(texts)
    assert 0.05 < share < 0.45
