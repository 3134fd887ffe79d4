"""What passed is gathered on its way, within bounds, and handed over as an exchange."""

import zlib
from datetime import UTC, datetime
from time import perf_counter

from journeyman.capture.exchanges.base import Dialect, Exchange
from journeyman.gateway.call import Call
from journeyman.gateway.upstreams import Upstream


class Recording:
    """One exchange while it happens."""

    __slots__ = ("_began", "_call", "_first", "_limit", "_parts", "_size", "_started_at", "encoding", "error", "status",
                 "streamed", "upstream")  # fmt: skip

    def __init__(self, call: Call, limit: int) -> None:
        """`limit` is how many bytes of the answer are kept."""
        self._call = call
        self._limit = limit
        self._began = perf_counter()
        self._started_at = datetime.now(UTC)
        self._parts: list[bytes] = []
        self._size = 0
        self._first: float | None = None
        self.upstream: Upstream | None = None
        self.status: int | None = None
        self.streamed = False
        self.encoding = ""
        self.error: str | None = None

    def add(self, data: bytes) -> None:
        if self._first is None:
            self._first = perf_counter()
        room = self._limit - self._size
        self._size += len(data)
        if room > 0:
            self._parts.append(data if len(data) <= room else data[:room])

    def exchange(self, dialect: Dialect) -> Exchange:
        """What happened up to now."""
        call, upstream = self._call, self.upstream
        request, request_wrong = decoded(call.body, call.encoding, self._limit)
        response, response_wrong = decoded(b"".join(self._parts), self.encoding, self._limit)
        cut = f"the record is cut after {self._limit} of {self._size} bytes" if self._size > self._limit else None
        return Exchange(
            id=call.id,
            dialect=dialect,
            request=request,
            response=response,
            status=self.status,
            streamed=self.streamed,
            started_at=self._started_at,
            first_byte_seconds=None if self._first is None else self._first - self._began,
            seconds=perf_counter() - self._began,
            upstream=upstream.name if upstream is not None else "",
            base_url=upstream.base_url if upstream is not None else "",
            error=self.error or cut or request_wrong or response_wrong,
            labels=call.labels,
        )


_WINDOWS = {"gzip": 16 + zlib.MAX_WBITS, "x-gzip": 16 + zlib.MAX_WBITS, "deflate": zlib.MAX_WBITS}


def decoded(body: bytes, encoding: str, limit: int) -> tuple[bytes, str | None]:
    """A body without its content-encoding, at most `limit` bytes of it, and what could not be undone."""
    if not encoding or encoding == "identity" or not body:
        return body, None
    window = _WINDOWS.get(encoding)
    if window is None:
        return b"", f"the record lacks a body, which came as {encoding}"
    reader = zlib.decompressobj(window)
    try:
        return reader.decompress(body, limit), None
    except zlib.error:
        return b"", f"the record lacks a body, which was no {encoding}"
