"""A pipeline read: from TOML, or from configurations of earlier systems."""

import json
import shlex
import tomllib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, fields
from difflib import get_close_matches
from pathlib import Path
from typing import Any, Literal

import click
import yaml

from journeyman.cli.lazy import spelled
from journeyman.core.errors import InputError
from journeyman.experiments.pipeline.stages import Budget, Pipeline, PipelineStage
from journeyman.optimizers.weights.config import TrainingConfig

COMMANDS = {
    "collect": "collect all",
    "tasks": "tasks generate",
    "label": "traces autolabel",
    "reward": "rewards fit",
    "train": "train playbook",
    "evaluate": "evaluate",
    "gate": "",
    "deploy": "deploy llamacpp",
    "release": "releases start",
    "monitor": "monitor",
}
"""What the tables of usual names carry out, unless they say another command."""
_ENDLESS = ("serve", "pipeline", "demo", "orchestrate", "learn")
_ALWAYS: Mapping[str, Mapping[str, Any]] = {
    "monitor": {"once": True},
    "deploy llamacpp": {"detach": True, "port": 0},
}
"""Without these a command would not come to an end, or two pipelines would want one port."""
_ACCEPTED = dict.fromkeys(("monitor", "traces autolabel", "rewards fit", "evaluate", "evaluate agent"), (0, 1))
"""Exit codes that are an answer: a rollout is held, a labeler is silent, a candidate is no better, of which a gate makes a
reason."""
_OWN = ("command", "arguments", "after", "accepts", "settings")
_WRITTEN = ("out", "output", "output_playbook_path", "output_metrics_path", "environments", "store", "log")
"""Options that name what is written, or what is only a place."""
_BUDGET = ("cost", "cpu_seconds", "wall_seconds")


def read(file: Path, root: click.Group, *, sets: Sequence[str] = (), quick: bool = False) -> Pipeline:
    """A pipeline as its file says, over it what was said by `--set`.

    Args:
        root: Whose commands the stages are.

    Raises:
        InputError: The file cannot be used: with its line, and what was probably meant.
    """
    text, tables = _tables(file)
    for each in sets:
        _set(tables, each)
    head = tables.pop("pipeline", {})
    if strange := sorted(set(head) - {"name", "stages", "budget"}):
        raise _unknown(file, text, "pipeline", strange[0], ["name", "stages", "budget"])
    names = head.get("stages", list(tables))
    if missing := [name for name in names if name not in tables and name != "gate"]:
        raise InputError(f"{file} names the stage {missing[0]}, and has no table [{missing[0]}]")
    stages, before = [], ""
    for name in names:
        stages.append(_stage(root, (file, text), name, tables.get(name, {}), before=before, quick=quick))
        before = name
    if not stages:
        raise InputError(f"{file} has no stages: a table each, as in `journeyman pipeline init`")
    name = str(head.get("name", file.stem))
    if not name or not all(letter.isalnum() or letter in "-_" for letter in name):
        raise InputError(f"{file}: the pipeline's name is {name!r}, and must be of letters, digits, - and _")
    return Pipeline.of(name, stages, _budget(file, text, head.get("budget", {})))


def _tables(file: Path) -> tuple[str, dict[str, Any]]:
    if file.suffix in (".yaml", ".yml"):
        return "", dict(tables_of(file)[0])
    try:
        text = file.read_text(encoding="utf-8")
        found = tomllib.loads(text)
    except FileNotFoundError:
        raise InputError(f"there is no {file}; begin one with: journeyman pipeline init --preset desk > {file}") from None
    except OSError as error:
        raise InputError(f"{file} cannot be read: {error.strerror}") from None
    except ValueError as error:
        raise InputError(f"{file} is no TOML: {error}") from None
    if loose := [name for name, value in found.items() if not isinstance(value, dict)]:
        raise InputError(f"{file}, line {_line(text, '', loose[0])}: {loose[0]} stands outside of a table such as [train]")
    return text, found


def _set(tables: dict[str, Any], said: str) -> None:
    path, equals, value = said.partition("=")
    stage, dot, key = path.strip().partition(".")
    if not (equals and dot and stage and key):
        raise InputError(f"--set {said!r} is not STAGE.KEY=VALUE, such as train.max_steps=20")
    if stage not in tables:
        raise InputError(f"--set {said!r}: there is no table [{stage}]; there are {', '.join(tables)}")
    try:
        tables[stage][key] = tomllib.loads(f"value = {value}")["value"]
    except ValueError:
        tables[stage][key] = value


