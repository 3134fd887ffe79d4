"""The one tree of settings: a section for each part, the same words in the file, in the environment, as options and in Python.

    defaults  <  journeyman.toml  <  JOURNEYMAN_SECTION__NAME  <  options of a command  <  keywords in Python

A section is a small class of settings (`io.config`), declared once: `[gate] min_gain` of the file,
`JOURNEYMAN_GATE__MIN_GAIN`, `--min-gain` and `TrainingConfig(min_gain=…)` are one field of `GateSettings`. What a command can
be told is a class that inherits from the sections that it uses and adds what is its own; `configured` makes one from options,
over what the file and the environment say. `cli.options` makes the options from the same declaration.

Read once, by a face of the program, and handed on as values. Every setting has a default, so there need not be a file.
"""

import getpass
import json
import logging
import os
import re
import shlex
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass, field, fields
from datetime import time, timedelta
from difflib import get_close_matches
from functools import cache
from pathlib import Path
from typing import Annotated, Any, ClassVar, Literal, TypeVar, get_type_hints
from urllib.parse import urlsplit

from pydantic import AfterValidator, Field, TypeAdapter, ValidationError
from pydantic_core import ErrorDetails

from journeyman.core.errors import InputError, ModelError
from journeyman.core.feedback import LabelScheme
from journeyman.core.gate import BetterOnHeldOut, Guardrail
from journeyman.core.playbook import Place
from journeyman.core.release import Stage
from journeyman.experiments import place
from journeyman.experiments.place import FOLDER, PREFIX, READ, STORE_VARIABLE, USER_VARIABLE, SettingPath, leaves, line_of
from journeyman.io.config import (
    HIDDEN,
    BudgetSettings,
    Config,
    Count,
    Declared,
    Names,
    complaint,
    config,
    option,
    renamed,
)
from journeyman.io.http_server import is_loopback
from journeyman.optimizers.playbook.config import PlaybookSettings, TraceLearningSettings

_log = logging.getLogger(__name__)

# What `journeyman.toml` says of the gateway: where it listens, and which servers stand behind it.

Api = Literal["openai", "anthropic"]
OFFICIAL: dict[Api, str] = {"openai": "https://api.openai.com/v1", "anthropic": "https://api.anthropic.com"}
"""The servers that are meant when none is named."""
OWNERS = {"OPENAI_API_KEY": "api.openai.com", "ANTHROPIC_API_KEY": "api.anthropic.com"}
"""Variables that hold a key for one server, whatever else the file says."""

_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.-]*")
Seconds = Annotated[float, Field(gt=0, le=86_400)]
_Table = TypeVar("_Table", bound=Config)


def _variable(name: str) -> str:
    if not re.fullmatch(r"([A-Za-z_]\w*)?", name):
        raise ValueError("must be the name of an environment variable; what it holds stands in the environment alone")
    return name


Variable = Annotated[str, AfterValidator(_variable)]


def _address(url: str) -> str:
    """An address without credentials: they would stand in a file, and in what is shown."""
    try:
        parts = urlsplit(url)
        usable = parts.scheme in ("http", "https") and parts.hostname and (parts.port is None or parts.port)
    except ValueError:
        usable = False
    if not usable or parts.query or parts.fragment or not url.isascii() or re.search(r"\s", url):
        raise ValueError("should be an address such as https://llm.example.org/v1")
    if parts.username is not None or parts.password is not None:
        raise ValueError("an address holds no credentials: put the key into a variable, and its name into key_env")
    return url.rstrip("/")


Address = Annotated[str, AfterValidator(_address)]


@config
class UpstreamSettings(Config):
    """A model server behind the gateway, `[upstreams.NAME]`."""

    base_url: Address
    """As a client of it would be given: with `/v1` for OpenAI's API."""
    apis: tuple[Api, ...] = ()
    """What it speaks: `openai`, `anthropic` or both. Empty for what its address says, else both."""
    models: tuple[str, ...] = ()
    """Which models it serves, as `gpt-*`. Empty for any."""
    key_env: Variable = ""
    """The variable whose value is its key, sent where the client sends none. Empty for none."""
    client_key: bool | None = None
    """Whether it is sent the client's own key. Unless this is said, only the API's own maker is, when it is asked first."""
    connect_seconds: Seconds = 10.0
    first_byte_seconds: Seconds = 600.0
    """Until an answer begins."""
    idle_seconds: Seconds = 300.0
    """Between two pieces of an answer."""
    total_seconds: Seconds = 3600.0
    retries: Annotated[int, Field(ge=0, le=10)] = 1
    """Asked again so often when it cannot be reached, is busy (429) or fails (5xx), as long as nothing of an answer was passed
    on."""
    breaker_failures: Annotated[int, Field(ge=0)] = 5
    """After so many failures in a row it is left alone; 0 for never."""
    breaker_seconds: Seconds = 15.0
    """For so long; then one request tries."""


def _sent_abroad(key_env: str, base_url: str) -> str | None:
    """What is wrong where a key goes to a server that is not its owner's; the file may have come with somebody's data."""
    host, owner = urlsplit(base_url).hostname or "", OWNERS.get(key_env)
    if not owner or host == owner or is_loopback(host):
        return None
    return f"sends {key_env}, the key of {owner}, to {host}: put that server's key into a variable of its own"


