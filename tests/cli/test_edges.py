"""The edges of the command line: its names, its version, help, completion, capitals, encodings."""

from __future__ import annotations

import inspect
import os
import subprocess
import sys
from importlib.metadata import version as installed
from pathlib import Path

import pytest
from typer.testing import CliRunner

import headscope
from headscope import cli
from headscope.cli import complete
from headscope.cli.app import WORDS
from headscope.corpus.read import read_corpus
from tests.helpers.studies import FUNCTIONS

ROOT = Path(__file__).parents[2]
GROUPS = sorted({words[:1] for words in WORDS.values() if len(words) > 1})
VERSION = installed("headscope")


def told(*arguments: object, **more: object):
    return CliRunner().invoke(cli.app, list(map(str, arguments)), **more)


@pytest.mark.parametrize("command", [(), *GROUPS, *WORDS.values()], ids=" ".join)
def test_h_is_help_everywhere(command):
    given = list(command)
    short = told(*given, "-h")
    assert short.exit_code == 0
    assert "Usage:" in short.stdout
    assert short.stdout == told(*given, "--help").stdout


def test_the_module_is_the_command_and_both_say_the_version():
    done = subprocess.run(
        [sys.executable, "-m", "headscope", "--version"],
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.stdout == f"headscope {VERSION}\n"
    assert headscope.__version__ == VERSION
    assert "__version__" in dir(headscope)


def completed(line: str, cwd: Path) -> list[str]:
    """What bash is offered for the last word of a line."""
    words = line.split(" ")
    done = subprocess.run(
        [sys.executable, "-c", "from headscope.cli import main; import sys; sys.argv[0] = 'headscope'; main()"],
        env=os.environ | {"_HEADSCOPE_COMPLETE": "complete_bash", "COMP_WORDS": line,
                          "COMP_CWORD": str(len(words) - 1), "_TYPER_COMPLETE_ARGS": line},
        cwd=cwd, capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert done.stderr == ""
    return done.stdout.split()


@pytest.fixture
def desk(tmp_path: Path) -> Path:
    for run in ("runs/first", "runs/second"):
        (tmp_path / run).mkdir(parents=True)
        (tmp_path / run / "run.json").write_text("{}")
    (tmp_path / "models").mkdir()
    (tmp_path / "tiny.GGUF").write_text("")
    (tmp_path / "notes.md").write_text("")
    return tmp_path


def test_tab_offers_runs_models_and_types(desk):
    models = ["mini", "smollm2", "minilm", "models", "runs", "tiny.GGUF"]
    models_and_runs = [*models, "runs/first", "runs/second"]
    assert completed("headscope why ", desk) == models_and_runs
    assert completed("headscope heads ", desk) == ["runs/first", "runs/second"]
    assert completed("headscope heads runs/s", desk) == ["runs/second"]
    assert completed("headscope why atl", desk) == ["atlas:mini", "atlas:smollm2", "atlas:minilm"]
    assert completed("headscope classify m", desk) == ["mini", "minilm", "models"]
    assert completed("headscope dr", desk) == ["draw"]
    assert completed("headscope draw a", desk) == ["atlas"]
    assert completed("headscope atl", desk) == []
    assert completed("headscope sweep ", desk) == ["run", "languages", "emergence"]
    assert completed("headscope study weights t", desk) == ["tiny.GGUF"]
    assert completed("headscope classify t", desk) == ["tiny.GGUF"]
    assert completed("headscope classify mini --types positional,in", desk) == [
        "positional,induction"
    ]


def test_what_tab_offers_is_what_there_is():
    from headscope.runs.atlas import PREFIX, atlas_names
    from headscope.runs.folder import RUN

    assert complete.RUN_FILE == RUN
    assert complete.runs("atlas:") == [f"{PREFIX}{name}" for name in ("mini", "smollm2", "minilm")]
    assert sorted(complete.runs("atlas:m")) == [
        f"{PREFIX}{n}" for n in atlas_names() if n[0] == "m"
    ]


def test_corpora_may_be_named_in_capitals(keys_file, tmp_path):
    folder = tmp_path / "loud"
    folder.mkdir()
    (folder / "KEYS.CONLLU").write_bytes(keys_file.read_bytes())
    (folder / "NOTES.TXT").write_text("Plain words.")
    assert [word.form for word in read_corpus(folder / "KEYS.CONLLU")[0].words][:2] == [
        "Anna",
        "told",
    ]
    assert read_corpus(folder / "NOTES.TXT")[0].words[0].form == "Plain"
    assert len(read_corpus(folder)) == len(read_corpus(keys_file))


def test_a_gguf_file_may_be_named_in_capitals(tmp_path):
    from headscope.models.load import load_model

    (tmp_path / "TINY.GGUF").write_bytes(b"GGUF")
    with pytest.raises(headscope.HeadscopeError) as refused:
        load_model(str(tmp_path / "TINY.GGUF"))
    assert "a model is a folder" not in str(refused.value)  # taken for what it is: a damaged GGUF


def test_make_installs_no_system_package_unasked(tmp_path):
    """A python3 without venv ends `make demo` with advice; apt-get is never called."""
    (tmp_path / "python3").write_text("#!/bin/sh\nexit 1\n")
    (tmp_path / "apt-get").write_text(f"#!/bin/sh\ntouch {tmp_path}/called\n")
    for name in ("python3", "apt-get"):
        (tmp_path / name).chmod(0o755)
    done = subprocess.run(
        ["make", "demo", f"VENV={tmp_path}/venv"], cwd=ROOT, capture_output=True, text=True,
        env=os.environ | {"PATH": f"{tmp_path}{os.pathsep}{os.environ['PATH']}"}, check=False,
    )  # fmt: skip
    assert done.returncode != 0
    assert "apt-get install python3-venv" in done.stderr
    assert not (tmp_path / "called").exists()
    assert sorted(path.name for path in tmp_path.iterdir()) == ["apt-get", "python3"]


LOADS_A_RUN_S_MODEL = {"ablate", "patch", "redundancy"}


def test_wherever_a_model_is_loaded_its_device_and_revision_can_be_said():
    """A run has its own revision; a sweep has revisions."""
    for name, function in FUNCTIONS.items():
        taken = inspect.signature(function).parameters
        if "model" in taken and name != "anatomy":  # reads no weights
            assert {"device", "revision"} <= taken.keys(), name
        if name in LOADS_A_RUN_S_MODEL:
            assert "device" in taken, name
