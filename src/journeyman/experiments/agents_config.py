"""What an evaluation of agents on tasks of repositories can be told."""

from typing import Annotated, Literal

from pydantic import AfterValidator, Field

from journeyman.core.errors import InputError
from journeyman.experiments.settings import AttemptSettings, GateSettings, ModelSettings, PlaceSettings
from journeyman.io.config import BudgetSettings, Count, Names, config, option

KIND = "evaluate agent"
"""What its runs are called in the store."""
REFERENCE, NOTHING, OWN, COMMAND = "reference", "nothing", "journeyman", "cmd:"
"""Names of agents beside those of models: what is known to be right, the empty hand, Journeyman's own, and any command."""


def _agent(said: str) -> str:
    if said.startswith(COMMAND):
        from journeyman.agents.command import checked

        try:
            checked(said.removeprefix(COMMAND))
        except InputError as error:
            raise ValueError(str(error)) from None
    return said


@config
class AgentsConfig(AttemptSettings, ModelSettings, GateSettings, BudgetSettings, PlaceSettings):
    """Everything that an evaluation of agents on tasks of repositories can be told."""

    tasks: Annotated[str, option(metavar="FILE|NAME")] = ""
    """The tasks, as `journeyman tasks generate` writes them; or humaneval, mbpp, bfcl, or a file of these."""
    agent: Annotated[str, AfterValidator(_agent), option(metavar="AGENT")] = ""
    """Who is examined: journeyman, the name of a model, cmd:"COMMAND {workspace}", reference or nothing."""
    against: Annotated[str, AfterValidator(_agent), option(metavar="AGENT|RUN")] = NOTHING
    """Whom it must beat, likewise; or an earlier run of this command, whose attempts are not made again."""
    split: Literal["all", "held_out"] = "all"
    """Which of the tasks. Those that an agent was trained on are left out of either."""
    category: Annotated[Names, option(metavar="NAME")] = ()
    """Only tasks of this category."""
    most: Annotated[Count | None, option("--num-examples", metavar="N")] = None
    """Tasks at most, the first of the file."""
    playbook: Annotated[str, option(metavar="FILE")] = ""
    """Of the agent journeyman: what its prompts hold."""
    mcp: Annotated[Names, option("--mcp", metavar="COMMAND")] = ()
    """Of an agent with a model: the command of an MCP server on standard streams, whose tools it gets. Several may be named."""
    mcp_variable: Annotated[Names, option("--mcp-variable", metavar="NAME")] = ()
    """A variable of the environment that these servers get, besides PATH, HOME and their like."""
    tool_calls: Literal["auto", "never"] = "auto"
    """Whether a model that takes tools is offered them as functions; never: it is told to write blocks, as others are."""
    rounds: Count = 30
    """Replies of a model in one attempt, at most."""
    timeout: Annotated[float, Field(gt=0), option(metavar="SECONDS")] = 1800.0
    """Of one attempt by a command."""
    agent_package: Annotated[Names, option("--agent-package", metavar="PACKAGE")] = ()
    """What a command needs, as pip takes it: installed into an environment of its own."""
    plugin: Annotated[Names, option(metavar="MODULE")] = ()
    """Of pytest, that the tests need."""
    environments: Annotated[str, option(metavar="DIR", default=".journeyman/environments")] = ""
    """Where the environments and the files of the repositories are kept."""
    sandbox: str = "auto"
    """What agents and tests run in."""
    jobs: Count = 2
    """Runs in sandboxes at once."""
    rewards: Literal["none", "development"] = "none"
    """What else is told of the attempts: development measures what was written, and how."""