def _keeps_keys_home(upstream: UpstreamSettings) -> UpstreamSettings:
    if wrong := _sent_abroad(upstream.key_env, upstream.base_url):
        raise ValueError(wrong)
    return upstream


def _named(tables: dict[str, _Table]) -> dict[str, _Table]:
    for name in tables:
        if not _NAME.fullmatch(name):
            raise ValueError(f"{name!r} is no name for it: use letters, digits, - _ and .")
    return tables


Upstreams = Annotated[dict[str, Annotated[UpstreamSettings, AfterValidator(_keeps_keys_home)]], AfterValidator(_named)]


@config
class PriceSettings(Config):
    """What a model costs that no list of prices knows, `[prices."MODEL"]`: as after --model, or as its server names it."""

    input: Annotated[float, Field(ge=0)]
    """US dollars for a million tokens that it is sent."""
    output: Annotated[float, Field(ge=0)]
    """US dollars for a million tokens that it writes."""
    cached: Annotated[float, Field(ge=0)] | None = None
    """US dollars for a million that it was sent before and has kept; without it as for any."""


def _priced(tables: dict[str, PriceSettings]) -> dict[str, PriceSettings]:
    from journeyman import models

    for name in tables:
        try:
            models.parse(name)
        except ModelError as error:
            raise ValueError(str(error)) from None
        if not bare(name):
            raise ValueError(f"must {BARE}")
    return tables


@config
class ServeSettings(Config):
    """How `journeyman serve` serves."""

    host: Annotated[str, option(metavar="ADDRESS")] = "127.0.0.1"
    """The address to listen on."""
    port: Annotated[int, Field(ge=0, le=65_535), option(metavar="N")] = 4000
    """Where to listen; 0 is any free one."""
    token_env: Annotated[Variable, option(metavar="VAR")] = ""
    """The environment variable that holds the token of those who may come; several with blanks between."""
    feedback_token_env: Variable = ""
    """The environment variable that holds the token of those whose feedback may be ground truth, or a person's, a check's or a
    judge's word; without it feedback is from end users."""
    feedback_per_minute: Annotated[int, Field(ge=0, le=1_000_000)] = 20
    """How many words of feedback one rater may send in a minute; 0 for no limit."""
    release_token_env: Variable = ""
    """The variable that holds the token of those who may change what is released over HTTP; without it nobody may."""
    record: Annotated[bool, option("--no-record")] = True
    """Whether anything is kept of what is passed on."""
    pages: Annotated[bool, option("--no-pages")] = True
    """Whether there are pages."""
    who: Annotated[str, option(metavar="NAME", default="you, by your login")] = ""
    """Whose word a label given on a page is."""
    playbook: Annotated[str, option(metavar="FILE")] = ""
    """A playbook that is put into every chat that passes; empty, or none, for what is released in the store."""
    releases: bool = True
    """Whether what is released in the store is put into chats that pass."""
    auto_model: str = "auto"
    """The model that a client asks for who leaves it to what is released as the route."""
    explore: Annotated[float, Field(ge=0, le=1)] = 0.0
    """The share of such requests for which a model is drawn at random, to learn which is best: 0.1 lets a later policy be
    judged by what was recorded."""
    escalate: tuple[str, ...] = ()
    """Rewards that look at the answer of a model that was chosen so; where one says that it is no good, the best other model is
    asked. Nothing of an answer is passed on before that. Such as format_compliance, or module:Class."""
    monitor: bool = True
    """Whether a process beside it decides what becomes of rollouts."""
    monitor_seconds: Annotated[float, Field(ge=0.1, le=3600)] = 10.0
    """How often that looks."""
    learn: bool = False
    """Whether a process beside it learns by itself, as [learn] says; see `journeyman learn`."""
    order: tuple[str, ...] = ()
    """Upstreams in the order in which they are asked; those not named come after. Empty for the order of the file."""
    max_request_mb: Annotated[int, Field(ge=1, le=4096)] = 64
    """The largest body that is taken."""
    max_record_mb: Annotated[int, Field(ge=1, le=1024)] = 32
    """How much of one answer is kept. More flows, and the record says that it is cut."""
    drain_seconds: Seconds = 30.0
    """How long running answers may take to end when the server is told to stop."""


_DURATION = re.compile(r"(\d+(?:\.\d+)?)(ms|s|m|h|d)")
_UNITS = {"ms": 0.001, "s": 1, "m": 60, "h": 3600, "d": 86_400}


def duration(text: str) -> timedelta:
    """What a text such as `30s`, `5m`, `4h` or `3d` means.

    Raises:
        ValueError: It is none.
    """
    if (said := _DURATION.fullmatch(text)) is None or not 0 < (seconds := float(said[1]) * _UNITS[said[2]]) <= 366 * 86_400:
        raise ValueError("must be a time such as 30s, 5m, 4h or 3d")
    return timedelta(seconds=seconds)


def _timed(text: str) -> str:
    duration(text)
    return text


Duration = Annotated[str, AfterValidator(_timed)]


@config
class ChannelSettings(Config):
    """Who is told of alerts, `[alerts.channels.NAME]`."""

    url_env: Annotated[Variable, Field(min_length=1)]
    """The variable that holds its address, which may be a secret, and is shown and kept nowhere."""
    kind: Literal["webhook", "apprise"] = "webhook"
    """What is sent there: webhook (as Alertmanager sends it, version 4), or a message by apprise (an extra)."""
    only: tuple[Literal["page", "ticket"], ...] = ()
    """Of which severity it is told; empty for any."""


