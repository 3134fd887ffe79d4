"""`journeyman playbook`: look at what was learned, carry it in and out, and keep it tidy."""

import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from journeyman.cli import console
from journeyman.cli.console import Column, say, short
from journeyman.cli.lazy import LazyGroup
from journeyman.cli.shared import emit, json_option, show_bullets
from journeyman.core.format import counted, noun
from journeyman.core.playbook import Delta, Lock, Playbook, Retire, normalised
from journeyman.io.atomic import write_text
from journeyman.io.files import read_text

if TYPE_CHECKING:
    from journeyman.optimizers.playbook.edit import Edited

_FILE = click.Path(path_type=Path, dir_okay=False)
_MARKDOWN = ("skill", "agents-md", "langfuse", "mlflow")
_WRITABLE = ("ace", "appworld", "ace-framework-v0", "ace-framework-v1", "ace-framework-v1.5", "ace-framework-v2", *_MARKDOWN)
_READABLE = ("journeyman", "ace", "ace-framework", "cheatsheet", *_MARKDOWN)


@click.group(
    cls=LazyGroup,
    lines={
        "why": "Say where a bullet came from, what stands behind it, and what became of it.",
        "approve": "Let held bullets be shown to agents.",
        "reject": "Retire held bullets: a person does not want them.",
    },
    homes={name: f"playbook_review:{name}" for name in ("why", "approve", "reject")},
)
def command() -> None:
    """Look at playbooks, compare them, and bring them in and out.

    FILE may be of any format that can be read, and FILE@3 is revision 3 in the journal beside it.

    \b
    Example:
      journeyman playbook show playbooks/oslo.json
    """


def _output(made: Callable[..., None]) -> Callable[..., None]:
    made = click.option("--dry-run", is_flag=True, help="Show what would be done, and write nothing.")(made)
    made = click.option("--in-place", is_flag=True, help="Write FILE itself, and its journal.")(made)
    return click.option("--output", type=_FILE, metavar="FILE", help="Write the result here and leave FILE as it is.")(made)


@command.command()
@click.argument("file")
@click.option("--domain", metavar="NAME", help="Only the bullets of one domain.")
@click.option("--all", "retired", is_flag=True, help="The retired ones, too.")
@json_option
def show(file: str, domain: str | None, retired: bool, as_json: bool) -> None:
    """Show the bullets of a playbook, and which contradict each other.

    \b
    Example:
      journeyman playbook show playbooks/oslo.json --domain oslo
    """
    from journeyman.optimizers.playbook.conflict import conflicts
    from journeyman.optimizers.playbook.edit import at_revision
    from journeyman.optimizers.playbook.files import bullets_json

    playbook = at_revision(file)
    found = conflicts(playbook)
    rivals: dict[str, list[str]] = {}
    for one, other in found:
        rivals.setdefault(one, []).append(other)
        rivals.setdefault(other, []).append(one)
    bullets = [bullet for bullet in playbook.bullets if (retired or not bullet.retired) and domain in (None, bullet.domain)]
    counts = {"active": len(playbook.active), "held": len(playbook.held)}
    counts["retired"] = len(playbook.bullets) - sum(counts.values())
    if not as_json:
        held = f", {counts['held']} held" if counts["held"] else ""
        apart = f", {counted(len(found), 'contradiction')}" if found else ""
        title = f"{file}: {counted(counts['active'], 'bullet')}{held}, {counts['retired']} retired{apart}"
        if bullets:
            show_bullets(bullets, rivals, title)
        else:
            click.echo(f"{title}. There is nothing to show{'' if domain is None else f' of the domain {domain}'}.")
        if held:
            say(f"held bullets wait for a person: journeyman playbook why {file} ID, then approve or reject")
    chosen = {bullet.id for bullet in bullets}
    rows = [{**row, "conflicts": rivals.get(row["id"], [])} for row in bullets_json(playbook) if row["id"] in chosen]
    emit({"file": file, **counts, "conflicts": [list(pair) for pair in found], "bullets": rows}, as_json=as_json)


