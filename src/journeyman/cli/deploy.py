"""`journeyman deploy`: serve what was learned in the weights."""

import shlex
import signal
import sys
from collections.abc import Callable
from dataclasses import asdict, dataclass, fields
from functools import wraps
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from journeyman.cli.console import plain, pour, say
from journeyman.cli.shared import acting, emit, json_option, options_named, project_folder, store_option, store_url
from journeyman.core.errors import InputError, ReleaseError

if TYPE_CHECKING:
    from journeyman.core.candidate import ServedModel
    from journeyman.optimizers.weights.adapters import Artifact
    from journeyman.optimizers.weights.hosting import OllamaHostingProfile
    from journeyman.optimizers.weights.llamacpp import Launched
    from journeyman.optimizers.weights.ollama import Deployed, Deployment, DeploymentProgress, OllamaDeployer
    from journeyman.serving.releases.control import WeightsRelease

_LINES = 10
"""How often an upload is told of, where there is no terminal."""

_QUANTIZATION = click.option(
    "--quantization",
    default="Q4_K_M",
    show_default=True,
    metavar="TYPE",
    help="What it is exported as, where it is no GGUF file yet; an export that is there is taken.",
)
_BASE = click.option(
    "--base-model", default="", metavar="MODEL", help="Where an adapter's base lies, if elsewhere than it says."
)
_CONTEXT = click.option("--num-ctx", type=click.IntRange(1), metavar="N", help="Tokens of one request.  [default: by memory]")
_PARALLEL = click.option("--num-parallel", type=click.IntRange(1), metavar="N", help="Requests at once.  [default: by memory]")
_PROFILE = click.option(
    "--profile",
    type=click.Choice(("auto", "ryzen")),
    default="auto",
    show_default=True,
    help="Settings that follow from this machine, or those of a Ryzen 9 5950X.",
)
_NAME = click.option("--name", default="", metavar="NAME", help="What the model is called.  [default: as the run]")
_FORCE = click.option("--force", is_flag=True, help="Also when its gate did not pass. That is written down in the run.")
_RELEASE = click.option(
    "--release", is_flag=True, help="Tell gateways where it answers; `journeyman releases start` brings it to traffic."
)
replaces_option = click.option(
    "--replaces",
    multiple=True,
    metavar="PATTERN",
    help="With --release: of the models that it answers instead of, as gpt-*; may be repeated.  [default: any]",
)


def _common(command: Callable[..., Any]) -> Callable[..., Any]:
    """Gives a command the options of both ways to serve, as a `DeployOptions` before those of its own."""

    @wraps(command)
    def with_options(run: str, as_json: bool, **options: Any) -> None:
        common = {name: options.pop(name) for name in _COMMON}
        with options_named():
            try:
                well = command(DeployOptions(run=run, as_json=as_json, **common), **options)
            except ReleaseError as error:
                say(f"journeyman: {error}")
                emit({"deployed": False, "reason": str(error)}, as_json=as_json)
                well = False
            click.get_current_context().exit(0 if well else 1)

    wrapped: Callable[..., Any] = click.argument("run", metavar="RUN")(with_options)
    ours = (store_option, replaces_option, _RELEASE)
    for option in (json_option, *ours, _FORCE, _PROFILE, _PARALLEL, _CONTEXT, _BASE, _QUANTIZATION, _NAME):
        wrapped = option(wrapped)
    return wrapped