Burn = tuple[Annotated[float, Field(gt=0)], Duration, Duration, Literal["page", "ticket"]]


@config
class AlertSettings(Config):
    """When somebody is told, and who. Every rule stands ready without any of it."""

    error_rate: Annotated[float, Field(gt=0, lt=1)] = 0.05
    """The share of conversations that fail in five minutes, above which it is too high; and the budget of the burn rates."""
    latency_ms: Annotated[float, Field(gt=0)] = 1000.0
    """Milliseconds that 95 of 100 calls of models may take."""
    resources: Annotated[float, Field(gt=0, le=1)] = 0.8
    """The share of processors, memory, memory of the GPU and disk that may be used."""
    degradation: Annotated[float, Field(gt=0, lt=1)] = 0.05
    """So much worse than before is no alarm."""
    every: Duration = "30s"
    """How often is measured."""
    burn: tuple[Burn, ...] = ((14.4, "1h", "5m", "page"), (6.0, "6h", "30m", "page"), (1.0, "3d", "6h", "ticket"))
    """How many times faster than the budget of errors allows, over which long and short window together, and whom it wakes."""
    least_requests: Count = 20
    """In a window with fewer, it is told by the low end of an exact interval whether too many fail, and not by the share."""
    hold_for: Duration = "2m"
    """For so long it must be bad before it fires. In a file it may be written `for`."""
    repeat: Duration = "4h"
    """After so long it is told again, unless somebody has acknowledged it."""
    channels: Annotated[dict[str, ChannelSettings], AfterValidator(_named)] = field(default_factory=dict)
    """Who is told, by name: `[alerts.channels.NAME]`."""

    renamed: ClassVar = {"for": "hold_for"}


LearnKindName = Literal["playbook", "weights", "router", "planner", "reward"]
LearnBudgetName = Literal["cost_per_day", "cost_per_turn", "cpu_seconds_per_day", "looks_per_month"]
LEARN_BUDGET: Mapping[LearnBudgetName, float] = {
    "cost_per_day": 2.0, "cost_per_turn": 0.5, "cpu_seconds_per_day": 7200.0, "looks_per_month": 60.0,
}  # fmt: skip
_HOURS = re.compile(r"(\d{1,2}:\d{2})\s*-\s*(\d{1,2}:\d{2})")


def hours(text: str) -> tuple[time, time] | None:
    """What a text such as `02:00-06:00` means; `None` for an empty one.

    Raises:
        ValueError: It is none.
    """
    if not text:
        return None
    found = _HOURS.fullmatch(text.strip())
    try:
        begin, end = (time.fromisoformat(each.zfill(5)) for each in found.groups()) if found else (None, None)
    except ValueError:
        begin = end = None
    if begin is None or end is None or begin == end:
        raise ValueError("must be two times of day such as 02:00-06:00, in UTC")
    return begin, end


def _houred(text: str) -> str:
    hours(text)
    return text


def _affordable(said: dict[LearnBudgetName, float]) -> dict[LearnBudgetName, float]:
    whole = {**LEARN_BUDGET, **said}
    if strange := [name for name, value in whole.items() if not value > 0]:
        raise ValueError(f"{strange[0]} must be above 0; inf is no bound")
    if "cost_per_turn" in said and whole["cost_per_turn"] > whole["cost_per_day"]:
        raise ValueError(f"cost_per_turn ({whole['cost_per_turn']:g}) must be at most cost_per_day ({whole['cost_per_day']:g})")
    return said


def _of_a_run(said: str) -> str:
    words = shlex.split(said)
    if words and (words[0] != "deploy" or "{run}" not in words or "--release" not in words):
        raise ValueError("must be a deployment of a run that gateways are told of: deploy llamacpp {run} --detach --release")
    return said


@config
class LearnSettings(Config):
    """When `journeyman learn` takes a turn by itself, what turns may spend, and how far what they find goes."""

    kinds: tuple[LearnKindName, ...] = ("playbook",)
    """What learns: playbook, for each agent and domain by itself; weights, router, planner and reward, as `commands` says."""
    every: Duration = "1h"
    """Between two turns of one kind, agent and domain."""
    min_new: Count = 50
    """Traces that must have been recorded since the last one."""
    at: Annotated[str, AfterValidator(_houred)] = ""
    """The time of day in UTC in which turns begin, such as 02:00-06:00; empty for any."""
    alerts: tuple[str, ...] = ("drift", "decay", "quality")
    """Alerts, by their rule, that make a turn due at once, with whatever is new."""
    budget: Annotated[dict[LearnBudgetName, float], AfterValidator(_affordable)] = field(
        default_factory=lambda: dict(LEARN_BUDGET)
    )
    """What all turns together may spend in any 24 hours, and how often in any 30 days something is examined on held-out tasks.
    What is not named is as by default; inf is no bound, as models of one's own need, whose price nobody knows."""
    release: Literal["shadow", "canary"] = "shadow"
    """How far what passes goes by itself: it is kept as a candidate, or is brought to live traffic by `plan`."""
    plan: str = ""
    """The file of a rollout's plan; empty for the usual one."""
    deploy: Annotated[str, AfterValidator(_of_a_run)] = ""
    """With canary, how weights that pass come to answer before their rollout begins, as it is typed after journeyman:
    `deploy llamacpp {run} --detach --release`. Empty where they are deployed by hand."""
    commands: dict[LearnKindName, str] = field(default_factory=dict)
    """What a turn of a kind runs instead of the usual, as it is typed after journeyman: `train weights --dataset desk`."""


