"""What stands here for an object that lives at the other end."""

import operator
from collections.abc import Callable, Generator
from typing import Any

Ask = Callable[..., Any]

_ASKED_WITH_AN_ANSWER = {"startswith", "endswith", "issubset", "issuperset", "isdisjoint"}
"""Of built-in types: they say whether what is expected is so. A class of the candidate's own would say yes."""
_SEEN_FROM_OUTSIDE = {"__name__", "__qualname__", "__doc__", "__dict__", "__module__", "__annotations__"}


class Handle:
    """Passes on what is done to it.

    But what it is equal to, less than, or holds, it does not get to say itself, unless the tests name its class: else an object
    that is equal to everything would pass them all.
    """

    __slots__ = ("_ask", "_number", "_speaks", "_type")

    def __init__(self, ask: Ask, number: int, type_name: str) -> None:
        object.__setattr__(self, "_ask", ask)
        object.__setattr__(self, "_number", number)
        object.__setattr__(self, "_type", type_name)
        object.__setattr__(self, "_speaks", False)

    def __call__(self, *args: Any, **named: Any) -> Any:
        made = self._ask("call", self, *args, **named)
        if self._speaks and isinstance(made, Handle):
            may_speak(made)
        return made

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__") and name not in _SEEN_FROM_OUTSIDE:
            raise AttributeError(name)
        if name in _ASKED_WITH_AN_ANSWER and not self._speaks:
            own = self._ask("plain", self)
            if isinstance(own, Handle):
                raise AttributeError(name)
            return getattr(own, name)
        return self._ask("get", self, name)

    def __setattr__(self, name: str, value: Any) -> None:
        self._ask("set", self, name, value)

    def __delattr__(self, name: str) -> None:
        self._ask("delete", self, name)

    def __eq__(self, other: object) -> Any:
        if other is self:
            return True
        if isinstance(other, Handle):
            return (self._speaks or other._speaks) and self._ask("eq", self, other)
        own = self._ask("plain", self)
        return NotImplemented if isinstance(own, Handle) else own == other

    def __hash__(self) -> int:
        return hash(("handle", self._number))

    def __contains__(self, item: Any) -> bool:
        if self._speaks:
            return bool(self._ask("contains", self, item))
        return any(item is each or item == each for each in self)

    def __instancecheck__(self, other: Any) -> bool:
        return isinstance(other, Handle) and bool(self._ask("isinstance", other, self))

    def __iter__(self) -> Any:
        return self._ask("iter", self)

    def __next__(self) -> Any:
        return self._ask("next", self)

    def __len__(self) -> Any:
        return self._ask("len", self)

    def __bool__(self) -> Any:
        return self._ask("bool", self)

    def __str__(self) -> Any:
        return self._ask("str", self)

    def __repr__(self) -> Any:
        return self._ask("repr", self)

    def __int__(self) -> Any:
        return self._ask("int", self)

    def __float__(self) -> Any:
        return self._ask("float", self)

    def __getitem__(self, key: Any) -> Any:
        return self._ask("item", self, key)

    def __setitem__(self, key: Any, value: Any) -> None:
        self._ask("set_item", self, key, value)

    def __delitem__(self, key: Any) -> None:
        self._ask("delete_item", self, key)

    def __enter__(self) -> Any:
        return self._ask("enter", self)

    def __exit__(self, kind: Any, error: Any, trace: Any) -> bool:
        # The error itself stays here: the other end is told that there was one by its class and words.
        return bool(self._ask("exit", self, None if error is None else type(error).__name__, str(error)))

    def __await__(self) -> Generator[None, None, Any]:
        return self._ask("await", self)
        yield


def may_speak(handle: Handle) -> None:
    """Let it, and what is made by calling it, say for itself what it is equal to: the tests name its class."""
    object.__setattr__(handle, "_speaks", True)


def _passed_on(operation: str, operate: Callable[..., Any], *, among_handles: bool) -> Callable[..., Any]:
    """What the tests expect is often an operand, as in `abs(f(x) - 3.14) < 0.01`: it stays here, and the other end is asked
    first what its object is as plain data."""

    def operated(self: Handle, *others: Any) -> Any:
        if (self._speaks and not among_handles) or all(isinstance(other, Handle) for other in others):
            return self._ask(operation, self, *others)
        own = self._ask("plain", self)
        return NotImplemented if isinstance(own, Handle) else operate(own, *others)

    return operated


for _name in ("lt", "le", "gt", "ge"):
    setattr(Handle, f"__{_name}__", _passed_on(_name, getattr(operator, f"__{_name}__"), among_handles=True))
for _name in ("add", "sub", "mul", "truediv", "floordiv", "mod", "pow", "matmul", "and", "or", "xor", "neg", "abs"):
    setattr(Handle, f"__{_name}__", _passed_on(_name, getattr(operator, f"__{_name}__"), among_handles=False))
