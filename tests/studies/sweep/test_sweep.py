"""Sweeps as their users see them: folders, tables, exit codes; then what emerges."""

from __future__ import annotations

import csv
import importlib.util
import io
import json
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pandas as pd
import pytest
from rich.console import Console
from typer.testing import CliRunner

import headscope as hs
from headscope.cli import app
from headscope.errors import ModelError, RunError
from headscope.statistics import early_stopping
from headscope.studies.sweep.counts import by_revision, complete_cells, step_of
from headscope.studies.sweep.spec import read_spec
from headscope.studies.sweep.sweep_cells import (
    PLAN,
    Cell,
    counted,
    counted_types,
    plan_cells,
    read_sweep_cells,
    where,
)
from headscope.studies.sweep.sweep_result import Emergence, sweep_lines
from headscope.views.summary import summary
from tests.helpers.models import save_model

COUNTS = counted_types()
BLANK = dict.fromkeys(("heads", *COUNTS), "")
SMALL = ["--types", "positional,delimiter", "--max-tokens", "2500", "-q"]


def headscope(*arguments: object):
    return CliRunner().invoke(app, [*map(str, arguments)], catch_exceptions=False)


@pytest.fixture(scope="module")
def checkpoints(tokenizer, tmp_path_factory) -> Path:
    """A folder of checkpoints, as training leaves them."""
    folder = tmp_path_factory.mktemp("training")
    for step, spread in ((100, 0.2), (20, 0.4)):
        save_model("gpt2", tokenizer, folder / f"step{step}", spread=spread)
    return folder


@pytest.fixture(scope="module")
def swept(checkpoints, tmp_path_factory) -> Path:
    """A sweep of two checkpoints that are there and one that is not."""
    folder = tmp_path_factory.mktemp("sweeps") / "sweep"
    file = folder.parent / "sweep.yaml"
    file.write_text(f"models: {checkpoints}\nrevisions: [step100, step20, step7]\nout: {folder}\n")
    done = headscope("sweep", "run", file, *SMALL)
    assert done.exit_code == 1, done.output
    (folder.parent / "stdout").write_text(done.stdout)
    return folder


def test_each_cell_is_a_run_folder_and_a_row(swept, checkpoints):
    table = pd.read_csv(swept / "sweep.csv", keep_default_na=False, na_values=BLANK)
    assert list(table.columns) == [
        "model", "revision", "corpus", "folder", "status", "heads", *COUNTS, "error",
    ]  # fmt: skip
    assert table["revision"].tolist() == ["step100", "step20", "step7"]
    assert table["status"].tolist() == ["complete", "complete", "failed"]
    assert table["model"].unique().tolist() == [checkpoints.name]
    for row in table[table["status"] == "complete"].itertuples():
        run = hs.load(swept / row.folder)
        assert run.info["model"]["name"] == row.revision
        held = run.heads["tags"].str.split(";")
        assert row.heads == len(run.heads) == 8
        for name in ("positional", "delimiter"):
            assert getattr(row, name) == sum(name in each for each in held)
        assert row.unclassified == (run.heads["primary"] == "unclassified").sum()


