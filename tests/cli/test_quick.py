"""A quick run: fewer relations with the same numbers, and its verdicts are marked everywhere."""

from __future__ import annotations

from pathlib import Path

import pytest

import headscope as hs
from headscope.relations import QUICK
from headscope.settings import Settings
from tests.helpers.shell import headscope

KEYS = ["layer", "head", "type", "relation"]
SAME = ["n", "mass", "control", "lift", "chance", "hit_rate"]


@pytest.fixture(scope="module")
def printed(gpt2_folder, tmp_path_factory) -> dict[str, tuple[Path, str]]:
    """A quick and a full run of the same text, each with what it printed."""
    runs = {}
    for name, words in (("quick", ["--quick"]), ("full", ["--types", "all"])):
        out = tmp_path_factory.mktemp("runs") / name
        done = headscope(
            *("classify", gpt2_folder, "--corpus", "gold", "--max-tokens", 1500, "--out", out),
            *words,
        )
        assert done.returncode == 0, done.stderr
        runs[name] = out, done.stdout
    return runs


@pytest.fixture(scope="module")
def quick(printed) -> hs.Run:
    return hs.load(printed["quick"][0])


@pytest.fixture(scope="module")
def full(printed) -> hs.Run:
    return hs.load(printed["full"][0])


def test_it_asks_what_most_heads_do_and_nothing_else(quick, full):
    evidence = quick.evidence
    ids = set(evidence["type"] + "/" + evidence["relation"])
    every = set(full.evidence["type"] + "/" + full.evidence["relation"])
    expected = {name for name in every if {name, name.partition("/")[0]} & {*QUICK}}
    assert ids == expected < every
    assert {name for name in ids if name.startswith("lexical/")} == {"lexical/duplicate"}
    for type_name in ("positional", "sink", "delimiter", "induction", "syntactic", "coreference"):
        assert type_name in set(evidence["type"])


def test_its_masses_controls_and_lifts_are_those_of_the_full_run(quick, full):
    rows = quick.evidence.merge(full.evidence, on=KEYS, suffixes=("", "_full"))
    assert len(rows) == len(quick.evidence) > 100
    for column in SAME:
        assert rows[column].to_numpy() == pytest.approx(
            rows[f"{column}_full"].to_numpy(), abs=1e-5, nan_ok=True
        )
    assert (rows["ci_low"].isna() == rows["ci_low_full"].isna()).all()


def test_it_reads_no_challenge_set_and_fits_no_surrogate(quick, full):
    assert quick.evidence["surrogate_mass"].isna().all()
    assert quick.evidence["hard_n"].max() < full.evidence["hard_n"].max()
    tokens = [run.info["provenance"]["tokens"] for run in (quick, full)]
    assert tokens[0] < tokens[1] / 2


def test_the_terminal_marks_the_tags_and_ends_with_what_is_left(printed, quick):
    lines = printed["quick"][1].strip().splitlines()
    assert any(line.startswith("all tags are preliminary") for line in lines)
    assert "preliminary (--quick)" in printed["quick"][1]
    end = " ".join(lines).partition("headscope why")[2]
    assert end.endswith(quick.info["preliminary"][-1])
    assert "preliminary" not in printed["full"][1]


def test_why_heads_report_and_notebook_mark_them_too(printed, quick, full):
    first = quick.why("L0H0").splitlines()
    assert first[0].endswith("(preliminary)")
    assert first[1].startswith("preliminary (--quick)")
    assert "(preliminary)" in quick.why("L0H0", "offset-1").splitlines()[0]
    assert "preliminary" not in full.why("L0H0")
    folder = printed["quick"][0]
    assert 'id="preliminary">All verdicts are preliminary (--quick)' in quick.report()
    assert 'id="preliminary"' not in full.report()
    listed = headscope("heads", folder).stdout
    assert listed.count("preliminary (--quick)") == 1
    assert "(preliminary)" in quick._repr_html_()
    assert "(preliminary)" in repr(quick)
    assert "preliminary" not in full._repr_html_() + repr(full)


def test_types_that_are_named_are_asked_in_full(gpt2_folder):
    run = hs.classify(
        str(gpt2_folder), "gold", quick=True, types=["lexical"], max_tokens=500, progress=False
    )
    assert set(run.evidence["type"]) == {"lexical"}
    assert run.evidence["relation"].nunique() > 5
    assert run.preliminary
    assert "the types" not in run.preliminary


def test_it_reads_less_text_unless_another_length_is_named():
    assert Settings().max_tokens == 40_000
    assert Settings(quick=True).max_tokens == 8_000
    assert Settings(quick=True, max_tokens=40_000).max_tokens == 40_000
    assert Settings(quick=True, seed=3).max_tokens == Settings(quick=True).max_tokens
    assert list(Settings(quick=True, max_tokens=40_000).words()) == [
        *("--quick", "--max-tokens", "40000"),
    ]
