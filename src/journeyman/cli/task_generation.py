"""`journeyman task-generation`: tasks of repositories made, and agents measured by them, under one name."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import click

from journeyman.cli.shared import OptionForm, form_of, json_option
from journeyman.core.errors import InputError
from journeyman.experiments.agents_config import NOTHING, OWN

_PLACES = ("tasks_file", "environments")
_FORMS: Mapping[str, OptionForm] = {
    "generate_tasks": OptionForm((), ("count", "source", "tasks_file")),
    "evaluate_agent": OptionForm(("model_path",), ("attempts", "max_cost", *_PLACES)),
    "benchmark": OptionForm(("baseline",), ("model_path", "attempts", "max_cost", *_PLACES)),
}
_NOT_OURS = (".pth", ".pt", ".ckpt")
"""Weights of a network whose code is another program's."""
_FILE = Path("tasks.jsonl")


@click.command()
@click.option("--generate-tasks", is_flag=True, help="Make tasks of a repository.")
@click.option("--evaluate-agent", is_flag=True, help="Let an agent attempt the tasks, and run what it leaves.")
@click.option("--benchmark", is_flag=True, help="Say whether an agent is better at them than another.")
@click.option("--count", type=click.IntRange(1, 100_000), metavar="N", help="Tasks, in all categories.  [default: 100]")
@click.option("--from", "source", type=click.Path(path_type=Path), metavar="REPO", help="Made of this.  [default: this folder]")
@click.option("--model-path", metavar="AGENT", help="A folder of weights, or an agent as `evaluate agent` names them.")
@click.option("--baseline", metavar="AGENT", help="The other, likewise.")
@click.option(
    "--tasks", "tasks_file", type=click.Path(path_type=Path), metavar="FILE", help="The tasks.  [default: tasks.jsonl]"
)
@click.option("--attempts", type=click.IntRange(1, 100), metavar="N", help="At each task, on each side.  [default: 1]")
@click.option("--max-cost", type=float, metavar="USD", help="Stop cleanly once this is spent.")
@click.option("--environments", metavar="DIR", help="Where environments are kept.  [default: in the project]")
@json_option
@click.pass_context
def command(context: click.Context, /, as_json: bool, **given: Any) -> int:
    """Make tasks of repositories, and measure agents by them.

    One of --generate-tasks, --evaluate-agent and --benchmark says what is done: the first as `journeyman tasks generate`, the
    others as `journeyman evaluate agent`, where more can be said. Without --model-path, --benchmark takes the agent journeyman
    with the project's model.

    \b
    Examples:
      journeyman task-generation --generate-tasks --count 1000 --from ../our_package
      journeyman task-generation --evaluate-agent --model-path runs/agent/model
      journeyman task-generation --benchmark --baseline openai:gpt-5-nano --model-path openai:gpt-5-mini
    """
    form = form_of(given, _FORMS)
    if form == "generate_tasks":
        made = {"source": given["source"] or Path(), "count": given["count"] or 100, "out": given["tasks_file"] or _FILE}
        return _do(context, "tasks generate", as_json=as_json, **made)
    wish: dict[str, Any] = {
        "tasks": str(given["tasks_file"] or _FILE),
        "agent": agent_of(given["model_path"] or OWN),
        "against": agent_of(given["baseline"] or NOTHING),
        "attempts_per_task": given["attempts"],
        "max_cost": given["max_cost"],
        "environments": given["environments"],
    }
    return _do(context, "evaluate agent", as_json=as_json, **wish)


def _do(context: click.Context, name: str, **given: Any) -> int:
    """What another command does; its exit code."""
    command: click.Command | None = context.find_root().command
    for word in name.split():
        assert isinstance(command, click.Group), name
        command = command.get_command(context, word)
    assert command is not None, name
    return int(context.invoke(command, **given))


def agent_of(named: str) -> str:
    """An agent by the path of its weights, or as it is named elsewhere.

    Raises:
        InputError: The path leads to weights that nothing here can ask.
    """
    path = Path(named)
    if path.suffix in _NOT_OURS:
        raise InputError(
            f"{named} holds weights of a network whose code is another program's; name a folder with a model or an adapter, a "
            "served model (openai:MODEL@URL), or the program itself (cmd:…)"
        )
    if path.suffix == ".gguf":
        raise InputError(f"{named} is for a server: `journeyman deploy {named}`, then name it as openai:MODEL@URL")
    if not path.is_dir():
        return named
    if not (path / "adapter_config.json").is_file():
        return f"local:{named}"
    from journeyman.optimizers.weights.adapters import read_adapter

    base = read_adapter(path).base_model
    return f"{base if ':' in base else f'local:{base}'}+{named}"
