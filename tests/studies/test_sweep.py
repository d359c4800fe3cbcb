"""Sweeps: keys of the file, folders, tables and exit codes."""

from __future__ import annotations

import json
import shutil
import sys
from importlib.machinery import ModuleSpec
from pathlib import Path
from types import SimpleNamespace

import pandas as pd
import pytest

import headscope as hs
from headscope.errors import HeadscopeError, RunError
from headscope.studies.sweep import read_spec
from headscope.studies.sweep_folder import SweepFolder, counted_types
from tests.helpers.models import save_model
from tests.helpers.shell import headscope

COUNTS = counted_types()
BLANK = dict.fromkeys(("heads", *COUNTS), "")
SMALL = ["--types", "positional,delimiter", "--max-tokens", "2500", "-q"]
FILE = """\
models: [mini, EleutherAI/pythia-70m]
revisions: [step0, 1000]
corpora:
  - a.conllu
  - [b.conllu, c.txt]
types: [induction, positional]
max_tokens: 5000
challenge: false
"""


def test_a_file_gives_lists_and_settings_and_an_option_replaces_its_key(tmp_path):
    path = tmp_path / "stages.yaml"
    path.write_text(FILE)
    spec = read_spec(path, models=["mini", "mini"], revisions=None, max_tokens=7)
    assert spec.models == ("mini",)
    assert spec.revisions == ("step0", "1000")
    assert spec.corpora == (("a.conllu",), ("b.conllu", "c.txt"))
    assert spec.out == Path("runs/stages")
    assert spec.settings == {
        "types": ["induction", "positional"],
        "max_tokens": 7,
        "challenge": False,
    }


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("models: [mini]\nmax_token: 5", "no argument named 'max_token' (is max_tokens"),
        (
            "models: [mini]\ncorpora: [a.txt, []]",
            "corpora is a value of type list; it should",
        ),
        ("seed: 1", "models is an empty tuple"),
        ("- mini", "no sweep in YAML, keys with values"),
        ("models: [mini]\nseed: 1\nmodels: [gpt2]", "models comes twice"),
        ("models: " + "[" * 100_000, "no sweep in YAML"),
        ("", "no sweep in YAML"),
        ("models: !!python/object/apply:os.system [ls]", "could not determine a constructor"),
    ],
)
def test_an_invalid_key_is_named_with_the_file_and_the_expected_value(tmp_path, text, message):
    path = tmp_path / "bad.yaml"
    path.write_text(text)
    with pytest.raises(HeadscopeError) as error:
        read_spec(path)
    assert str(error.value).startswith(f"{path}: ")
    assert message in str(error.value)


@pytest.fixture(scope="module")
def checkpoints(tokenizer, tmp_path_factory) -> Path:
    """A folder of checkpoints, as training leaves them."""
    folder = tmp_path_factory.mktemp("training")
    for step, spread in ((100, 0.2), (20, 0.4)):
        save_model("gpt2", tokenizer, folder / f"step{step}", spread=spread)
    return folder


@pytest.fixture(scope="module")
def swept(checkpoints, tmp_path_factory) -> Path:
    """A sweep of two checkpoints that exist and one that does not."""
    folder = tmp_path_factory.mktemp("sweeps") / "sweep"
    file = folder.parent / "sweep.yaml"
    file.write_text(f"models: {checkpoints}\nrevisions: [step100, step20, step7]\nout: {folder}\n")
    done = headscope("sweep", "run", file, *SMALL)
    assert done.returncode == 1, done.stderr
    return folder


def statuses(folder: Path) -> list[str]:
    return [cell.status for cell in SweepFolder.read(folder).cells.values()]


def test_each_cell_is_a_run_folder_and_a_row(swept, checkpoints):
    table = pd.read_csv(swept / "sweep.csv", keep_default_na=False, na_values=BLANK)
    cell = "model revision corpus folder status heads".split()
    assert list(table.columns) == [*cell, *COUNTS, "error"]
    assert table["revision"].tolist() == ["step100", "step20", "step7"]
    assert table["status"].tolist() == statuses(swept) == ["complete", "complete", "failed"]
    assert table["model"].unique().tolist() == [checkpoints.name]
    for row in table[table["status"] == "complete"].itertuples():
        run = hs.load(swept / row.folder)
        assert run.info["model"]["name"] == row.revision
        held = run.heads["tags"].str.split(";")
        assert row.heads == len(run.heads) == 8
        for name in ("positional", "delimiter"):
            assert getattr(row, name) == sum(name in each for each in held)
        assert row.unclassified == (run.heads["primary"] == "unclassified").sum()