@config
class ContextSettings(Config):
    """How a playbook is put into chats that pass."""

    place: Place = "system_end"
    """Where it stands: system_end (behind what the client tells the model), system_start, or user_first (before what the user
    says first)."""
    select: Literal["whole", "retrieved"] = "whole"
    """All bullets of the domain; or, once for each session, those that are best for what the user says first."""
    max_tokens: Count = 4000
    """A request whose text would be longer goes on as it came, and is counted."""


@config
class RecordSettings(Config):
    """What is kept of what is watched."""

    content: Annotated[bool, option("--no-content")] = True
    """Whether what was said is kept; else only shapes and numbers."""
    redact: tuple[str, ...] = ()
    """Regular expressions of what must not be kept, beside keys and tokens, which never are."""
    buffer_mb: Annotated[int, Field(ge=1, le=4096)] = 64
    """Memory for what waits while the store is slow."""
    spill_mb: Annotated[int, Field(ge=0, le=1_000_000)] = 512
    """Disk for what waits longer, in the project's folder. What finds no room there either is dropped, and counted."""
    durable: Annotated[bool, option("--durable")] = False
    """Whether the end of an answer is passed on only when its record is on disk: nothing that an agent has seen is lost when
    the gateway is killed, and each answer takes as much longer as the store does."""


BARE = "name a server by its bare URL, without user, password or query; a key goes into OPENAI_API_KEY"


def bare(text: str) -> bool:
    """Whether no URL in a model's name has room for a secret: names are shown and kept in many places."""
    return re.search(r"://.*[@?#]", text, re.DOTALL) is None


def _bare(text: str) -> str:
    if not bare(text):
        raise ValueError(f"must {BARE}")
    return text


Server = Annotated[str, AfterValidator(_bare)]
"""A model's name, or a URL. Runs keep it, so that no secret may stand in it."""


@config
class StoreSettings(Config):
    """Where things are kept. Relative paths start at the folder of the file."""

    url: str = field(default=place.STORE, repr=False)
    """A path, `sqlite:///FILE`, `postgresql://USER@HOST/DATABASE`, or `memory:`."""
    artifacts: str = f"{FOLDER}/artifacts"
    """The folder of the files that are kept by digest."""


@config
class ModelSettings(Config):
    """Which models do the work, as after `--model`."""

    generator_model: Annotated[Server, option("--model", "--generator-model", metavar="MODEL")] = ""
    """What attempts the tasks, such as openai:gpt-5-mini; empty for the data set's own default."""
    reflector_model: Annotated[Server, option(metavar="MODEL")] = ""
    """What draws the lessons; empty for the same."""
    base_url: Annotated[Server, option(metavar="URL")] = ""
    """Another server for models that are named without one."""
    key_env: Annotated[Variable, HIDDEN] = ""
    """The variable whose value that server is sent as a key. Empty for none: OpenAI's own key goes nowhere else unasked."""
    embedder: str = "hashing"
    """What tells near duplicates apart: hashing, or sentence (an extra)."""

    renamed: ClassVar = {"generator": "generator_model", "reflector": "reflector_model"}


def _guardrails(said: tuple[str, ...]) -> tuple[str, ...]:
    for each in said:
        try:
            Guardrail.parse(each)
        except InputError as error:
            raise ValueError(str(error)) from None
    return said


@config
class GateSettings(Config):
    """What a candidate must show on held-out tasks."""

    alpha: Annotated[float, Field(gt=0, lt=1)] = 0.05
    """How often something that is no better may pass, over all looks at the same held-out tasks together."""
    min_gain: Annotated[float, Field(ge=-1, le=1)] = 0.0
    """The gain that even the low end of the interval must exceed."""
    min_tasks: Count = 30
    """Held-out tasks below which nothing passes."""

    min_clusters: Count = 10
    """Where tasks name the cluster that they belong to: clusters below which nothing passes."""
    guardrails: Annotated[Names, AfterValidator(_guardrails), option("--guardrail", metavar="METRIC:SHARE")] = ()
    """What may not grow by more than a share: cost, seconds or tokens, as in cost:10%."""

    renamed: ClassVar = {"least_gain": "min_gain", "least_tasks": "min_tasks"}

    @property
    def gate(self) -> BetterOnHeldOut:
        return BetterOnHeldOut(
            alpha=self.alpha,
            min_gain=self.min_gain,
            min_tasks=self.min_tasks,
            min_clusters=self.min_clusters,
            guardrails=tuple(map(Guardrail.parse, self.guardrails)),
        )


def _scales(said: tuple[str, ...]) -> tuple[str, ...]:
    return _scheme(said, (), said)


def _categories(said: tuple[str, ...]) -> tuple[str, ...]:
    return _scheme((), said, said)


def _scheme(scales: tuple[str, ...], categories: tuple[str, ...], said: tuple[str, ...]) -> tuple[str, ...]:
    try:
        LabelScheme.parse(scales, categories)
    except InputError as error:
        raise ValueError(str(error)) from None
    return said