def test_what_was_not_asked_for_or_not_measured_is_blank_everywhere(swept, tmp_path):
    """The sweep asked for positional and delimiter heads; its third run failed."""
    asked = ["positional", "delimiter", "not identifiable", "unclassified"]
    others = [name for name in COUNTS if name not in asked]
    done, _, failed = csv.DictReader((swept / "sweep.csv").read_text().splitlines())
    assert all(done[name].isdigit() for name in ("heads", *asked))
    assert {done[name] for name in others} == {""}
    assert {failed[name] for name in ("heads", *COUNTS)} == {""}
    printed = (swept.parent / "stdout").read_text().splitlines()
    (header,) = (line for line in printed if line.startswith("run "))
    (row,) = (line for line in printed if "_step100 " in line)
    assert (
        header.split() == " ".join(["run", "heads", *asked]).split()
    )  # what nobody asked for is left out
    assert len(row.split()) == 2 + len(asked)
    out = tmp_path / "e.csv"
    shown = headscope("sweep", "emergence", swept, "--out", out)
    table = pd.read_csv(out)
    absent = table[table["type"].isin(others)]
    assert len(absent) == 2 * len(others)
    assert absent[["heads", "primary"]].isna().all().all()
    assert table.loc[table["type"].isin(asked), ["heads", "primary"]].notna().all().all()
    (line,) = (line for line in shown.stdout.splitlines() if line.startswith("step20 "))
    assert len(line.split()) == 2 + len(asked)
    (axes,) = Emergence(by_revision(read_sweep_cells(swept))).figure().axes
    assert [each.get_label() for each in axes.get_lines()] == ["positional", "delimiter"]


def test_a_type_for_which_the_text_has_no_queries_is_blank_in_a_sweep(checkpoints, tmp_path):
    """Plain text has no trees and no mentions: 0 heads for objects would be an answer to nothing."""
    (tmp_path / "plain.txt").write_text("She saw the old keys again, and told them so. " * 40)
    done = headscope(
        "sweep", "run", "--models", checkpoints, "--revisions", "step20", "--out", tmp_path / "sweep",
        "--corpus", tmp_path / "plain.txt", "--max-tokens", 300, "-q",
    )  # fmt: skip
    assert done.exit_code == 0, done.output
    (cell,) = read_sweep_cells(tmp_path / "sweep")
    assert {"positional", "induction"} <= cell.counts.keys()
    assert not {"syntactic", "coreference"} & cell.counts.keys()


def test_what_fails_is_named_and_stops_nothing(swept, checkpoints):
    printed = " ".join((swept.parent / "stdout").read_text().split())
    assert "1 of 3 runs failed:" in printed
    assert "no folder 'step7' in it; it holds step100, step20" in printed
    assert [cell.status for cell in read_sweep_cells(swept)] == ["complete", "complete", "failed"]


def test_a_cell_is_what_classify_writes(swept, checkpoints, tmp_path):
    hs.classify(
        str(checkpoints / "step20"), types=["positional", "delimiter"], max_tokens=2500,
        out=tmp_path / "run",
    )  # fmt: skip
    (cell,) = (cell for cell in read_sweep_cells(swept) if cell.revision == "step20")
    for name in ("evidence.csv", "heads.csv", "sums.npz"):
        assert (swept / cell.folder / name).read_bytes() == (tmp_path / "run" / name).read_bytes()


def test_a_sweep_ends_where_classify_does_and_reads_all_where_that_is_asked(monkeypatch, tmp_path):
    # looks at so little text, and ends there
    monkeypatch.setattr(early_stopping, "LEAST_TOKENS", 1_000)
    monkeypatch.setattr(early_stopping, "TOLERATED", 10.0)
    own = {"types": "positional", "max_tokens": 4_000, "examples": False, "twin": False}
    read, said = {}, {}
    for name, more in (("enough", {}), ("all", {"all": True})):
        found = hs.sweep(models=["mini"], out=tmp_path / name, **own, **more)
        (cell,) = read_sweep_cells(tmp_path / name)
        folder = tmp_path / name / cell.folder
        alone = hs.classify("mini", out=tmp_path / f"{name}-alone", **own, **more)
        for file in ("evidence.csv", "heads.csv"):
            assert (folder / file).read_bytes() == (tmp_path / f"{name}-alone" / file).read_bytes()
        run = hs.load(folder)
        read[name] = run.info["text_read"]
        assert run.info["settings"]["all"] is bool(more)
        assert alone.info["text_read"] == read[name]
        assert json.loads((tmp_path / name / PLAN).read_text())["settings"]["all"] is bool(more)
        said[name] = [
            shown(sweep_lines(found.cells, found.settings)),
            shown(summary(run)),
            run.report(),
        ]
    assert read["all"]["tokens"] == read["all"]["of"] >= 4_000
    assert read["enough"]["tokens"] < read["enough"]["of"] == read["all"]["of"]
    # what is not the default is said wherever a result is shown, and nothing else is
    for text in said["all"][:2]:
        assert "not the default: --max-tokens 4000 --all" in text.replace("--types positional ", "")
    assert "--all" in re.search(r'"not_default":"([^"]*)"', said["all"][2])[1]
    for text in said["enough"][:2]:
        assert "--all" not in text.partition("not the default:")[2].partition("\n")[0]
    assert "--all" not in re.search(r'"not_default":"([^"]*)"', said["enough"][2])[1]


