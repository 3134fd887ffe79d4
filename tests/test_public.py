"""The public names: every one is there, and importing the package loads none of them."""

import subprocess
import sys

import pytest

import journeyman
from journeyman.core.release import Stage


@pytest.mark.training
def test_every_public_name_can_be_had_and_says_what_it_is() -> None:
    assert [name for name in journeyman.__all__ if not getattr(journeyman, name).__doc__] == []


@pytest.mark.service
def test_the_module_evaluate_does_not_hide_the_function() -> None:
    code = "import journeyman.experiments.playbook.training; from journeyman import evaluate; print(callable(evaluate))"
    assert subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout == "True\n"


def test_a_name_of_an_older_system_is_the_new_thing() -> None:
    assert journeyman.PlaybookStage is Stage


def test_an_unknown_name_is_an_attribute_error() -> None:
    with pytest.raises(AttributeError, match="no attribute 'Nonsense'"):
        _ = journeyman.Nonsense


def test_importing_the_package_loads_nothing_of_it() -> None:
    code = "import sys, journeyman; print([name for name in sys.modules if name.startswith('journeyman.')])"
    run = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert run.stdout == "[]\n"
