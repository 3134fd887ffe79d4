"""Names made things: what a user types after `--model`, `--reward` or `--format` becomes the class behind it.

    registry.load("rewards", "tool_success")       one of Journeyman's own
    registry.load("rewards", "my_reward:Polite")   a class in a module on the path, or in a file beside the user

A package that is installed adds names of its own by entry points: `journeyman.rewards`, `journeyman.models`, a group for
each of `KINDS`. A module is imported when its name is said, and not before; names and tables cost nothing.
"""

import sys
from collections.abc import Mapping, Sequence
from functools import cache
from importlib import import_module, invalidate_caches
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any

from journeyman.core.errors import InputError, MissingExtra

if TYPE_CHECKING:
    from importlib.metadata import EntryPoint

KINDS: Mapping[str, Mapping[str, str]] = {
    "models": {
        "embedded": "journeyman.models.embedded:Embedded",
        "local": "journeyman.models.local:Local",
        "ollama": "journeyman.models.openai:Ollama",
        "openai": "journeyman.models.openai:OpenAI",
        "recorded": "journeyman.models.recorded:RecordedModel",
        "scripted": "journeyman.models.scripted:Always",
    },
    "embedders": {
        "hashing": "journeyman.models.embedders:HashingEmbedder",
        "sentence": "journeyman.models.embedders.sentence:SentenceEmbedder",
    },
    "rewards": {
        "code_execution": "journeyman.rewards.code_execution:CodeExecutionReward",
        "syntax_validation": "journeyman.rewards.static:SyntaxValidationReward",
        "tool_success": "journeyman.rewards.static:ToolSuccessReward",
        "task_completion": "journeyman.rewards.static:TaskCompletionReward",
        "efficiency": "journeyman.rewards.static:EfficiencyReward",
        "format_compliance": "journeyman.rewards.static:FormatComplianceReward",
        "survival": "journeyman.rewards.survival:SurvivalReward",
        "learned": "journeyman.rewards.learned:LearnedReward",
        "development": "journeyman.rewards.development:DevelopmentReward",
    },
    "importers": {
        "journeyman": "journeyman.tracing.importers.jsonl:STEPS",
        "claude-code": "journeyman.tracing.importers.claude_code:FORMAT",
        "codex": "journeyman.tracing.importers.codex:FORMAT",
        "gemini": "journeyman.tracing.importers.gemini:FORMAT",
        "opencode": "journeyman.tracing.importers.opencode:FORMAT",
        "openhands": "journeyman.tracing.importers.openhands:FORMAT",
        "cursor": "journeyman.tracing.importers.cursor:FORMAT",
        "aider": "journeyman.tracing.importers.aider:FORMAT",
        "tau2-bench": "journeyman.tracing.importers.tau_bench:TAU2_BENCH",
        "inspect": "journeyman.tracing.importers.inspect_log:FORMAT",
        "langfuse": "journeyman.tracing.importers.langfuse:FORMAT",
        "langsmith": "journeyman.tracing.importers.langsmith:FORMAT",
        "tau-bench": "journeyman.tracing.importers.tau_bench:TAU_BENCH",
        "swe-agent": "journeyman.tracing.importers.swe_agent:SWE_AGENT",
        "mini-swe-agent": "journeyman.tracing.importers.swe_agent:MINI_SWE_AGENT",
        "execution-log": "journeyman.tracing.importers.execution_log:FORMAT",
        "openclaw": "journeyman.tracing.importers.openclaw:FORMAT",
        "smolagents": "journeyman.tracing.importers.smolagents:FORMAT",
        "sharegpt": "journeyman.tracing.importers.sharegpt:FORMAT",
        "chat": "journeyman.tracing.importers.chat:CHAT",
        "checkpoint": "journeyman.tracing.importers.checkpoints:FORMAT",
        "otlp": "journeyman.tracing.importers.otlp:FORMAT",
    },
    "sources": {
        "claude-code": "journeyman.tracing.sources.agents:claude_code",
        "codex": "journeyman.tracing.sources.agents:codex",
        "cursor": "journeyman.tracing.sources.agents:cursor",
        "gemini": "journeyman.tracing.sources.agents:gemini",
        "opencode": "journeyman.tracing.sources.agents:opencode",
        "openhands": "journeyman.tracing.sources.agents:openhands",
        "aider": "journeyman.tracing.sources.agents:aider",
        "git": "journeyman.tracing.sources.git:GitHistory",
        "messages": "journeyman.tracing.sources.messages:Messages",
        "devlogs": "journeyman.tracing.sources.texts:devlogs",
        "workspaces": "journeyman.tracing.sources.texts:workspaces",
        "vectors": "journeyman.tracing.sources.vectors:VectorStore",
    },
    "tasks": {
        "bfcl": "journeyman.tasks.function_calls:load",
        "custom": "journeyman.tasks.questions:custom",
        "desk": "journeyman.tasks.desk:load",
        "gsm8k": "journeyman.tasks.questions:gsm8k",
        "humaneval": "journeyman.tasks.code:load",
        "mbpp": "journeyman.tasks.code:load",
    },
    "sandboxes": {
        "auto": "journeyman.sandbox.supervised:Strongest",
        "bubblewrap": "journeyman.sandbox.bubblewrap:Bubblewrap",
        "landlock": "journeyman.sandbox.supervised:Landlock",
        "unsafe-local": "journeyman.sandbox.supervised:Unsafe",
    },
    "categories": {
        "bug_fix": "journeyman.rewards.repository.verdict:TestsPass",
        "docs": "journeyman.rewards.repository.docs:Documented",
        "feature": "journeyman.rewards.repository.verdict:TestsPass",
        "refactor": "journeyman.rewards.repository.refactor:Refactored",
        "architecture": "journeyman.rewards.repository.architecture:ContractKept",
        "test": "journeyman.rewards.repository.mutants:MutantsKilled",
        "performance": "journeyman.rewards.repository.performance:AsFast",
    },
    "generators": {
        "bug_fix": "journeyman.experiments.task_generation.bug_fix:BugFix",
        "refactor": "journeyman.experiments.task_generation.refactor:Refactor",
        "commits": "journeyman.experiments.task_generation.history:Commits",
        "docs": "journeyman.experiments.task_generation.docs:Docs",
        "feature": "journeyman.experiments.task_generation.feature:Feature",
        "test": "journeyman.experiments.task_generation.test_writing:TestWriting",
        "architecture": "journeyman.experiments.task_generation.architecture:ArchitectureTasks",
        "performance": "journeyman.experiments.task_generation.performance:Performance",
    },
    "workers": {},
    "checks": {},
    "jobs": {
        "score": "journeyman.experiments.scoring:score_item",
        "validate": "journeyman.experiments.task_generation.validate:validate_item",
        "draft": "journeyman.experiments.task_generation.generate:draft_item",
        "attempt": "journeyman.experiments.repository_agents:attempt_item",
        "read": "journeyman.experiments.collecting:read_item",
    },
    "optimizers": {
        "gepa": "journeyman.optimizers.gepa:Gepa",
        "playbook": "journeyman.optimizers.playbook.trainer:learn",
    },
}
"""Journeyman's own, by kind and name, as `module:attribute`. Importers stand in the order in which a record is shown them."""
ONE = {
    "models": "model client",
    "embedders": "embedder",
    "rewards": "reward",
    "importers": "format",
    "sources": "source",
    "tasks": "data set",
    "sandboxes": "sandbox",
    "workers": "crew",
    "checks": "check",
    "jobs": "job",
    "categories": "category",
    "generators": "category",
    "optimizers": "optimizer",
}
"""What one of a kind is called in a sentence."""
_EXTRAS = {
    "embedded": "embedded",
    "gepa": "gepa",
    "local": "weights",
    "sentence": "sentence",
    "hashing": "hashing",
    "code_execution": "code",
    "syntax_validation": "code",
    "development": "code",
    "learned": "code",
}
"""The extra that a name needs, where it needs one."""