@command.command()
@click.argument("before")
@click.argument("after")
@json_option
def diff(before: str, after: str, as_json: bool) -> None:
    """Say in words what changed from one playbook to another.

    \b
    Examples:
      journeyman playbook diff old.json new.json
      journeyman playbook diff playbooks/oslo.json@2 playbooks/oslo.json
    """
    from journeyman.optimizers.playbook.edit import at_revision, differences

    found = differences(at_revision(before), at_revision(after))
    if not as_json:
        click.echo("\n".join(f"{one.bullet_id} {one.words}" for one in found) or "The playbooks say the same.")
    kinds: dict[str, int] = {}
    for one in found:
        kinds[one.kind] = kinds.get(one.kind, 0) + 1
    rows = [{"kind": one.kind, "id": one.bullet_id, "words": one.words} for one in found]
    emit({"before": before, "after": after, "counts": kinds, "differences": rows}, as_json=as_json)


@command.command("import")
@click.argument("file", type=click.Path(path_type=Path))
@click.option("--output", type=_FILE, required=True, metavar="FILE", help="The playbook file to write.")
@click.option("--format", "name", type=click.Choice(_READABLE), help="What FILE is.  [default: told from its content]")
@click.option("--domain", metavar="NAME", help="The domain of the bullets that name none.")
@json_option
def import_(file: Path, output: Path, name: str | None, domain: str | None, as_json: bool) -> None:
    """Turn another system's playbook, or a checkpoint, into a playbook file.

    Of a skill (its folder or SKILL.md), an AGENTS.md or CLAUDE.md, and a prompt of Langfuse or MLflow, each item of a list is a
    bullet. Where a part of such a file is ours, that part alone is read.

    \b
    Examples:
      journeyman playbook import playbook.txt --output playbooks/imported.json
      journeyman playbook import skillbook.json --output playbooks/desk.json --domain desk
      journeyman playbook import .claude/skills/oslo-orders --output playbooks/oslo.json
    """
    from journeyman.optimizers.playbook import files, formats

    file = file / formats.SKILL_FILE if file.is_dir() else file
    text = read_text(file)
    name = name or formats.recognise(text, str(file))
    playbook = formats.read(text, name, str(file))
    if name != formats.NATIVE:
        playbook = files.imported_from(playbook, file.name)
    if domain:
        named = (replace(bullet, domain=domain) if bullet.domain == "general" else bullet for bullet in playbook.bullets)
        playbook = replace(playbook, bullets=tuple(named))
    files.save(playbook, output)
    copies = len(playbook.active) - len({(bullet.domain, normalised(bullet.content)) for bullet in playbook.active})
    if playbook.bullets:
        say(f"{counted(len(playbook.bullets), 'bullet')} ({name}) in {output}")
    else:
        say(f"{file} holds no bullets ({name}): {output} is an empty playbook")
    if copies:
        say(f"{copies} of them are exact copies: journeyman playbook dedupe {output}")
    if file.with_suffix(".embeddings.npz").exists():
        say(f"{file.with_suffix('.embeddings.npz')} was not read: vectors are made when they are needed")
    emit({"format": name, "bullets": len(playbook.bullets), "copies": copies, "output": str(output)}, as_json=as_json)


