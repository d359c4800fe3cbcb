"""Head cards: what they hold, what is read back, and what needs the run itself."""

from __future__ import annotations

import json
from dataclasses import replace

import numpy as np
import pandas as pd
import pytest

import headscope as hs
from headscope.errors import HeadscopeError, RunError, WriteError
from headscope.runs.cards import LISTS, bibtex
from headscope.runs.tables import CAUSE_TABLE, EFFECT_TABLE, table_to_csv
from headscope.statistics.columns import EFFECT_COLUMNS
from tests.helpers.formats import PAGE, ROWS
from tests.helpers.shell import headscope


@pytest.fixture(scope="module")
def run() -> hs.Run:
    """A run with direct effects and causes of some heads."""
    atlas = hs.load("atlas:mini")
    effects = pd.DataFrame({"layer": 5, "head": [1, 3]}, columns=EFFECT_COLUMNS)
    effects = effects.assign(type="copy", effect="looked-at", n=90, tagged=[True, False])
    effects = effects.assign(lift=[1 / 3, np.nan], threshold=0.5)
    causes = pd.DataFrame({"kind": "head", "layer": [5], "head": [3]}, columns=CAUSE_TABLE.columns)
    causes = causes.assign(type="induction", n=20, effect=-0.25, verdict="no effect detected")
    texts = [name for name, kind in CAUSE_TABLE.kinds.items() if kind == "str" and name in causes]
    causes[texts] = causes[texts].astype(object).fillna("")
    tables = {
        "effects": EFFECT_TABLE.read(table_to_csv(effects).encode()),
        "causes": CAUSE_TABLE.read(table_to_csv(causes).encode()),
    }
    return replace(atlas, examples=(), **tables)


@pytest.fixture(scope="module")
def path(run, tmp_path_factory):
    return run.card(tmp_path_factory.mktemp("cards") / "mini.json")


def test_a_card_has_every_tag_with_its_numbers(run, path):
    records = json.loads(path.read_text())["heads"]
    assert [record["name"] for record in records] == run.heads.index.tolist()
    on_card = {}
    for record in records:
        for row in record["evidence"]:
            if row["tagged"]:
                key = (record["layer"], record["head"], row["type"], row["relation"])
                on_card[key] = (row["mass"], row["control"], row["verdict"])
    tags = run.evidence[run.evidence["tagged"]]
    keys = tags[["layer", "head", "type", "relation"]].itertuples(index=False, name=None)
    numbers = tags[["mass", "control", "verdict"]].itertuples(index=False, name=None)
    assert on_card == dict(zip(keys, numbers, strict=True))


def test_tables_of_a_card_are_those_of_its_run(run, path):
    card = hs.load(path)
    pd.testing.assert_frame_equal(card.heads, run.heads)
    pd.testing.assert_frame_equal(card.effects, run.effects)
    pd.testing.assert_frame_equal(card.causes, run.causes)
    pd.testing.assert_frame_equal(card.tagged("induction"), run.tagged("induction"))
    assert card.info["model"] == run.info["model"]


def test_a_run_without_effects_has_no_list_of_them(tmp_path):
    path = hs.load("atlas:mini").card(tmp_path / "mini.json")
    assert {"effects", "causes"}.isdisjoint(json.loads(path.read_text())["heads"][0])
    card = hs.load(path)
    assert card.effects is None
    assert card.causes is None


def test_heads_are_explained_from_a_card_as_from_the_run(run, path):
    card = replace(hs.load(path), effects=None, causes=None)
    bare = replace(run, effects=None, causes=None)
    for name in run.heads.index:
        assert card.why(name) == bare.why(name)


def test_the_page_names_every_key(path):
    card = json.loads(path.read_text())
    _, _, section = PAGE.partition("## Head cards")
    section, _, _ = section.partition("\n## ")
    of_run = {name.partition(".")[0] for name, _, _ in ROWS["run.json"]}
    lists = {table.attribute for table in LISTS}
    for key in {*card, *lists, "name"} - of_run:
        assert f"| `{key}` |" in section
    columns = {name for name, _, _ in (*ROWS["heads.csv"], *ROWS[""])}
    assert {*card["heads"][0]} <= columns | lists | {"name"}
    assert "places" not in card