def names(kind: str) -> tuple[str, ...]:
    """All names of a kind: Journeyman's own, then those that installed packages add.

    Raises:
        InputError: There is no such kind.
    """
    own = _table(kind)
    return (*own, *(name for name in sorted(added(kind)) if name not in own))


def known(kind: str, name: str) -> bool:
    """Whether a name is one of `names`; `module:Class` is none of them, and can be loaded all the same."""
    return name in _table(kind) or name in added(kind)


def taken_apart(kind: str, text: str) -> tuple[str, str]:
    """A name and what stands behind it: "openai:gpt-5" is "openai" and "gpt-5", "mine:Own:fast" is "mine:Own" and "fast"."""
    name, _, rest = text.partition(":")
    if known(kind, name):
        return name, rest
    attribute, _, behind = rest.partition(":")
    return (f"{name}:{attribute}", behind) if attribute else (name, "")


def is_class(name: str) -> bool:
    """Whether a name is written as `module:Class`: identifiers and dots alone."""
    module, colon, attribute = name.partition(":")
    return bool(colon) and all(part.isidentifier() for part in (*module.split("."), *attribute.split(".")))


def load(kind: str, name: str) -> Any:
    """The class or function of that name.

    Args:
        kind: One of `KINDS`, in the plural.
        name: One of `names(kind)`, or `module:Class`, with the module on the path or in the working folder.

    Raises:
        InputError: There is no such kind or name, or the module cannot be imported or lacks the attribute.
        MissingExtra: What it needs is not installed.
    """
    own = _table(kind)
    if name in own:
        return _own(kind, name, own[name])
    if (entry := added(kind).get(name)) is not None:
        return _from_outside(kind, name, entry.value)
    if is_class(name):
        return _from_outside(kind, name, name)
    raise InputError(unknown(kind, name))


