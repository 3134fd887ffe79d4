"""A PostgreSQL to test with: the one that JOURNEYMAN_TEST_POSTGRES names, or Debian's, started once for all processes."""

import atexit
import os
import shutil
import socket
import subprocess
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cache, partial
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest

from tests.support.shared import shared


@cache
def url() -> str:
    """Its URL. Skips the test where there is none."""
    named = os.environ.get("JOURNEYMAN_TEST_POSTGRES", "")
    if named:
        return named
    pytest.importorskip("psycopg", reason="the extra postgres is not installed")
    if (programs := _installed()) is None:
        pytest.skip("JOURNEYMAN_TEST_POSTGRES names no PostgreSQL to test with, and none is installed")
    return shared("postgres", partial(_start, programs), partial(_stop, programs))


def _installed() -> Path | None:
    """The folder of Debian's programs."""
    found = sorted(Path("/usr/lib/postgresql").glob("*/bin/initdb"))
    return found[-1].parent if found else None


@dataclass(frozen=True, slots=True, kw_only=True)
class Cluster:
    """A server of one's own, which may be stopped and started again."""

    programs: Path
    folder: Path
    port: int

    @property
    def url(self) -> str:
        return f"postgresql://journeyman@127.0.0.1:{self.port}/postgres"

    @property
    def pid(self) -> int:
        return int((self.folder / "data" / "postmaster.pid").read_text().split()[0])

    def start(self) -> None:
        options = f"-c listen_addresses=127.0.0.1 -p {self.port} -k {self.folder} -c fsync=off"
        log = str(self.folder / "server.log")
        _run(self.programs, self.folder, "pg_ctl", "--wait", "--timeout", "60", "--log", log, "--options", options, "start")

    def stop(self) -> None:
        """As by pulling its plug: clients are cut off, and the next start recovers."""
        _run(self.programs, self.folder, "pg_ctl", "--mode", "immediate", "stop")

    @contextmanager
    def database(self) -> Iterator[str]:
        """The URL of an empty database, gone afterwards."""
        import sqlalchemy as sa

        name = f"test_{uuid.uuid4().hex}"
        server = sa.make_url(self.url)
        for statement in (f"create database {name}", None, f"drop database {name} with (force)"):
            if statement is None:
                yield server.set(database=name).render_as_string(hide_password=False)
                continue
            engine = sa.create_engine(server.set(drivername="postgresql+psycopg"), isolation_level="AUTOCOMMIT")
            with engine.connect() as connection:
                connection.exec_driver_sql(statement)
            engine.dispose()


@contextmanager
def cluster(folder: Path) -> Iterator[Cluster]:
    """A server of one's own in a folder that is made for it, stopped and gone afterwards.

    Raises:
        LookupError: Debian's PostgreSQL or the extra postgres is not installed.
    """
    programs = _installed()
    if programs is None or find_spec("psycopg") is None:
        raise LookupError("Debian's PostgreSQL or the extra postgres is not installed")
    folder.mkdir()
    try:
        made = _made(programs, folder)
        try:
            yield made
        finally:
            made.stop()
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def _run(programs: Path, folder: Path, program: str, *arguments: str) -> None:
    with (folder / "log").open("a") as log:
        command = [str(programs / program), "--pgdata", str(folder / "data"), *arguments]
        subprocess.run(command, check=True, cwd=folder, timeout=120, stdout=log, stderr=log, **_somebody(folder))


def _start(programs: Path, folder: Path) -> str:
    return _made(programs, folder).url


def _made(programs: Path, folder: Path) -> Cluster:
    _run(programs, folder, "initdb", "--auth", "trust", "--username", "journeyman", "--no-sync")
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        made = Cluster(programs=programs, folder=folder, port=free.getsockname()[1])
    made.start()
    return made


def _stop(programs: Path, folder: Path) -> None:
    _run(programs, folder, "pg_ctl", "--mode", "immediate", "stop")


def _somebody(folder: Path) -> dict[str, Any]:
    """PostgreSQL will not run as root."""
    if os.getuid() != 0:
        return {}
    shutil.chown(folder, "nobody", "nogroup")
    (folder / "log").touch()
    return {"user": "nobody", "group": "nogroup", "extra_groups": []}


@cache
def _template() -> tuple[str, Any]:
    """The name of a database with the newest tables, made once a session, and an engine that copies it."""
    import sqlalchemy as sa

    from journeyman.stores import open_store

    server = sa.make_url(url())
    name = f"template_{uuid.uuid4().hex}"
    engine = sa.create_engine(server.set(drivername="postgresql+psycopg"), isolation_level="AUTOCOMMIT")
    with engine.connect() as connection:
        connection.execute(sa.text(f"create database {name}"))
    atexit.register(_drop, engine, name)
    open_store(server.set(database=name).render_as_string(hide_password=False)).close()
    return name, engine


def _drop(engine: Any, name: str) -> None:
    with engine.connect() as connection:
        connection.exec_driver_sql(f"drop database {name} with (force)")
    engine.dispose()


@contextmanager
def database() -> Iterator[str]:
    """The URL of a database of its own with the newest tables and nothing in them, gone afterwards."""
    sa = pytest.importorskip("sqlalchemy")
    server = sa.make_url(url())
    template, engine = _template()
    name = f"test_{uuid.uuid4().hex}"
    with engine.connect() as connection:
        connection.execute(sa.text(f"create database {name} template {template}"))
    try:
        yield server.set(database=name).render_as_string(hide_password=False)
    finally:
        with engine.connect() as connection:
            connection.execute(sa.text(f"drop database {name} with (force)"))


@contextmanager
def schema() -> Iterator[str]:
    """The URL of an empty schema of its own, so that nothing is left and tests may run side by side."""
    sa = pytest.importorskip("sqlalchemy")
    server, name = url(), f"test_{uuid.uuid4().hex}"
    engine = sa.create_engine(sa.make_url(server).set(drivername="postgresql+psycopg"))
    with engine.begin() as connection:
        connection.execute(sa.text(f"create schema {name}"))
    try:
        yield f"{server}{'&' if '?' in server else '?'}options=-csearch_path%3D{name}"
    finally:
        with engine.begin() as connection:
            connection.execute(sa.text(f"drop schema {name} cascade"))
        engine.dispose()