@dataclass(frozen=True, slots=True, kw_only=True)
class DeployOptions:
    """What is to be served, and how, as it was typed."""

    run: str
    name: str = ""
    """Of the model that is served; empty is that of the run."""
    quantization: str = "Q4_K_M"
    base_model: str = ""
    num_ctx: int | None = None
    num_parallel: int | None = None
    profile: str = "auto"
    force: bool = False
    release: bool = False
    """Gateways are told where it answers."""
    replaces: tuple[str, ...] = ()
    store: str | None = None
    reason: str = ""
    """Why it is deployed; what it was deployed with, where nobody says."""
    as_json: bool = False

    def artifact(self) -> "Artifact":
        from journeyman.optimizers.weights.adapters import find

        return find(self.run, project_folder() / "runs")

    def released(self, artifact: "Artifact", gguf: Path, model: str, by: str) -> "WeightsRelease | None":
        """What gateways are told of once it answers, if they are.

        Raises:
            ReleaseError: They cannot be told of it under that name.
        """
        if not self.release:
            if self.replaces:
                raise InputError("--replaces says what a gateway does with it, and needs --release")
            return None
        from journeyman.serving.releases.control import WeightsRelease

        release = WeightsRelease.of(
            artifact,
            gguf,
            store=store_url(self.store),
            replaces=self.replaces or ("*",),
            by=acting(self.reason or f"deployed by {by} as {model}"),
        )
        release.check(model)
        return release

    def hosting(self, gguf: Path, where: "OllamaDeployer | None" = None) -> "OllamaHostingProfile":
        """The settings of the server, with what was asked for in place of what follows from its machine."""
        from journeyman.optimizers.weights.gguf.contents import read_header
        from journeyman.optimizers.weights.hosting import OllamaHostingProfile
        from journeyman.optimizers.weights.sizing import detect_hardware

        if self.profile == "ryzen":
            usual = OllamaHostingProfile.ryzen()
            return OllamaHostingProfile(
                num_parallel=self.num_parallel or usual.num_parallel,
                num_ctx=self.num_ctx or usual.num_ctx,
                reasons=() if self.num_parallel or self.num_ctx else usual.reasons,
            )
        header = read_header(gguf)
        if where is not None:
            return where.profile(header, context=self.num_ctx, parallel=self.num_parallel)
        return OllamaHostingProfile.derive(detect_hardware(), header, context=self.num_ctx, parallel=self.num_parallel)


_COMMON = tuple(field.name for field in fields(DeployOptions) if field.name not in ("run", "reason", "as_json"))


@click.group()
def command() -> None:
    """Serve what was learned in the weights, by Ollama or llama.cpp.

    What is deployed passed its gate; anything else needs --force.

    \b
    Examples:
      journeyman deploy ollama RUN --name toolbox-agent
      journeyman deploy llamacpp RUN
      journeyman deploy llamacpp RUN --detach --release
    """


@command.command()
@click.option("--host", metavar="HOST", help="Where Ollama is, as OLLAMA_HOST has it.  [default: OLLAMA_HOST, or this machine]")
@click.option("--system", default="", metavar="TEXT", help="A system message for every conversation.")
@click.option(
    "--license",
    "licence",
    type=click.Path(path_type=Path, dir_okay=False, exists=True),
    help="A file with the licence of the weights.  [default: as the model says]",
)
@click.option("--dry-run", is_flag=True, help="Print the Modelfile, and say what would be sent, and send nothing.")
@_common
def ollama(wish: DeployOptions, *, host: str | None, system: str, licence: Path | None, dry_run: bool) -> bool:
    """Make a model of Ollama, and ask it something.

    RUN is the id or folder of a training, the folder of an adapter or a merged model, or a GGUF file. The chat template is
    carried over from the model's own; weights that Ollama has are not sent again. Exit code 1 when the gate did not pass, or
    the model says nothing.

    \b
    Examples:
      journeyman deploy ollama weights-grpo-oslo-1a2b3c4d --name toolbox-agent
      journeyman deploy ollama model-Q4_K_M.gguf --name toolbox-agent --dry-run
      journeyman deploy ollama RUN --name me/agent:v2 --host gpu-box:11434
    """
    well, result = by_ollama(wish, host=host, system=system, licence=licence, dry_run=dry_run)
    emit(result, as_json=wish.as_json)
    return well


