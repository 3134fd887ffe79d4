from pathlib import Path

import pytest

from journeyman.core.errors import InputError
from journeyman.experiments.settings import Project, Settings, load


def project(folder: Path, text: str) -> Project:
    (folder / "journeyman.toml").write_text(text)
    return load(folder, {})


def test_without_a_file_every_setting_has_its_default_and_paths_start_here(tmp_path: Path) -> None:
    found = load(tmp_path, {})
    assert found == Project(root=tmp_path, settings=Settings(), file=None)
    assert found.store_url == f"sqlite:///{tmp_path}/.journeyman/journeyman.db"
    assert found.artifacts == tmp_path / ".journeyman" / "artifacts"


def test_the_nearest_file_upwards_counts_and_its_folder_is_where_paths_start(tmp_path: Path) -> None:
    (tmp_path / "journeyman.toml").write_text('[store]\nurl = "data/x.db"\n[gate]\nalpha = 0.1\nmin_gain = 0\n')
    below = tmp_path / "a" / "b"
    below.mkdir(parents=True)
    found = load(below, {})
    assert found.store_url == f"sqlite:///{tmp_path}/data/x.db"
    assert found.settings.gate.alpha == 0.1
    assert found.settings.playbook == Settings().playbook
    assert found.file == tmp_path / "journeyman.toml"


@pytest.mark.parametrize(
    ("url", "opened"),
    [
        ("sqlite:///x.db", "sqlite:///{root}/x.db"),
        ("sqlite:////srv/x.db", "sqlite:////srv/x.db"),
        ("/srv/x.db", "sqlite:////srv/x.db"),
        ("memory:", "memory:"),
        ("postgresql://me@h/x", "postgresql://me@h/x"),
    ],
)
def test_a_store_is_named_by_path_or_url(tmp_path: Path, url: str, opened: str) -> None:
    assert project(tmp_path, f'store.url = "{url}"').store_url == opened.format(root=tmp_path)


def test_the_environment_names_the_store_and_nothing_shows_its_password(tmp_path: Path) -> None:
    found = load(tmp_path, {"JOURNEYMAN_STORE": "postgresql://me:secret@h/x"})
    assert found.store_url == "postgresql://me:secret@h/x"
    assert "secret" not in repr(found)


def test_all_that_is_wrong_is_named_at_once_with_its_line(tmp_path: Path) -> None:
    wrong = '[playbook]\nsimilarity_treshold = 0.9\nbatch_size = "ten"\n\nconcurrency = 0\n[gates]\nalpha = 1\n'
    with pytest.raises(InputError) as caught:
        project(tmp_path, wrong)
    file = tmp_path / "journeyman.toml"
    assert set(str(caught.value).split("; ")) == {
        f"{file}:2: there is no setting playbook.similarity_treshold",
        "did you mean playbook.similarity_threshold?",
        f"{file}:3: playbook.batch_size is 'ten', and must be a whole number",
        f"{file}:5: playbook.concurrency is 0, and must be at least 1",
        f"{file}:6: there is no setting gates",
        "did you mean gate?",
    }


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("[store]\nurl =\n", "is not TOML: .*line 2"),
        (f"x = {'[' * 2000}", "is not TOML: .*recursion"),
        ("store = 3\n", r"journeyman\.toml:1: store must be a table"),
        ("gate.alpha = nan\n", r"journeyman\.toml:1: gate\.alpha is nan, and must lie between 0 and 1"),
        ("when = 1979-05-27\n", "there is no setting when; did you mean"),
        ("playbook.batch_size = true\n", "batch_size is True, and must be a whole number"),
    ],
)
def test_a_file_that_cannot_be_used_says_why_and_where(tmp_path: Path, text: str, message: str) -> None:
    with pytest.raises(InputError, match=message):
        project(tmp_path, text)


@pytest.mark.parametrize("setting", ["generator", "reflector"])
def test_a_file_names_a_server_only_where_its_key_is_named_too(tmp_path: Path, setting: str) -> None:
    with pytest.raises(InputError, match=r"a server in a file stands in models\.base_url") as caught:
        project(tmp_path, f'[models]\n{setting} = "openai:m@https://models.example.com/v1"\n')
    assert str(caught.value).startswith(f"{tmp_path / 'journeyman.toml'}:2: models.{setting}: a server")
    for name in ("openai:m@https://api.openai.com/v1", "ollama:m@http://10.0.0.2:11434/v1", "gpt-5-mini", "nothing:such"):
        assert getattr(project(tmp_path, f'[models]\n{setting} = "{name}"\n').settings.models, f"{setting}_model") == name


def test_the_key_of_a_server_is_named_beside_it(tmp_path: Path) -> None:
    found = project(tmp_path, '[models]\nbase_url = "https://models.example.com/v1"\nkey_env = "THEIR_KEY"\n').settings.models
    assert (found.base_url, found.key_env) == ("https://models.example.com/v1", "THEIR_KEY")
    assert Settings().models.key_env == ""
    with pytest.raises(InputError, match=r"journeyman\.toml:2: models\.key_env") as caught:
        project(tmp_path, '[models]\nkey_env = "sk-the-key-itself"\n')
    assert "the-key-itself" not in str(caught.value)
