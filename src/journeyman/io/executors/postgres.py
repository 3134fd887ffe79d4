"""Workers that take items from a queue in PostgreSQL: for several machines without a cluster.

The queue is procrastinate's. What lies in it is JSON: the name of a job and its item, never code and never a pickle. A worker
does only what `registry.KINDS["jobs"]` or a package installed beside it names, and `JobItem` refuses paths outside of its own
folder and sandboxes without walls: whoever can write into the database may ask for no more than that.

An item lies beside the queue until it is done. A job is done at least once; its result is kept under (batch, number) by whoever
is first, and taken out once.
"""

import asyncio
import json
import logging
import secrets
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from functools import partial
from importlib.metadata import version
from typing import Any, ClassVar

import procrastinate
import psycopg
from procrastinate import jobs, schema
from psycopg.conninfo import conninfo_to_dict

from journeyman.core import errors, registry
from journeyman.core.errors import InputError, JourneymanError
from journeyman.io.executors.jobs import call
from journeyman.io.executors.local import ATTEMPTS, Failed, Here, In, ItemFailed, Out, Processes, in_order, settled

QUEUE = "journeyman"
HEARTBEAT, LOST = 2.0, 15.0
"""Seconds between two signs of life of a worker, and without one after which it is lost."""
_TASK = "journeyman.item"
_MOST, _TOGETHER = 64, 16
"""Items of a batch under way: how many workers there are, changes; and of these put in at once where they come quickly."""
_POLL, _SILENCE, _KEPT = 0.05, 30.0, "1 day"
_TABLES = {"journeyman_items": "item", "journeyman_results": "outcome"}
"""Beside the queue, which would write and log each item several times over: by table, what is in it. Text, since PostgreSQL's
own JSON knows no NUL, and puts keys into an order of its own."""

log = logging.getLogger(__name__)


def _connected(url: str) -> "psycopg.Connection[Any]":
    """
    Raises:
        InputError: It is no URL of a PostgreSQL.
        JourneymanError: The server does not answer.
    """
    if not url.startswith("postgresql://"):
        raise InputError("workers on PostgreSQL need its URL, as in postgres:postgresql://user@host/database")
    try:
        return psycopg.connect(url, autocommit=True, connect_timeout=10, application_name="journeyman workers")
    except psycopg.OperationalError as error:
        raise JourneymanError(f"the workers' PostgreSQL {place(url)} does not answer: {' '.join(str(error).split())}") from None


def place(url: str) -> str:
    """Where a URL leads, without what is secret in it.

    Raises:
        InputError: It is none.
    """
    try:
        found = conninfo_to_dict(url)
    except psycopg.ProgrammingError:
        raise InputError("the URL of the workers' PostgreSQL cannot be read; write postgresql://user@host/database") from None
    return f"{found.get('host', 'localhost')}:{found.get('port', 5432)}/{found.get('dbname', '')}"


def prepare(url: str) -> None:
    """Make the tables of the queue and of the results, where they are not there yet."""
    with _connected(url) as connection, connection.transaction():
        connection.execute("select pg_advisory_xact_lock(hashtext('journeyman workers'))")
        (there,) = connection.execute("select to_regclass('procrastinate_jobs') is not null").fetchone() or (False,)
        if not there:
            connection.execute(schema.SchemaManager.get_schema())
        for table, column in _TABLES.items():
            connection.execute(
                f"create table if not exists {table} (batch text not null, number integer not null, {column} text not null, "
                "at timestamptz not null default now(), primary key (batch, number))"
            )
            connection.execute(f"delete from {table} where at < now() - interval '{_KEPT}'")  # noqa: S608 - our own


def named(function: Callable[..., Any]) -> str:
    """The name that a function has among the jobs.

    Raises:
        InputError: It has none.
    """
    found = f"{function.__module__}:{function.__qualname__}"
    for name, path in (*registry.KINDS["jobs"].items(), *((n, e.value) for n, e in registry.added("jobs").items())):
        if path == found:
            return name
    raise InputError(f"workers on PostgreSQL do only what the registry names, and not {found}; take local or ray")


