"""What can be told of a repository's code without running it: what it offers, how tangled it is, and what it hides."""

import ast
import re
from collections import Counter
from collections.abc import Iterator, Mapping

from journeyman.rewards.development.code_measures import complexity
from journeyman.rewards.development.work import functions
from journeyman.tasks.repository.tree import Tree

_HIDES = frozenset(
    ("exec", "eval", "compile", "__import__", "importlib", "import_module", "marshal", "pickle", "ctypes", "runpy", "pkgutil")
    + ("FunctionType", "CodeType", "LambdaType", "__code__", "__builtins__", "builtins", "settrace", "setprofile")
    + ("_getframe", "globals", "modules")
)
"""Names by which code is run, or modules are imported, that do not stand there as such."""
_SILENCES = re.compile(r"#\s*(noqa|type:\s*ignore|pragma|pylint|nosec)\b", re.IGNORECASE)


def offered(tree: Tree) -> dict[str, str]:
    """What the modules of a repository offer, by dotted name: functions and methods with their parameters, classes and names."""
    found: dict[str, str] = {}
    for path in tree.sources:
        module = tree.module_of(path)
        for name, what in _offered(ast.parse(tree.text(path)).body):
            if not any(part.startswith("_") and not part.endswith("__") for part in name.split(".")):
                found[f"{module}.{name}"] = what
    return found


def _offered(body: list[ast.stmt], within: str = "") -> Iterator[tuple[str, str]]:
    for node in body:
        match node:
            case ast.FunctionDef() | ast.AsyncFunctionDef():
                yield f"{within}{node.name}", f"({ast.unparse(node.args)})"
            case ast.ClassDef():
                yield f"{within}{node.name}", f"class({', '.join(map(ast.unparse, node.bases))})"
                yield from _offered(node.body, f"{within}{node.name}.")
            case ast.Assign(targets=targets) if not within:
                names = (each for target in targets for each in ast.walk(target))
                yield from ((each.id, "name") for each in names if isinstance(each, ast.Name))
            case ast.AnnAssign(target=ast.Name(id=name)) if not within:
                yield name, "name"
            case ast.If() | ast.Try() if not within:
                blocks = [node.body, node.orelse, *([each.body for each in node.handlers] if isinstance(node, ast.Try) else [])]
                yield from (each for block in blocks for each in _offered(block))


def not_offered_alike(before: Tree, after: Tree) -> str:
    """What of the public names and signatures is not as it was; empty where all is."""
    was, became = offered(before), offered(after)
    for name in [*was, *became]:
        if was.get(name) != became.get(name):
            return f"{name}{was.get(name, ' was not there')} is now {became.get(name, 'gone')}"
    return ""


def hiding(before: Tree, after: Tree) -> str:
    """By what the code hides from whoever reads it more than it did; empty where by nothing."""
    was, became = _hides(before), _hides(after)
    more = [name for name in became if became[name] > was[name]]
    return f"{more[0]!r} is used where it was not" if more else ""


def _hides(tree: Tree) -> Counter[str]:
    found = Counter[str]()
    for path in tree.sources:
        text = tree.text(path)
        found.update(match[1].lower() for match in _SILENCES.finditer(text))
        for node in ast.walk(ast.parse(text)):
            match node:
                case ast.Name(id=name) | ast.Attribute(attr=name):
                    found.update({name} & _HIDES)
                case ast.alias(name=name):
                    found.update(set(name.split(".")) & _HIDES)
                case ast.ImportFrom(module=str(name)):
                    found.update(set(name.split(".")) & _HIDES)
    return found


def unparsable(tree: Tree) -> str:
    """The first file of the code that is no Python; empty where all are."""
    for path in tree.sources:
        try:
            ast.parse(tree.text(path))
        except (SyntaxError, ValueError, RecursionError, MemoryError) as error:
            return f"{path} is no Python: {error}"
    return ""


def tangled(tree: Tree) -> dict[tuple[str, str], int]:
    """The complexity of each function, by file and dotted name; of what stands in no function under an empty name.

    A lambda counts for the function that it stands in.
    """
    found: dict[tuple[str, str], int] = {}
    for path in tree.sources:
        parsed = ast.parse(tree.text(path))
        for name, node in (("", parsed), *functions(parsed)):
            lambdas = (each for each in _within(node) if isinstance(each, ast.Lambda))
            own = complexity(node)  # type: ignore[arg-type]  # a module is counted as a function is
            found[path, name] = max(found.get((path, name), 0), own + sum(complexity(each) - 1 for each in lambdas))  # type: ignore[arg-type]
    return found


def _within(node: ast.AST) -> Iterator[ast.AST]:
    """All below it that is in no function or class of its own."""
    for child in ast.iter_child_nodes(node):
        if not isinstance(child, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
            yield child
            yield from _within(child)


def more_tangled(before: Mapping[tuple[str, str], int], after: Mapping[tuple[str, str], int], most: int) -> str:
    """Which function became worse than it was, or, where it is new, worse than `most`; empty where none did."""
    for (path, name), value in after.items():
        allowed = before.get((path, name), most)
        if value > allowed:
            return f"{name or 'the module'} in {path} has a complexity of {value}, and {allowed} is the most"
    return ""