def _budget(file: Path, text: str, said: Mapping[str, Any]) -> Budget:
    if strange := sorted(set(said) - set(_BUDGET)):
        raise _unknown(file, text, "pipeline.budget", strange[0], _BUDGET)
    for name, value in said.items():
        if isinstance(value, bool) or not isinstance(value, int | float) or not value > 0:
            raise InputError(f"{file}: the budget's {name} is {value!r}, and must be a number above 0")
    return Budget(**{name: float(value) for name, value in said.items()})


def _stage(
    root: click.Group, source: tuple[Path, str], name: str, said: Mapping[str, Any], *, before: str, quick: bool
) -> PipelineStage:
    file, text = source
    typed = str(said.get("command", COMMANDS.get(name, "?")))
    if typed == "?":
        raise InputError(
            f'{file}: the stage {name} does not say which command it is; add command = "train weights", or another'
        )
    after = tuple(_texts(said.get("after", [before] if before else [])))
    if name == "gate" and not typed:
        if strange := sorted(set(said) - {"after"}):
            raise _unknown(file, text, name, strange[0], ["after"])
        return PipelineStage(name=name, command=(), after=after)
    found = _command(root, file, name, typed)
    options = {_python(opt): param for param in found.params for opt in param.opts if opt[0] == "-"}
    given = {**_ALWAYS.get(typed, {}), **{key: value for key, value in said.items() if key not in _OWN}}
    if quick and "quick" in options:
        given["quick"] = True
    arguments: list[str] = []
    reads: list[str] = []
    for key, value in given.items():
        if (param := options.get(_python(key))) is None or key in ("json", "help", "resume"):
            raise _unknown(file, text, name, key, [each for each in options if each not in ("json", "help", "resume")])
        arguments += _typed(param, value)
        if _python(key) not in _WRITTEN:
            reads += [each for each in _texts(value) if _is_read(param, each)]
    words = _texts(said.get("arguments", []))
    reads += [each for each in words if Path(each).exists()]
    return PipelineStage(
        name=name,
        command=tuple(typed.split()),
        arguments=(*arguments, *words),
        files=tuple(reads),
        after=after,
        accepts=tuple(said.get("accepts", _ACCEPTED.get(typed, (0,)))),
        settings={
            f"JOURNEYMAN_{section}__{key}".upper(): value if isinstance(value, str) else json.dumps(value)
            for section, table_ in said.get("settings", {}).items()
            for key, value in table_.items()
        },
        resumes="resume" in options,
        bounded="max_cost" in options and "max_cost" not in given,
    )


def typed_stage(root: click.Group, where: str, name: str, typed: str) -> PipelineStage:
    """A stage of a command as it is typed, with its options.

    Raises:
        InputError: There is no such command or option, or it cannot be a stage.
    """
    try:
        words = shlex.split(typed)
    except ValueError as error:
        raise InputError(f"{where}: {typed!r} is no command: {error}") from None
    context, found = click.Context(root, info_name="journeyman"), root
    path: list[str] = []
    while isinstance(found, click.Group) and len(path) < len(words) and not words[len(path)].startswith("-"):
        path.append(words[len(path)])
        found = found.get_command(context, path[-1]) or click.Command(path[-1])  # type: ignore[assignment]
    command = _command(root, Path(where), name, " ".join(path))
    inner, arguments = click.Context(command, context), words[len(path) :]
    try:
        command.make_parser(inner).parse_args(list(arguments))
    except click.UsageError as error:
        raise InputError(f"{where}: {typed!r}: {error.format_message()}") from None
    options = {_python(opt) for param in command.params for opt in param.opts if opt.startswith("-")}
    return PipelineStage(
        name=name,
        command=tuple(path),
        arguments=tuple(arguments),
        accepts=tuple(_ACCEPTED.get(" ".join(path), (0,))),
        resumes="resume" in options,
        bounded="max_cost" in options and "--max-cost" not in arguments,
    )