def unknown(kind: str, name: str, *, known: Sequence[str] = (), more: str = "") -> str:
    """The sentence for a name that is none: the one that may be meant, all there are, and that a class may be named.

    Args:
        known: The names, where they are not all of `names(kind)`.
        more: What else can be typed, such as "the URL of a service".
    """
    from difflib import get_close_matches

    there = known or names(kind)
    near = get_close_matches(name, there, n=1)
    meant = f"; {near[0]} may be meant" if near else ""
    said = f"there are {', '.join(there)}{f', {more}' if more else ''}, and your own as module:Class{meant}"
    return f"no {ONE[kind]} {name!r}; {said}{hint(name)}"


def hint(name: str) -> str:
    """What may be meant by a name that says a file, or a module without its class; nothing where that cannot be told."""
    said, colon, attribute = name.partition(":")
    path = Path(said)
    if path.suffix == ".py" or "/" in said:
        inside = path.with_suffix("").parts
        apart = path.is_absolute() or ".." in inside
        module = path.stem if apart else ".".join(inside)
        where = ", from the folder that it is in" if apart else ""
        return f"; a module is named without .py: {module}:{attribute or 'Class'}{where}"
    module, dot, last = said.rpartition(".")
    if not colon and dot and _is_beside(module):
        return f"; the class stands behind a colon: {module}:{last}"
    if not attribute and _is_beside(said):
        return f"; {said} is a module, and the class in it is named so: {said}:Class"
    return ""


def _is_beside(module: str) -> bool:
    """Whether a module is a file of the working folder."""
    return bool(module) and Path(*module.split(".")).with_suffix(".py").is_file()


def missing(kind: str, name: str, error: ModuleNotFoundError) -> MissingExtra:
    """What is said where a name needs something that is not installed."""
    if name not in _table(kind):
        return MissingExtra(f"the {ONE[kind]} {name!r} cannot be loaded: {error.name} is missing, which it imports; install it")
    extra = f"[{_EXTRAS[name]}]" if name in _EXTRAS else "[code]" if kind == "rewards" else ""
    return MissingExtra(f"{error.name} is missing: pip install 'journeyman{extra}'")


def _own(kind: str, name: str, place: str) -> Any:
    try:
        return _attribute(place)
    except ModuleNotFoundError as error:
        raise missing(kind, name, error) from error


def _from_outside(kind: str, name: str, place: str) -> Any:
    """A class of somebody else: whatever its module does while it is imported is theirs, and is named."""
    module, _, attribute = place.partition(":")
    said = f"the {ONE[kind]} {name!r} cannot be loaded"
    _look_beside()
    try:
        return _attribute(place)
    except ModuleNotFoundError as error:
        if error.name and (module == error.name or module.startswith(f"{error.name}.")):
            meant = hint(name) or "; name it as module:Class"
            raise InputError(f"{said}: there is no module {error.name!r} on the path or in this folder{meant}") from error
        raise missing(kind, name, error) from error
    except AttributeError as error:
        why = f"the module {module!r} has no {attribute!r}" if module in sys.modules else f"{type(error).__name__}: {error}"
        raise InputError(f"{said}: {why}{_hidden(module)}") from error
    except Exception as error:
        raise InputError(f"{said}: importing {module!r} ended in {type(error).__name__}: {error}") from error


def _hidden(module: str) -> str:
    """Said where a file of the working folder is not found, as another module has its name."""
    first = module.partition(".")[0]
    mine, found = Path.cwd() / f"{first}.py", getattr(sys.modules.get(first), "__file__", None)
    if not mine.is_file() or (found and Path(found).resolve() == mine.resolve()):
        return ""
    whose = "Python's own module" if first in sys.stdlib_module_names else "an installed module"
    return f"; {whose} of that name is found before your file {mine.name}: give the file another name"


def can_be_loaded(name: str) -> bool:
    """Whether a name is written as `module:Class`, and there is such a module; it is not imported, but its package may be."""
    if not is_class(name):
        return False
    _look_beside()
    try:
        return find_spec(name.partition(":")[0]) is not None
    except (ImportError, ValueError):
        return False


def _attribute(place: str) -> Any:
    module, _, attribute = place.partition(":")
    found: Any = import_module(module)
    for part in attribute.split("."):
        found = getattr(found, part)
    return found


def _look_beside() -> None:
    """From now on modules of the working folder can be imported: behind all others, so that a file in it hides no library.

    It stays on the path, as a class of one's own may import the files beside it late, or be sent to another process.
    """
    here = str(Path.cwd())
    if here not in sys.path:
        sys.path.append(here)
    invalidate_caches()


def _table(kind: str) -> Mapping[str, str]:
    if kind not in KINDS:
        raise InputError(f"there is no kind {kind!r}; there are {', '.join(KINDS)}")
    return KINDS[kind]


@cache
def added(kind: str) -> "Mapping[str, EntryPoint]":
    """What installed packages add, by name; read once, as it looks through all of them."""
    from importlib.metadata import entry_points  # Takes 0.02 s to load.

    return {each.name: each for each in entry_points(group=f"journeyman.{kind}")}