def shown(what) -> str:
    out = io.StringIO()
    Console(file=out, width=160).print(what)
    return out.getvalue()


def test_the_same_command_goes_on_where_it_stopped(swept, checkpoints, tmp_path):
    out = tmp_path / "sweep"
    shutil.copytree(swept, out)
    first, second, _ = read_sweep_cells(out)
    shutil.rmtree(out / second.folder)
    kept = (out / first.folder / "run.json").stat().st_mtime_ns
    done = headscope(
        "sweep", "run", "--models", checkpoints, "--revisions", "step100,step20", "--out", out,
        *SMALL,
    )  # fmt: skip
    assert done.exit_code == 0, done.output
    assert (out / first.folder / "run.json").stat().st_mtime_ns == kept
    assert (out / second.folder / "heads.csv").read_bytes() == (
        swept / second.folder / "heads.csv"
    ).read_bytes()
    # what an earlier command asked for stays in the table
    assert [cell.status for cell in read_sweep_cells(out)] == ["complete", "complete", "failed"]


def test_a_folder_with_other_settings_or_other_things_is_refused(swept, checkpoints, tmp_path):
    spec = read_spec(None, models=[str(checkpoints)], max_tokens=5, out=str(swept))
    with pytest.raises(RunError, match=r"a sweep with another max_tokens \(2500, and 5 is asked"):
        plan_cells(spec)
    (tmp_path / "thesis.tex").write_text("precious")
    with pytest.raises(RunError, match="holds other things and no sweep"):
        plan_cells(read_spec(None, models=["mini"], out=str(tmp_path)))


def test_a_damaged_sweep_is_named_and_leads_nowhere_else(swept, tmp_path):
    with pytest.raises(RunError, match="no sweep here"):
        read_sweep_cells(tmp_path)
    plan = json.loads((swept / "sweep.json").read_text())
    plan["cells"][0]["folder"] = "../elsewhere"
    (tmp_path / "sweep.json").write_text(json.dumps(plan))
    with pytest.raises(RunError, match=r"damaged: '\.\./elsewhere' is no name of a folder"):
        read_sweep_cells(tmp_path)
    (tmp_path / "sweep.json").write_text("[]")
    with pytest.raises(RunError, match="this sweep is damaged"):
        read_sweep_cells(tmp_path)


def test_cells_of_one_name_get_folders_of_their_own(tmp_path):
    spec = read_spec(
        None, models=["a/gpt", "b/gpt", "x.gguf"], corpora=["c/x.txt", "d/x.txt"],
        out=str(tmp_path / "new"),
    )  # fmt: skip
    folders = [cell.folder for cell in plan_cells(spec)]
    assert folders == ["gpt_x", "gpt_x-2", "gpt_x-3", "gpt_x-4", "x_x", "x_x-2"]


def test_a_revision_of_a_local_folder_is_a_folder_in_it(checkpoints):
    assert where(str(checkpoints), "step20") == (str(checkpoints / "step20"), None)
    assert where("EleutherAI/pythia-70m", "step20") == ("EleutherAI/pythia-70m", "step20")
    with pytest.raises(ModelError, match="it holds step100, step20"):
        where(str(checkpoints), "step21")


