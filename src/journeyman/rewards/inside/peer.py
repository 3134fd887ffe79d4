"""One of the two ends: asks the other to do things with its objects, and does what the other asks.

A message is a request or the reply to one; while a reply is awaited the other end may ask something in turn, as a function does
that calls back. What is granted is for each end to say: the candidate has nothing to hide, the checker everything.
"""

import asyncio
import builtins
import json
import operator
from collections.abc import Callable
from typing import Any

from .handle import Handle
from .wire import Decoder, Encoded, Memo, ValueEncoder, plain

Exchange = Callable[[str], str]
"""Gives the other end a message and waits for its next one."""

_COMPARISONS = {"lt": operator.lt, "le": operator.le, "gt": operator.gt, "ge": operator.ge}
_ARITHMETIC = {
    name: getattr(operator, f"__{name}__")
    for name in ("add", "sub", "mul", "truediv", "floordiv", "mod", "pow", "matmul", "and", "or", "xor", "neg", "abs")
}
OPERATIONS: dict[str, Callable[..., Any]] = {
    "call": lambda function, *args, **named: function(*args, **named),
    "get": getattr,
    "set": setattr,
    "delete": delattr,
    "item": operator.getitem,
    "set_item": operator.setitem,
    "delete_item": operator.delitem,
    "contains": operator.contains,
    "iter": iter,
    "next": next,
    "len": len,
    "str": str,
    "repr": repr,
    "bool": bool,
    "int": int,
    "float": float,
    "eq": operator.eq,
    "isinstance": isinstance,
    "enter": lambda manager: type(manager).__enter__(manager),
    "exit": lambda manager, kind, text: type(manager).__exit__(manager, *_error_of(kind, text), None),
    "await": lambda awaitable: asyncio.run(_awaited(awaitable)),
    "plain": plain,
    "doc": lambda thing: thing.__doc__,
    **_COMPARISONS,
    **_ARITHMETIC,
}


class CannotCross(TypeError):
    """A value that neither is plain data nor may be used from the other end."""


class PeerGone(BaseException):
    """The other end is no more. No test can catch it by mistake."""