@config
class LabelSettings(Config):
    """What raters may say beside good and bad, on pages and elsewhere."""

    scales: Annotated[Names, AfterValidator(_scales)] = ()
    """Numbers, each with its least and its largest: helpful:1..5."""
    categories: Annotated[Names, AfterValidator(_categories)] = ()
    """Names of which one is chosen: topic:refund,delivery."""

    @property
    def scheme(self) -> LabelScheme:
        return LabelScheme.parse(self.scales, self.categories)


@config
class HeldOutSettings(Config):
    """How many held-out tasks are looked at."""

    held_out: Count = 200
    """Held-out tasks of the examination, at most."""


@config
class AttemptSettings(Config):
    """How often each is attempted."""

    attempts_per_task: Annotated[Count, Field(le=100)] = 1
    """Attempts at each held-out task, on each side. They sharpen a noisy agent's score; more tasks sharpen the verdict."""

    renamed: ClassVar = {"trials": "attempts_per_task"}


@config
class ExaminationSettings(HeldOutSettings, AttemptSettings):
    """How a candidate is examined."""


@config
class ReleaseSettings(Config):
    """What becomes of what was learned. No file decides this: it is said with each training."""

    evaluate: Annotated[bool, option("--evaluate/--no-evaluate")] = True
    """Examine it at the end, on held-out tasks."""
    target_stage: Literal[Stage.SHADOW, Stage.PRODUCTION] = Stage.SHADOW
    """Where it goes if it passes."""
    force: bool = False
    """Go there even if it does not pass; this is recorded."""


@config
class PlaceSettings(Config):
    """Where a run keeps what it makes; commands take it from the project."""

    project: Annotated[str, HIDDEN] = FOLDER
    """The folder of the runs."""
    store: Annotated[str, HIDDEN] = field(default=place.STORE, repr=False)
    """Path or URL; kept out of the run's files, as it may hold a password."""


@config
class WorkSettings(Config):
    """How subtasks are done. Who does them is said with each command: models are sent keys, and workers are programs."""

    concurrency: Count = 4
    """Subtasks at once."""


@config
class PlanSettings(WorkSettings):
    """How a plan is carried out."""

    deadline: Annotated[float | None, Field(gt=0), option(metavar="SECONDS")] = None
    """Stop what is not done by then."""
    logs: Annotated[str, option(metavar="DIR")] = "execution_logs"
    """Log the execution here."""


@config
class CollectSettings(Config):
    """How executions are collected, to learn to plan from."""

    executions: Annotated[Count, option("--num-executions")] = 200
    """Instructions to carry out."""
    explore: Annotated[float, Field(ge=0, le=1)] = 0.5
    """Subtasks whose worker is drawn."""


@config
class SourceSettings(Config):
    """What is collected, `[collect.sources.NAME]`."""

    kind: str
    """What it is: claude-code, codex, cursor, gemini, opencode, openhands, aider, git, messages, devlogs, workspaces, vectors,
    or your own module:Class."""
    path: str = ""
    """Where it stands; empty for where its program keeps it. Of vectors which collection, as chroma:PATH#COLLECTION."""
    include: tuple[str, ...] = ()
    """Of its files those that are like one of these, by their paths in it: `*` stands for anything; empty for all."""
    exclude: tuple[str, ...] = ()
    """But not those that are like one of these."""


@config
class CollectionSettings(CollectSettings):
    """What is collected, and what becomes of it."""

    max_samples_per_source: Count = 10_000
    """Traces and documents that one reading of a source takes at most."""
    quality_threshold: Annotated[float, Field(ge=0, le=1)] = 0.5
    """Documents below it are left out: the share of characters that can be read, times the share of lines that are not said
    twice."""
    personal: Literal["mask", "keep", "drop"] = "mask"
    """Whether personal data is masked, kept, or what holds it is left out."""
    sources: Annotated[dict[str, SourceSettings], AfterValidator(_named)] = field(default_factory=dict)
    """What `journeyman collect all` reads, by name: `[collect.sources.NAME]`."""


@config
class CurveSettings(Config):
    """How a learning curve is measured."""

    window: Annotated[Count | None, option(default="a fifth, 2 to 10")] = None
    """Tasks in the rolling mean."""
    part: Annotated[float, Field(gt=0, le=0.5), option(default="a third")] = 1 / 3
    """The share that is the first part, and the last."""
    alike: bool = False
    """All tasks are of one kind, whatever their category or domain."""


@config
class PretrainConfig(Config):
    """How the embedded model is trained from scratch."""

    size: Literal["tiny", "small", "base"] = "base"
    """Which of its sizes."""
    tokens: Count = 38_000_000
    """Tokens seen in all phases, prompts included. The rest of the schedule follows from it."""
    batch: Annotated[Count, HIDDEN] = 48
    """Sequences a step."""
    # Declared here, as no other training is to inherit it from this section.
    seed: int = 0
    """Of samples and weights."""
    threads: Count = 2
    """Of the processor."""
    bf16: Annotated[bool, option("--fp32")] = True
    """Multiply in bfloat16, sum in float32: six times faster where the processor has avx512_bf16, and slower where not."""
    minutes: Annotated[float, Field(gt=0)] = 170.0
    """Stop after this long; the learning rate falls with whichever of time and tokens is further on."""
    start: str = ""
    """A folder with the result of an earlier training; only the last phase is then done."""


