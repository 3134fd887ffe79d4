"""What can be told of a repository's code without running it: what it offers, how tangled it is, and what it hides."""

import ast
import re
from collections import Counter
from collections.abc import Iterator, Mapping

from journeyman.rewards.development.code_measures import complexity
from journeyman.rewards.development.work import functions
from journeyman.tasks.repository.tree import Tree

_HIDES = frozenset(
    {"exec", "eval", "compile", "__import__", "importlib", "import_module", "marshal", "pickle", "ctypes", "runpy", "pkgutil"}
    | {"FunctionType", "CodeType", "LambdaType", "__code__", "__builtins__", "builtins", "settrace", "setprofile"}
    | {"_getframe", "globals", "modules", "subprocess", "multiprocessing", "popen", "fork", "posix_spawn", "system"}
)
"""Names by which code is run, or modules are imported, that do not stand there as such, or elsewhere than is looked at."""
_SILENCES = re.compile(r"#\s*(noqa|type:\s*ignore|pragma|pylint|nosec)\b", re.IGNORECASE)


def offered(tree: Tree) -> dict[str, str]:
    """What the modules of a repository offer, by dotted name: functions with their parameters, classes with their bases."""
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
            lambdas = sum(complexity(each) - 1 for each in _within(node) if isinstance(each, ast.Lambda))
            found[path, name] = max(found.get((path, name), 0), complexity(node) + lambdas)
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


def imports(tree: Tree) -> dict[str, frozenset[str]]:
    """Which modules of a repository each of them imports, late imports included, but not those for types alone."""
    modules = {tree.module_of(path): path for path in tree.sources}
    found: dict[str, frozenset[str]] = {}
    for module, path in modules.items():
        package = module if path.endswith("/__init__.py") else module.rpartition(".")[0]
        named = {each for node in _imported(ast.parse(tree.text(path))) for each in _names(node, package, modules)}
        found[module] = frozenset(named - {module})
    return found


def _imported(node: ast.AST) -> Iterator[ast.Import | ast.ImportFrom]:
    for child in ast.iter_child_nodes(node):
        if isinstance(child, ast.Import | ast.ImportFrom):
            yield child
        elif isinstance(child, ast.If) and "TYPE_CHECKING" in ast.unparse(child.test):
            yield from (each for other in child.orelse for each in _imported(other))
        else:
            yield from _imported(child)


def _names(node: ast.Import | ast.ImportFrom, package: str, modules: Mapping[str, str]) -> Iterator[str]:
    """The modules that an import names. Those that it comes by on the way are not what it is for."""
    if isinstance(node, ast.Import):
        yield from (each.name for each in node.names if each.name in modules)
        return
    parts = package.split(".")
    above = parts[: len(parts) - node.level + 1] if node.level else []
    module = ".".join([*above, *([node.module] if node.module else [])])
    for each in node.names:
        whole = f"{module}.{each.name}"
        if whole in modules:
            yield whole
        elif module in modules:
            yield module


def reached(graph: Mapping[str, frozenset[str]], start: str) -> frozenset[str]:
    """What a module imports, and what that imports, and so on."""
    found, waiting = set[str](), [start]
    while waiting:
        new = graph.get(waiting.pop(), frozenset()) - found
        found |= new
        waiting += new
    return frozenset(found)


def cycles(graph: Mapping[str, frozenset[str]]) -> frozenset[tuple[str, str]]:
    """Pairs of modules that reach each other."""
    all_reached = {module: reached(graph, module) for module in graph}
    return frozenset(
        (one, other) for one in graph for other in all_reached[one] if one < other and one in all_reached.get(other, ())
    )
