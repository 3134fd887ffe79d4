"""The work behind `journeyman deploy`, apart from its options."""

import shlex
import signal
import sys
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click
from rich.text import Text as Cell

from journeyman.cli.console import Column, fitted
from journeyman.cli.console import console as table_console
from journeyman.cli.shared import console, emit
from journeyman.core.errors import InputError
from journeyman.experiments import settings
from journeyman.experiments.weights import settings as texts
from journeyman.optimizers.weights import llamacpp
from journeyman.optimizers.weights.adapters import Artifact, Form, find
from journeyman.optimizers.weights.data import read
from journeyman.optimizers.weights.gguf import TYPES, Export, GGUFExporter
from journeyman.optimizers.weights.gguf import ExportedFile as Exported
from journeyman.optimizers.weights.gguf.contents import Text, read_header
from journeyman.optimizers.weights.hosting import OllamaHostingProfile
from journeyman.optimizers.weights.job import TrainingJob as Job
from journeyman.optimizers.weights.llamacpp import Launched, Served, launch
from journeyman.optimizers.weights.ollama import Deployed, Deployment, OllamaDeployer
from journeyman.optimizers.weights.ollama import DeploymentProgress as Progress
from journeyman.optimizers.weights.sizing import detect_hardware

if TYPE_CHECKING:
    from journeyman.optimizers.weights.merge import Merged

COMMON = ("name", "quantization", "base_model", "num_ctx", "num_parallel", "profile", "force")
"""Options of both ways to serve."""
_LINES = 10
"""How often an upload is told of, where there is no terminal."""


@dataclass(frozen=True, slots=True, kw_only=True)
class DeployOptions:
    """What is to be served, and how, as it was typed."""

    run: str
    name: str
    """Of the model that is served; empty is that of the run."""
    quantization: str
    base_model: str
    num_ctx: int | None
    num_parallel: int | None
    profile: str
    force: bool
    as_json: bool

    def artifact(self) -> Artifact:
        return find(self.run, _project() / "runs")

    def hosting(self, gguf: Path, where: OllamaDeployer | None = None) -> OllamaHostingProfile:
        """The settings of the server, with what was asked for in place of what follows from its machine."""
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


def to_ollama(wish: DeployOptions, *, host: str | None, system: str, licence: Path | None, dry_run: bool) -> bool:
    """Deploy, or say what would be; whether all is well."""
    artifact = wish.artifact()
    if not (allowed := _allowed(wish, artifact)) and not dry_run:
        return _turned_down(wish, artifact)
    deployer = OllamaDeployer(host, on_progress=_teller())
    gguf = _exported(wish, artifact)
    deployment = deployer.prepare(
        wish.name or artifact.name,
        gguf,
        profile=wish.hosting(gguf, deployer),
        system=system,
        licence=licence.read_text(encoding="utf-8", errors="replace") if licence else "",
    )
    _show(deployment)
    if dry_run:
        if not wish.as_json:
            click.echo(deployment.modelfile.text, nl=False)
        emit({**_planned(deployment), "dry_run": True}, as_json=wish.as_json)
        return allowed
    made = deployer.carry_out(deployment)
    told = {"to": "ollama", "name": deployment.name, "url": deployment.url, "gguf": str(gguf), "digest": deployment.digest}
    artifact.note(told, force=wish.force)
    _show_deployed(made)
    emit({**_planned(deployment), **_done(made)}, as_json=wish.as_json)
    return bool(made.reply.strip())


def to_llamacpp(wish: DeployOptions, *, port: int, log: Path | None, detach: bool) -> bool:
    """Serve until told to stop, or leave it running; whether all is well."""
    artifact = wish.artifact()
    if not _allowed(wish, artifact):
        return _turned_down(wish, artifact)
    gguf, model = _exported(wish, artifact), wish.name or artifact.name
    if any(server.model == model for server in llamacpp.running(_servers())):
        raise InputError(f"a server of {model} runs already: end it with --stop, or give this one another --name")
    profile = wish.hosting(gguf)
    started = launch(gguf, profile, model=model, port=port, log=log, detached=detach)
    kept = False
    try:
        _say(f"{started.program} loads {gguf} (its log: {started.log})")
        served = started.wait()
        if detach:
            llamacpp.keep(served, gguf, _servers())
            kept = True
        artifact.note({"to": "llamacpp", "name": model, "url": served.url, "gguf": str(gguf)}, force=wish.force)
        _say(f"{model} answers at {served.url}: asked {served.prompt!r}, it said {served.reply!r}")
        emit({**_serving(served), "gguf": str(gguf), "profile": _settings(profile)}, as_json=wish.as_json)
        sys.stdout.flush()
        if detach:
            _say(f"to end it: journeyman deploy llamacpp {shlex.quote(wish.run)} --name {shlex.quote(model)} --stop")
        return True if detach else _until_told(started)
    finally:
        if not kept:
            started.stop()