@config
class Settings(Config):
    """Everything that the file and the environment can say; a table for each part."""

    store: StoreSettings = field(default_factory=StoreSettings)
    models: ModelSettings = field(default_factory=ModelSettings)
    playbook: PlaybookSettings = field(default_factory=PlaybookSettings)
    traces: TraceLearningSettings = field(default_factory=TraceLearningSettings)
    gate: GateSettings = field(default_factory=GateSettings)
    examination: ExaminationSettings = field(default_factory=ExaminationSettings)
    budget: BudgetSettings = field(default_factory=BudgetSettings)
    serve: ServeSettings = field(default_factory=ServeSettings)
    upstreams: Upstreams = field(default_factory=dict)
    """The model servers behind `journeyman serve`, by name."""
    prices: Annotated[dict[str, PriceSettings], AfterValidator(_priced)] = field(default_factory=dict)
    """What models of one's own cost, by name."""
    alerts: AlertSettings = field(default_factory=AlertSettings)
    context: ContextSettings = field(default_factory=ContextSettings)
    record: RecordSettings = field(default_factory=RecordSettings)
    labels: LabelSettings = field(default_factory=LabelSettings)
    plan: PlanSettings = field(default_factory=PlanSettings)
    collect: CollectionSettings = field(default_factory=CollectionSettings)
    curve: CurveSettings = field(default_factory=CurveSettings)
    learn: LearnSettings = field(default_factory=LearnSettings)
    pretrain: PretrainConfig = field(default_factory=PretrainConfig)


@dataclass(frozen=True, slots=True, kw_only=True)
class Project:
    """The settings, and the folder that their paths start from."""

    root: Path
    settings: Settings = field(default_factory=Settings)
    file: Path | None = None
    """Where the settings were read; `None` when all are defaults."""
    origins: Mapping[tuple[str, ...], str] = field(default_factory=dict, compare=False)
    """Of what is no default, where it was said: a file with its line, or a variable."""

    @property
    def folder(self) -> Path:
        return self.root / FOLDER

    @property
    def store_url(self) -> str:
        """For `stores.open_store`. May hold a password: show it only `redacted`."""
        return place.store_at(self.settings.store.url, self.root)

    @property
    def artifacts(self) -> Path:
        return self.root / self.settings.store.artifacts


_Made = TypeVar("_Made", bound=Config)


def load(start: Path | None = None, environment: Mapping[str, str] | None = None, *, named: Path | None = None) -> Project:
    """The project that `start` (else the working folder) lies in: the nearest `journeyman.toml` upwards, else the defaults.

    Args:
        named: The file to be read, whatever it is called.

    Raises:
        InputError: The file cannot be read, or it or a variable says what no setting is. All that is wrong is named at once.
    """
    here = (start or Path.cwd()).resolve()
    found = place.file_above(here)
    file = found if named is None else named.resolve()
    text, said = place.read(file) if file else ("", {})
    variables = _variables(os.environ if environment is None else environment)
    origins = {_today(path): f"{file}:{line_of(text, path)}" for path, _ in leaves(said)}
    wrong = [
        f"{origins[_today(path)]}: {'.'.join(path)}: {_SERVER}" for path, value in leaves(said) if _names_server(path, value)
    ]
    origins |= {_today(path): name for path, (name, _) in variables.items()}
    values: dict[str, Any] = {}
    for path, value in (*leaves(said), *((path, value) for path, (_, value) in variables.items())):
        _put(values, _today(path), value)
    try:
        settings = TypeAdapter(Settings).validate_json(json.dumps(values, default=str))
    except ValidationError as error:
        for each in error.errors():
            path = tuple(map(str, each["loc"]))
            where = next((origins[path[:end]] for end in range(len(path), 0, -1) if path[:end] in origins), None)
            wrong.append(_sentence(where or f"{file}:{line_of(text, path)}", path, each))
        settings = Settings()
    wrong += _leaks(settings.models, origins, file)
    if wrong:
        raise InputError("; ".join(wrong))
    _let_prices_hold(settings.prices)
    return Project(root=file.parent if file else here, settings=settings, file=file, origins=origins)


def _let_prices_hold(prices: Mapping[str, PriceSettings]) -> None:
    from journeyman import models

    models.know_prices(
        {name: models.OwnPrice(input=each.input, output=each.output, cached=each.cached) for name, each in prices.items()}
    )


def _leaks(models: ModelSettings, origins: Mapping[SettingPath, str], file: Path | None) -> Iterator[str]:
    """A key of the user's that a file would send to a server which it names itself: it may have come with somebody's data."""
    where = origins.get(("models", "base_url"), "")
    if not where.startswith(f"{file}:") or not models.key_env or is_loopback(urlsplit(models.base_url).hostname or ""):
        return
    key = origins[("models", "key_env")]
    if not key.startswith(f"{file}:"):
        yield f"{where}: models.base_url is said by a file, and its key by {key}: say both in the file, or both outside of it"
    elif wrong := _sent_abroad(models.key_env, models.base_url):
        yield f"{where}: models.base_url: {wrong}"