def by_ollama(
    wish: DeployOptions, *, host: str | None, system: str = "", licence: Path | None = None, dry_run: bool = False
) -> tuple[bool, dict[str, Any]]:
    """Make a model of Ollama: whether it answers, and what there is to be told of it."""
    from journeyman.optimizers.weights.ollama import OllamaDeployer

    artifact = wish.artifact()
    if not (allowed := _allowed(wish, artifact)) and not dry_run:
        return False, _refused(artifact)
    deployer = OllamaDeployer(host, on_progress=_progress_lines())
    gguf = _exported(wish, artifact)
    name = wish.name or artifact.name
    release = wish.released(artifact, gguf, name, "Ollama")
    address = _kept_address(deployer) if release else ""
    deployment = deployer.prepare(
        name,
        gguf,
        profile=wish.hosting(gguf, deployer),
        system=system,
        licence=licence.read_text(encoding="utf-8", errors="replace") if licence else "",
    )
    _show(deployment)
    if dry_run:
        if not wish.as_json:
            pour(deployment.modelfile.text)
        return allowed, {**_planned(deployment), "dry_run": True}
    deployed = deployer.carry_out(deployment)
    where = {"to": "ollama", "name": deployment.name, "url": deployment.url, "gguf": str(gguf), "digest": deployment.digest}
    artifact.note(where, force=wish.force)
    _show_deployed(deployed)
    result = {**_planned(deployment), **_deployed_json(deployed)}
    if not deployed.reply.strip():
        return False, result
    return True, result | _told(release, deployment.name, address)


def _kept_address(deployer: "OllamaDeployer") -> str:
    """What a gateway may keep as the address of an Ollama: never a key."""
    if not deployer.has_key:
        return f"{deployer.url}/v1"
    from journeyman.experiments import settings

    for name, each in settings.load().settings.upstreams.items():
        if each.base_url.rstrip("/").removesuffix("/v1") == deployer.url:
            return name
    raise InputError(
        f"the Ollama at {deployer.url} is given a key, and --release keeps none; put base_url and key_env of it into "
        "[upstreams.NAME] of journeyman.toml"
    )


def _told(release: "WeightsRelease | None", model: str, url: str) -> dict[str, Any]:
    """Where it answers, once gateways are told."""
    if release is None:
        return {}
    served = release.keep(model, url)
    id = served.candidate_id
    say(f"{model} is the candidate {id}, and nobody is served by it yet; to begin: journeyman releases start {id}")
    return {"served": served.as_json()}


@command.command("llamacpp")
@click.option(
    "--port",
    type=click.IntRange(0, 65535),
    default=8080,
    show_default=True,
    metavar="N",
    help="On loopback; 0 is any free one.",
)
@click.option(
    "--log", type=click.Path(path_type=Path, dir_okay=False), help="Where the server writes.  [default: beside the model]"
)
@click.option("--detach", is_flag=True, help="Leave it running when this command ends.")
@click.option("--stop", is_flag=True, help="End the one that was left running.")
@_common
def serve_by_llamacpp(wish: DeployOptions, *, port: int, log: Path | None, detach: bool, stop: bool) -> bool:
    """Serve by llama.cpp, for whoever speaks OpenAI's protocol, until Ctrl-C.

    RUN is the id or folder of a training, the folder of an adapter or a merged model, or a GGUF file. With --json, one line
    when it answers. Exit code 1 when the gate did not pass, or the server ends by itself.

    \b
    Examples:
      journeyman deploy llamacpp weights-grpo-oslo-1a2b3c4d
      journeyman deploy llamacpp model-Q4_K_M.gguf --port 0 --detach --json
      journeyman deploy llamacpp model-Q4_K_M.gguf --stop
    """
    if stop:
        return _stop(wish)
    well, result, started = by_llamacpp(wish, port=port, log=log, detach=detach)
    emit(result, as_json=wish.as_json)
    sys.stdout.flush()
    if started is None or detach:
        return well
    try:
        return _wait_until_stopped(started)
    finally:
        started.stop()
        try:
            _withdraw(wish, result["model"], result["url"])
        except ReleaseError as error:
            say(f"journeyman: gateways are still told that {result['model']} answers: {error}")