def _command(root: click.Group, file: Path, stage: str, typed: str) -> click.Command:
    context = click.Context(root, info_name="journeyman")
    found: click.Command = root
    for word in typed.split():
        below = found.get_command(context, word) if isinstance(found, click.Group) else None
        if below is None:
            names = found.list_commands(context) if isinstance(found, click.Group) else []
            near = get_close_matches(word, names, n=1)
            hint = f"; did you mean {near[0]}?" if near else ""
            raise InputError(f"{file}: the stage {stage} names the command {typed!r}, and there is none{hint}")
        found = below
    if typed.split()[0] in _ENDLESS:
        raise InputError(f"{file}: the stage {stage} cannot be {typed!r}, which does not end by itself")
    if not any("--json" in param.opts for param in found.params):
        raise InputError(f"{file}: the stage {stage} cannot be {typed!r}, which has no --json to say what it made")
    return found


def _typed(param: click.Parameter, value: Any) -> list[str]:
    """An option as it is typed."""
    name = next(opt for opt in param.opts if opt.startswith("--"))
    if isinstance(value, bool):
        off = next((opt for opt in param.secondary_opts), None)
        return [name] if value else [off] if off else []
    if getattr(param, "is_flag", False):
        raise InputError(f"{name} is yes or no, and is said as true or false, not {value!r}")
    if isinstance(value, Mapping):
        return [name, ",".join(f"{key}={each}" for key, each in value.items())]
    if isinstance(value, list):
        several = getattr(param, "multiple", False)
        return [word for each in value for word in (name, str(each))] if several else [name, ",".join(map(str, value))]
    return [name, str(value)]


def _is_read(param: click.Parameter, name: str) -> bool:
    if "{" in name:
        return False
    return Path(name).expanduser().exists() or bool(getattr(param.type, "exists", False))


def _texts(value: Any) -> list[str]:
    if isinstance(value, list | tuple):
        return [str(each) for each in value]
    return [value] if isinstance(value, str) else []


def _python(option: str) -> str:
    return spelled(option.lstrip("-")).replace("-", "_")


def _unknown(file: Path, text: str, table_name: str, key: str, known: Sequence[str]) -> InputError:
    near = get_close_matches(key, known, n=1, cutoff=0.5)
    hint = f"did you mean {near[0]}?" if near else f"there are {', '.join(sorted(known))}"
    at = f", line {line}" if (line := _line(text, table_name, key)) else ""
    return InputError(f"{file}{at}: [{table_name}] has no {key}; {hint}")


def _line(text: str, table_name: str, key: str) -> int | None:
    """Where a key stands, which the reader of TOML does not say."""
    here = ""
    for at, line in enumerate(text.splitlines(), 1):
        stripped = line.strip()
        if stripped.startswith("["):
            here = stripped.strip("[] ")
        elif here == table_name and stripped.split("=")[0].strip(" \"'") == key:
            return at
    return None


# Configurations of earlier systems as tables of a pipeline, with an account of every key: taken, renamed, without meaning.

Fate = Literal["taken", "renamed", "without meaning here"]
Tables = dict[str, dict[str, Any]]


@dataclass(frozen=True, slots=True, kw_only=True)
class KeyAccount:
    """What became of a key."""

    key: str
    fate: Fate
    became: str
    """Where it stands now; or why it has no meaning."""


_AGENT_SECTIONS = ("model", "training", "data_collection", "reward_system", "deployment", "monitoring")
"""Sections of a configuration for autonomous agents; the first four are those of its sample."""
_RENAMED: Mapping[str, tuple[str, str]] = {
    "training.learning_rate": ("train", "learning_rate"),
    "training.batch_size": ("train", "batch_size"),
    "training.num_epochs": ("train", "num_epochs"),
    "model.dropout": ("train", "lora_dropout"),
    "model.max_sequence_length": ("train", "max_prompt_tokens"),
    "data_collection.max_samples_per_source": ("collect", "settings.collect.max_samples_per_source"),
    "data_collection.quality_threshold": ("collect", "settings.collect.quality_threshold"),
}
_OF_THE_MODEL = "the base model has its own; [train] base_model chooses another"
_WITHOUT: Mapping[str, str] = {
    "model.hidden_size": _OF_THE_MODEL,
    "model.num_layers": _OF_THE_MODEL,
    "model.vocab_size": _OF_THE_MODEL,
    "model.num_task_types": "a task says its category itself",
    "training.warmup_steps": "the learning rate falls from its first value on",
    "training.weight_decay": "an adapter begins at nothing and is kept near the start by [train] beta",
    "training.gradient_clip_norm": "gradients are always clipped at 1",
    "data_collection.enabled_sources": "[collect.sources] of journeyman.toml names them, and says where they lie",
    "data_collection.batch_size": "what is collected is kept as it is read",
    "reward_system.component_weights": "each task says its own, in its field development.weights; these are the usual ones",
    "reward_system.penalty_multiplier": "each task says its own, in its field development.penalty_multiplier",
    "reward_system.bonus_threshold": "each task says its own, in its field development.bonus_threshold",
}
_SPELLED = {
    "dataset_name": "tasks",
    "input_path": "input",
    "per_device_batch_size": "batch_size",
    "rewards": "reward",
    "context": "playbook",
    "use_bf16": "bf16",
}
"""Settings of a training in Python, and the options that they are."""


