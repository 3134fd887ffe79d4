"""`journeyman worker`: work for others, by way of a PostgreSQL."""

import click

from journeyman.cli.console import say
from journeyman.core.errors import MissingExtra


@click.group()
def command() -> None:
    """Do items of other machines' commands, by way of a PostgreSQL.

    \b
    Example:
      journeyman worker run postgresql://journeyman@db/journeyman
    """


@command.command("run")
@click.argument("url", metavar="URL")
@click.option("--queue", default="journeyman", show_default=True, metavar="NAME", help="Which queue; URL#NAME for --workers.")
@click.option("--processes", type=click.IntRange(1), metavar="N", help="Items at once.  [default: as many as there are cores]")
@click.option("--drain", is_flag=True, help="End when nothing is left, instead of waiting for more.")
def run(url: str, queue: str, processes: int | None, drain: bool) -> None:
    """Take items from the queue and do them, until SIGTERM or Ctrl-C: what is begun is finished first.

    Commands give out their work with --workers postgres:URL. A worker does what Journeyman and the packages installed beside it
    name, and nothing else. Files are looked for below the folder that it is started in, which all machines share; code is run
    in the strongest sandbox there is. Put a password into ~/.pgpass or PGPASSWORD: what is typed here others can see.

    \b
    Examples:
      journeyman worker run postgresql://journeyman@db/journeyman
      journeyman worker run postgresql://journeyman@db/journeyman --queue night --processes 8
      journeyman worker run postgresql://journeyman@db/journeyman --drain
    """
    try:
        from journeyman.io.executors import postgres
    except ModuleNotFoundError as error:
        raise MissingExtra(f"{error.name} is missing: pip install 'journeyman[workers]'") from error
    url = url.removeprefix("postgres:") if url.startswith("postgres:postgresql:") else url
    postgres.prepare(url)
    say(f"working for {postgres.place(url)}, queue {queue}")
    postgres.work(url, queue=queue, processes=processes, drain=drain)
