"""Runs the code in a process that was forked for it, as `python main.py` would."""

import ast
import atexit
import builtins
import errno
import gc
import importlib
import io
import linecache
import os
import shutil
import signal
import sys
import threading
import traceback
from collections.abc import Callable, Mapping
from types import CodeType, ModuleType, TracebackType
from typing import Any, NoReturn

from . import tools

HINTS = {
    errno.ENOSPC: "disk",
    errno.EFBIG: "file_size",
    errno.EMFILE: "open_files",
    errno.EAGAIN: "processes",
    errno.ENOMEM: "memory",
}
"""What an uncaught error says about the limit that caused it. The supervisor takes it for what it is: word from the code."""
end = os._exit
"""As it was before the code came, which may put something else in its place."""


def run(job: Mapping[str, Any], connection: tools.ToolConnection) -> NoReturn:
    """Run a job in the working folder and end the process with its exit code."""
    own_modules = set(sys.modules)
    _fresh_streams()
    try:
        code = _run_job(job, connection)
    except BaseException:  # noqa: BLE001 - the process's own boundary: a hook of the code raised, or nothing could be executed
        write_traceback()
        code = 1
    _finish(code, own_modules)


def write_traceback() -> None:
    """Say the error that is handled, past streams that may be the code's by now."""
    os.write(2, traceback.format_exc().encode(errors="backslashreplace"))


def _run_job(job: Mapping[str, Any], connection: tools.ToolConnection) -> int:
    _reseed()
    tools.install(connection, job["tools"])
    match job["kind"]:
        case "command":
            _execute_command(job)
        case "pytest":
            return _pytest(job["main"], job["arguments"])
        case "session":
            return _session(connection)
    return _python(job["main"], job["arguments"], connection)


def check(job: Mapping[str, Any]) -> None:
    """Raises `LookupError` where what runs the job is not installed, or does not work: no code is to blame for that."""
    if job["kind"] == "command":
        command(job)
    elif job["kind"] == "pytest":
        try:
            importlib.import_module("pytest")
        except ImportError as error:
            raise LookupError(f"pytest is missing: pip install 'journeyman[code]' ({error})") from error


def command(job: Mapping[str, Any]) -> list[str]:
    """What to execute, found on the path as it is within the walls.

    Raises:
        LookupError: None of the interpreters is there.
    """
    for program, *options in job["commands"]:
        if (found := shutil.which(program)) is not None:
            return [found, *options, job["main"], *job["arguments"]]
    raise LookupError(f"{' or '.join(each[0] for each in job['commands'])} is not installed on {os.environ['PATH']}")


def _execute_command(job: Mapping[str, Any]) -> NoReturn:
    signal.signal(signal.SIGPIPE, signal.SIG_DFL)
    signal.signal(signal.SIGXFSZ, signal.SIG_DFL)
    words = command(job)
    os.execv(words[0], words)  # noqa: S606 - no shell is wanted between


def _fresh_streams() -> None:
    """Streams of this process's own: what the parent's hold belongs to the parent."""
    for fd, (name, mode) in enumerate((("stdin", "r"), ("stdout", "w"), ("stderr", "w"))):
        buffered = open(fd, f"{mode}b", closefd=False)  # noqa: SIM115 - lives as long as the process
        errors = "backslashreplace" if name == "stderr" else "surrogateescape"
        stream = io.TextIOWrapper(buffered, encoding="utf-8", errors=errors, line_buffering=name == "stderr")
        setattr(sys, name, stream)
        setattr(sys, f"__{name}__", stream)


def _reseed() -> None:
    """A fork has its parent's chance, and every run would draw the same."""
    if "random" in sys.modules:
        sys.modules["random"].seed()
    if "numpy.random" in sys.modules:
        sys.modules["numpy.random"].seed()


def _main_module(path: str) -> ModuleType:
    main = ModuleType("__main__")
    main.__dict__.update(__builtins__=builtins, __file__=path, __annotations__={}, __cached__=None)
    main.__doc__ = None
    sys.modules["__main__"] = main
    sys.path.insert(0, os.getcwd())
    return main


