"""Files of scenarios: what is wrong is named by line and field, all of it at once, and nothing in them can do harm."""

import json
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from journeyman.core.errors import InputError
from journeyman.tasks.scenarios import ScenarioFile, TaskType, load, parse
from journeyman.tasks.scenarios.read import MOST, DocumentNode, UnreadableDocument, of_json, of_yaml

TEXT = st.text(st.characters(blacklist_categories=["Cs", "Cc"]), min_size=1, max_size=20).filter(lambda text: text.strip())
JSON: st.SearchStrategy[Any] = st.recursive(
    st.none() | st.booleans() | st.integers(-1000, 1000) | st.text(max_size=8),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=8), inner, max_size=3),
    max_leaves=8,
)


def reading(text: str, name: str = "s.yaml", beside: Path = Path()) -> ScenarioFile:
    return parse(text.encode(), name, beside=beside)


def faults(text: str, name: str = "s.yaml") -> list[str]:
    return [str(fault) for fault in reading(text, name).faults]


FULL = """\
scenarios:
  - name: Greeter
    goal: A function greet that greets a customer by name
    requirements:
      - greet("Ann") returns "Hello, Ann"
    task_type: CODE_INTERPRET
    category: micro_saas
    checks:
      - python -c 'import greet'
      - name: tests
        hidden: true
        pytest: |
          from greet import greet

          def test_ann():
              assert greet("Ann") == "Hello, Ann"
    files:
      names.txt: |
        Ann
    setup: mkdir out
"""


def test_a_whole_scenario() -> None:
    (scenario,) = reading(FULL).scenarios
    assert (scenario.name, scenario.task_type, scenario.category) == ("Greeter", TaskType.CODE_INTERPRET, "micro_saas")
    assert [(check.name, check.kind, check.hidden) for check in scenario.checks] == [
        ("check 1", "shell", False),
        ("tests", "pytest", True),
    ]
    assert scenario.files == {"names.txt": "Ann\n"}
    assert scenario.setup == "mkdir out"
    assert "test_ann" not in scenario.brief + str(scenario.task()), "the agent and the reflector see no check"


def test_json_says_the_same_as_yaml() -> None:
    text = json.dumps(yaml.safe_load(FULL), indent="\t")
    assert reading(text, "s.json") == reading(FULL)
    assert reading(text, "s.json").scenarios


def test_every_fault_is_named_at_once_by_file_line_and_field() -> None:
    found = faults(
        """\
scenarios:
  - name: A
    gaol: misspelt
    requirements:
      - fine
      - 5
    task_type: CODE
  - name: a
    goal: ""
    checks: {}
    files:
      ../up.txt: x
  - nothing
  - name: C
    goal: what it is for
    checks:
      - shell: x
        pytest: y
      - pytest: "def helper(): pass"
      - pytest: "def test_x(:"
      - pytest: missing_file.py
      - hidden: maybe
        shell: "true"
    setup: [a, 7]
    name: twice
"""
    )
    expected = [
        "s.yaml:3: scenarios[0].gaol: there is no such field; there are name, goal",
        "did you mean goal?",
        "s.yaml:2: scenarios[0].goal: is missing",
        "s.yaml:6: scenarios[0].requirements[1]: must be text, and is a number; put it in quotes",
        "s.yaml:7: scenarios[0].task_type: is 'CODE'; there are CODE_INTERPRET, TEXT_GENERATION, CODE_REVIEW",
        "s.yaml:8: scenarios[1].name: 'a' is the name of the scenario on line 2 too",
        "s.yaml:9: scenarios[1].goal: is empty",
        "s.yaml:10: scenarios[1].checks: must be a list, and is a mapping",
        "s.yaml:12: scenarios[1].files.../up.txt: must be a relative path",
        "s.yaml:13: scenarios[2]: must be a mapping of fields, and is text",
        "s.yaml:17: scenarios[3].checks[0]: needs either shell or pytest",
        "s.yaml:19: scenarios[3].checks[1].pytest: has no test",
        "s.yaml:20: scenarios[3].checks[2].pytest: is not Python",
        "s.yaml:21: scenarios[3].checks[3].pytest: missing_file.py, a file beside the scenarios, could not be read",
        "s.yaml:22: scenarios[3].checks[4].hidden: must be true or false, and is text",
        "s.yaml:24: scenarios[3].setup[1]: must be text",
        "s.yaml:25: scenarios[3].name: stands there twice",
    ]
    for sentence in expected:
        assert any(sentence in fault for fault in found), sentence
    assert len(found) == len(expected) - 1


@pytest.mark.parametrize(
    ("text", "name", "fault"),
    [
        ("", "s.yaml", "s.yaml:1: scenarios: must be a list of scenarios, and is nothing"),
        ("scenarios: []", "s.yaml", "is an empty list"),
        ("scenarios:\n  - name: [", "s.yaml", "s.yaml:2: is not YAML"),
        ("a: 1\n--- \nb: 2", "s.yaml", "is not YAML"),
        ('{"scenarios": [\n{"name": }]}', "s.json", "s.json:2: is not JSON"),
        ("[" * 100_000, "s.json", "nested too deeply"),
        ("[" * 2000 + "]" * 2000, "s.yaml", "nested"),
        (
            "scenarios: !!python/object/apply:os.system ['true']",
            "s.yaml",
            "holds a tag:yaml.org,2002:python/object/apply:os.system",
        ),
        ("scenarios: !thing {}", "s.yaml", "holds a !thing"),
        ("scenarios:\n  - ? [a]\n    : b", "s.yaml", "s.yaml:2: has a key that is no text"),
        ("scenarios: &a [*a]", "s.yaml", "nested deeper"),
    ],
)
def test_what_is_no_file_of_scenarios(text: str, name: str, fault: str) -> None:
    (found,) = faults(text, name)
    assert fault in found