def stop(wish: DeployOptions) -> bool:
    """End a server that was left running. What it served need not be there any more."""
    model = wish.name or _name(wish)
    found = llamacpp.stop(_servers(), model)
    if found is None:
        known = ", ".join(server.model for server in llamacpp.running(_servers())) or "none"
        raise InputError(f"no server of {model} was left running here; there are: {known}")
    _say(f"{model} is no longer served at {found.url}")
    emit({"model": model, "url": found.url, "pid": found.pid}, as_json=wish.as_json)
    return True


def _name(wish: DeployOptions) -> str:
    try:
        return wish.artifact().name
    except InputError:
        return Path(wish.run).stem if wish.run.endswith(".gguf") else wish.run


def _allowed(wish: DeployOptions, artifact: Artifact) -> bool:
    """Whether its gate passed, or somebody insists; weights from elsewhere never stood before one."""
    proof = artifact.proof
    if proof is None:
        _say(f"{artifact.path} is of no run here: no gate was asked about it")
        return True
    if not proof.passed and wish.force:
        _say(f"deployed by force, though its gate did not pass: {proof.reason}")
    elif not proof.passed:
        _say(f"not deployed, as its gate did not pass: {proof.reason}", "--force deploys it all the same, and writes that down")
    return proof.passed or wish.force


def _turned_down(wish: DeployOptions, artifact: Artifact) -> bool:
    reason = artifact.proof.reason if artifact.proof else None
    emit({"deployed": False, "passed": False, "reason": reason}, as_json=wish.as_json)
    return False


def _exported(wish: DeployOptions, artifact: Artifact) -> Path:
    """The GGUF file, made if it is not there, or older than the weights."""
    gguf = artifact.gguf(wish.quantization)
    if artifact.form is Form.GGUF or _is_newer(gguf, artifact.path):
        return gguf
    _say(f"exporting {artifact.path} as {wish.quantization}")
    gguf.parent.mkdir(parents=True, exist_ok=True)
    exporter = GGUFExporter(artifact.path, name=artifact.name, base_model=wish.base_model)
    return exporter.convert(wish.quantization, gguf)


def _is_newer(gguf: Path, weights: Path) -> bool:
    if not gguf.is_file():
        return False
    return all(gguf.stat().st_mtime_ns >= path.stat().st_mtime_ns for path in weights.glob("*.safetensors"))


def _until_told(started: Launched) -> bool:
    """Wait for Ctrl-C or SIGTERM, which is well; or for the server to end by itself, which is not."""

    def told(*_: object) -> None:
        raise KeyboardInterrupt

    before = signal.signal(signal.SIGTERM, told)
    try:
        code = started.process.wait()
    except KeyboardInterrupt:
        _say("stopping")
        return True
    finally:
        signal.signal(signal.SIGTERM, before)
    _say(f"the server ended by itself, with exit code {code}; its log: {started.log}")
    return False


def _teller() -> Callable[[Progress], None]:
    """Something to tell of each step: a line that changes on a terminal, some lines elsewhere."""
    screen, last = console(), ""

    def tell(progress: Progress) -> None:
        nonlocal last
        line = progress.status
        if progress.total and progress.completed is not None:
            steps = 1000 if screen.is_terminal else _LINES
            share = progress.completed * steps // progress.total / steps
            line += f" {share:.0%} of {progress.total / 1e6:.1f} MB"
        if line != last:
            screen.print(line, end="\r" if screen.is_terminal and "%" in line else "\n", markup=False, soft_wrap=True)
            last = line

    return tell


def _planned(deployment: Deployment) -> dict[str, Any]:
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


def _done(made: Deployed) -> dict[str, Any]:
    return {
        "version": made.version,
        "uploaded": made.uploaded,
        "modelfile_path": str(made.modelfile),
        "prompt": made.prompt,
        "reply": made.reply,
        "tokens": made.tokens,
        "seconds": made.seconds,
    }


def _serving(served: Served) -> dict[str, Any]:
    return {**asdict(served), "log": str(served.log)}


def _settings(profile: OllamaHostingProfile) -> dict[str, Any]:
    return {
        "num_parallel": profile.num_parallel,
        "num_ctx": profile.num_ctx,
        "num_thread": profile.num_thread,
        "flash_attention": profile.flash_attention,
        "reasons": {reason.name: reason.why for reason in profile.reasons},
    }


def _show(deployment: Deployment) -> None:
    size = f"{deployment.size / 1e6:.1f} MB"
    _say(f"{deployment.gguf} ({size}, sha256:{deployment.digest}) to {deployment.url} as {deployment.name}")
    _say(*(f"  {reason.name} {reason.value}: {reason.why}" for reason in deployment.profile.reasons))
    _say(*(f"  not carried over: {note}" for note in deployment.notes))