def test_a_dry_run_counts_and_writes_nothing(checkpoints, tmp_path):
    options = ("--models", checkpoints, "--revisions", "step20,step100", "--out", tmp_path / "new")
    done = headscope("sweep", "run", *options, "--dry-run", *SMALL)
    assert done.exit_code == 0, done.output
    assert not (tmp_path / "new").exists()
    text = " ".join(done.stdout.split())
    assert "2 of 2 runs to do" in text
    from headscope.studies.sweep.cell_plan import plan

    spec = read_spec(
        None, models=[str(checkpoints)], revisions=["step20"], types="positional,delimiter",
        max_tokens=2500, out=str(tmp_path / "new"),
    )  # fmt: skip
    (found,) = plan(spec)
    # a stimulus may end early, which no plan knows
    run = hs.classify(
        str(checkpoints / "step20"), types=["positional", "delimiter"], max_tokens=2500, all=True
    )
    assert found.tokens == run.info["provenance"]["tokens"]
    assert 0 < found.twin_tokens < found.tokens / 2
    assert found.weights == 4 * sum(
        p.numel() for p in hf_parameters(checkpoints / "step20")
    )  # fmt: skip


def hf_parameters(folder: Path):
    from transformers import AutoModelForCausalLM

    return AutoModelForCausalLM.from_pretrained(folder).parameters()


def test_a_cluster_needs_ray(monkeypatch, tmp_path):
    monkeypatch.setattr("headscope.models.packages.find_spec", lambda name: None)
    with pytest.raises(
        hs.HeadscopeError, match="--address there needs ray, which is not installed"
    ):
        hs.sweep(models=["mini"], out=tmp_path / "swept", address="there")


@pytest.mark.slow
def test_two_processes_write_the_same_bytes_as_one(gpt2_folder, story, tmp_path):
    corpora = sorted(str(path) for path in Path(story).glob("*.txt"))
    asked = {"models": [str(gpt2_folder)], "corpora": corpora, "types": ["positional"]}
    one = hs.sweep(**asked, out=tmp_path / "one", max_tokens=1500)
    two = hs.sweep(**asked, out=tmp_path / "two", max_tokens=1500, workers=2)
    assert [cell.status for cell in two.cells] == ["complete"] * len(corpora)
    assert [cell.counts for cell in two.cells] == [cell.counts for cell in one.cells]
    for cell in one.cells:
        for file in ("evidence.csv", "heads.csv", "sums.npz"):
            paths = [tmp_path / name / cell.folder / file for name in ("one", "two")]
            assert paths[0].read_bytes() == paths[1].read_bytes(), file


def test_a_dry_run_with_a_model_that_is_missing_names_it_and_ends_with_2(checkpoints, tmp_path):
    missing = tmp_path / "nowhere"
    models = f"{checkpoints / 'step20'},{missing}"
    done = headscope(
        "sweep", "run", "--models", models, "--out", tmp_path / "new", "--dry-run", *SMALL
    )
    assert done.exit_code == 2, done.output
    assert f"nowhere: {missing}: no such folder" in " ".join(done.stdout.split())
    assert "1 of 2 runs to do" in done.stdout
    assert not (tmp_path / "new").exists()