class Peer:
    """An end that lends everything and grants everything: the candidate's. The checker's is derived from it."""

    def __init__(self, exchange: Exchange) -> None:
        self._exchange = exchange
        self._lent: list[Any] = []
        self._lent_numbers: dict[int, int] = {}
        self._borrowed: dict[int, Any] = {}
        self._borrowed_numbers: dict[int, int] = {}
        self._errors: dict[str, type[BaseException]] = {}
        """Classes of this end that stand for exceptions of the other end, by the name they have there."""

    def may(self, operation: str, args: list[Any]) -> bool:
        """Whether the other end may do this."""
        return True

    def lendable(self, value: Any) -> bool:
        """Whether the other end may have a handle on it."""
        return True

    def heard(self) -> str:
        """What was printed while the other end was served."""
        return ""

    def say(self, text: str) -> None:
        """Take what was printed at the other end."""

    def ask(self, operation: str, *args: Any, **named: Any) -> Any:
        """Have it done at the other end. What that raises is raised here, and what it did to the arguments is done to them."""
        memo = Memo()
        encoder = self._encoder(memo)
        request = {"do": operation, "args": [encoder.encode(arg) for arg in args]}
        request["named"] = [[name, encoder.encode(arg)] for name, arg in named.items()]
        reply = self._until_reply(json.dumps(request))
        decoder = self._decoder(memo)
        for number, contents in reply.get("changed", ()):
            decoder.fill(memo.objects[number], contents)
        self.say(str(reply.get("printed", "")))
        if "raised" in reply:
            raise self._error(decoder, reply["raised"])
        return decoder.decode(reply.get("value"))

    def _until_reply(self, message: str) -> dict[str, Any]:
        reply = self._read(self._exchange(message))
        while "do" in reply:
            reply = self._read(self._exchange(self.serve(reply)))
        return reply

    def _read(self, text: str) -> dict[str, Any]:
        found = json.loads(text)
        if not isinstance(found, dict) or "gone" in found:
            raise PeerGone(found.get("gone", "") if isinstance(found, dict) else "")
        return found

    def serve_until_the_end(self, first: str) -> None:
        """Answer requests until there are no more."""
        message = first
        while "do" in (request := json.loads(self._exchange(message))):
            message = self.serve(request)

    def serve(self, request: dict[str, Any]) -> str:
        """Do one thing for the other end; the reply."""
        memo = Memo()
        encoder = self._encoder(memo)
        before: list[str] = []
        reply: dict[str, Any] = {}
        try:
            decoder = self._decoder(memo)
            args = [decoder.decode(arg) for arg in request["args"]]
            named = {name: decoder.decode(arg) for name, arg in request["named"]}
            before = [json.dumps(encoder.contents(each)) for each in list(memo.objects)]
            if not args or not self.may(request["do"], args):
                raise CannotCross(f"{request['do']} is not allowed here")
            value = OPERATIONS[request["do"]](*args, **named)
            reply["value"] = encoder.encode(value)
        except PeerGone:
            raise
        except BaseException as error:  # noqa: BLE001 - the boundary: it is raised again at the other end
            reply["raised"] = self._raised(encoder, error)
        reply["changed"] = self._changed(encoder, memo, before)
        reply["printed"] = self.heard()
        return json.dumps(reply)

    def _changed(self, encoder: ValueEncoder, memo: Memo, before: list[str]) -> list[tuple[int, Encoded]]:
        changed = []
        for number, old in enumerate(before):
            new = encoder.contents(memo.objects[number])
            if json.dumps(new) != old:
                changed.append((number, new))
        return changed

    def _raised(self, encoder: ValueEncoder, error: BaseException) -> dict[str, Any]:
        try:
            args = [encoder.encode(arg) for arg in error.args]
        except Exception:  # noqa: BLE001 - an exception may hold anything
            args = [str(error)]
        return {"kinds": _names(type(error)), "args": args}

    def _error(self, decoder: Decoder, raised: dict[str, Any]) -> BaseException:
        args = [decoder.decode(arg) for arg in raised["args"]]
        for kind in raised["kinds"]:
            module, _, name = kind.rpartition(".")
            found = self._errors.get(kind) or (vars(builtins).get(name) if module == "builtins" else None)
            # An interrupt would end the checker instead of the test.
            if isinstance(found, type) and issubclass(found, Exception | SystemExit):
                try:
                    return found(*args)
                except TypeError:
                    return found()
        return RuntimeError(f"{raised['kinds'][:1]}: {args}")

    def _encoder(self, memo: Memo) -> ValueEncoder:
        return ValueEncoder(memo, self.lend)

    def _decoder(self, memo: Memo) -> Decoder:
        return Decoder(memo, self._find)

    def lend(self, value: Any) -> Encoded:
        """What stays here, as a number that the other end may name."""
        borrowed = self._borrowed_numbers.get(id(value))
        if borrowed is not None:
            return ["yours", borrowed]
        if not self.lendable(value):
            raise CannotCross(f"a {type(value).__name__} cannot be handed over")
        number = self._lent_numbers.get(id(value))
        if number is None:
            number = self._lent_numbers[id(value)] = len(self._lent)
            self._lent.append(value)
        return ["mine", number, type(value).__name__, _error_names(value)]

    def _find(self, tag: str, rest: list[Any]) -> Any:
        match tag, rest:
            case "yours", [int(number)]:
                return self._lent[number]
            case "mine", [int(number), str(kind), list(names)]:
                if number not in self._borrowed:
                    made = self._error_class(names) if names else Handle(self.ask, number, kind)
                    self._borrowed[number] = made
                    self._borrowed_numbers[id(made)] = number
                return self._borrowed[number]
        raise ValueError("a message that is none")

    def _error_class(self, names: list[str]) -> type[BaseException]:
        """A class of this end for one of the other's exceptions, below those for its bases."""
        module, _, name = names[0].rpartition(".")
        found = vars(builtins).get(name) if module == "builtins" else self._errors.get(names[0])
        if not (isinstance(found, type) and issubclass(found, BaseException)):
            base = self._error_class(names[1:]) if len(names) > 1 else Exception
            found = self._errors[names[0]] = type(name, (base,), {"__module__": module})
        return found


def _error_names(value: Any) -> list[str]:
    """For a class of exceptions, its name and its bases'."""
    if isinstance(value, type) and issubclass(value, BaseException):
        return _names(value)
    return []


def _names(kind: type) -> list[str]:
    return [f"{each.__module__}.{each.__qualname__}" for each in kind.__mro__]


def _error_of(kind: str | None, text: str) -> tuple[type[BaseException] | None, BaseException | None]:
    if kind is None:
        return None, None
    found = vars(builtins).get(kind)
    made = found if isinstance(found, type) and issubclass(found, Exception) else RuntimeError
    return made, made(text)


async def _awaited(awaitable: Any) -> Any:
    return await awaitable
