"""Atlases: runs packed into one file each, which stand wherever a run folder does."""

from __future__ import annotations

import io
import json
import re
import tarfile
from dataclasses import replace
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

import headscope as hs
from data.atlas.pack import STEPS_OF_ATTENTION, pack
from headscope.corpus.shipped import data_folder
from headscope.models.packaged import reserved_names
from headscope.relations import head_types
from headscope.runs.atlas import MEMBERS, atlas_folder, atlas_names
from headscope.statistics.conditions import failures
from headscope.statistics.tags import verdicts
from tests.helpers.atlases import assert_equal_within_rounding

ROOT = data_folder().parent


@pytest.fixture(scope="module")
def packed(mini_run, tmp_path_factory) -> Path:
    return pack(hs.load(mini_run), tmp_path_factory.mktemp("atlases") / "mini.tar.xz")


@pytest.fixture
def command(command, monkeypatch, tmp_path):
    """The command line in an empty folder."""
    monkeypatch.chdir(tmp_path)
    return command


def members(path: Path) -> dict[str, bytes]:
    with tarfile.open(path) as archive:
        return {name: archive.extractfile(name).read() for name in archive.getnames()}  # type: ignore[union-attr]


def archive(path: Path, files: dict[str, bytes], kind: bytes = tarfile.REGTYPE) -> Path:
    with tarfile.open(path, "w:xz") as archive:
        for name, content in files.items():
            member = tarfile.TarInfo(name)
            member.type, member.linkname = kind, "/etc/hostname"
            member.size = len(content) if kind == tarfile.REGTYPE else 0
            archive.addfile(member, io.BytesIO(content))
    return path


def test_an_atlas_holds_the_tables_of_its_run(mini_run, packed):
    run, atlas = hs.load(mini_run), hs.load(packed)
    assert_equal_within_rounding(atlas, run)
    assert atlas.thresholds == run.thresholds
    np.testing.assert_array_equal(atlas.means, run.means)
    assert len(atlas.examples) == len(run.examples) > 100
    for one, other in zip(atlas.examples, run.examples, strict=True):
        assert (one.tokens, one.query, one.masses) == (other.tokens, other.query, other.masses)
        np.testing.assert_equal(one.mass, other.mass)
        coarse = np.abs(one.pattern.astype(float) - other.pattern.astype(float))
        assert coarse.max() <= 0.5 / STEPS_OF_ATTENTION + 1e-3  # and half precision
    assert packed.stat().st_size < sum(f.stat().st_size for f in mini_run.rglob("*")) / 5


def test_the_numbers_of_an_atlas_fail_the_conditions_that_those_of_its_run_fail(mini_run, tmp_path):
    run = hs.load(mini_run)
    evidence = run.evidence.copy()
    # every mass is rounded up to its threshold, and every other q value up to the largest
    names = evidence["type"] + "/" + evidence["relation"]
    evidence["mass"] = [run.thresholds[name].threshold - 0.00003 for name in names]
    evidence.loc[evidence.index[::2], "q_value"] = 0.009996
    run = replace(run, evidence=evidence)
    atlas = hs.load(pack(run, tmp_path / "near.tar.xz"))
    before, after = run.evidence_with_thresholds, atlas.evidence_with_thresholds
    assert before["paired_mass"].notna().any()
    pd.testing.assert_frame_equal(failures(after), failures(before))
    pd.testing.assert_series_equal(verdicts(after), verdicts(before))


def test_an_atlas_says_what_was_left_out_and_nothing_of_the_machine(mini_run, packed):
    stated = json.loads((mini_run / "run.json").read_text(encoding="utf-8"))
    assert {"time", "seconds"} <= stated["provenance"].keys()
    files = members(packed)
    assert set(files) <= set(MEMBERS)
    assert "sums.npz" not in files
    info = json.loads(files["run.json"])
    assert not {"time", "seconds"} & info["provenance"].keys()
    assert any("without its sums" in note for note in info["notes"])
    text = b"".join(files.values())
    for private in (str(mini_run.parent), str(Path.home()), str(ROOT)):
        assert private.encode() not in text
    with tarfile.open(packed) as archive:
        assert {(m.mtime, m.uid, m.uname) for m in archive} == {(0, 0, "")}


