"""`journeyman store`: what there is in the store, and how it is kept safe."""

import os
import shutil
import sqlite3
import subprocess
from collections.abc import Mapping
from contextlib import closing
from pathlib import Path
from typing import Any
from urllib.parse import unquote, urlsplit

import click

from journeyman.cli.console import head, named_columns, say, table
from journeyman.cli.shared import emit, json_option, read_store_url, store_option, store_url
from journeyman.core.errors import InputError, StoreError
from journeyman.io.atomic import atomic_write
from journeyman.stores.urls import MEMORY, as_url, is_nowhere, redacted

_FILE = click.Path(path_type=Path, dir_okay=False)
_SQLITE = "sqlite:"


@click.group()
def command() -> None:
    """Look at the store, back it up, bring it back and up to date.

    \b
    Examples:
      journeyman store status
      journeyman store backup monday.db
    """


@command.command()
@store_option
@json_option
def status(store: str | None, as_json: bool) -> None:
    """Say where the store is, which version of it, how large, and how much is in it. Nothing is made or migrated.

    \b
    Example:
      journeyman store status
    """
    from journeyman.stores import engine

    url = _there(store)
    step, size = engine.step_of(url), engine.size_of(url)
    filled = {name: rows for name, rows in size.rows.items() if rows}
    if not as_json:
        older = step is not None and step < engine.HEAD
        head(
            ("store", redacted(url)),
            ("step", f"{step}, and {engine.HEAD} is the newest: journeyman store migrate" if older else f"{step}"),
        )
        head(("size", f"{size.bytes / 1e6:,.1f} MB"))
        table(named_columns("table", "rows"), [(name, f"{rows:,}") for name, rows in filled.items()])
    emit({"store": redacted(url), "step": step, "newest": engine.HEAD, "bytes": size.bytes, "rows": filled}, as_json=as_json)


@command.command()
@click.argument("file", type=_FILE)
@click.option("--force", is_flag=True, help="Write over a file that is there.")
@store_option
@json_option
def backup(file: Path, force: bool, store: str | None, as_json: bool) -> None:
    """Write all of the store into one file, as it is at this moment; whoever writes to it may go on.

    Of SQLite the file is a store itself. Of PostgreSQL it is what pg_dump writes, which must be installed. Artifacts, which are
    files of their own, are not in it.

    \b
    Example:
      journeyman store backup monday.db
    """
    url = _there(store)
    if file.exists() and not force:
        raise InputError(f"{file} is there already; name another file, or write over it with --force")
    if url.startswith(_SQLITE):
        from journeyman.stores.engine import sqlite_file

        with atomic_write(file) as part:
            _copied(sqlite_file(url), part)
    else:
        with atomic_write(file) as part:
            _postgres("pg_dump", url, "--format=custom", f"--file={part}")
    size = file.stat().st_size
    say(f"{redacted(url)} is kept in {file} ({size / 1e6:,.1f} MB); bring it back with: journeyman store restore {file}")
    emit({"store": redacted(url), "file": str(file), "bytes": size}, as_json=as_json)


@command.command()
@click.argument("file", type=click.Path(path_type=Path, dir_okay=False, exists=True))
@click.option("--force", is_flag=True, help="Though there is a store; of SQLite it is kept beside, as NAME.before.")
@store_option
@json_option
def restore(file: Path, force: bool, store: str | None, as_json: bool) -> None:
    """Bring back what `journeyman store backup` wrote. End what writes to the store first.

    \b
    Examples:
      journeyman store restore monday.db
      journeyman store restore monday.db --store elsewhere.db
    """
    url = store_url(store)
    if url == MEMORY:
        raise InputError("the store memory: keeps nothing; name one that does, with --store")
    kept: Path | None = None
    if url.startswith(_SQLITE):
        kept = _restored(file, url, force=force)
    else:
        _refuse_full(url, force=force)
        _postgres("pg_restore", url, "--clean", "--if-exists", "--no-owner", "--single-transaction", str(file))
    say(f"{redacted(url)} is as {file} was" + (f"; what was there is kept in {kept}" if kept else ""))
    emit({"store": redacted(url), "file": str(file), "before": str(kept) if kept else None}, as_json=as_json)


