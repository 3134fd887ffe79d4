"""The same suite as an ordinary user, when we are root."""

import json

import pytest

from tests.support.stranger import stranger


@pytest.mark.attacks
@pytest.mark.usefixtures("only_audit")
@pytest.mark.parametrize("name", ["bubblewrap", "landlock"])
def test_every_attack_is_stopped_for_an_ordinary_user_too(name: str) -> None:
    with stranger() as user:
        if user is None:
            pytest.skip("needs root, and a Python that everybody may run; without root the other tests are those of a user")
        done = user.run(["-m", "journeyman", "sandbox", "check", "--sandbox", name, "--json"])
    if done.returncode == 2:
        pytest.skip(done.stderr)
    assert done.stdout, (done.returncode, done.stderr[-3000:])
    told = json.loads(done.stdout.splitlines()[-1])
    assert told["not_stopped"] == []
    assert told["stopped"] == told["total"] >= 40
    assert done.returncode == 0