def configured(made: type[_Made], given: Mapping[str, Any], project: Project | None = None) -> _Made:
    """Settings of a command: what is given, over what the project's file and environment say, over the defaults of the class.

    Raises:
        SettingError: Something that was given is not what it must be.
    """
    project = project or load()
    inherited: dict[str, Any] = {}
    for path in project.origins:
        if len(path) == 1:
            # A table in which nothing stands.
            continue
        section = getattr(project.settings, path[0])
        # A class has a setting from a section when it inherits it, whatever else it calls so.
        if isinstance(section, Config) and _declares(type(section), path[1]) in made.__mro__:
            inherited[path[1]] = getattr(section, path[1])
    if made.__mro__.count(PlaceSettings):
        inherited |= {"project": str(project.folder), "store": project.store_url}
    return made(**{**inherited, **given})


def _declares(section: type, name: str) -> type:
    """The class, of those that a section is made of, that declares a setting."""
    return next(each for each in section.__mro__ if name in vars(each).get("__annotations__", {}))


@dataclass(frozen=True, slots=True, kw_only=True)
class ListedSetting:
    """A setting of a project, for people to read."""

    name: str
    """With its section: `gate.min_gain`."""
    value: Any
    """As it holds; secrets of a store's address left out."""
    origin: str
    """Where it was said: a file with its line, or a variable. `default` where nobody did."""
    help: str


def listed(project: Project) -> Iterator[ListedSetting]:
    """Every setting of a project, section by section."""
    from journeyman.stores.urls import redacted

    for path, section in _sections(project.settings):
        for name, declared in _plain(section):
            value = getattr(section, name)
            yield ListedSetting(
                name=".".join((*path, name)),
                value=redacted(value) if (*path, name) == ("store", "url") else value,
                origin=project.origins.get((*path, name), "default"),
                help=declared.help,
            )


def template() -> str:
    """A `journeyman.toml` that says nothing yet: every setting in a comment, with its default and what it means."""
    lines = [
        "# Settings of this project. What is commented out is as by default; `journeyman settings` shows what holds.",
        f"# A variable {PREFIX}SECTION__NAME wins over this file, and an option of a command over both.",
    ]
    sections = [
        *_sections(Settings()),
        (("upstreams", "NAME"), UpstreamSettings(base_url="https://llm.example.org/v1")),
        (("prices", "NAME"), PriceSettings(input=0.2, output=0.8)),
        (("alerts", "channels", "NAME"), ChannelSettings(url_env="ALERTS_URL")),
    ]
    for path, section in sections:
        inner = path[-1] == "NAME"
        lines += ["", f"{'# ' if inner else ''}[{'.'.join(path)}]", f"# {' '.join((type(section).__doc__ or '').split())}"]
        for name, declared in _plain(section):
            value = getattr(section, name)
            lines += [f"# {declared.help}"] if declared.help else []
            # TOML has no word for nothing.
            lines.append(f"# {name} =" + ("" if value is None else f" {toml_value(value)}"))
    return "\n".join(lines) + "\n"


def toml_value(value: Any) -> str:
    """A value as TOML writes it; a table within one line."""
    if isinstance(value, Mapping):
        return f"{{ {', '.join(f'{key} = {toml_value(each)}' for key, each in value.items())} }}" if value else "{}"
    return json.dumps(value, ensure_ascii=False)


def _sections(settings: Settings) -> Iterator[tuple[SettingPath, Config]]:
    for each in fields(settings):
        section = getattr(settings, each.name)
        if isinstance(section, Config):
            yield (each.name,), section
            tables = [(path, getattr(section, path[-1])) for path in _TABLES if path[0] == each.name]
        else:
            tables = [((each.name,), section)]
        yield from (((*path, name), inner) for path, table in tables for name, inner in table.items())


def _plain(section: Config) -> Iterator[tuple[str, Declared]]:
    """The settings of a section that are no tables of their own."""
    names = {path[-1] for path in _TABLES if path[-1] in vars(section)}
    return ((name, declared) for name, declared in Declared.all(type(section)).items() if name not in names)


def person() -> str | None:
    """Whose word a label is that is given here: $JOURNEYMAN_USER, else who is logged in; `None` where neither is known."""
    try:
        return (os.environ.get(USER_VARIABLE) or getpass.getuser()).strip() or None
    except (OSError, KeyError, ImportError):
        return None


def _variables(environment: Mapping[str, str]) -> dict[SettingPath, tuple[str, Any]]:
    """What the environment says: by setting, the variable and its value, which is a number where the setting is one."""
    named = {name: text for name, text in environment.items() if name.startswith(PREFIX) and "__" in name}
    paths = {name: tuple(name.removeprefix(PREFIX).lower().split("__")) for name in named}
    if strange := [name for name, path in paths.items() if path[0] not in SECTIONS]:
        raise InputError(f"{strange[0]}: {no_section(paths[strange[0]][0])}")
    for name in environment:
        if name.startswith(PREFIX) and name not in named and name not in READ and (meant := _meant(name)):
            _warn_once(f"the variable {name} is read by nobody; did you mean {meant}?")
    values = _decoded(named) if named else {}
    found = {path: (name, _at(values, _today(path))) for name, path in paths.items()}
    if url := environment.get(STORE_VARIABLE):
        found.setdefault(("store", "url"), (STORE_VARIABLE, url))
    return found