@command.command()
@click.option("--dry-run", is_flag=True, help="Say which step it is at and would be at, and change nothing.")
@store_option
@json_option
def migrate(dry_run: bool, store: str | None, as_json: bool) -> None:
    """Bring the store to the newest version, whole or not at all. Whatever opens it does so, too.

    \b
    Example:
      journeyman store migrate --dry-run
    """
    from journeyman.stores import engine, make_ready

    url = _there(store)
    before = engine.step_of(url)
    if not dry_run:
        make_ready(url)
    after = engine.HEAD if dry_run else engine.step_of(url)
    if before == after:
        said = f"is at step {after}, the newest"
    else:
        said = f"{'would be brought' if dry_run else 'was brought'} from step {before} to {after}"
    say(f"{redacted(url)} {said}")
    emit({"store": redacted(url), "before": before, "after": after, "dry_run": dry_run}, as_json=as_json)


@command.command()
@store_option
@json_option
def vacuum(store: str | None, as_json: bool) -> None:
    """Give the room of what was forgotten back to the disk. It takes as long as copying the store, and as much room.

    \b
    Example:
      journeyman store vacuum
    """
    from journeyman.stores import engine

    url = _there(store)
    before = engine.size_of(url).bytes
    engine.vacuum(url)
    after = engine.size_of(url).bytes
    say(f"{redacted(url)}: {before / 1e6:,.1f} MB before, {after / 1e6:,.1f} MB now")
    emit({"store": redacted(url), "before": before, "after": after}, as_json=as_json)


def _there(store: str | None) -> str:
    """The store that is meant.

    Raises:
        InputError: There is none yet.
    """
    url = read_store_url(store)
    if is_nowhere(url):
        raise InputError(f"there is no store at {redacted(url)} yet; journeyman collect, serve or train begin one")
    return url


def _copied(source: Path, target: Path) -> None:
    """All that is committed at one moment, while others write."""
    try:
        with (
            closing(sqlite3.connect(source.absolute().as_uri() + "?mode=ro", uri=True)) as there,
            closing(sqlite3.connect(target)) as here,
        ):
            there.backup(here)
    except sqlite3.Error as error:
        raise StoreError(f"{source} could not be copied: {error}") from None


def _restored(file: Path, url: str, *, force: bool) -> Path | None:
    """The place of what was there before.

    Raises:
        InputError: The file is no store, or there is one already.
    """
    from journeyman.stores import engine

    try:
        if engine.step_of(as_url(file)) is None:
            raise InputError(f"{file} is no store: nothing was ever kept in it")
        with closing(sqlite3.connect(file.absolute().as_uri() + "?mode=ro", uri=True)) as there:
            fault = there.execute("pragma integrity_check(1)").fetchone()[0]
    except (StoreError, sqlite3.Error) as error:
        raise InputError(f"{file} is no backup of a store on SQLite: {error}") from None
    if fault != "ok":
        raise InputError(f"{file} is damaged ({fault}); nothing was changed")
    path = engine.sqlite_file(url)
    there_is = path.exists()
    if there_is and not force:
        raise InputError(f"{path} is there already; put another place into --store, or say --force, which keeps it beside")
    if there_is and file.exists() and path.samefile(file):
        raise InputError(f"{file} is the store itself; name a backup of it")
    path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
    kept = path.with_name(f"{path.name}.before") if there_is else None
    with atomic_write(path) as part:
        _copied(file, part)
        if kept is not None:
            _copied(path, kept)
            # Of what is replaced, none may be taken for the newest records of what takes its place.
            for ending in ("-wal", "-shm"):
                path.with_name(f"{path.name}{ending}").unlink(missing_ok=True)
    return kept


def _refuse_full(url: str, *, force: bool) -> None:
    from journeyman.stores import engine

    if not force and engine.step_of(url) is not None:
        raise InputError(f"{redacted(url)} holds a store already; name another database, or replace it with --force")


def _postgres(program: str, url: str, *arguments: str) -> None:
    """Run one of PostgreSQL's own programs; the password goes through the environment, as a command line can be read by all."""
    if shutil.which(program) is None:
        raise InputError(f"{program} is missing, which a store on PostgreSQL needs for this: install PostgreSQL's client")
    parts = urlsplit(url)
    user, at, host = parts.netloc.rpartition("@")
    name, _, password = user.partition(":")
    bare = f"postgresql://{name}{at}{host}{parts.path}{'?' if parts.query else ''}{parts.query}"
    environment: Mapping[str, str] = {**os.environ, **({"PGPASSWORD": unquote(password)} if password else {})}
    done = subprocess.run([program, f"--dbname={bare}", *arguments], env=environment, capture_output=True, text=True)
    if done.returncode:
        lines: list[Any] = done.stderr.strip().splitlines()
        raise StoreError(
            f"{redacted(url)}: {program} ended with {done.returncode}: {lines[-1] if lines else 'it said nothing'}"
        )
