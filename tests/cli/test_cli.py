"""The command line as its users see it: exit codes, messages, files."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from pathlib import Path

import pandas as pd
import pytest

import headscope as hs
from headscope.cli.classify import next_step
from tests.helpers.formats import HEADS_BEFORE_EXPLAIN, columns_of
from tests.helpers.hand_built import run_of
from tests.helpers.shell import headscope


@pytest.fixture(scope="module")
def run(gpt2_folder, tmp_path_factory) -> Path:
    folder = tmp_path_factory.mktemp("runs") / "tiny"
    corpus = folder.parent / "corpus"
    corpus.mkdir()
    (corpus / "alice.txt").write_text(
        "Alice was very tired. She looked at the old keys again. " * 60
    )
    done = headscope(
        "classify", gpt2_folder, "--corpus", corpus, "--out", folder, "--max-tokens", 3000
    )
    assert done.returncode == 0, done.stderr
    (folder / "stdout").write_text(done.stdout)
    return folder


def test_classify_prints_a_summary_and_writes_the_run_folder(run):
    printed = (run / "stdout").read_text()
    assert "2 layers × 4 heads" in printed
    assert f"written to {run}" in printed
    (head,) = re.findall(rf"next: headscope why {re.escape(str(run))} (L\dH\d) prints", printed)
    assert head in {f"L{layer}H{number}" for layer in range(2) for number in range(4)}
    files = {path.name for path in run.iterdir()} - {"stdout"}
    assert files >= {"run.json", "evidence.csv.gz", "heads.csv", "report.html"}
    assert list(pd.read_csv(run / "evidence.csv.gz").columns) == columns_of("evidence.csv.gz")
    heads = pd.read_csv(run / "heads.csv")
    assert list(heads.columns) == HEADS_BEFORE_EXPLAIN
    assert len(heads) == 8


@pytest.mark.parametrize(("heads", "has_tags"), [("EE", False), ("EP", True)])
def test_classify_announces_evidence_for_tags_only_if_a_head_has_one(heads, has_tags):
    line = next_step(run_of(heads, name="two", types=["positional"]), "runs/two")
    assert "headscope why runs/two L0H" in line
    assert ("its tags" in line) == has_tags


def test_run_json_holds_what_is_needed_to_repeat_the_run(run, gpt2_folder):
    info = json.loads((run / "run.json").read_text())
    assert info["model"]["name"] == gpt2_folder.name
    assert len(info["model"]["weights_sha256"]["model.safetensors"]) == 64
    (corpus,) = info["corpora"]["files"]
    assert corpus.endswith("alice.txt")
    assert info["settings"]["seed"] == 0
    assert info["settings"]["max_tokens"] == 3000
    assert info["engine"] == "fused"
    assert info["relations"]["induction/repeat"]["threshold"] == 0.4
    spent = info["provenance"]
    assert set(spent) == {"versions", "time", "seconds", "tokens", "stimulus_tokens", "sha256"}
    assert sum(spent["stimulus_tokens"].values()) == spent["tokens"]


def test_the_same_command_gives_the_same_bytes(run, gpt2_folder, tmp_path):
    again = tmp_path / "again"
    corpus = run.parent / "corpus"
    headscope(
        "classify", gpt2_folder, "--corpus", corpus, "--out", again, "--max-tokens", 3000, "-q"
    )
    for name in ("evidence.csv.gz", "heads.csv"):
        assert (again / name).read_bytes() == (run / name).read_bytes()
    first, second = (json.loads((f / "run.json").read_text()) for f in (run, again))
    # the folders lie elsewhere, seen from the text and the model
    elsewhere = {"provenance": None, "places": None}
    assert {**first, **elsewhere} == {**second, **elsewhere}


def test_heads_lists_filters_and_exports(run):
    table = headscope("heads", run)
    assert table.returncode == 0
    assert "L1H3" in table.stdout
    exported = headscope("heads", run, "--format", "csv")
    assert exported.stdout.splitlines()[0] == ",".join(HEADS_BEFORE_EXPLAIN)
    assert len(json.loads(headscope("heads", run, "--format", "json").stdout)) == 8
    none = headscope("heads", run, "--type", "unclassified", "--format", "csv")
    assert (
        len(none.stdout.splitlines()) == 1 + (hs.load(run).heads["primary"] == "unclassified").sum()
    )


def test_a_run_is_only_replaced_when_asked(run, gpt2_folder, tmp_path):
    before = (run / "heads.csv").read_bytes()
    refused = headscope("classify", gpt2_folder, "--types", "induction", "--out", run, "-q")
    assert refused.returncode == 2
    assert "--overwrite" in refused.stderr
    assert (run / "heads.csv").read_bytes() == before
    other = tmp_path / "other"
    other.mkdir()
    (other / "thesis.tex").write_text("precious")
    refused = headscope("classify", gpt2_folder, "--out", other, "--overwrite", "-q")
    assert refused.returncode == 2
    assert str(other) in refused.stderr
    assert [p.name for p in other.iterdir()] == ["thesis.tex"]


def test_help_and_models_answer_without_heavy_imports():
    told = headscope("check", "models")
    assert "gpt_neox" in told.stdout
    code = "import sys, headscope.cli; print('torch' in sys.modules, 'pandas' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.split() == ["False", "False"]


def test_reading_a_run_imports_no_torch(run):
    why = f"headscope.load({str(run)!r}).why('0.0')"
    code = f"import sys, headscope; {why}; print('torch' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.split() == ["False"]
