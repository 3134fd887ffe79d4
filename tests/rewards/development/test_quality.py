import time

import pytest

from journeyman.rewards.development.code_measures import CodeQuality
from journeyman.rewards.development.work import DevelopmentWork
from tests.support.traces import done

pytestmark = pytest.mark.service

CLEAN = '''
def total(prices: list[float]) -> float:
    """The sum of what is above zero."""
    return sum(price for price in prices if price > 0)
'''


def judged(**files: str) -> tuple[float | None, dict[str, object]]:
    result = CodeQuality().compute(DevelopmentWork(trace=done(), after={f"{name}.py": text for name, text in files.items()}))
    return result.score, dict(result.details)


def test_clean_code_is_worth_all() -> None:
    assert judged(shop=CLEAN)[0] == pytest.approx(1.0)


def test_work_without_python_is_unknown_and_not_zero() -> None:
    assert CodeQuality().compute(DevelopmentWork(trace=done(), after={"README.md": "# Shop"})).score is None


def test_a_file_that_did_not_change_is_not_judged() -> None:
    bad = "def f(:\n"
    result = CodeQuality().compute(
        DevelopmentWork(trace=done(), before={"old.py": bad}, after={"old.py": bad, "new.py": CLEAN})
    )
    assert result.score == pytest.approx(1.0)


def test_what_is_not_python_is_worth_nothing_and_says_where() -> None:
    score, details = judged(shop=CLEAN, broken="def f(:\n    pass\n")
    assert score == 0.0
    assert "broken.py" in str(details["evidence"])
    assert "line 1" in str(details["critical"])


def test_a_null_byte_and_endless_brackets_are_faults_and_no_crash() -> None:
    assert judged(zero="x = '\0'")[0] == 0.0
    assert judged(deep="(" * 5000 + ")" * 5000)[0] == 0.0


def test_a_bug_costs_five_times_a_blemish() -> None:
    bug, _ = judged(shop=CLEAN + "\n\ndef broken():\n    return missing\n")
    blemish, _ = judged(shop="import os\n" + CLEAN + "\n\ndef fine():\n    return 1\n")
    assert bug is not None
    assert blemish is not None
    assert bug < blemish < 1.0


def test_a_shell_command_made_of_input_is_a_critical_fault() -> None:
    score, details = judged(run="import subprocess\n\n\ndef run(name):\n    return subprocess.call('ls ' + name, shell=True)\n")
    assert score is not None
    assert score < 0.2
    assert "B602" in str(details["critical"])


def test_comments_that_silence_the_tools_do_not() -> None:
    open_, _ = judged(run="import os\n\n\ndef run(name):\n    return eval(name)\n")
    silenced, _ = judged(run="import os  # noqa\n\n\ndef run(name):  # type: ignore\n    return eval(name)  # noqa # nosec\n")
    assert silenced == pytest.approx(open_, abs=0.02)


def test_padding_with_comments_raises_nothing() -> None:
    tangled = "def f(a, b, c):\n" + "".join(
        f"    if a > {n} and b < {n}:\n        c += a * {n} - b / {n + 1}\n" for n in range(40)
    )
    plain, before = judged(f=tangled + "    return c\n")
    padded, after = judged(f="# A very good function.\n" * 200 + tangled + "    return c\n")
    assert padded == pytest.approx(plain)
    assert after["maintainability"] == pytest.approx(before["maintainability"])


def test_tangled_code_is_worth_less_than_plain_code() -> None:
    tangled = "def f(a):\n" + "".join(f"    if a == {n}:\n        return {n * 7 % 5}\n" for n in range(40)) + "    return a\n"
    score, details = judged(f=tangled)
    assert details["complexity"] == 0.0
    assert score is not None
    assert score < 0.7


def test_settings_and_modules_among_the_files_do_not_reach_the_tools() -> None:
    bad = "import os\n\n\ndef run(name):\n    return eval(name)\n"
    alone, _ = judged(run=bad)
    work = DevelopmentWork(
        trace=done(),
        after={
            "run.py": bad,
            "pyproject.toml": "[tool.ruff]\nignore = ['ALL']\n[tool.ruff.lint]\nignore = ['F', 'E']\n",
            ".bandit": "[bandit]\nskips = B307\n",
            "ruff.toml": "exclude = ['*']\n",
        },
    )
    assert CodeQuality().compute(work).score == pytest.approx(alone)


def test_a_path_that_leads_out_of_the_folder_is_only_a_name() -> None:
    work = DevelopmentWork(trace=done(), after={"../../etc/shop.py": "import os\n" + CLEAN})
    assert "../../etc/shop.py:1" in str(CodeQuality().compute(work).details["findings"])


def test_the_code_is_never_run_or_imported() -> None:
    began = time.monotonic()
    judged(sleepy="import time\n\ntime.sleep(600)\n", radon="import time\n\ntime.sleep(600)\n", ruff="raise SystemExit\n")
    assert time.monotonic() - began < 120
