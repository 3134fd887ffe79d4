"""Output of any length in constant memory: its beginning and its end."""


class Tape:
    """What was written to one stream."""

    def __init__(self, limit: int) -> None:
        self._limit = limit
        self._head = bytearray()
        self._tail = bytearray()
        self._seen = 0

    def write(self, data: bytes) -> None:
        self._seen += len(data)
        room = self._limit - self._limit // 2 - len(self._head)
        self._head += data[:room]
        self._tail += data[room:]
        if len(self._tail) > self._limit:
            self._tail = self._tail[len(self._tail) - self._limit // 2 :] if self._limit > 1 else bytearray()

    @property
    def shortened(self) -> bool:
        """Whether more came than is kept."""
        return self._seen > self._limit

    def take(self) -> bytes:
        """What was kept, and begin anew."""
        kept = self._kept()
        self._head, self._tail, self._seen = bytearray(), bytearray(), 0
        return kept

    def _kept(self) -> bytes:
        if not self.shortened:
            return bytes(self._head + self._tail)
        size = self._limit // 2
        head, tail = _without_half_a_letter(bytes(self._head)), self._tail[len(self._tail) - size :] if size else b""
        tail = bytes(tail)
        while tail and tail[0] & 0xC0 == 0x80:
            tail = tail[1:]
        lost = self._seen - len(head) - len(tail)
        return b"%s\n[... %d bytes left out ...]\n%s" % (head, lost, tail)


def _without_half_a_letter(text: bytes) -> bytes:
    """UTF-8 that was cut, less the letter that the cut went through."""
    for back in range(1, min(4, len(text)) + 1):
        byte = text[-back]
        if byte & 0xC0 == 0x80:
            continue
        needed = 4 if byte >= 0xF0 else 3 if byte >= 0xE0 else 2 if byte >= 0xC0 else 1
        return text if needed <= back else text[:-back]
    return text