def _show_deployed(made: Deployed) -> None:
    name, told = made.deployment.name, " ".join(f"{key}={value}" for key, value in made.deployment.profile.environment.items())
    _say(
        f"{name} was asked {made.prompt!r} and said {made.reply!r} within {made.seconds:.1f} s",
        f"the server's own settings are given where it is started: {told} ollama serve",
        f"ollama run {name}",
    )


def _say(*lines: str) -> None:
    for line in lines:
        console().print(line, markup=False, soft_wrap=True)


def _project() -> Path:
    return settings.load().folder


def _servers() -> Path:
    return _project() / "servers"


# The work behind `journeyman export gguf`, apart from its options.

_MB = 1e6


def run(named: str, types: Sequence[str], *, measure: bool, quiet: bool, **options: Any) -> dict[str, Any]:
    """Export, and show what came of it; what was made, for programs.

    Raises:
        InputError: There is nothing of that name, or it cannot be converted.
    """
    artifact = find(named, Path(settings.load().folder) / "runs")
    if artifact.form is Form.GGUF:
        raise InputError(f"{artifact.path} is a GGUF file already: name the run, adapter or model that it was made from")
    measured_on = [*_texts(artifact, options["texts"])][: texts.MOST] if measure else []
    kept = _kept(artifact, options["merged"], options["base_model"])
    exporter = GGUFExporter(
        kept.folder if kept else artifact.path,
        name=artifact.name,
        base_model=options["base_model"],
        texts=measured_on,
        pre_tokenizer=options["pre_tokenizer"],
        threads=options["threads"],
    )
    wanted = list(TYPES) if "all" in types else list(dict.fromkeys(types))
    export = exporter.export(wanted, out=options["out"] or artifact.gguf(wanted[0]).parent, measure=measure)
    export = replace(export, merged=export.merged or kept)
    if not quiet:
        show(export)
    return export.json()


def _kept(artifact: Artifact, merged: Path | None, base_model: str) -> "Merged | None":
    """The merged model, where it is to be kept."""
    if merged is None:
        return None
    if artifact.form is not Form.ADAPTER:
        raise InputError(f"{artifact.path} is a whole model: there is nothing to merge")
    from journeyman.optimizers.weights.merge import merge

    return merge(artifact.path, merged, base=base_model)


def _texts(artifact: Artifact, given: Path | None) -> Iterator[Text]:
    """What the model is for: texts that are given, its run's rows, or else its run's validation tasks."""
    if given is not None and given.suffix in (".jsonl", ".parquet"):
        yield from map(texts.said, read(given))
    elif given is not None:
        yield from (line for line in given.read_text(encoding="utf-8").splitlines() if line.strip())
    elif artifact.run is not None and (artifact.run / "config.json").is_file():
        yield from texts.of_run(Job(artifact.run))


def show(export: Export) -> None:
    """The table on stdout, and in words on stderr what a table does not tell."""
    screen = console()
    if export.merged is not None:
        screen.print(
            f"merged {export.merged.base_model} with the adapter {export.merged.adapter[:12]}: logits agree to "
            f"{export.merged.difference:.1e}, over {export.merged.compared} of them"
        )
    screen.print(
        f"{export.architecture} of {export.parameters / 1e6:.1f} M parameters, {export.original}, {_size(export.size)}"
    )
    if export.probed:
        screen.print(f"llama.cpp makes the same tokens of {export.agreeing} in {export.probed} probe texts")
    for note in export.notes:
        screen.print(note)
    columns = [
        Column(name="type", words=True),
        Column(name="size"),
        Column(name="KL"),
        Column(name="KL 99 %", spare=3),
        Column(name="perplexity", spare=2),
        Column(name="same", spare=1),
        Column(name="file", words=True, least=30),
    ]
    for file in export.files:
        for column, cell in zip(columns, _cells(file), strict=True):
            column.cells.append(Cell(cell))
    table = table_console()
    table.print(fitted(columns, table.width))
    for file in export.files:
        if file.contents.replaced:
            screen.print(replaced(file))


def _cells(file: Exported) -> tuple[str, ...]:
    cost = file.cost
    measured = (
        (f"{cost.divergence:.2g}", f"{cost.worst:.2g}", f"{cost.perplexity:.4g}", f"{cost.agreement:.1%}")
        if cost
        else ("", "", "", "")
    )
    return (file.type, _size(file.contents.size), *measured, str(file.path))


def replaced(file: Exported) -> str:
    """One sentence on matrices that did not become what was asked for."""
    total = sum(file.contents.types.values())
    parts = ", ".join(f"{each.tensors} with rows of {each.width} became {each.became}" for each in file.contents.replaced)
    return (
        f"{file.type}: its blocks are of 256 weights, and of {total} matrices {parts}: this model is too narrow for all of "
        f"{file.type}"
    )


def _size(count: int) -> str:
    return f"{count / _MB:.2f} MB" if count < 100 * _MB else f"{count / 1e9:.2f} GB"