def tables_of(file: Path) -> tuple[Tables, list[KeyAccount]]:
    """A configuration for autonomous agents (sections `model`, `training`, `data_collection`, `reward_system`), or the settings
    of one training of weights, as tables of a pipeline.

    Raises:
        InputError: It is neither.
    """
    try:
        found = yaml.safe_load(file.read_text(encoding="utf-8"))
    except OSError as error:
        raise InputError(f"{file} cannot be read: {error.strerror}") from None
    except (ValueError, yaml.YAMLError) as error:
        raise InputError(f"{file} is no YAML: {' '.join(str(error).split())}") from None
    if not isinstance(found, dict) or not found:
        raise InputError(f"{file} holds no settings")
    training = {each.name for each in fields(TrainingConfig)}
    if set(found) & set(_AGENT_SECTIONS) and all(isinstance(value, Mapping) for value in found.values()):
        return _agent(file, found)
    if set(found) & training:
        return _training(file, found, training)
    raise InputError(
        f"{file} is no configuration that is known: it has {', '.join(map(str, found))}, and neither "
        f"{', '.join(_AGENT_SECTIONS[:4])} nor settings of a training such as base_model"
    )


def _agent(file: Path, found: Mapping[str, Mapping[str, Any]]) -> tuple[Tables, list[KeyAccount]]:
    tables: Tables = {
        "pipeline": {"name": _name(file)},
        "collect": {"command": "data-collection", "collect_all": True},
        "train": {"command": "train weights", "method": "grpo", **_LEARNS},
        "gate": {"after": ["train"]},
    }
    if "data_collection" not in found:
        del tables["collect"]
    accounts = []
    for key, value in _leaves(found):
        if key in _RENAMED:
            stage, name = _RENAMED[key]
            _put(tables[stage], name, _number(value))
            accounts.append(KeyAccount(key=key, fate="renamed", became=f"[{stage}] {name}"))
        else:
            why = _WITHOUT.get(key) or _WITHOUT.get(key.rpartition(".")[0]) or "it is not known here"
            accounts.append(KeyAccount(key=key, fate="without meaning here", became=why))
    return tables, accounts


_LEARNS = {"tasks": "desk", "domain": "oslo"}
"""What is learned where a configuration names no tasks: that of the embedded model, which needs no key and no network."""


def _training(file: Path, found: Mapping[str, Any], known: set[str]) -> tuple[Tables, list[KeyAccount]]:
    train: dict[str, Any] = {"command": "train weights"}
    accounts = []
    for key, value in found.items():
        if key not in known:
            accounts.append(KeyAccount(key=key, fate="without meaning here", became="no setting of a training is called so"))
            continue
        name = _SPELLED.get(key, key)
        train[name] = _number(value)
        accounts.append(KeyAccount(key=key, fate="renamed" if name != key else "taken", became=f"[train] {name}"))
    if not {"tasks", "data"} & set(train):
        train |= _LEARNS
    return {"pipeline": {"name": _name(file)}, "train": train, "gate": {"after": ["train"]}}, accounts


def _name(file: Path) -> str:
    return "".join(letter if letter.isalnum() else "-" for letter in file.stem)


def _leaves(found: Mapping[str, Any], above: str = "") -> Iterator[tuple[str, Any]]:
    for key, value in found.items():
        if isinstance(value, Mapping):
            yield from _leaves(value, f"{above}{key}.")
        else:
            yield f"{above}{key}", value


def _number(value: Any) -> Any:
    """YAML takes `1e-4` for a text."""
    if not isinstance(value, str):
        return value
    try:
        return float(value)
    except ValueError:
        return value


def _put(table: dict[str, Any], name: str, value: Any) -> None:
    *above, last = name.split(".")
    for each in above:
        table = table.setdefault(each, {})
    table[last] = value