class PostgresWorkers(Here):
    """Whoever runs `journeyman worker run URL`, on any machine."""

    plain: ClassVar[bool] = True

    def __init__(self, url: str) -> None:
        """
        Args:
            url: Of the database, with `#QUEUE` for another queue than `journeyman`.
        """
        url, _, queue = url.partition("#")
        self._url, self._queue = url, queue or QUEUE
        prepare(url)
        self._connection = _connected(url)

    def map(
        self,
        function: Callable[[In], Out],
        items: Iterable[In],
        *,
        seconds: float | None = None,
        failed: Failed[In, Out] | None = None,
    ) -> Iterator[Out]:
        """As promised by `Workers`. Items and results are JSON."""
        job, batch = named(function), secrets.token_hex(8)
        app = procrastinate.App(connector=procrastinate.SyncPsycopgConnector(conninfo=self._url, min_size=1, max_size=1))
        told = {"batch": batch, "job": job, "seconds": seconds, "version": version("journeyman")}
        arrived: dict[int, Mapping[str, Any]] = {}
        unsent: dict[int, str] = {}
        sent, last = 0, -_POLL

        def put() -> None:
            nonlocal last
            self._put(app, told, unsent)
            last = time.monotonic()
            unsent.clear()

        def submit(item: In) -> tuple[In, int]:
            nonlocal sent
            sent += 1
            unsent[sent] = json.dumps(item)
            # Workers wait for nobody where items are slow to come.
            if len(unsent) == _TOGETHER or time.monotonic() - last > _POLL:
                put()
            return item, sent

        def result(pending: tuple[In, int]) -> Out:
            item, number = pending
            if unsent and number not in arrived:
                put()
            found: Out = settled(partial(_told, self._awaited(batch, number, arrived)), item, failed)
            return found

        try:
            with app.open():
                yield from in_order(items, submit, result, cancel=lambda _: None, most=_MOST)
        finally:
            self._forget(batch)

    def _put(self, app: procrastinate.App, told: Mapping[str, Any], items: Mapping[int, str]) -> None:
        batch = told["batch"]
        with self._connection.cursor() as cursor:
            cursor.executemany(
                "insert into journeyman_items (batch, number, item) values (%s, %s, %s)",
                [(batch, number, item) for number, item in items.items()],
            )
        app.configure_task(_TASK, queue=self._queue).batch_defer(*({**told, "number": number} for number in items))

    def _awaited(self, batch: str, number: int, arrived: dict[int, Mapping[str, Any]]) -> Mapping[str, Any]:
        heard = time.monotonic()
        while number not in arrived:
            new = self._connection.execute(
                "delete from journeyman_results where batch = %s returning number, outcome", [batch]
            ).fetchall()
            arrived.update((at, json.loads(outcome)) for at, outcome in new)
            if new:
                heard = time.monotonic()
                continue
            if time.monotonic() - heard > _SILENCE:
                heard = time.monotonic()
                self._see_workers()
            time.sleep(_POLL)
        return arrived.pop(number)

    def _see_workers(self) -> None:
        query = "select count(*) from procrastinate_workers where last_heartbeat > now() - make_interval(secs => %s)"
        (alive,) = self._connection.execute(query, [LOST]).fetchone() or (0,)
        if not alive:
            log.warning("no worker is there for %s; start one: journeyman worker run URL", place(self._url))

    def _forget(self, batch: str) -> None:
        """What nobody waits for any more is not begun, and its results are gone."""
        with suppress(psycopg.Error):
            self._connection.execute(
                "delete from procrastinate_jobs where task_name = %s and status = 'todo' and args ->> 'batch' = %s",
                [_TASK, batch],
            )
            for table in _TABLES:
                self._connection.execute(f"delete from {table} where batch = %s", [batch])  # noqa: S608 - our own

    def close(self) -> None:
        self._connection.close()


def _told(outcome: Mapping[str, Any]) -> Any:
    """The value; or what the item raised, under its own name where it is one of ours or of Python's."""
    if "value" in outcome:
        return outcome["value"]
    if "failed" in outcome:
        raise ItemFailed(outcome["failed"])
    name, message = outcome["raised"]
    kind = getattr(errors, name, None)
    raise (kind if isinstance(kind, type) and issubclass(kind, JourneymanError) else JourneymanError)(message)


# The side of the worker.


def work(url: str, *, queue: str = QUEUE, processes: int | None = None, drain: bool = False) -> None:
    """Take items and do them, until SIGTERM or SIGINT comes: what is begun is finished first.

    Args:
        processes: How many items at once; as many as there are cores, when nothing is said.
        drain: End when nothing is left.
    """
    prepare(url)
    with Processes(processes) as pool:
        asyncio.run(_work(url, queue, pool, drain=drain))


