import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from journeyman.core.trace import ModelCall, Step, Trace
from journeyman.rewards.checks import Check, CheckResult
from journeyman.rewards.development import (
    Autonomy,
    DevelopmentEfficiency,
    DevelopmentReward,
    DevelopmentWork,
    Functionality,
    Innovation,
    Learning,
    TaskBudget,
    examine,
    measure_coverage,
    work_of,
)
from journeyman.rewards.development import WorkCheckResult as Checked
from journeyman.rewards.development.work import Coverage, checked
from journeyman.sandbox.base import MIB, Level, RunOutcome
from journeyman.sandbox.supervised import Unsafe
from tests.support.traces import done, reply, used

pytestmark = pytest.mark.service

GOOD, BAD, LOST = (Checked(name=name, passed=passed) for name, passed in (("good", True), ("bad", False), ("lost", None)))
SHOP = """
def price(amount, member=False):
    if amount < 0:
        raise ValueError(amount)
    if member:
        return amount * 0.9
    return amount
"""
TESTS = "from shop import price\n\n\ndef test_price():\n    assert price(10) == 10\n"


def score(component: object, **work: object) -> float | None:
    made = DevelopmentWork(**{"trace": done(), **work})  # type: ignore[arg-type]
    value: float | None = component.compute(made).score  # type: ignore[attr-defined]
    return value


def test_functionality_is_the_share_of_checks_where_that_is_all_there_is() -> None:
    assert score(Functionality(), checks=(GOOD, BAD)) == 0.5


def test_a_check_that_could_not_be_run_makes_functionality_unknown() -> None:
    assert score(Functionality(), checks=(GOOD, LOST)) is None


def test_without_checks_functionality_is_unknown_whatever_was_covered() -> None:
    assert score(Functionality(), coverage=Coverage(executed=9, statements=9)) is None


def test_coverage_and_edge_cases_weigh_a_fifth_each() -> None:
    edge = Checked(name="empty", passed=False, edge=True)
    value = score(Functionality(), checks=(GOOD, edge), coverage=Coverage(executed=3, statements=4))
    assert value == pytest.approx(0.6 * 0.5 + 0.2 * 0.75)


def test_many_tests_in_one_check_count_one_by_one() -> None:
    assert score(Functionality(), checks=(Checked(name="suite", passed=False, tests=10, tests_passed=7),)) == 0.7


def test_a_check_that_failed_with_all_its_tests_passed_is_believed_nothing() -> None:
    result = CheckResult(
        check=Check(name="suite", kind="pytest", text=""), passed=False, tests=3, tests_passed=3, evidence="", outcome=None
    )
    assert score(Functionality(), checks=checked([result])) == 0.0


async def test_coverage_is_of_the_statements_that_tests_reach() -> None:
    sandbox = Unsafe()
    try:
        found = await measure_coverage(sandbox, {"shop.py": SHOP}, {"test_shop.py": TESTS})
    finally:
        await sandbox.close()
    # Of def, if, raise, if, return, return: all but the raise and the member's price.
    assert found == Coverage(executed=4, statements=6)


async def test_code_that_leaves_before_the_report_has_no_coverage() -> None:
    sandbox = Unsafe()
    try:
        leaving = "import os\n\nos._exit(0)\n"
        assert await measure_coverage(sandbox, {"shop.py": leaving}, {"test_shop.py": "import shop\n"}) is None
    finally:
        await sandbox.close()


async def test_examined_work_knows_its_checks_its_coverage_and_what_they_took() -> None:
    sandbox = Unsafe()
    checks = [
        Check(name="price", kind="pytest", text=TESTS),
        Check(name="none", kind="shell", text="test ! -e shop.pyc; false"),
    ]
    try:
        work = await examine(DevelopmentWork(trace=done(), after={"shop.py": SHOP}), sandbox, checks, edges={"none"})
    finally:
        await sandbox.close()
    assert [(check.name, check.passed, check.edge) for check in work.checks] == [("price", True, False), ("none", False, True)]
    assert work.coverage == Coverage(executed=4, statements=6)
    assert work.outcomes
    assert all(outcome.wall_seconds for outcome in work.outcomes)


async def test_work_is_not_blamed_for_a_test_that_fails_for_the_reference_too() -> None:
    sandbox = Unsafe()
    text = "import os\nimport shop\n\ndef test_a():\n    assert shop.f(1) == 2\n\ndef test_b():\n    assert shop.f(1) == 5\n"
    work = DevelopmentWork(trace=done(), after={"shop.py": "def f(x):\n    return x + 1\n"})
    check = Check(name="a", kind="pytest", text=text)
    try:
        blamed = await examine(work, sandbox, [check])
        held = await examine(work, sandbox, [check], reference={"shop.py": "def f(x):\n    return 2\n"})
    finally:
        await sandbox.close()
    assert [work.checks[0].passed for work in (blamed, held)] == [False, True]


def test_an_agent_that_acts_and_asks_nobody_is_autonomous() -> None:
    assert score(Autonomy(), trace=done(used("read"), used("write"), reply("Done."))) == 1.0


def test_each_question_costs_its_share() -> None:
    trace = done(used("read"), used("ask_user"), reply("Which colour?"), reply("Blue, then."), used("write"))
    assert score(Autonomy(), trace=trace) == pytest.approx(2 / 4)


def test_a_question_mark_before_a_tool_call_is_no_question() -> None:
    assert score(Autonomy(), trace=done(reply("Is it there?"), used("read"), reply("It is."))) == 1.0