def test_a_model_of_ones_own_does_not_say_where_it_lay(gpt2_folder, tmp_path):
    run = hs.classify(
        gpt2_folder, corpus="gold", types=["positional"], max_tokens=500, progress=False
    )
    files = members(pack(run, tmp_path / "own.tar.xz"))
    assert str(gpt2_folder.parent).encode() not in b"".join(files.values())
    assert json.loads(files["run.json"])["places"]["model"] is None
    text = "The king lost his ring."
    with pytest.raises(hs.HeadscopeError, match="--model"):
        hs.show(tmp_path / "own.tar.xz", "L0H0", text)
    assert hs.show(tmp_path / "own.tar.xz", "L0H0", text, source=str(gpt2_folder))


def test_the_same_run_is_packed_into_the_same_bytes(mini_run, packed, tmp_path):
    assert pack(hs.load(mini_run), tmp_path / "again.tar.xz").read_bytes() == packed.read_bytes()
    again = pack(hs.load(packed), tmp_path / "repacked.tar.xz")
    assert members(again) == members(packed)


def test_every_model_with_a_name_of_its_own_has_an_atlas():
    assert atlas_names() == sorted(reserved_names())
    for name in atlas_names():
        run = hs.load(f"atlas:{name}")
        assert run.name == name
        whole = r"--max-tokens 1000000 --all"
        command = rf"headscope classify {name} --types all {whole}( --device cuda)? --dtype float32"
        assert re.fullmatch(command, run.info["command"])
        assert run.tagged("positional").index.size > 5
        text = b"".join(members(atlas_folder() / f"{name}.tar.xz").values())
        assert not re.search(rb"/(root|home|tmp|work|Users)/", text)


def test_the_bare_name_of_a_model_is_its_atlas_where_no_run_is_called_so(command, mini_run):
    code, said, note = command("why", "smollm2", "L10H1")
    assert code == 0
    assert said.startswith("L10H1")
    assert "atlas:smollm2" in note
    code, same, note = command("why", "atlas:smollm2", "L10H1")
    assert (code, same, note) == (0, said, "")
    # a run where classify puts it is named, and is not what was asked for
    hs.load(mini_run).save("runs/smollm2")
    code, same, note = command("why", "smollm2", "L10H1")
    assert (code, same) == (0, said)
    assert "atlas:smollm2" in note
    assert "your run is runs/smollm2" in note
    assert "no run folder" not in note
    hs.load(mini_run).save("smollm2")
    code, other, note = command("why", "smollm2", "L5H1")
    assert (code, note) == (0, "")
    assert other == command("why", mini_run, "L5H1")[1]


def test_nothing_is_written_into_an_atlas(command):
    before = {path: path.read_bytes() for path in atlas_folder().iterdir() if path.is_file()}
    code, _, said = command("ablate", "mini")
    assert code != 0
    assert "mini" in said
    assert {path: path.read_bytes() for path in before} == before
    assert hs.load("atlas:mini", with_tally=True).tally is None


def damaged(kind: str, packed: Path, path: Path) -> Path:
    """A file with the name of an atlas and other content."""
    raw, files = packed.read_bytes(), members(packed)
    match kind:
        case "a link":
            return archive(path, {"run.json": b""}, tarfile.SYMTYPE)
        case "elsewhere":
            return archive(path, {**files, "../escaped": b"x"})
        case "another table":
            changed = files["heads.csv"].replace(b"0.", b"1.", 1)
            return archive(path, {**files, "heads.csv": changed})
        case "cut off":
            path.write_bytes(raw[: len(raw) // 2])
    return path


@pytest.mark.parametrize("kind", ["a link", "elsewhere", "another table", "cut off"])
def test_a_broken_atlas_is_refused_in_one_sentence(kind, packed, tmp_path, command):
    path = damaged(kind, packed, tmp_path / "broken.tar.xz")
    code, said, error = command("heads", path)
    assert code != 0
    assert said == ""
    (line,) = error.strip().splitlines()
    assert line.startswith(f"headscope: {path}: ")
    assert not (tmp_path / "escaped").exists()


def test_a_run_of_older_words_is_read_in_those_of_this_version(mini_run, tmp_path):
    name = "sink/first-token"
    run = hs.load(mini_run)
    older = replace(run.thresholds[name], meaning="older words", threshold=0.4)
    run = replace(run, thresholds=run.thresholds | {name: older})
    run.save(tmp_path / "run")
    read = hs.load(tmp_path / "run").thresholds[name]
    assert read.meaning == head_types()["sink"].relations[0].thresholds.meaning
    assert read.threshold == 0.4