@command.command()
@click.argument("file")
@click.option("--format", "name", type=click.Choice(_WRITABLE), required=True, help="What to write.")
@click.option("--output", type=click.Path(path_type=Path), metavar="FILE", help="Where.  [default: stdout]")
@click.option("--domain", metavar="NAME", help="Only the bullets of one domain.")
@click.option("--name", "title", metavar="NAME", help="What it is called there.  [default: after --output, --domain or FILE]")
@click.option("--dry-run", is_flag=True, help="Show what would change in --output, and write nothing.")
@json_option
def export(file: str, name: str, output: Path | None, domain: str | None, as_json: bool, **given: Any) -> None:
    """Write a playbook in another system's format, and say what is lost.

    For `skill`, the output is a folder whose name is the skill's; SKILL.md is written into it. For `agents-md`, it is an
    AGENTS.md or CLAUDE.md: a part of it between two marks is written or replaced, and all else stays as it is. `langfuse` and
    `mlflow` are prompts as JSON, as the one's API and the other's register_prompt take them.

    \b
    Examples:
      journeyman playbook export playbooks/oslo.json --format ace --output playbook.txt
      journeyman playbook export playbooks/oslo.json --format skill --output .claude/skills/oslo-orders
      journeyman playbook export playbooks/oslo.json --format agents-md --output AGENTS.md --dry-run
      journeyman playbook export playbooks/oslo.json --format langfuse --name oslo --output prompt.json
    """
    from journeyman.optimizers.playbook import formats
    from journeyman.optimizers.playbook.edit import at_revision

    playbook = at_revision(file)
    if domain:
        playbook = replace(playbook, bullets=tuple(bullet for bullet in playbook.bullets if bullet.domain == domain))
    if given["title"] and name not in formats.TITLED:
        raise click.UsageError(f"a playbook has no name in {name}: leave out --name")
    exported = formats.write(playbook, name, title=given["title"] or _title(name, file, output, domain))
    written: dict[str, Any] = {"text": exported.text}
    if output:
        written = _put(name, exported.text, output, dry_run=given["dry_run"], quiet=as_json)
    elif not as_json:
        console.pour(exported.text)
    for loss in exported.losses:
        say(f"lost: {loss}")
    said = {"format": name, "bullets": len(playbook.active), "losses": list(exported.losses), "dry_run": given["dry_run"]}
    emit({**said, **written}, as_json=as_json)


def _put(name: str, text: str, output: Path, *, dry_run: bool, quiet: bool) -> dict[str, Any]:
    """Write what was exported, and say whether that changes anything."""
    from journeyman.optimizers.playbook import formats

    output = output / formats.SKILL_FILE if name == "skill" else output
    before = read_text(output) if output.exists() else ""
    text = formats.in_block(before, text, str(output)) if name == "agents-md" else text
    if dry_run and not quiet:
        console.pour("".join(_changes(before, text, str(output))))
    elif text != before and not dry_run:
        # What is linked to stays linked: CLAUDE.md often leads to AGENTS.md.
        write_text(output.resolve(), text)
    if text == before:
        say(f"{output} says so already")
    return {"output": str(output), "changed": text != before}


def _title(name: str, file: str, output: Path | None, domain: str | None) -> str:
    """What a playbook is called where nobody says it: a skill as its folder, a prompt as its file, a part of a file as what is
    in it, so that the next export finds it again."""
    if name == "skill":
        return output.resolve().name if output else ""
    stem = output.stem if output and name != "agents-md" else domain or Path(file.partition("@")[0]).stem
    return re.sub(r"[^\w.-]+", "-", stem)


def _changes(before: str, after: str, path: str) -> Iterator[str]:
    """As `diff -u` would say it."""
    from difflib import unified_diff

    for line in unified_diff(before.splitlines(keepends=True), after.splitlines(keepends=True), path, path):
        yield line if line.endswith("\n") else f"{line}\n"