def test_a_type_for_which_the_text_has_no_queries_is_blank_in_a_sweep(checkpoints, tmp_path):
    """Plain text has no trees and no mentions: 0 heads for objects would be a false result."""
    (tmp_path / "plain.txt").write_text("She saw the old keys again, and told them so. " * 40)
    swept = hs.sweep(
        models=[str(checkpoints)],
        revisions=["step20"],
        corpora=[tmp_path / "plain.txt"],
        out=tmp_path / "sweep",
        max_tokens=300,
    )
    (row,) = swept.table.to_dict("records")
    assert not pd.isna([row["positional"], row["induction"]]).any()
    assert pd.isna([row["syntactic"], row["coreference"]]).all()


def test_a_cell_is_what_classify_writes(swept, checkpoints, tmp_path):
    hs.classify(
        str(checkpoints / "step20"),
        types=["positional", "delimiter"],
        max_tokens=2500,
        out=tmp_path / "run",
    )
    cells = SweepFolder.read(swept).cells.values()
    (cell,) = (cell for cell in cells if cell.revision == "step20")
    for name in ("evidence.csv.gz", "heads.csv"):
        assert (swept / cell.folder / name).read_bytes() == (tmp_path / "run" / name).read_bytes()


def test_the_same_command_resumes(swept, checkpoints, tmp_path):
    out = tmp_path / "sweep"
    shutil.copytree(swept, out)
    first, second, _ = SweepFolder.read(out).cells
    shutil.rmtree(out / second)
    before = (out / first / "run.json").stat().st_mtime_ns
    asked = ("--models", checkpoints, "--revisions", "step100,step20")
    done = headscope("sweep", "run", *asked, "--out", out, *SMALL)
    assert done.returncode == 0, done.stderr
    assert (out / first / "run.json").stat().st_mtime_ns == before
    assert (out / second / "heads.csv").read_bytes() == (swept / second / "heads.csv").read_bytes()
    # runs of an earlier command stay in the table
    assert statuses(out) == ["complete", "complete", "failed"]


def test_a_folder_with_other_settings_or_other_files_is_refused(swept, checkpoints, tmp_path):
    with pytest.raises(RunError, match="settings"):
        hs.sweep(models=[str(checkpoints)], max_tokens=5, out=swept)
    (tmp_path / "thesis.tex").write_text("precious")
    with pytest.raises(RunError, match=str(tmp_path)):
        hs.sweep(models=["mini"], out=tmp_path)


def test_a_damaged_sweep_is_refused_and_leads_nowhere_else(swept, tmp_path):
    with pytest.raises(RunError, match=str(tmp_path)):
        hs.emergence(tmp_path)
    plan = json.loads((swept / "sweep.json").read_text())
    for folder in ("../elsewhere", "..", "", "/tmp"):
        plan["cells"][0]["folder"] = folder
        (tmp_path / "sweep.json").write_text(json.dumps(plan))
        with pytest.raises(RunError, match="outside"):
            hs.emergence(tmp_path)
    (tmp_path / "sweep.json").write_text("[]")
    with pytest.raises(RunError, match=str(tmp_path)):
        hs.emergence(tmp_path)


def test_cells_of_one_name_get_folders_of_their_own(tmp_path):
    spec = read_spec(
        None,
        models=["a/gpt", "b/gpt", "x.gguf"],
        corpora=["c/x.txt", "d/x.txt"],
        out=str(tmp_path / "new"),
    )
    cells = SweepFolder.open(Path(spec.out), {}).plan(spec.models, (None,), spec.corpora)
    folders = [cell.folder for cell in cells]
    assert folders == ["gpt_x", "gpt_x-2", "gpt_x-3", "gpt_x-4", "x_x", "x_x-2"]


@pytest.mark.slow
def test_two_processes_write_the_same_bytes_as_one(gpt2_folder, story, tmp_path):
    corpora = sorted(str(path) for path in Path(story).glob("*.txt"))
    options = {"models": [str(gpt2_folder)], "corpora": corpora, "types": ["positional"]}
    one = hs.sweep(**options, out=tmp_path / "one", max_tokens=1500).table
    two = hs.sweep(**options, out=tmp_path / "two", max_tokens=1500, workers=2).table
    assert two["status"].tolist() == ["complete"] * len(corpora)
    pd.testing.assert_frame_equal(two, one)
    for folder in one["folder"]:
        for file in ("evidence.csv.gz", "heads.csv"):
            paths = [tmp_path / name / folder / file for name in ("one", "two")]
            assert paths[0].read_bytes() == paths[1].read_bytes(), file


def test_a_cluster_that_cannot_be_used_is_named(tmp_path, monkeypatch):
    def refuse(**options: object) -> None:
        assert options["address"] == "10.0.0.9:6379"
        raise ConnectionError("no such cluster")

    monkeypatch.setitem(
        sys.modules, "ray", SimpleNamespace(init=refuse, __spec__=ModuleSpec("ray", None))
    )
    options = {"models": ["mini", "mini2"], "corpora": ["gold"], "out": tmp_path / "out"}
    with pytest.raises(HeadscopeError, match=r"10\.0\.0\.9:6379"):
        hs.sweep(**options, address="10.0.0.9:6379", progress=False)