def test_a_failure_that_was_overcome_costs_nothing_and_one_that_was_repeated_does() -> None:
    overcome = done(used("run", ok=False, arguments="a"), used("run", arguments="b"))
    assert score(Autonomy(), trace=overcome) == 1.0
    stubborn = done(used("run", ok=False, arguments="a"), used("run", ok=False, arguments="a"), used("run", arguments="b"))
    assert score(Autonomy(), trace=stubborn) == pytest.approx(2 / 3)


def test_an_agent_that_neither_acted_nor_asked_is_unknown() -> None:
    assert score(Autonomy(), trace=done(reply("Done."))) is None


def shown(*bullets: str, cited: tuple[str, ...] = ()) -> Trace:
    return done(ModelCall(model="m", prompt="p", reply="r", shown=bullets, cited=cited))


def test_learning_is_the_gain_over_work_without_bullets() -> None:
    assert score(Learning(), trace=shown("b1"), checks=(GOOD,), unaided=0.5) == 0.75
    assert score(Learning(), trace=shown("b1"), checks=(BAD,), unaided=0.5) == 0.25
    assert score(Learning(), trace=shown("b1"), checks=(GOOD,), unaided=1.0) == 0.5


def test_citing_raises_nothing_and_inventing_costs() -> None:
    assert score(Learning(), trace=shown("b1"), checks=(GOOD,)) == 1.0
    assert score(Learning(), trace=shown("b1", cited=("b1",)), checks=(GOOD,)) == 1.0
    assert score(Learning(), trace=shown("b1", cited=("b1", "b9")), checks=(GOOD,)) == 0.5


def test_learning_is_unknown_without_bullets_and_without_a_verdict() -> None:
    assert score(Learning(), checks=(GOOD,)) is None
    assert score(Learning(), trace=shown("b1")) is None


def ran(**took: float | int | None) -> RunOutcome:
    return RunOutcome(level=Level("none"), exit_code=0, **took)  # type: ignore[arg-type]


def test_efficiency_is_budget_over_use_and_no_more_than_one() -> None:
    budget = TaskBudget(cpu_seconds=2, wall_seconds=10, peak_memory=100 * MIB)
    outcomes = (
        ran(cpu_seconds=3.0, wall_seconds=1.0, peak_memory=50 * MIB),
        ran(cpu_seconds=1.0, wall_seconds=1.0, peak_memory=MIB),
    )
    assert score(DevelopmentEfficiency(budget), outcomes=outcomes) == pytest.approx((0.5 + 1 + 1) / 3)


def test_a_resource_that_was_not_measured_is_left_out() -> None:
    outcomes = (ran(cpu_seconds=3.0), ran(cpu_seconds=None))
    assert score(DevelopmentEfficiency(), outcomes=outcomes) is None


def test_cheap_work_that_does_not_work_is_worth_nothing() -> None:
    assert score(DevelopmentEfficiency(), outcomes=(ran(cpu_seconds=0.1),), checks=(BAD,)) == 0.0


def test_renaming_a_solution_is_no_innovation() -> None:
    renamed = SHOP.replace("price", "cost").replace("amount", "sum_").replace("0.9", "0.8")
    assert score(Innovation(), after={"a.py": renamed}, earlier=(SHOP,), checks=(GOOD,)) == 0.0


def test_another_way_is_and_only_when_it_works() -> None:
    other = "PRICES = {True: 0.9, False: 1.0}\nprice = lambda amount, member=False: amount * PRICES[member]\n"
    value = score(Innovation(), after={"a.py": other}, earlier=(SHOP,), checks=(GOOD,))
    assert value is not None
    assert value > 0.7
    assert score(Innovation(), after={"a.py": other}, earlier=(SHOP,), checks=(BAD,)) == 0.0
    assert score(Innovation(), after={"a.py": other}, checks=(GOOD,)) is None


def test_the_files_of_a_trace_are_those_that_its_tools_wrote_last() -> None:
    trace = done(
        used("write_file", arguments=json.dumps({"path": "a.py", "content": "x = 1\n"})),
        used("write_file", arguments=json.dumps({"path": "b.py", "content": "x = 1\n"}), ok=False),
        used("sandbox", arguments=json.dumps({"files": {"a.py": "x = 2\n", "c.py": "x = 3\n"}}), ok=False),
        used("search", arguments=json.dumps({"path": "d.py", "text": "x"})),
        used("write_file", arguments="not json"),
    )
    assert work_of(trace).after == {"a.py": "x = 2\n", "c.py": "x = 3\n"}


def test_a_trace_alone_tells_no_functionality_so_the_whole_is_unknown() -> None:
    result = DevelopmentReward().compute(done(used("sandbox", arguments=json.dumps({"files": {"a.py": SHOP}}))))
    assert result.score is None
    assert "no checks were run" in str(result.details["evidence"])


steps: st.SearchStrategy[Step] = st.one_of(
    st.builds(used, st.sampled_from(["a", "ask", "b"]), ok=st.booleans(), arguments=st.sampled_from(["1", "2"])),
    st.builds(reply, st.sampled_from(["Yes?", "Done.", ""])),
)


@given(st.lists(steps, max_size=12))
def test_autonomy_of_any_trace_is_between_0_and_1_or_unknown(found: list[Step]) -> None:
    value = score(Autonomy(), trace=done(*found))
    assert value is None or 0 <= value <= 1
