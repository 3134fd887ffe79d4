from collections.abc import Iterator

import pytest

from tests.support.gateways import Running, gateway
from tests.support.upstream import Upstream, upstream


@pytest.fixture
def up() -> Iterator[Upstream]:
    with upstream() as server:
        yield server


@pytest.fixture
def other() -> Iterator[Upstream]:
    with upstream() as server:
        yield server


@pytest.fixture
def running(up: Upstream) -> Iterator[Running]:
    with gateway(up.url) as served:
        yield served