async def _work(url: str, queue: str, pool: Processes, *, drain: bool) -> None:
    most = pool.processes + 2
    app = procrastinate.App(connector=procrastinate.PsycopgConnector(conninfo=url, min_size=1, max_size=most))

    async def item(**asked: Any) -> None:
        found = await app.connector.execute_query_all_async(
            "select item from journeyman_items where batch = %(batch)s and number = %(number)s", **_place_of(asked)
        )
        # Nobody waits for what is not there any more. An earlier version has it in the queue, and waits to be told so.
        if found or "item" in asked:
            await _done(app, asked, await asyncio.to_thread(_outcome, pool, {**asked, **dict(*found)}))

    app.task(name=_TASK)(item)
    async with app.open_async():
        watch = asyncio.create_task(_retried(app, queue))
        try:
            await app.run_worker_async(
                queues=[queue],
                concurrency=pool.processes,
                wait=not drain,
                delete_jobs="always",
                update_heartbeat_interval=HEARTBEAT,
                stalled_worker_timeout=LOST,
                fetch_job_polling_interval=1.0,
            )
        finally:
            watch.cancel()


async def _done(app: procrastinate.App, asked: Mapping[str, Any], outcome: Mapping[str, Any]) -> None:
    await app.connector.execute_query_async(
        "with done as (delete from journeyman_items where batch = %(batch)s and number = %(number)s) "
        "insert into journeyman_results (batch, number, outcome) values (%(batch)s, %(number)s, %(outcome)s) "
        "on conflict do nothing",
        **_place_of(asked),
        outcome=json.dumps(outcome),
    )


def _place_of(asked: Mapping[str, Any]) -> dict[str, Any]:
    return {"batch": str(asked.get("batch")), "number": int(asked.get("number", 0))}


async def _retried(app: procrastinate.App, queue: str) -> None:
    """Give the items of lost workers to others, and give up those that lost too many."""
    while True:
        await asyncio.sleep(HEARTBEAT)
        with _logged():
            for job in await app.job_manager.get_stalled_jobs(queue=queue, task_name=_TASK, seconds_since_heartbeat=LOST):
                if job.attempts + 1 < ATTEMPTS:
                    await app.job_manager.retry_job(job)
                    continue
                await _done(app, job.task_kwargs, {"failed": f"{ATTEMPTS} workers were lost by the same item"})
                assert job.id is not None
                await app.job_manager.finish_job_by_id_async(job.id, jobs.Status.FAILED, delete_job=True)


@contextmanager
def _logged() -> Iterator[None]:
    """A database that does not answer now may do so the next time."""
    try:
        yield
    except (procrastinate.exceptions.ProcrastinateException, psycopg.Error) as error:
        log.warning("lost workers could not be looked for: %s", error)


def _outcome(pool: Processes, asked: Mapping[str, Any]) -> Mapping[str, Any]:
    """What became of an item, as JSON."""
    try:
        job, item, seconds = _checked(asked)
        return {"value": pool.run(partial(call, job), item, seconds)}
    except ItemFailed as error:
        return {"failed": str(error)}
    except JourneymanError as error:
        return {"raised": [type(error).__name__, str(error)]}
    except Exception as error:  # noqa: BLE001 - it is raised again by whoever asked
        return {"raised": ["JourneymanError", f"{asked.get('job')}: {type(error).__name__}: {error}"]}


def _checked(asked: Mapping[str, Any]) -> tuple[str, dict[str, Any], float | None]:
    """The job, its item and its limit.

    Raises:
        InputError: It is nothing that a worker does for anybody.
    """
    job, item, seconds, theirs = (asked.get(name) for name in ("job", "item", "seconds", "version"))
    if theirs != (ours := version("journeyman")):
        raise InputError(f"the worker is Journeyman {ours}, and the item of {theirs!r:.40}; install the same on all machines")
    if not isinstance(job, str) or not registry.known("jobs", job):
        raise InputError(f"a worker does no {job!r:.80}; there are {', '.join(registry.names('jobs'))}")
    try:
        item = json.loads(item or "")
    except (TypeError, ValueError):
        item = None
    if not isinstance(item, dict):
        raise InputError(f"the item of {job} is no object of JSON")
    if seconds is not None and (isinstance(seconds, bool) or not isinstance(seconds, int | float) or seconds <= 0):
        raise InputError(f"the limit of {job} is {seconds!r:.40}, and no number of seconds")
    return job, item, seconds