def test_help_imports_neither_ray_nor_torch():
    code = (
        "import sys\nfrom headscope.cli import app\n"
        "try:\n    app(['sweep', '--help'])\nexcept SystemExit:\n    pass\n"
        "print([name for name in ('ray', 'torch', 'pandas', 'yaml') if name in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert "models" in done.stdout
    assert done.stdout.splitlines()[-1] == "[]"


def test_bad_input_ends_with_one_message(tmp_path):
    from tests.helpers.shell import headscope as in_a_shell

    (tmp_path / "bad.yaml").write_text("model: mini\n")
    done = in_a_shell("sweep", "run", tmp_path / "bad.yaml")
    assert done.returncode == 2
    assert "'model' is no key of a sweep; choose from: models" in done.stderr
    assert "Traceback" not in done.stderr
    assert importlib.util.find_spec("yaml") is not None


def made_up(revision: str | None, **counts: int) -> Cell:
    heads = pd.DataFrame(
        [(name, name) for name, count in counts.items() for _ in range(count)],
        columns=["tags", "primary"],
    )
    return counted(Cell("a/model", revision, (), f"run_{revision}"), heads, COUNTS[:-2])


@pytest.mark.parametrize(
    ("revision", "step"),
    [("step1000", 1000), ("1000", 1000), ("stage1-step5000-tokens21B", 21), ("main", None),
     (None, None), ("a" * 39 + "7", None), ("checkpoint-50", 50)],
)  # fmt: skip
def test_a_step_is_the_last_number_of_a_name(revision, step):
    assert step_of(revision) == step


def test_revisions_are_sorted_by_number_and_names_come_last():
    cells = [made_up(name, induction=1) for name in ("step1000", "main", "step5", "step128")]
    assert [cell.revision for cell in complete_cells(cells)] == [
        "step5",
        "step128",
        "step1000",
        "main",
    ]


def test_emergence_counts_heads_by_type_and_revision():
    both = counted(
        Cell("m", "step2", (), "x"),
        pd.DataFrame({
            "tags": ["induction;delimiter", "delimiter", "unclassified"],
            "primary": ["induction", "delimiter", "unclassified"],
        }),
        COUNTS[:-2],
    )  # fmt: skip
    none = counted(
        Cell("m", "step1", (), "y"),
        pd.DataFrame({"tags": ["", ""], "primary": ["unclassified"] * 2}),
        COUNTS[:-2],
    )
    table = by_revision([both, Cell("m", "step3", (), "z"), none])
    assert table["step"].drop_duplicates().tolist() == [1, 2]
    late = table[table["step"] == 2].set_index("type")
    assert late["heads"].to_dict() == {
        "sink": 0, "lexical": 0, "positional": 0, "delimiter": 2, "induction": 1, "syntactic": 0, "coreference": 0,
        "not identifiable": 0, "unclassified": 1,
    }  # fmt: skip
    assert late["primary"].sum() == 3 == late["all_heads"].iloc[0]
    assert late.loc["delimiter", "primary"] == 1
    with pytest.raises(RunError, match="none of the 1 runs of this sweep is complete"):
        by_revision([Cell("m", None, (), "z")])


def test_the_figure_has_a_line_for_each_type_and_a_log_axis_for_a_wide_range():
    cells = [made_up(f"step{n}", induction=k) for k, n in enumerate((0, 1, 64, 1000))]
    (axes,) = Emergence(by_revision(cells)).figure().axes
    lines = {line.get_label(): line for line in axes.get_lines()}
    assert list(lines) == list(COUNTS[:-2])
    assert lines["induction"].get_xydata().tolist() == [[0, 0], [1, 1], [64, 2], [1000, 3]]
    assert axes.get_xscale() == "symlog"
    (near,) = Emergence(by_revision([*cells[2:3], made_up("step70", induction=1)])).figure().axes
    assert near.get_xscale() == "linear"
    (named,) = Emergence(by_revision([made_up(n, induction=1) for n in ("b", "a")])).figure().axes
    assert [label.get_text() for label in named.get_xticklabels()] == ["b", "a"]


def test_the_command_writes_table_and_figure(swept, tmp_path):
    out, figure = tmp_path / "e.csv", tmp_path / "e.png"
    done = headscope("sweep", "emergence", swept, "--out", out, "--figure", figure)
    assert done.exit_code == 0, done.output
    table = pd.read_csv(out)
    assert table["revision"].drop_duplicates().tolist() == ["step20", "step100"]
    assert (table.groupby("revision")["primary"].sum() == 8).all()
    assert figure.read_bytes().startswith(b"\x89PNG")
    assert "step100" in done.stdout