@pytest.mark.parametrize(
    "call",
    [
        lambda card, folder: card.report(),
        lambda card, folder: card.figure(),
        lambda card, folder: card.save(folder / "run"),
        lambda card, folder: card.card(folder / "again.json"),
        lambda card, folder: hs.compare(card, card),
        lambda card, folder: hs.gallery(card, out=folder / "site"),
        lambda card, folder: hs.judge_labels(card, folder / "labels.csv"),
    ],
)
def test_what_needs_all_evidence_refuses_a_card(call, path, tmp_path):
    with pytest.raises(RunError, match="card"):
        call(hs.load(path), tmp_path)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("content", ["", "[]", "{}", '{"card_version": 2}', "[" * 10**5])
def test_another_file_is_no_card(tmp_path, content):
    path = tmp_path / "other.json"
    path.write_text(content)
    with pytest.raises(RunError, match=r"other\.json"):
        hs.load(path)


def test_a_card_without_a_head_s_evidence_is_refused(path, tmp_path):
    card = json.loads(path.read_text())
    del card["heads"][0]["evidence"]
    altered = tmp_path / "altered.json"
    altered.write_text(json.dumps(card))
    with pytest.raises(RunError, match=r"altered\.json"):
        hs.load(altered)


SECTIONS = ["model", "relations", "heads", "corpora", "provenance", "settings", "text_read"]


@pytest.mark.parametrize("value", [None, 3, "text", [1]])
@pytest.mark.parametrize("section", SECTIONS)
def test_a_card_with_another_section_is_refused_or_read(path, section, value, tmp_path):
    card = json.loads(path.read_text())
    del card[section]
    if value is not None:
        card[section] = value
    altered = tmp_path / "altered.json"
    altered.write_text(json.dumps(card))
    if value is not None or section in SECTIONS[:3]:
        with pytest.raises(RunError, match=section):
            hs.load(altered)
        return
    run = hs.load(altered)
    assert bibtex(run)
    assert str(run.why("L0H0"))


@pytest.mark.parametrize("key", ["layer", "head", "primary", "tags", "shape", "direct_effects"])
def test_a_head_of_a_card_without_what_every_head_has_is_refused(path, key, tmp_path):
    card = json.loads(path.read_text())
    del card["heads"][1][key]
    altered = tmp_path / "altered.json"
    altered.write_text(json.dumps(card))
    with pytest.raises(RunError, match=rf"{key}\b") as refused:
        hs.load(altered)
    assert not str(refused.value).endswith(f": '{key}'")


def test_the_command_writes_a_file_per_run_and_replaces_none(tmp_path):
    command = ("export", "cards", "atlas:mini", "atlas:mini", "--out", tmp_path)
    assert headscope(*command).returncode == 0
    assert sorted(file.name for file in tmp_path.iterdir()) == ["mini-2.json", "mini.json"]
    before = (tmp_path / "mini.json").read_bytes()
    (tmp_path / "mini-2.json").unlink()
    assert headscope(*command).returncode == 2
    assert [file.name for file in tmp_path.iterdir()] == ["mini.json"]
    assert (tmp_path / "mini.json").read_bytes() == before


def test_a_file_that_is_not_named_json_is_not_written(run, tmp_path):
    with pytest.raises(WriteError, match="csv"):
        run.card(tmp_path / "mini.csv")


def test_the_entry_names_model_revision_and_text_and_escapes_tex(run):
    model = run.info["model"] | {"name": "a_b{c}%", "revision": "step1000"}
    entry = bibtex(replace(run, info=run.info | {"model": model}))
    assert entry.startswith("@misc{headscope-")
    assert r"a\_bc\%" in entry
    for word in ("step1000", "gum", model["weights_sha256"]["model.safetensors"][:12]):
        assert word in entry
    assert entry.count("{") == entry.count("}")


def test_a_missing_card_is_an_error(tmp_path):
    with pytest.raises(HeadscopeError, match=r"none\.json"):
        hs.load(tmp_path / "none.json")
