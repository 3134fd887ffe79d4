"""The only wiring: names become models, data sets and clocks."""

import os
from dataclasses import replace
from datetime import UTC, datetime
from functools import partial
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

from journeyman import models
from journeyman.agents.answer import Answer, MakeAgent, ToolCaller
from journeyman.core import extension, registry
from journeyman.core.errors import InputError, MissingExtra, ModelError
from journeyman.core.format import named
from journeyman.core.task import Split, Task
from journeyman.experiments import settings
from journeyman.experiments.playbook.config import TrainingConfig
from journeyman.experiments.settings import BARE, bare
from journeyman.io.event_loop import waited
from journeyman.io.http_client import Unreachable, probe
from journeyman.models.base import Around, Model
from journeyman.tasks import answers, questions
from journeyman.tasks.base import Dataset

if TYPE_CHECKING:
    from journeyman.models.pricing import PerMillion

REPOSITORY = "repository"
"""What the data set of tasks is called that `journeyman tasks generate` makes."""
PROGRAMMING = frozenset({"humaneval", "mbpp"})
"""Data sets whose answers are programs, which are run."""
FUNCTION_CALLS = "bfcl"
"""The data set whose answers are calls of functions, which are compared."""
LIVE = "live"
"""The data set of questions that the project's store has recorded, and of which it is known what would be right."""
REPEATABLE = "2026-11-21T00:00:00+00:00"
"""What is stamped on a playbook that was learned with deterministic models: the date of this version of Journeyman. The same
run gives the same bytes on any day; `SOURCE_DATE_EPOCH`, where set, is stamped instead."""


def now() -> datetime:
    return datetime.now(UTC)


def connect(name: str, *, concurrency: int = 10, base_url: str = "", key_env: str = models.KEY) -> Model:
    """A model client by name, with a limit on calls in flight where calls go over a network.

    The server at `base_url` is sent the value of the variable `key_env` as its key; one that the name itself holds, or
    OPENAI_BASE_URL, was typed by the user, and is sent OPENAI_API_KEY.
    """
    from journeyman.models import connect as limited

    parsed = models.parse(name)
    kind = parsed.kind
    if kind not in models.OVER_HTTP:
        return models.load(name)
    surroundings = os.environ.get("OPENAI_BASE_URL", "") if kind == "openai" else ""
    for what, text in (("a model", name), ("base_url", base_url), ("OPENAI_BASE_URL", surroundings)):
        if not bare(text):
            raise InputError(f"{what} must {BARE}")
    own: dict[str, Any] = {"key_env": key_env} if kind == "openai" and base_url and parsed.base_url is None else {}
    return limited(_at(name, base_url), concurrency, **own)


def check_name(name: str, *, base_url: str = "") -> models.ModelName:
    """Find what is wrong with how a model and its server are named, whether or not they can be asked yet.

    Raises:
        ModelError: The name is none, or the server's address is no address.
    """
    parsed = models.parse(name)
    if parsed.kind == "embedded":
        models.embedded_weights(models.split_adapter(parsed.rest)[0] or "base")
    surroundings = os.environ.get("OPENAI_BASE_URL", "") if parsed.kind == "openai" else ""
    if parsed.kind in models.OVER_HTTP and (url := parsed.base_url or base_url or surroundings):
        models.checked_address(url)
    return parsed


def check(name: str, *, base_url: str = "", key_env: str = models.KEY) -> None:
    """Find what would keep a model from answering, as far as that is known without asking or loading it.

    Raises:
        ModelError: Its name is none, it lacks a key or a file, or nobody listens where its server should be.
        MissingExtra: What it needs is not installed.
    """
    parsed = check_name(name, base_url=base_url)
    if parsed.kind != "embedded":
        # Connects to nothing yet, but knows whether a key or a file is missing.
        client = connect(name, base_url=base_url, key_env=key_env)
        while isinstance(client, Around):
            client = client.model
        if url := getattr(client, "base_url", ""):
            try:
                probe(url)
            except Unreachable as error:
                raise ModelError(f"nobody listens at {url} ({error}): is the server of {name} running?") from error
        return
    # Its client takes seconds to load.
    for library in ("torch", "transformers"):
        if find_spec(library) is None:
            raise MissingExtra(f"{library} is missing: pip install 'journeyman[embedded]'")


def price(name: str, *, base_url: str = "") -> "PerMillion | None":
    """The list price of a model on the server that its calls will go to; `None` when it is not known."""
    from journeyman.models import pricing

    parsed = models.parse(name)
    # The same order as in the client: the name's own server, the one that was given, the environment's.
    url = parsed.base_url or base_url or os.environ.get("OPENAI_BASE_URL")
    return pricing.per_million(url, parsed.rest) if parsed.kind == "openai" and url else pricing.of(name)


