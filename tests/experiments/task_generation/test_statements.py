"""Tasks in a user's words: what tells too much, or is not told at all, leaves the plain ones."""

import dataclasses
from pathlib import Path

import pytest

from journeyman.core.errors import InputError
from journeyman.experiments.task_generation.statements import Teller
from journeyman.tasks.repository import Checks, RepositoryTask
from journeyman.tasks.repository.tree import Tree
from tests.support.llm_server import KEY, Answer, completion, error, serving
from tests.support.repositories import FILES

ISSUE = "Parcels of exactly one kilogram have become dearer: price(1000, 'NO') gives 950 where it used to give 900."


@pytest.fixture
def task(tmp_path: Path) -> RepositoryTask:
    tree = Tree({path: text.encode() for path, text in FILES.items()})
    tree.pack(tmp_path / "trees" / f"{tree.digest}.tar.gz")
    right = FILES["parcels/rates.py"]
    return RepositoryTask(
        category="bug_fix",
        repository="parcels",
        tree=tree.digest,
        environment="1" * 16,
        statement="Something that used to work with `price` does not any more.",
        base={"parcels/rates.py": right.replace("grams > 1000", "grams >= 1000")},
        reference={"parcels/rates.py": right},
        checks=Checks(fail_to_pass=("tests/test_rates.py::test_price_by_weight",)),
        made_by="bug_fix 1 comparison",
    )


@pytest.mark.service
@pytest.mark.parametrize(
    ("answer", "became"),
    [
        (completion(f"  {ISSUE}\n"), "told"),
        (
            completion("In parcels/rates.py the comparison of grams is wrong, which should be looked at."),
            "told too much or nothing",
        ),
        (
            completion("It must say `if grams > 1000:` again, as it did before the last change of it."),
            "told too much or nothing",
        ),
        (completion(""), "no answer"),
        (completion("It fails."), "told too much or nothing"),
        (error(400, "no such model"), "no answer"),
    ],
)
async def test_a_models_words_are_taken_where_they_tell_no_more_than_a_user_sees(
    answer: Answer, became: str, task: RepositoryTask, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("OPENAI_API_KEY", KEY)
    with serving() as server:
        server.answers.append(answer)
        teller = dataclasses.replace(Teller.opened("openai:test-model", base_url=server.url), folder=tmp_path)
        told = await teller.told(task)
        await teller.model.close()
    assert dict(teller.became) == {became: 1}
    assert told.checks == task.checks
    assert (told.id == task.id) is (became != "told")
    if became == "told":
        assert told.statement == ISSUE
        assert "told by openai:test-model" in told.made_by
    assert "+    if grams > 1000:" in str(server.bodies[0]["messages"]).replace("\\n", "\n")
    assert "test_price_by_weight" not in str(server.bodies[0])


@pytest.mark.service
def test_a_limit_on_costs_that_cannot_be_kept_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OPENAI_API_KEY", KEY)
    with serving() as server, pytest.raises(InputError, match="no known price"):
        Teller.opened("openai:somebodys-own", base_url=server.url, max_cost=1.0)
