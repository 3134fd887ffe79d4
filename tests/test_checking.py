"""Many samples at once, and the chance that one of k passes."""

import math
import os
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from journeyman.core.task import Task
from journeyman.rewards.unit_tests import CodeEvalResult, UnitTests, UnitTestVerdict, check_samples, limits
from journeyman.sandbox.supervised import Unsafe
from journeyman.stats import pass_at_k
from journeyman.tasks import rows
from journeyman.tasks.code import CodeSample, CodeTests, read_samples, read_tasks
from tests.support.walled import walled

DATA = os.environ.get("JOURNEYMAN_DATA")
YES, NO, UNKNOWN = (UnitTestVerdict(passed=passed, evidence="") for passed in (True, False, None))


@pytest.fixture
async def verifier() -> AsyncIterator[UnitTests]:
    box = Unsafe()
    yield UnitTests(box, limits(4.0))
    await box.close()


@given(st.data())
def test_pass_at_k_is_one_minus_the_share_of_draws_without_a_pass(data: st.DataObject) -> None:
    samples = data.draw(st.integers(1, 200))
    passed = data.draw(st.integers(0, samples))
    k = data.draw(st.integers(1, samples))
    exact = 1 - math.comb(samples - passed, k) / math.comb(samples, k)
    assert pass_at_k(samples, passed, k) == pytest.approx(exact, abs=1e-9)


@pytest.mark.parametrize(("samples", "passed", "k"), [(3, 4, 1), (3, -1, 1), (3, 1, 4), (3, 1, 0)])
def test_what_cannot_be_drawn_is_refused(samples: int, passed: int, k: int) -> None:
    with pytest.raises(ValueError, match="cannot"):
        pass_at_k(samples, passed, k)


def test_pass_at_k_is_the_mean_over_tasks_and_unknown_with_too_few_samples() -> None:
    checked = CodeEvalResult(verdicts={"a": (YES, NO), "b": (NO, NO)})
    assert checked.pass_at(1) == pytest.approx(0.25)
    assert checked.pass_at(2) == pytest.approx(0.5)
    assert checked.pass_at(3) is None
    assert "pass@3" not in checked.json(ks=(3,))


def test_an_unknown_verdict_is_neither_passed_nor_failed() -> None:
    found = CodeEvalResult(verdicts={"a": (YES, UNKNOWN)}).json()
    assert (found["passed"], found["failed"], found["unknown"]) == (1, 0, 1)
    assert found["pass@1"] == 1.0
    assert found["verdicts"] == {"a": [True, None]}


@pytest.mark.service
async def test_equal_programs_run_once_and_every_sample_has_its_verdict(verifier: UnitTests) -> None:
    tests = CodeTests(test="assert f(2) == 4")
    task = Task(id="a", question="Double.", answer=tests.json())
    good = CodeSample(task_id="a", text="def f(x): return 2 * x", continues=False)
    bad = CodeSample(task_id="a", text="def f(x): return x", continues=False)
    seen: list[UnitTestVerdict] = []
    checked = await check_samples([task], [good, bad, good, good], verifier, done=seen.append)
    assert [verdict.passed for verdict in checked.verdicts["a"]] == [True, False, True, True]
    assert len(seen) == 4
    first, _, third, _ = checked.verdicts["a"]
    assert first is third


@pytest.mark.service
@pytest.mark.skipif(not DATA, reason="JOURNEYMAN_DATA is not set")
async def test_the_example_of_human_eval_gives_its_published_figure(verifier: UnitTests) -> None:
    tasks = read_tasks(f"{DATA}/code-exec/tasks/example_problem.jsonl.gz")
    samples = read_samples(f"{DATA}/code-exec/tasks/example_samples.jsonl.gz", tasks)
    found = (await check_samples(tasks, samples, verifier)).json()
    assert found["pass@1"] == 0.4999999999999999
    assert found["timeout"] == 1


@pytest.mark.service
@pytest.mark.skipif(not DATA, reason="JOURNEYMAN_DATA is not set")
async def test_recorded_verdicts_of_a_models_programs_come_out_again_and_with_them_its_published_pass_rate() -> None:
    file = Path(DATA or "") / "code-exec" / "samples" / "ldb" / "ldb_humaneval_reflexion_gpt-4o-2024-05-13.jsonl.gz"
    recorded = {row.value["task_id"]: row.value["is_solved"] for row in rows.read(file, rows.Complaints("unreadable"))}
    tasks = read_tasks(file)
    async with walled() as box:
        checked = await check_samples(tasks, read_samples(file, tasks), UnitTests(box, limits(10.0)))
    assert {id: verdict.passed for id, (verdict,) in checked.verdicts.items()} == recorded
    assert checked.pass_at(1) == pytest.approx(161 / 164)