@command.command()
@click.argument("file", type=_FILE)
@click.option(
    "--similarity-threshold", type=float, default=0.8, show_default=True, help="Cosine from which two texts are near."
)
@click.option("--embedder", default="hashing", show_default=True, help="hashing, or sentence (an extra), which knows synonyms.")
@_output
@json_option
def dedupe(file: Path, similarity_threshold: float, embedder: str, as_json: bool, **given: Any) -> None:
    """Merge bullets that say the same; their counts are added up.

    Bullets that are near and yet contradict each other, or differ in a number or a name, are kept apart.

    \b
    Examples:
      journeyman playbook dedupe playbooks/imported.json
      journeyman playbook dedupe playbooks/imported.json --similarity-threshold 0.85 --in-place
    """
    from journeyman.models import embedders
    from journeyman.optimizers.playbook import files
    from journeyman.optimizers.playbook.edit import duplicates

    where = _Where(**given)
    playbook = files.load(file)
    found = duplicates(playbook, embedders.load(embedder), similarity_threshold)
    if not as_json:
        texts = {bullet.id: bullet.content for bullet in playbook.bullets}
        for merge in found.merges:
            click.echo(f"{merge.kept} stays: {short(texts[merge.kept])}")
            for id in merge.gone:
                click.echo(f"  {id} goes: {short(texts[id])}")
    say(
        f"{counted(found.exact, 'exact copy', 'exact copies')} and {counted(found.near, 'near duplicate')} among "
        f"{counted(len(playbook.active), 'bullet')}; "
        f"{found.kept_apart} near ones say something else and stay"
    )
    merges = [{"kept": merge.kept, "gone": list(merge.gone)} for merge in found.merges]
    result = {"exact": found.exact, "near": found.near, "kept_apart": found.kept_apart, "merges": merges}
    emit({**_write(file, playbook, "dedupe", found.merges, where), **result}, as_json=as_json)


@command.command()
@click.argument("file", type=_FILE)
@click.option("--min-confidence", type=click.FloatRange(0, 1), default=0.0, help="Retire voted bullets below this.")
@click.option("--max-bullets", type=click.IntRange(0), metavar="N", help="Retire the least confident beyond N.")
@click.option("--harmful", is_flag=True, help="Retire bullets whose harmful votes outweigh the helpful ones.")
@_output
@json_option
def prune(file: Path, min_confidence: float, max_bullets: int | None, harmful: bool, as_json: bool, **given: Any) -> None:
    """Retire bullets that are not worth their place. They stay in the file, and can be brought back.

    \b
    Examples:
      journeyman playbook prune playbooks/oslo.json --harmful
      journeyman playbook prune playbooks/oslo.json --max-bullets 40 --min-confidence 0.4 --in-place
    """
    from journeyman.optimizers.playbook import files
    from journeyman.optimizers.playbook.edit import superfluous

    if not (min_confidence or max_bullets is not None or harmful):
        raise click.UsageError("say what to retire: --harmful, --min-confidence or --max-bullets")
    where = _Where(**given)
    playbook = files.load(file)
    found = superfluous(playbook, min_confidence=min_confidence, max_bullets=max_bullets, harmful=harmful)
    if not as_json:
        texts = {bullet.id: bullet.content for bullet in playbook.bullets}
        for each in found:
            console.write(f"{each.bullet_id} goes: {short(texts[each.bullet_id])}\n  {each.reason}")
    say(
        f"{len(found)} of {counted(len(playbook.active), 'bullet')} "
        f"{noun(len(found), 'is not worth its', 'are not worth their')} place"
    )
    rows = [{"id": retire.bullet_id, "reason": retire.reason} for retire in found]
    emit({**_write(file, playbook, "prune", found, where), "retired": rows}, as_json=as_json)


@command.command()
@click.argument("file", type=_FILE)
@click.argument("id")
@json_option
def lock(file: Path, id: str, as_json: bool) -> None:
    """Lock a bullet: nothing but `unlock` changes it from now on.

    \b
    Example:
      journeyman playbook lock playbooks/oslo.json b-3f2a91c04d11
    """
    emit(_one(file, id, "lock", lambda whole: Lock(bullet_id=whole)), as_json=as_json)


@command.command()
@click.argument("file", type=_FILE)
@click.argument("id")
@json_option
def unlock(file: Path, id: str, as_json: bool) -> None:
    """Take the lock off a bullet.

    \b
    Example:
      journeyman playbook unlock playbooks/oslo.json b-3f2a91c04d11
    """
    emit(_one(file, id, "unlock", lambda whole: Lock(bullet_id=whole, locked=False)), as_json=as_json)


