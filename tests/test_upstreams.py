from pathlib import Path

import pytest

from journeyman.core.errors import InputError
from journeyman.experiments.settings import load


def said(folder: Path, text: str) -> set[str]:
    (folder / "journeyman.toml").write_text(text)
    with pytest.raises(InputError) as caught:
        load(folder, {})
    return set(str(caught.value).replace(f"{folder}/journeyman.toml", "F").split("; "))


def test_upstreams_are_read_in_the_order_of_the_file(tmp_path: Path) -> None:
    (tmp_path / "journeyman.toml").write_text(
        '[serve]\norder = ["b"]\n[upstreams.b]\nbase_url = "https://b.example/v1/"\nmodels = ["x-*"]\n'
        '[upstreams."a.1"]\nbase_url = "http://localhost:1"\napis = ["openai"]\nclient_key = true\n'
    )
    settings = load(tmp_path, {}).settings
    assert list(settings.upstreams) == ["b", "a.1"]
    assert settings.upstreams["b"].base_url == "https://b.example/v1"
    assert settings.upstreams["b"].models == ("x-*",)
    assert settings.upstreams["a.1"].client_key is True
    assert settings.serve.order == ("b",)


def test_what_is_wrong_with_an_upstream_is_named_with_its_line(tmp_path: Path) -> None:
    wrong = (
        '[upstreams.a]\nbase_ulr = "x"\n[upstreams.b]\nbase_url = "ftp://x"\nretries = 1.5\napis = ["opanai"]\n'
        "[serve]\nprot = 1\n"
    )
    assert said(tmp_path, wrong) == {
        "F:1: upstreams.a.base_url must be given",
        "F:2: there is no setting upstreams.a.base_ulr",
        "did you mean upstreams.a.base_url?",
        "F:4: upstreams.b.base_url: should be an address such as https://llm.example.org/v1",
        "F:5: upstreams.b.retries is 1.5, and must be a whole number",
        "F:6: upstreams.b.apis.0 is 'opanai', and must be 'openai' or 'anthropic'",
        "F:8: there is no setting serve.prot",
        "did you mean serve.port?",
    }


@pytest.mark.parametrize(
    ("variable", "owner"), [("OPENAI_API_KEY", "api.openai.com"), ("ANTHROPIC_API_KEY", "api.anthropic.com")]
)
def test_a_file_does_not_send_a_makers_key_elsewhere(tmp_path: Path, variable: str, owner: str) -> None:
    text = f'[upstreams.a]\nbase_url = "https://{{}}/v1"\nkey_env = "{variable}"\n'
    for fine in (owner, "localhost:8000", "127.0.0.1"):
        (tmp_path / "journeyman.toml").write_text(text.format(fine))
        assert load(tmp_path, {}).settings.upstreams["a"].key_env == variable
    for strange in ("llm.example.org", f"{owner}.example.org", f"localhost.example.org/{owner}"):
        (wrong,) = said(tmp_path, text.format(strange))
        assert wrong.startswith(f"F:1: upstreams.a: sends {variable}, the key of {owner}, to ")


def test_an_address_holds_no_credentials_and_an_error_does_not_quote_them(tmp_path: Path) -> None:
    (wrong,) = said(tmp_path, '[upstreams.a]\nbase_url = "https://me:hidden@h/v1"\n')
    assert "an address holds no credentials" in wrong
    assert "hidden" not in wrong
