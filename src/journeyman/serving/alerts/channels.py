"""Who is told of alerts. An address may hold a secret: it stands in a variable, and in nothing that is kept or said."""

import asyncio
import base64
import json
import logging
import os
import warnings
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Protocol
from urllib.parse import unquote, urlsplit, urlunsplit

from journeyman.core.alert import Alert, AlertState, webhook_body
from journeyman.core.errors import InputError, JourneymanError, MissingExtra
from journeyman.experiments.settings import AlertSettings, ChannelSettings

SECONDS = 10.0
"""For which a channel is waited for."""
_LONGEST = 1 << 20


class DeliveryFailed(JourneymanError):
    """A channel was not told; the sentence says why, without its address."""


class Channel(Protocol):
    """Is told of alerts."""

    def send(self, alert: Alert) -> None:
        """
        Raises:
            DeliveryFailed: It was not told, or nobody knows.
        """


@dataclass(frozen=True, slots=True)
class NoChannel:
    """One that cannot be told until somebody mends what is set."""

    why: str

    def send(self, alert: Alert) -> None:
        raise DeliveryFailed(self.why)


@dataclass(frozen=True, slots=True)
class Webhook:
    """Is told as Alertmanager tells, version 4."""

    name: str
    url: str = field(repr=False)

    def send(self, alert: Alert) -> None:
        # Where no alert is sent, nothing is loaded for it.
        from journeyman.io.http_client import Broken, TooLong, Unreachable

        try:
            status = asyncio.run(self._posted(json.dumps(webhook_body(alert, self.name), default=str).encode()))
        except (Unreachable, Broken, TooLong, TimeoutError):
            # Their words may hold the address.
            raise DeliveryFailed(f"the channel {self.name} does not answer") from None
        if not 200 <= status < 300:
            raise DeliveryFailed(f"the channel {self.name} answers with HTTP status {status}")

    async def _posted(self, body: bytes) -> int:
        from journeyman.io.http_client import Connections

        parts = urlsplit(self.url)
        host = parts.netloc.rpartition("@")[2]
        headers = {"user-agent": "journeyman"}
        if parts.username is not None:
            pair = f"{unquote(parts.username)}:{unquote(parts.password or '')}"
            headers["authorization"] = f"Basic {base64.b64encode(pair.encode()).decode()}"
        asking = Connections(urlunsplit((parts.scheme, host, "", "", "")), headers)
        target = urlunsplit(("", "", parts.path or "/", parts.query, ""))
        try:
            async with asyncio.timeout(SECONDS), asking.asked("POST", target, body) as answer:
                await answer.read(_LONGEST)
                return answer.status
        finally:
            await asking.close()


@dataclass(frozen=True, slots=True)
class AppriseMessage:
    """Is told in words, by apprise."""

    name: str
    url: str = field(repr=False)

    def send(self, alert: Alert) -> None:
        over = alert.state is AlertState.RESOLVED
        kind = "success" if over else "failure" if alert.severity == "page" else "warning"
        with warnings.catch_warnings():
            # All that apprise can tell is loaded at the first message, old modules among it.
            warnings.simplefilter("ignore")
            try:
                from apprise import Apprise, NotifyType
            except ModuleNotFoundError as error:
                raise MissingExtra(f"messages need {error.name}: pip install 'journeyman[alerts]'") from error
            # It writes addresses into the log.
            logging.getLogger("apprise").setLevel(logging.CRITICAL + 1)
            teller = Apprise()
            if not teller.add(self.url):
                raise DeliveryFailed(f"the channel {self.name} has no address that apprise knows")
            title = f"Journeyman: {alert.name}: {alert.state}"
            if not teller.notify(title=title, body=alert.says, notify_type=NotifyType(kind)):
                raise DeliveryFailed(f"the channel {self.name} does not answer, or says no")


_KINDS: Mapping[str, type[Webhook] | type[AppriseMessage]] = {"webhook": Webhook, "apprise": AppriseMessage}


def channel(name: str, said: ChannelSettings, environment: Mapping[str, str]) -> Channel:
    """
    Raises:
        InputError: Its variable is not set, or holds no address.
    """
    url = environment.get(said.url_env, "").strip()
    where = f"the variable {said.url_env} of alerts.channels.{name}"
    if not url:
        raise InputError(f"{where} is not set: put the channel's address there")
    try:
        parts = urlsplit(url)
        usable = parts.port != 0 and (parts.hostname or said.kind == "apprise")
    except ValueError:
        usable = False
    if not usable or not url.isascii() or (said.kind == "webhook" and parts.scheme not in ("http", "https")):
        raise InputError(f"{where} holds no address such as https://alerts.example.org/hook")
    return _KINDS[said.kind](name, url)


def channels(settings: AlertSettings, environment: Mapping[str, str] | None = None) -> dict[str, Channel]:
    """All that are set, by name; one that cannot be told says why when it is to be."""
    found: dict[str, Channel] = {}
    for name, said in settings.channels.items():
        try:
            found[name] = channel(name, said, os.environ if environment is None else environment)
        except InputError as error:
            found[name] = NoChannel(str(error))
    return found