@command.command()
@click.argument("file", type=_FILE)
@click.argument("id")
@click.option("--reason", required=True, help="Why, for those who come later.")
@json_option
def retire(file: Path, id: str, reason: str, as_json: bool) -> None:
    """Retire a bullet: it is not used any more, and stays in the file with the reason.

    \b
    Example:
      journeyman playbook retire playbooks/oslo.json b-3f2a91c04d11 --reason "the shop ships on Sundays now"
    """
    emit(_one(file, id, "retire", lambda whole: Retire(bullet_id=whole, reason=reason)), as_json=as_json)


@command.command()
@click.argument("file", type=_FILE)
@json_option
def log(file: Path, as_json: bool) -> None:
    """List the revisions of a playbook: every change in its journal, verified.

    \b
    Example:
      journeyman playbook log playbooks/oslo.json
    """
    from journeyman.optimizers.playbook.edit import change_of, revisions, time_of

    entries = revisions(file)
    changes = [(entry.revision, time_of(entry), change_of(entry), entry.hash) for entry in entries]
    if not as_json:
        columns = (Column(name="revision"), Column(name="when", words=True), Column(name="what", words=True, wraps=True))
        console.table(columns, [(str(revision), at or "", what) for revision, at, what, _ in changes])
    rows = [{"revision": revision, "at": at, "what": what, "hash": hash} for revision, at, what, hash in changes]
    emit({"file": str(file), "revisions": rows}, as_json=as_json)


@command.command()
@click.argument("file", type=_FILE)
@click.argument("revision", type=click.IntRange(0))
@json_option
def restore(file: Path, revision: int, as_json: bool) -> None:
    """Bring an earlier revision back. It becomes the newest one; nothing is taken out of the journal.

    \b
    Example:
      journeyman playbook restore playbooks/oslo.json 2
    """
    from journeyman.optimizers.playbook import edit

    edited = edit.restore(file, revision, _now())
    say(f"{file} is as it was in revision {revision}; this is revision {edited.revision}")
    emit({"output": str(file), "revision": edited.revision, "bullets": len(edited.playbook.active)}, as_json=as_json)


@dataclass(frozen=True, slots=True)
class _Where:
    """Where a changed playbook goes; nowhere unless an option says so."""

    output: Path | None = None
    in_place: bool = False
    dry_run: bool = False

    def __post_init__(self) -> None:
        if (self.output is not None) + self.in_place + self.dry_run > 1:
            raise click.UsageError("--output, --in-place and --dry-run exclude each other")


def _one(file: Path, prefix: str, verb: str, delta: Callable[[str], Delta]) -> dict[str, Any]:
    """Change one bullet in place, of which as much of its id is typed as tells it apart."""
    from journeyman.optimizers.playbook import edit

    id = edit.bullet_named(edit.at_revision(str(file)), prefix, file).id
    return {**_told(file, edit.one(file, id, verb, delta(id), _now())), "id": id}


def _told(file: Path, edited: "Edited") -> dict[str, Any]:
    """Say what a change in place came to; what is to be told of it."""
    if edited.moved:
        say(f"the journal did not know {file} as it is now; a new one begins, and the old one is {edited.moved}")
    say(f"{file} is written" if edited.revision is not None else f"{file} stays as it is: there is nothing to change")
    return {"output": str(file), "revision": edited.revision, "bullets": len(edited.playbook.active)}


def _write(file: Path, playbook: Playbook, verb: str, deltas: Sequence[Delta], where: _Where) -> dict[str, Any]:
    """Merge the deltas and put the result where it goes; what is to be told of it."""
    from journeyman.optimizers.playbook import edit, files

    batch = edit.batch(playbook, verb, deltas, _now())
    if where.in_place:
        return _told(file, edit.change(file, batch))
    after = playbook.apply(batch)
    if where.output:
        files.save(after, where.output)
        say(f"{where.output} is written")
    else:
        say("nothing was written; --in-place or --output FILE does it")
    return {"output": str(where.output) if where.output else None, "revision": None, "bullets": len(after.active)}


def _now() -> str:
    return datetime.now(UTC).isoformat(timespec="seconds")
