"""Folders of T5's and BART's layout go through the commands as any other model's."""

from __future__ import annotations

import json
import math
import re

import numpy as np
import pandas as pd
import pytest

import headscope as hs
from headscope.errors import HeadscopeError
from headscope.models.load import load_model
from headscope.runs.provenance import NOT_KEPT
from headscope.studies.sweep.cell_plan import plan, plan_lines
from headscope.studies.sweep.spec import read_spec
from tests.helpers.encoders import save_hand_built
from tests.helpers.shell import headscope
from tests.helpers.stacks import HEADS, SHAPE, save_stacks

TYPES = "positional,alignment,sink"


@pytest.fixture(scope="module", params=["t5", "bart"])
def run(request, tokenizer, tmp_path_factory):
    """A folder, and a run of it that the command made."""
    root = tmp_path_factory.mktemp(request.param)
    folder = save_stacks(request.param, tokenizer, root / request.param)
    asked = ("--corpus", "aligned", "--types", TYPES, "--max-tokens", 700, "--max-length", 900)
    done = headscope("classify", folder, *asked, "--out", root / "run")
    assert done.returncode == 0, done.stderr
    return folder, root / "run", done


def test_every_head_of_every_stack_has_a_row(run):
    _, out, done = run
    heads = pd.read_csv(out / "heads.csv")
    layers = sum(SHAPE.values())
    assert len(heads) == layers * HEADS
    assert set(heads["layer"]) == set(range(layers))
    evidence = pd.read_csv(out / "evidence.csv")
    across = evidence[evidence["type"] == "alignment"]
    assert sorted(across["layer"].unique()) == list(range(layers - SHAPE["X"], layers))
    assert across["mass"].between(0, 1).all()
    rows = [f"{letter}{layer}" for letter, count in SHAPE.items() for layer in range(count)]
    assert re.findall(r"^([EDX]\d) ", done.stdout, re.MULTILINE) == rows


def test_the_run_says_what_is_not_kept_and_what_was_cut(run):
    folder, out, _ = run
    notes = json.loads((out / "run.json").read_text())["notes"]
    assert NOT_KEPT in notes
    assert not (out / "sums.npz").exists()
    assert not [each for each in out.parent.iterdir() if each.name.endswith(".partial")]
    longest = min(512, load_model(str(folder)).context)
    cut = f"windows of 900 tokens were asked for; an encoder's are cut at {longest}"
    assert f"encoder: {cut}" in notes


def test_report_and_show_know_the_stacks(run, tmp_path):
    folder, out, _ = run
    done = headscope("report", out, "--out", tmp_path / "page.html")
    assert done.returncode == 0, done.stderr
    page = (tmp_path / "page.html").read_text()
    assert f'"stacks":{json.dumps(SHAPE, separators=(",", ":"))}' in page
    for head, target in (("E1H2", ()), ("D2H0", ()), ("X0H3", ("--target", "Der Hund schläft."))):
        shown = headscope(
            "show", folder, head, "The dog sleeps.", *target, "--out", tmp_path / f"{head}.html"
        )
        assert shown.returncode == 0, shown.stderr
        assert head in (tmp_path / f"{head}.html").read_text()
    assert headscope("why", out, "X0H3").returncode == 0


def test_single_heads_of_any_stack_can_be_asked_about(run):
    folder, out, _ = run
    asked = {"types": TYPES.split(","), "max_tokens": 700, "progress": False}
    answers = hs.studies.why(str(folder), ["E1H2", "X0H3"], "aligned", **asked)
    assert answers.table.index.tolist() == ["E1H2", "X0H3"]
    assert str(answers).count("  looks: ") == 2
    whole = hs.load(out)
    assert answers.table["layer"].tolist() == [
        whole.head_names.parse(n)[0] for n in ("E1H2", "X0H3")
    ]
    with pytest.raises(HeadscopeError, match="'L0H0' is not a head of this model"):
        hs.studies.why(str(folder), "L0H0", "aligned", **asked)


def test_a_sweep_plans_every_stack(run, tmp_path):
    folder, _, _ = run
    how = {"types": "positional,alignment", "max_tokens": 700}
    spec = read_spec(
        None, models=[str(folder)], corpora=["aligned"], out=str(tmp_path / "sweep"), **how
    )
    (found,) = plan(spec)
    assert found.error == ""
    assert found.tokens > 3 * 700
    assert math.isfinite(found.seconds)
    assert found.weights == sum(
        each.numel() * each.element_size()
        for each in load_model(str(folder)).engine.network.parameters()
    )
    assert plan_lines([found], spec, 0)


def test_a_sweep_plans_what_an_encoder_reads(tmp_path):
    folder = save_hand_built(tmp_path / "encoder")
    spec = read_spec(
        None, models=[str(folder)], corpora=["gold"], types="positional,delimiter", max_tokens=600,
        out=str(tmp_path / "sweep"), twin=False,
    )  # fmt: skip
    (found,) = plan(spec)
    run = hs.classify(
        str(folder), "gold", types=["positional", "delimiter"], max_tokens=600, twin=False
    )
    assert found.tokens == run.info["provenance"]["tokens"]
    assert np.isfinite(found.seconds)
    assert "offset+1" in set(run.evidence["relation"])