def _at(name: str, base_url: str) -> str:
    """The name with its server, where another one is given for models that name none."""
    parsed = models.parse(name)
    if not base_url or parsed.base_url is not None or parsed.kind not in models.OVER_HTTP:
        return name
    return f"{parsed.kind}:{parsed.rest}@{base_url}"


def stamp(*used: Model) -> str:
    """The time to write on what is learned with these models."""
    epoch = os.environ.get("SOURCE_DATE_EPOCH", "")
    if epoch:
        if not epoch.isdigit():
            raise InputError(f"SOURCE_DATE_EPOCH is {epoch!r}, and must be a number of seconds")
        return datetime.fromtimestamp(int(epoch), UTC).isoformat()
    return REPEATABLE if all(model.deterministic for model in used) else now().isoformat(timespec="seconds")


def load_dataset(config: TrainingConfig, *, bare: bool = False, data: questions.Values | None = None) -> Dataset:
    """The data set that a run's settings name, with as many tasks as they ask for where they are made to order.

    The desk is the small world that ships with the package; its domains are its shops. humaneval and mbpp are programming
    tasks, whose tests need a sandbox; live is what was recorded.

    A `bare` one is only its verifier where no file of it is named. `data` are rows of one's own that stand for a file.

    Raises:
        InputError: There is no such data set or domain, or its file cannot be used.
    """
    if bare and config.dataset_name in ("custom", "gsm8k") and not config.input_path and not config.held_out_path:
        return Dataset(
            name=config.dataset_name, tasks=(), verifier=answers.Number() if config.dataset_name == "gsm8k" else answers.Exact()
        )
    if data is not None:
        return _from_files(config, data)
    if config.dataset_name in PROGRAMMING:
        return _programming(config)
    if config.dataset_name == FUNCTION_CALLS:
        return _function_calls(config)
    if config.dataset_name == LIVE:
        return Dataset(name=LIVE, tasks=() if bare else _live(config), verifier=answers.ExactOrNear())
    if config.dataset_name == REPOSITORY:
        return _repository(config)
    return _desk(config) if config.dataset_name == "desk" else _from_files(config)


def _desk(config: TrainingConfig) -> Dataset:
    from journeyman.tasks import desk

    if file := config.input_path or config.held_out_path:
        raise InputError(f"the desk makes its own tasks and reads no file; leave out {file}")
    wanted = Split(config.dataset_split)
    return desk.load(config.domain, sizes={wanted: config.num_examples, Split.HELD_OUT: config.held_out}, seed=config.seed)


def _from_files(config: TrainingConfig, data: questions.Values | None = None) -> Dataset:
    """Questions with answers: gsm8k, custom, those of installed packages, or what a function of one's own (`MODULE:NAME`)
    gives, which takes what `questions.custom` takes."""
    name, domain = config.dataset_name, config.domain
    load = registry.load("tasks", name)
    columns = questions.QuestionColumns(
        question=config.question_column, answer=config.answer_column, domain=config.domain_column
    )
    if columns != questions.QuestionColumns() and name != "custom":
        raise InputError(f"the columns of {name} are known; name those of a file of your own: --dataset custom")
    more = {"columns": columns} if name == "custom" else {}
    with extension.named("tasks", name):
        dataset = load(
            config.input_path if data is None else data, config.held_out_path, domain=domain, least=config.min_tasks, **more
        )
    if not isinstance(dataset, Dataset):
        raise InputError(f"the data set {name!r} is none: it gave a {type(dataset).__name__}, and no Dataset")
    found = tuple(task for task in dataset.tasks if domain in ("", task.domain))
    if not found:
        known = ", ".join(sorted({task.domain for task in dataset.tasks}))
        raise InputError(f"the data set {name!r} has no tasks of domain {domain!r}; there are {known}")
    return replace(dataset, name=name, tasks=found)


def _programming(config: TrainingConfig) -> Dataset:
    """Programming tasks with what runs their tests: a sandbox, which ends with this process."""
    from journeyman import sandbox
    from journeyman.rewards.unit_tests import UnitTests
    from journeyman.tasks import code

    if not config.input_path and not config.held_out_path:
        raise InputError(f"the data set {config.dataset_name!r} needs its file: --input FILE")
    found = code.load(config.input_path, config.held_out_path, domain=config.domain or "code", least=config.min_tasks)
    return Dataset(name=config.dataset_name, tasks=found, verifier=UnitTests(sandbox.load(config.sandbox)))