def _python(name: str, arguments: list[str], connection: tools.ToolConnection) -> int:
    path = os.path.join(os.getcwd(), name)
    sys.argv[:] = [name, *arguments]
    main = _main_module(path)
    try:
        with open(path, "rb") as file:
            code = compile(file.read(), path, "exec", dont_inherit=True)
        exec(code, main.__dict__)  # noqa: S102 - what this program is for
    except BaseException as error:  # noqa: BLE001 - the interpreter's own boundary
        return _exit_code(error, connection, _as_the_interpreter)
    return 0


def _pytest(name: str, arguments: list[str]) -> int:
    os.environ["PYTEST_DISABLE_PLUGIN_AUTOLOAD"] = "1"
    import pytest

    sys.argv[:] = ["pytest", name, *arguments]
    sys.path.insert(0, os.getcwd())
    return int(pytest.main(["-p", "no:cacheprovider", *arguments, name]))


def _session(connection: tools.ToolConnection) -> int:
    """Execute what comes until the line is closed."""
    namespace = _main_module("<session>").__dict__
    del namespace["__file__"]
    count = 0
    while True:
        try:
            message = connection.receive()
        except (EOFError, OSError):
            return 0
        count += 1
        tools.install(connection, message["tools"])
        try:
            _execute(message["code"], f"<call {count}>", namespace)
            code = 0
        except BaseException as error:  # noqa: BLE001 - the interpreter's own boundary
            code = _exit_code(error, connection, traceback.print_exception)
        sys.stdout.flush()
        sys.stderr.flush()
        connection.send({"done": code})


def _execute(source: str, name: str, namespace: dict[str, Any]) -> None:
    linecache.cache[name] = (len(source), None, source.splitlines(keepends=True), name)
    tree = ast.parse(source, name)
    last = tree.body.pop() if tree.body and isinstance(tree.body[-1], ast.Expr) else None
    exec(_compiled(tree, name), namespace)  # noqa: S102 - what this program is for
    if isinstance(last, ast.Expr):
        sys.displayhook(eval(_compiled(ast.Expression(last.value), name), namespace))  # noqa: S307


def _compiled(tree: ast.Module | ast.Expression, name: str) -> CodeType:
    code: CodeType = compile(tree, name, "eval" if isinstance(tree, ast.Expression) else "exec", dont_inherit=True)
    return code


def _exit_code(error: BaseException, connection: tools.ToolConnection, show: Callable[[BaseException], None]) -> int:
    """The exit code of a program that ended so, after it was said on stderr."""
    if isinstance(error, SystemExit):
        if error.code is None or isinstance(error.code, int):
            return (error.code or 0) & 0xFF
        print(error.code, file=sys.stderr)  # noqa: T201 - as the interpreter does
        return 1
    error.__traceback__ = _of_the_code(error.__traceback__)
    show(error)
    hint = "memory" if isinstance(error, MemoryError) else HINTS.get(getattr(error, "errno", None) or 0)
    if isinstance(error, RuntimeError) and "can't start new thread" in str(error):
        hint = "processes"
    if hint:
        connection.send({"hint": hint})
    return 1


def _as_the_interpreter(error: BaseException) -> None:
    sys.excepthook(type(error), error, error.__traceback__)
    if isinstance(error, KeyboardInterrupt):
        sys.stdout.flush()
        signal.signal(signal.SIGINT, signal.SIG_DFL)
        os.kill(os.getpid(), signal.SIGINT)


def _of_the_code(trace: TracebackType | None) -> TracebackType | None:
    """The traceback without the frames of this file."""
    while trace and trace.tb_frame.f_code.co_filename == __file__:
        trace = trace.tb_next
    return trace


def _finish(code: int, own_modules: set[str]) -> NoReturn:
    """End as the interpreter does: threads, exit handlers, the code's own objects (a file left open is written), streams.

    Not by leaving `main`: taking down the many warm modules would cost more than the run.
    """
    threading._shutdown()  # type: ignore[attr-defined]
    atexit._run_exitfuncs()
    for name in ["__main__", *(set(sys.modules) - own_modules)]:
        module = sys.modules.get(name)
        if name == "__main__" or str(getattr(module, "__file__", None)).startswith(os.getcwd()):
            vars(module).clear()
    gc.collect()
    for stream in (sys.stdout, sys.stderr):
        try:
            stream.flush()
        except (OSError, ValueError, AttributeError):
            code = code or 120
    end(code)
