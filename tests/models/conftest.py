from collections.abc import Iterator

import pytest

from tests.support.llm_server import LLMServer, serving


@pytest.fixture(scope="session")
def running() -> Iterator[LLMServer]:
    with serving() as state:
        yield state


@pytest.fixture
def server(running: LLMServer) -> LLMServer:
    running.reset()
    return running


@pytest.fixture(autouse=True)
def no_keys(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("OPENAI_API_KEY", "OPENAI_BASE_URL", "OPENAI_ORG_ID", "OPENAI_PROJECT_ID"):
        monkeypatch.delenv(name, raising=False)