def by_llamacpp(
    wish: DeployOptions, *, port: int = 0, log: Path | None = None, detach: bool = True
) -> tuple[bool, dict[str, Any], "Launched | None"]:
    """Serve by llama.cpp: whether it answers, what there is to be told of it, and the server."""
    from journeyman.optimizers.weights import llamacpp

    artifact = wish.artifact()
    if not _allowed(wish, artifact):
        return False, _refused(artifact), None
    gguf, model = _exported(wish, artifact), wish.name or artifact.name
    if any(server.model == model for server in llamacpp.running(_servers())):
        raise InputError(f"a server of {model} runs already: end it with --stop, or give this one another --name")
    release = wish.released(artifact, gguf, model, "llama.cpp")
    profile = wish.hosting(gguf)
    started = llamacpp.launch(gguf, profile, model=model, port=port, log=log, detached=detach)
    well = False
    try:
        say(f"{started.program} loads {gguf} (its log: {started.log})")
        served = started.wait()
        artifact.note({"to": "llamacpp", "name": model, "url": served.url, "gguf": str(gguf)}, force=wish.force)
        say(f"{model} answers at {served.url}: asked {served.prompt!r}, it said {served.reply!r}")
        result = {**asdict(served), "log": str(served.log), "gguf": str(gguf), "profile": _settings(profile)}
        if detach:
            llamacpp.keep(served, gguf, _servers())
            say(f"to end it: journeyman deploy llamacpp {shlex.quote(wish.run)} --name {shlex.quote(model)} --stop")
        result |= _told(release, model, served.url)
        well = True
        return True, result, started
    finally:
        if not well:
            started.stop()


def is_served(wish: DeployOptions, known: "ServedModel") -> bool:
    """Whether what is to be deployed is what a server that was left running here answers with already."""
    from journeyman.io.files import sha256
    from journeyman.optimizers.weights import llamacpp

    runs = known.url in {server.url for server in llamacpp.running(_servers())}
    gguf = wish.artifact().gguf(wish.quantization)
    return runs and gguf.is_file() and sha256(gguf) == known.digest


def _withdraw(wish: DeployOptions, model: str, url: str | None) -> bool:
    """Tell gateways that a model answers no longer, where they were told that it does, there; whether they were.

    Raises:
        ReleaseError: It is in production of a slot, or in an open rollout.
    """
    from journeyman.serving.releases.control import withdraw_model
    from journeyman.stores.rollouts import open_rollouts

    with open_rollouts(store_url(wish.store), make=False) as kept:
        found = next((each for each in kept.live().models.values() if each.model == model), None)
        if found is None or url not in (None, found.url):
            return False
        withdraw_model(kept, found, acting(wish.reason or f"{model} is stopped"))
    say(f"gateways are told that {model} answers no longer")
    return True


def _stop(wish: DeployOptions) -> bool:
    """End a server that was left running. What it served need not be there any more."""
    from journeyman.optimizers.weights import llamacpp

    model = wish.name or _name(wish)
    running = {server.model: server for server in llamacpp.running(_servers())}
    # While it is needed it goes on.
    withdrawn = _withdraw(wish, model, running[model].url if model in running else None)
    stopped = llamacpp.stop(_servers(), model)
    if stopped is None and not withdrawn:
        raise InputError(f"no server of {model} was left running here; there are: {', '.join(running) or 'none'}")
    result: dict[str, Any] = {"model": model, "withdrawn": withdrawn}
    if stopped is not None:
        say(f"{model} is no longer served at {stopped.url}")
        result |= {"url": stopped.url, "pid": stopped.pid}
    emit(result, as_json=wish.as_json)
    return True


def _name(wish: DeployOptions) -> str:
    try:
        return wish.artifact().name
    except InputError:
        return Path(wish.run).stem if wish.run.endswith(".gguf") else wish.run


def _allowed(wish: DeployOptions, artifact: "Artifact") -> bool:
    """Whether its gate passed, or somebody insists; weights from elsewhere never stood before one."""
    proof = artifact.proof
    if proof is None:
        say(f"{artifact.path} is of no run here: no gate was asked about it")
        return True
    if not proof.passed and wish.force:
        say(f"deployed by force, though its gate did not pass: {proof.reason}")
    elif not proof.passed:
        say(f"not deployed, as its gate did not pass: {proof.reason}", "--force deploys it all the same, and writes that down")
    return proof.passed or wish.force


def _refused(artifact: "Artifact") -> dict[str, Any]:
    return {"deployed": False, "passed": False, "reason": artifact.proof.reason if artifact.proof else None}