def _function_calls(config: TrainingConfig) -> Dataset:
    from journeyman.rewards.answers import WrittenCalls
    from journeyman.tasks import function_calls

    if not config.input_path and not config.held_out_path:
        raise InputError(f"the data set {FUNCTION_CALLS!r} needs its file, or the folder of its files: --input FILE")
    domain = config.domain or "functions"
    found = function_calls.load(config.input_path, config.held_out_path, domain=domain, least=config.min_tasks)
    return Dataset(name=FUNCTION_CALLS, tasks=found, verifier=WrittenCalls())


def _live(config: TrainingConfig) -> tuple[Task, ...]:
    from journeyman.experiments.playbook.recorded_tasks import of_live_traffic
    from journeyman.stores import open_traces

    if file := config.input_path or config.held_out_path:
        raise InputError(f"the tasks of {LIVE} are drawn from the store and no file is read; leave out {file}")
    with open_traces(settings.load().store_url, make=False) as store:
        found = of_live_traffic(store.traces(), domain=config.domain, least=config.min_tasks)
    if not found:
        raise InputError(
            "nothing was recorded"
            + (f" in the domain {config.domain}" if config.domain else "")
            + " that can be asked again and of which somebody said what is right; journeyman traces label says it, "
            "journeyman dataset from-traces --dry-run why each is left out"
        )
    return found


def _repository(config: TrainingConfig) -> Dataset:
    """Tasks of repositories, in the splits of their files, with what runs them: the sandboxes of their environments.

    A function or a commit that is learned from is in no examination, whatever the files say.
    """
    from journeyman.agents.workshop import RepositoryWorkshop
    from journeyman.experiments.task_generation.generate import FOLDER, workplaces
    from journeyman.tasks import repository

    if not config.input_path:
        raise InputError(f"the data set {REPOSITORY!r} needs its file, which `journeyman tasks generate` writes: --input FILE")
    found = {task.id: task for task in repository.read(Path(config.input_path))}
    if config.held_out_path:
        beside = repository.read(Path(config.held_out_path))
        found = {key: replace(task, split=Split.TRAIN) for key, task in found.items()}
        found |= {task.id: replace(task, split=Split.HELD_OUT) for task in beside}
    wanted = [task for task in found.values() if config.domain in ("", task.category)]
    if not wanted:
        known = ", ".join(sorted({task.category for task in found.values()}))
        raise InputError(f"{config.input_path} has no tasks of domain {config.domain!r}; there are {known}")
    learned = {(task.repository, task.source) for task in wanted if task.split is Split.TRAIN}
    if twice := [task.id for task in wanted if task.split is Split.HELD_OUT and (task.repository, task.source) in learned]:
        raise InputError(
            f"{len(twice)} held-out tasks are made of a function or commit that is trained on, too ({named(twice)}); "
            "name files of different repositories, or one file alone, whose splits keep them apart"
        )
    workshop = RepositoryWorkshop(wanted, *workplaces(FOLDER, config.sandbox))
    examined = [task for task in wanted if task.split is Split.HELD_OUT]
    tasks = repository.clustered(wanted, config.min_clusters, examined=examined)
    return Dataset(name=REPOSITORY, tasks=tasks, verifier=workshop)


def agent_for(dataset: Dataset) -> MakeAgent:
    """What attempts the tasks of a data set: it asks a model once, or lets it work in a repository."""
    if dataset.name == FUNCTION_CALLS:
        return ToolCaller
    if dataset.name != REPOSITORY:
        return Answer
    from journeyman.agents.repository import RepositoryAgent
    from journeyman.agents.workshop import RepositoryWorkshop

    return partial(RepositoryAgent, workshop=cast(RepositoryWorkshop, dataset.verifier))


async def closed(dataset: Dataset) -> None:
    """End what was begun for the tasks of a data set."""
    if dataset.name == REPOSITORY:
        await cast(Any, dataset.verifier).close()


def try_walls(dataset: Dataset) -> None:
    """Find out that the programs of a data set can be tested here, before a model is asked for any.

    Raises:
        SandboxError: They cannot; the message says what to do.
    """
    from journeyman.rewards.unit_tests import UnitTests

    if isinstance(dataset.verifier, UnitTests):
        waited(_begun_and_ended(dataset.verifier.sandbox))
    elif dataset.name == REPOSITORY:
        waited(_begun_and_ended(dataset.verifier))


async def _begun_and_ended(walls: Any) -> None:
    try:
        await walls.start()
    finally:
        await walls.close()
