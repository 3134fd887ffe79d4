"""The `journeyman` command. A command's file is loaded when the command is called, so `--help` costs next to nothing.

Exit codes: 0 it went well, 1 the answer is no (not passed, something is broken), 2 the input cannot be used, 130 interrupted.
"""

import os
import sys
from collections.abc import Sequence
from typing import Any

import click

from journeyman.cli.console import say, speak_plainly
from journeyman.cli.lazy import LazyGroup, spelled
from journeyman.core.errors import JourneymanError

COMMANDS = {
    "init": "Write a journeyman.toml here in which every setting stands in a comment.",
    "demo": "See a small real model fail at a job, learn from its failures, and pass.",
    "train": "Learn from tasks, and prove on held-out ones that it helps.",
    "scenarios": "Write, check and look at scenarios to train on.",
    "tasks": "Make tasks of a team's own repositories, each checked by running it.",
    "task-generation": "Make tasks of repositories, and measure agents by them.",
    "evaluate": "Measure on held-out tasks whether a playbook helps.",
    "check": "Run solutions against tests that they cannot reach.",
    "compare": "Say whether B is really better than A, from anybody's results.",
    "curve": "Show how success, score, tokens and cost went from task to task.",
    "collect": "Bring in what others recorded, from files and folders of them.",
    "data-collection": "Collect a team's own work: all of it, what is stored again, or what is written from now on.",
    "plan": "Make a plan for an instruction, and carry it out.",
    "route": "Say which model should answer a request, and why.",
    "traces": "Find, read, label, export and forget what agents did.",
    "documents": "Find, read and forget what was collected beside traces: commits, messages, logs of the day, workspaces.",
    "feedback": "Say how work that was served went, also weeks later.",
    "runs": "List, show, compare and forget runs.",
    "candidates": "List, show and compare what was learned.",
    "evaluations": "List and show comparisons on held-out tasks.",
    "releases": "Bring what was learned to live traffic in steps and back, and look at what is released.",
    "monitor": "Decide what becomes of rollouts, and tell of what goes wrong.",
    "learn": "Learn again and again from what is recorded, within budgets, with nobody asking for it.",
    "alerts": "See what fires, say that you see to it, keep it quiet, and try who is told.",
    "audit": "Show who or what changed what is served, when and why, and prove that nothing of it was changed since.",
    "score": "Score what agents did, from files of traces, a store, or one answer.",
    "rewards": "Learn a reward from labels, fit the weights of rewards, and test a judge.",
    "store": "Look at the store, back it up, bring it back and up to date.",
    "dataset": "Build, look at and check sets of rows to train on.",
    "playbook": "Look at playbooks, compare them, and bring them in and out.",
    "pipeline": "Do all steps from what was recorded to what is served.",
    "orchestrate": "Carry out a whole pipeline from one configuration.",
    "up": "Serve, watch, learn and release, until told to stop: all that journeyman.toml says, in one command.",
    "serve": "Pass model calls on and record them, take OpenTelemetry, and show pages, until told to stop.",
    "mcp": "Serve traces, playbooks, runs, feedback and evaluations to agents, by the Model Context Protocol.",
    "export": "Write what was learned in the weights as files that others serve.",
    "deploy": "Serve what was learned in the weights, by Ollama or llama.cpp.",
    "deployment": "Serve versions of learned weights, watch them, compare two, and take one back.",
    "worker": "Do items of other machines' commands, by way of a PostgreSQL.",
    "sandbox": "Run code behind walls, and try to break out of them.",
    "hardware": "Say what this machine can train, and which settings follow from it.",
    "settings": "Show every setting of the project, its value, and where it was said.",
    "doctor": "Say what is installed, what is missing, and how to mend it.",
    "completion": "Print what lets a shell complete commands and options.",
}
"""Each in the file of its name, as a click object called `command`; a test compares these lines with its own short help."""
_TOGETHER = {
    **{name: f"registry:{name}" for name in ("runs", "candidates", "evaluations", "releases")},
    "audit": "feedback:audit",
    "up": "serve:up",
    "init": "settings:init",
    "completion": "settings:completion",
    "orchestrate": "pipeline:orchestrate",
    "data-collection": "collect_sources:data_collection",
    "task-generation": "task_generation:command",
}
"""Commands that share a file, each under its own name there."""


_ALSO = {"release": "releases"}
"""Names that are typed for another one, and that no help shows."""


class _Root(LazyGroup):
    def list_commands(self, ctx: click.Context) -> list[str]:
        return list(COMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        return super().get_command(ctx, _ALSO.get(cmd_name, cmd_name))


@click.group(
    cls=_Root,
    lines=COMMANDS,
    homes=_TOGETHER,
    # Inherited by every command: `--num_examples` is `--num-examples`.
    context_settings={"token_normalize_func": spelled, "help_option_names": ["-h", "--help"]},
)
@click.version_option(package_name="journeyman", prog_name="journeyman", message="%(prog)s %(version)s")
def root() -> None:
    """Agents that learn on the job, and never get worse.

    \b
    Example:
      journeyman demo
    """


def main(arguments: Sequence[str] | None = None) -> int:
    """Run a command; its exit code. What the library raises on purpose is one line on stderr."""
    speak_plainly()
    try:
        code: Any = root.main(args=arguments, prog_name="journeyman", standalone_mode=False)
        sys.stdout.flush()
    except click.ClickException as error:
        error.show()
        return 2
    except JourneymanError as error:
        say(f"journeyman: {error}")
        return 2
    except click.Abort:
        return 130
    except BrokenPipeError:
        # Whoever read us has seen enough. Python would complain on its way out when it flushes what is left.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 1
    return code if isinstance(code, int) else 0
