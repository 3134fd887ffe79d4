"""The first hour of a stranger: what is typed by intuition works, or says in one sentence what to type."""

import pytest

from tests.e2e.first_hour import SCRIPT, walk
from tests.support import warm

pytestmark = pytest.mark.slow


def test_what_a_newcomer_types_works_or_says_what_to_type() -> None:
    found = list(walk(lambda words, folder, env: warm.run(*words, cwd=folder, env=env)))
    assert len(found) == len(SCRIPT) >= 60
    assert [(each.typed, each.code, each.said[-500:]) for each in found if not each.fine] == []
    refusals = [each for each in found if each.told]
    assert all(len(each.sentence) < 400 for each in refusals)