SECTIONS = tuple(each.name for each in fields(Settings))
_TABLES: Mapping[SettingPath, type[Config]] = {
    ("upstreams",): UpstreamSettings,
    ("prices",): PriceSettings,
    ("alerts", "channels"): ChannelSettings,
}
"""Where tables stand whose names are the user's, and whose settings are all the same."""


def no_section(name: str) -> str:
    """The sentence for a section that is none; a setting's own name says where it belongs."""
    said = f"there is no section {name}"
    if homes := [section for section in SECTIONS if name in _settings_of(section)]:
        places = " or ".join(f"[{home}]" for home in homes)
        return f"{said}; {name} is a setting of {places}, and belongs under it"
    near = get_close_matches(name, SECTIONS, n=1)
    return f"{said}; there are {', '.join(SECTIONS)}{f'; did you mean {near[0]}?' if near else ''}"


def _settings_of(section: str) -> Collection[str]:
    """The names of a section's settings, those of earlier versions included."""
    owner = _section(section)
    return (*Declared.all(owner), *renamed(owner)) if owner else ()


def _meant(variable: str) -> str | None:
    """The variable that is probably meant by one that nobody reads: one that is near, or written with one underscore."""
    known = {
        f"{section}_{name}".upper(): f"{PREFIX}{section}__{name}".upper()
        for section in SECTIONS
        for name in _settings_of(section)
    } | {name.removeprefix(PREFIX): name for name in READ}
    # A setting may be named without its section.
    known |= {full.partition("__")[2]: full for full in known.values() if "__" in full}
    near = get_close_matches(variable.removeprefix(PREFIX), known, n=1, cutoff=0.85)
    return known[near[0]] if near else None


@cache
def _warn_once(said: str) -> None:
    _log.warning("%s", said)


def _decoded(named: Mapping[str, str]) -> Mapping[str, Any]:
    # Late, as it takes longer to load than everything else here, and most environments say nothing.
    from pydantic import create_model
    from pydantic_settings import BaseSettings, EnvSettingsSource, SettingsConfigDict, SettingsError

    class Tree(BaseSettings):
        model_config = SettingsConfigDict(strict=True, env_prefix=PREFIX, env_nested_delimiter="__")

    hints = get_type_hints(Settings, include_extras=True)
    sections: Any = {each.name: (hints[each.name], None) for each in fields(Settings)}
    source = EnvSettingsSource(create_model("Tree", __base__=Tree, **sections))
    # By today's names, as the source knows no others and takes the values of what it does not know for text.
    paths = {name: _today(tuple(name.removeprefix(PREFIX).lower().split("__"))) for name in named}
    source.env_vars = {f"{PREFIX}{'__'.join(paths[name])}".lower(): text for name, text in named.items()}
    try:
        return source()
    except SettingsError as error:
        raise InputError(f"{', '.join(sorted(named))}: {error}; write a list as JSON") from None


def _at(values: Mapping[str, Any], path: SettingPath) -> Any:
    for name in path:
        if not isinstance(values, Mapping) or name not in values:
            raise InputError(f"{PREFIX}{'__'.join(path).upper()}: another variable says something else of the same setting")
        values = values[name]
    return values


def _put(values: dict[str, Any], path: SettingPath, value: Any) -> None:
    for name in path[:-1]:
        inner = values.setdefault(name, {})
        # What is no table, and is said to be one elsewhere, is complained about as a whole.
        values = inner if isinstance(inner, dict) else {}
    values[path[-1]] = value


def _section(name: str) -> type | None:
    made = getattr(Settings(), name, None)
    return type(made) if isinstance(made, Config) else None


def _today(path: SettingPath) -> SettingPath:
    """A setting by its name of today."""
    section = _section(path[0])
    if section is None or len(path) != 2:
        return path
    return path[0], renamed(section).get(path[1], path[1])


_SERVER = "a server in a file stands in models.base_url, and in models.key_env the variable of its key"


def _names_server(path: SettingPath, value: Any) -> bool:
    """A key in the environment is the user's, and a file that came with somebody's data must not say where it goes."""
    if _today(path) not in (("models", "generator_model"), ("models", "reflector_model")) or not isinstance(value, str):
        return False
    from journeyman import models

    try:
        parsed = models.parse(value)
    except ModelError:
        # Said by who asks for the model.
        return False
    return parsed.kind == "openai" and (parsed.base_url or models.HOME).rstrip("/") != models.HOME


def _sentence(where: str, path: SettingPath, error: ErrorDetails) -> str:
    owner: type = Settings
    table = next((each for each in _TABLES if path[: len(each)] == each and len(path) > len(each)), None)
    within = path[len(table) + 1 :] if table else path[1:]
    if within:
        # Whose table it is, is the user's to say.
        owner = _TABLES[table] if table else _section(path[0]) or Settings
    name = within[0] if within else path[0]
    if error["type"] == "unexpected_keyword_argument":
        if owner is Settings and any(name in _settings_of(section) for section in SECTIONS):
            return f"{where}: {no_section(name)}"
        (near,) = get_close_matches(name, [each.name for each in fields(owner)], n=1, cutoff=0.0)
        above = path[: len(path) - 1]
        return f"{where}: there is no setting {'.'.join(path)}; did you mean {'.'.join((*above, near))}?"
    return f"{where}: {'.'.join(path)}{complaint(owner, name, error)}"
