import json
import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from journeyman.core.errors import InputError, MissingExtra, ModelError
from journeyman.core.installation import installing
from journeyman.io.http_server import listen
from journeyman.optimizers.weights import llamacpp
from journeyman.optimizers.weights.hosting import OllamaHostingProfile
from journeyman.optimizers.weights.llamacpp import launch, serve
from tests.support.ggufs import gguf
from tests.support.llama_servers import llama_server
from tests.support.processes import is_alive

PROFILE = OllamaHostingProfile(num_parallel=3, num_ctx=256, num_thread=1)


@pytest.fixture
def weights(tmp_path: Path) -> Path:
    return gguf(tmp_path / "tiny.gguf")


@pytest.fixture
def on_path(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[[str], None]:
    """Puts a llama-server on the PATH, which first does what it is told."""

    def put(first: str = "") -> None:
        folder = llama_server(tmp_path / "bin", first)
        monkeypatch.setenv("PATH", f"{folder}{os.pathsep}{os.environ['PATH']}")

    put()
    return put


def gone(pid: int, seconds: float = 10.0) -> bool:
    until = time.monotonic() + seconds
    while is_alive(pid) and time.monotonic() < until:
        time.sleep(0.02)
    return not is_alive(pid)


@pytest.mark.usefixtures("on_path")
def test_llama_server_on_the_path_is_taken_and_told_the_profile(weights: Path) -> None:
    with serve(weights, PROFILE, model="agent") as served:
        assert (served.program, served.model, served.reply) == ("llama-server", "agent", "you said Say hello.")
        assert served.log == weights.with_suffix(".log")
        told = json.loads(served.log.read_text().partition("arguments: ")[2].splitlines()[0])
    assert (told["--ctx-size"], told["--parallel"], told["--threads"]) == ("768", "3", "1")
    assert told["--host"] == "127.0.0.1"
    assert gone(served.pid)


@pytest.mark.usefixtures("on_path")
def test_the_server_ends_with_the_block_whatever_happens_in_it(weights: Path) -> None:
    with pytest.raises(ZeroDivisionError), serve(weights, PROFILE) as served:
        raise ZeroDivisionError
    assert gone(served.pid)


@pytest.mark.service
def test_a_server_that_does_not_listen_to_reason_is_ended_all_the_same(
    weights: Path, on_path: Callable[[str], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(llamacpp, "GRACE", 0.3)
    on_path("import signal; signal.signal(signal.SIGTERM, signal.SIG_IGN)")
    with serve(weights, PROFILE) as served:
        pass
    assert gone(served.pid)


def test_a_server_that_ends_says_why(weights: Path, on_path: Callable[[str], None]) -> None:
    on_path("print('error: unknown architecture', flush=True); sys.exit(3)")
    with pytest.raises(ModelError, match=r"llama-server ended with exit code 3 \(its log, .*: error: unknown architecture\)"):
        launch(weights, PROFILE).wait()


def test_a_server_that_is_killed_says_so(weights: Path, on_path: Callable[[str], None]) -> None:
    on_path("import os; os.kill(os.getpid(), 9)")
    with pytest.raises(ModelError, match="ended by signal 9"):
        launch(weights, PROFILE).wait()


def test_a_server_that_never_answers_is_given_up(weights: Path, on_path: Callable[[str], None]) -> None:
    on_path("time.sleep(60)")
    started = launch(weights, PROFILE)
    with pytest.raises(ModelError, match=r"did not answer within 0.3 s"):
        started.wait(0.3)
    started.stop()
    assert gone(started.process.pid)


@pytest.mark.usefixtures("on_path")
def test_a_port_that_is_taken_is_refused_before_anything_starts(weights: Path) -> None:
    with listen("127.0.0.1", 0) as taken:
        taken.listen()
        with pytest.raises(InputError, match="choose another --port"):
            launch(weights, PROFILE, port=taken.getsockname()[1])
    assert not weights.with_suffix(".log").exists()


def test_what_is_no_gguf_file_is_refused(tmp_path: Path) -> None:
    (tmp_path / "model.gguf").write_bytes(b"PK")
    with pytest.raises(InputError, match="is no GGUF file"):
        launch(tmp_path / "model.gguf", PROFILE)
    with pytest.raises(InputError, match="there is no file"):
        launch(tmp_path / "none.gguf", PROFILE)


def test_without_llama_cpp_it_says_what_to_install(weights: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", "")
    monkeypatch.setattr(llamacpp, "find_spec", lambda name: None)
    with pytest.raises(MissingExtra, match=re.escape(installing("gguf"))):
        launch(weights, PROFILE)


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="only Linux ends a child with its parent")
@pytest.mark.usefixtures("on_path")
def test_a_server_does_not_outlive_a_parent_that_is_killed(weights: Path) -> None:
    code = (
        "import sys, time\nfrom journeyman.optimizers.weights.llamacpp import serve\n"
        f"with serve({str(weights)!r}) as served:\n    print(served.pid, flush=True)\n    time.sleep(60)"
    )
    with subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE, text=True) as parent:
        assert parent.stdout is not None
        pid = int(parent.stdout.readline())
        assert is_alive(pid)
        parent.send_signal(signal.SIGKILL)
    assert gone(pid)


@pytest.mark.usefixtures("on_path")
def test_a_server_that_is_left_running_is_found_and_stopped_by_name(weights: Path, tmp_path: Path) -> None:
    folder = tmp_path / "servers"
    started = launch(weights, PROFILE, model="me/agent", detached=True)
    kept = llamacpp.keep(started.wait(), weights, folder)
    assert list(llamacpp.running(folder)) == [kept]
    assert llamacpp.stop(folder, "another") is None
    assert llamacpp.stop(folder, "me/agent") == kept
    assert gone(kept.pid)
    started.process.wait()
    assert list(folder.iterdir()) == []


@pytest.mark.usefixtures("on_path")
def test_a_process_that_got_the_number_of_a_server_is_left_alone(weights: Path, tmp_path: Path) -> None:
    folder = tmp_path / "servers"
    started = launch(weights, PROFILE, detached=True)
    kept = llamacpp.keep(started.wait(), weights, folder)
    path = next(folder.iterdir())
    path.write_text(path.read_text().replace(f'"{kept.started}"', '"1"'))
    assert llamacpp.stop(folder, kept.model) is None
    assert is_alive(kept.pid)
    started.stop()


@pytest.mark.parametrize(
    "text", ["", "[]", "{", '{"pid": 0}', '{"model":"a","url":"","pid":-1,"started":null,"gguf":"","log":""}']
)
def test_a_note_that_is_none_is_cleared_away(tmp_path: Path, text: str) -> None:
    (tmp_path / "a.json").write_text(text)
    assert list(llamacpp.running(tmp_path)) == []
    assert list(tmp_path.iterdir()) == []