def _exported(wish: DeployOptions, artifact: "Artifact") -> Path:
    """The GGUF file, made if it is not there, or older than the weights."""
    from journeyman.optimizers.weights.adapters import Form
    from journeyman.optimizers.weights.gguf import GGUFExporter

    gguf = artifact.gguf(wish.quantization)
    if artifact.form is Form.GGUF or _is_newer(gguf, artifact.path):
        return gguf
    say(f"exporting {artifact.path} as {wish.quantization}")
    gguf.parent.mkdir(parents=True, exist_ok=True)
    exporter = GGUFExporter(artifact.path, name=artifact.name, base_model=wish.base_model)
    return exporter.convert(wish.quantization, gguf)


def _is_newer(gguf: Path, weights: Path) -> bool:
    if not gguf.is_file():
        return False
    return all(gguf.stat().st_mtime_ns >= path.stat().st_mtime_ns for path in weights.glob("*.safetensors"))


def _wait_until_stopped(started: "Launched") -> bool:
    """Wait for Ctrl-C or SIGTERM, which is well; or for the server to end by itself, which is not."""

    def interrupt(*_: object) -> None:
        raise KeyboardInterrupt

    before = signal.signal(signal.SIGTERM, interrupt)
    try:
        code = started.process.wait()
    except KeyboardInterrupt:
        say("stopping")
        return True
    finally:
        signal.signal(signal.SIGTERM, before)
    say(f"the server ended by itself, with exit code {code}; its log: {started.log}")
    return False


def _progress_lines() -> "Callable[[DeploymentProgress], None]":
    """Something to tell of each step: a line that changes on a terminal, some lines elsewhere."""
    last, terminal = "", sys.stderr.isatty()

    def show(progress: "DeploymentProgress") -> None:
        nonlocal last
        line = progress.status
        if progress.total and progress.completed is not None:
            steps = 1000 if terminal else _LINES
            share = progress.completed * steps // progress.total / steps
            line += f" {share:.0%} of {progress.total / 1e6:.1f} MB"
        if line != last:
            click.echo(plain(line) + ("\r" if terminal and "%" in line else "\n"), nl=False, err=True)
            last = line

    return show


def _planned(deployment: "Deployment") -> dict[str, Any]:
    return {
        "name": deployment.name,
        "url": deployment.url,
        "gguf": str(deployment.gguf),
        "size": deployment.size,
        "digest": f"sha256:{deployment.digest}",
        "modelfile": deployment.modelfile.text,
        "request": deployment.request,
        "environment": deployment.profile.environment,
        "profile": _settings(deployment.profile),
        "notes": list(deployment.notes),
    }


def _deployed_json(deployed: "Deployed") -> dict[str, Any]:
    return {
        "version": deployed.version,
        "uploaded": deployed.uploaded,
        "modelfile_path": str(deployed.modelfile),
        "prompt": deployed.prompt,
        "reply": deployed.reply,
        "tokens": deployed.tokens,
        "seconds": deployed.seconds,
    }


def _settings(profile: "OllamaHostingProfile") -> dict[str, Any]:
    return {
        "num_parallel": profile.num_parallel,
        "num_ctx": profile.num_ctx,
        "num_thread": profile.num_thread,
        "flash_attention": profile.flash_attention,
        "reasons": {reason.name: reason.why for reason in profile.reasons},
    }


def _show(deployment: "Deployment") -> None:
    size = f"{deployment.size / 1e6:.1f} MB"
    say(f"{deployment.gguf} ({size}, sha256:{deployment.digest}) to {deployment.url} as {deployment.name}")
    say(*(f"  {reason.name} {reason.value}: {reason.why}" for reason in deployment.profile.reasons))
    say(*(f"  not carried over: {note}" for note in deployment.notes))


def _show_deployed(deployed: "Deployed") -> None:
    name = deployed.deployment.name
    environment = " ".join(f"{key}={value}" for key, value in deployed.deployment.profile.environment.items())
    say(
        f"{name} was asked {deployed.prompt!r} and said {deployed.reply!r} within {deployed.seconds:.1f} s",
        f"the server's own settings are given where it is started: {environment} ollama serve",
        f"ollama run {name}",
    )


def _servers() -> Path:
    return project_folder() / "servers"