def test_a_few_lines_that_stand_for_billions_are_refused_at_once() -> None:
    bomb = "a0: &a0 [x, x, x, x, x, x, x, x, x, x]\n"
    bomb += "".join(f"a{n}: &a{n} [{', '.join([f'*a{n - 1}'] * 10)}]\n" for n in range(1, 12))
    (found,) = faults(bomb)
    assert f"says more than {MOST} values" in found


def test_what_is_vague_is_warned_of_by_line_and_stops_nothing() -> None:
    found = reading("scenarios:\n  - name: API\n    goal: Make an API\n    requirements:\n      - Make it good\n")
    assert len(found.scenarios) == 1
    assert not found.faults
    lines = [str(warning) for warning in found.warnings]
    assert lines[0].startswith("s.yaml:3: scenarios[0].goal: 'Make an API' says little")
    assert lines[1].startswith("s.yaml:5: scenarios[0].requirements[0]: 'Make it good' cannot be checked")
    assert lines[2].startswith("s.yaml:2: scenarios[0].checks: there is none, so it is only read")
    assert any(
        "requirements: there is none" in str(w) for w in reading("- {name: A, goal: prints the numbers from 1 to 9}").warnings
    )


def test_checks_and_files_may_lie_beside_the_scenarios_and_nowhere_else(tmp_path: Path) -> None:
    (tmp_path / "inner").mkdir()
    (tmp_path / "inner" / "test_it.py").write_text("def test_it():\n    assert True\n")
    (tmp_path / "inner" / "data.csv").write_text("a,b\n")
    (tmp_path / "secret.txt").write_text("secret")
    (tmp_path / "inner" / "link.txt").symlink_to(tmp_path / "secret.txt")
    head = "- name: A\n  goal: reads the numbers of a file\n"
    (tmp_path / "inner" / "s.yaml").write_text(f"{head}  checks: [test_it.py]\n  files: [data.csv]\n")
    (scenario,) = load(tmp_path / "inner" / "s.yaml")
    assert scenario.checks[0].name == "test_it.py"
    assert "assert True" in scenario.checks[0].text
    assert scenario.files == {"data.csv": "a,b\n"}
    for name in ("../secret.txt", "link.txt", str(tmp_path / "secret.txt")):
        found = reading(f"{head}  files: ['{name}']\n", beside=tmp_path / "inner")
        assert "must be a relative path that stays in the folder" in str(found.faults[0])


def test_a_file_that_cannot_be_read_is_one_sentence(tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"nowhere\.yaml could not be read: No such file"):
        load(tmp_path / "nowhere.yaml")
    (tmp_path / "b.yaml").write_bytes(b"\xff\xfe\x00")
    with pytest.raises(InputError, match="is not text in UTF-8"):
        load(tmp_path / "b.yaml")


def plain(node: DocumentNode) -> Any:
    if isinstance(node.value, dict):
        return {key: plain(value) for key, value in node.value.items()}
    return [plain(item) for item in node.value] if isinstance(node.value, list) else node.value


@given(JSON)
def test_json_is_read_as_it_is(value: Any) -> None:
    assert plain(of_json(json.dumps(value, indent=1))) == value


@given(JSON)
def test_the_lines_of_json_are_those_it_was_written_on(value: Any) -> None:
    text = json.dumps({"first": value, "marker": 1}, indent=2)
    root = of_json(text)
    assert isinstance(root.value, dict)
    line = next(number for number, content in enumerate(text.splitlines(), 1) if content == '  "marker": 1')
    assert root.value["marker"].line == line


@given(st.text(max_size=60), st.sampled_from([of_yaml, of_json]))
def test_any_text_is_a_value_or_unreadable(text: str, read: Callable[[str], DocumentNode]) -> None:
    with suppress(UnreadableDocument):
        assert isinstance(read(text), DocumentNode)


@given(st.text(max_size=80), st.sampled_from(["s.yaml", "s.json"]))
def test_any_text_is_scenarios_or_faults(text: str, name: str) -> None:
    found = parse(text.encode(errors="replace"), name, beside=Path())
    assert found.scenarios or found.faults


@given(st.lists(TEXT, min_size=1, max_size=4, unique_by=lambda name: name.strip().casefold()), TEXT, st.lists(TEXT, max_size=3))
def test_what_is_written_as_json_or_yaml_comes_back(names: list[str], goal: str, requirements: list[str]) -> None:
    rows = {"scenarios": [{"name": name, "goal": goal, "requirements": requirements} for name in names]}
    for text, name in ((json.dumps(rows), "s.json"), (yaml.safe_dump(rows, allow_unicode=True), "s.yaml")):
        found = reading(text, name)
        printable = all(name.strip().isprintable() for name in names)
        assert (not found.faults) == printable
        if printable:
            assert [scenario.name for scenario in found.scenarios] == [name.strip() for name in names]
            assert {scenario.goal for scenario in found.scenarios} == {goal.strip()}
