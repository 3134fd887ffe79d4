"""`journeyman documents`: what was collected beside traces: found, read and forgotten."""

from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from journeyman.cli.console import head, minute, rows_table, say
from journeyman.cli.shared import emit, json_option, read_store_url, store_option, together
from journeyman.core.errors import InputError
from journeyman.core.format import counted

if TYPE_CHECKING:
    from journeyman.experiments.playbook.from_documents import DrawnBullet
    from journeyman.stores import RunRecord
    from journeyman.stores.documents import DocumentQuery, DocumentStore

_filters = together(
    click.option("--source", metavar="NAME", help="Of one source: git, messages, devlogs, workspaces, or your own."),
    click.option("--kind", metavar="NAME", help="Of one kind: commit, message, mail, devlog, status, inbox, …"),
    click.option("--words", "text", metavar="TEXT", help='With all these words; "in quotes" for a phrase.'),
)


@click.group()
def command() -> None:
    """Find, read and forget what was collected beside traces: commits, messages, logs of the day, workspaces.

    \b
    Examples:
      journeyman documents list --words parser
      journeyman documents show 3f2a
      journeyman documents forget --source messages --yes
    """


def _opened(store: str | None) -> "DocumentStore":
    from journeyman.stores.documents import open_documents

    return open_documents(read_store_url(store), make=False)


def _query(given: dict[str, Any]) -> "DocumentQuery":
    from journeyman.stores.documents import DocumentQuery

    return DocumentQuery(**{name: given[name] or None for name in ("source", "kind", "text")})


@command.command("list")
@_filters
@click.option("--limit", type=click.IntRange(1), default=50, show_default=True, metavar="N", help="So many at most.")
@store_option
@json_option
def list_(as_json: bool, store: str | None, limit: int, **given: Any) -> int:
    """List documents as they are now, what came last first.

    \b
    Examples:
      journeyman documents list --source git
      journeyman documents list --words '"build is red"'
    """
    with _opened(store) as kept:
        lines, more = kept.document_page(_query(given), limit=limit)
        counts = kept.document_counts()
    if not as_json:
        rows = [(each.id[:8], each.kind, minute(each.at) if each.at else "", each.author or "", each.title) for each in lines]
        if rows:
            rows_table(("id", "kind", "written", "by", "title"), rows)
        elif not counts:
            say("no document was collected yet; to begin: journeyman collect git, devlogs, messages or workspaces")
        if more:
            say("there are more; --limit shows more of them")
    told = [{name: getattr(each, name) for name in each.__dataclass_fields__} for each in lines]
    by = [{"source": source, "kind": kind, "documents": count} for (source, kind), count in counts.items()]
    emit({"documents": told, "counts": by}, as_json=as_json)
    return 0


@command.command()
@click.argument("id")
@store_option
@json_option
def show(as_json: bool, store: str | None, id: str) -> int:
    """Show a document, and where it came from. As much of its ID as tells it apart is enough.

    \b
    Example:
      journeyman documents show 3f2a
    """
    with _opened(store) as kept:
        found = kept.documents_starting(id)
        document = kept.document(found[0]) if len(found) == 1 else None
        if document is None:
            raise InputError(f"{id}: {'more than one document has' if found else 'no document has'} an id that begins so")
        revisions = len(kept.revisions(document))
    drawn = _drawn(document.id, store)
    if not as_json:
        head(("document", document.id), ("source", document.source), ("kind", document.kind), ("from", document.where))
        head(("key", document.key), ("by", document.author or ""), ("written", minute(document.at) if document.at else ""))
        head(("revisions", str(revisions) if revisions > 1 else ""))
        click.echo(f"\n{document.text}")
        for each in drawn:
            bullet = each.bullet
            state = f"retired: {bullet.retired}" if bullet.retired else f"held: {bullet.held}" if bullet.held else "approved"
            say(f"led to {bullet.id} in {each.path}: {bullet.content} ({state})")
    told = {name: getattr(document, name) for name in document.__dataclass_fields__}
    emit({"id": document.id, **told, "revisions": revisions, "bullets": [each.bullet.id for each in drawn]}, as_json=as_json)
    return 0


def _drawn(id: str, store: str | None) -> "tuple[DrawnBullet, ...]":
    """The bullets that a document led to, in files below this folder."""
    from journeyman.experiments.playbook.from_documents import KIND, drawn_from
    from journeyman.stores import open_store

    def file_of(run: "RunRecord") -> Path | None:
        path = Path(str((run.result or {}).get("playbook_path", "")))
        return path if path.is_file() else None

    with open_store(read_store_url(store), make=False) as kept:
        return drawn_from(id, kept.runs(KIND, newest_first=True), file_of)


@command.command()
@_filters
@click.option("--yes", is_flag=True, help="Do not ask.")
@store_option
@json_option
def forget(as_json: bool, store: str | None, yes: bool, **given: Any) -> int:
    """Forget documents for which everything holds that is named, with all their revisions that it holds for.

    Their sources stay as they are, and what stands there unchanged is not read again.

    \b
    Example:
      journeyman documents forget --source messages --yes
    """
    if not any(given.values()):
        raise InputError("name what is forgotten: --source, --kind or --words")
    with _opened(store) as kept:
        ids = [each.id for each in kept.documents(_query(given))]
        if ids and not yes:
            click.confirm(f"forget {counted(len(ids), 'document')} for good?", abort=True, err=True)
        gone = kept.forget_documents(ids)
    say(f"{counted(gone, 'document is', 'documents are')} forgotten")
    emit({"forgotten": gone}, as_json=as_json)
    return 0
