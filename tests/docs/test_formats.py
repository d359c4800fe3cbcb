"""The page on file formats names every column that is written, in order, and no other."""

from __future__ import annotations

import json
import re
from collections.abc import Callable

import pandas as pd
import pytest

import headscope as hs
from headscope.corpus.shipped import data_folder
from headscope.measure.precision_check import PrecisionCheck
from headscope.statistics.tags import NO_TYPE
from headscope.studies.study_table import STUDIES
from tests.helpers.formats import DESCRIBED, PAGE, ROWS, columns_of
from tests.helpers.run_folders import make_run
from tests.helpers.shell import headscope
from tests.helpers.studies import words_with
from tests.helpers.treebanks import save_treebanks
from tests.oracles.planted_tasks import save_model, save_tasks_file


def shell(*arguments: object) -> str:
    done = headscope(*arguments)
    assert done.returncode == 0, done.stderr
    return done.stdout


@pytest.fixture(scope="module")
def written(gpt2_folder, tmp_path_factory) -> Callable[[str], pd.DataFrame]:
    """Every table that a command writes, as it was written, for a small model and text."""
    home = tmp_path_factory.mktemp("formats")
    text = data_folder() / "corpora" / "gold.conllu"
    runs = home / "one", home / "two"
    for run, types, tokens in zip(runs, ("all", "positional"), (1200, 300), strict=True):
        options = {"corpus": text, "out": run, "types": types, "max_tokens": tokens}
        words = words_with("classify", options | {"model": gpt2_folder, "quiet": True})
        shell("classify", *words, *(["--direct-effects"] if types == "all" else []))
    # the small model has no tag whose effect an ablation could test
    tested = make_run(home / "tested")
    shell("compare", *runs, "--out", home / "compare.csv")
    shell("compare", "atlas:mini", "atlas:mini", "--match", "--out", home / "match_heads.csv")
    shell("study", "weights", runs[0], "--out", home / "weights.csv")
    shell("explain", runs[0], "--windows", 8, "--features", 2)
    replaced = ("--windows", 8, "--features", 2, "--out", home / "replace_heads.csv")
    shell("explain", runs[0], "--replace", *replaced)
    few = ("--corpus", text, "--max-tokens", 600)
    shell("study", "prune", runs[0], *few, "--out", home / "prune.csv")
    tasks = save_tasks_file(home / "tasks.csv")
    pd.read_csv(tasks).query("task < 't3'").to_csv(tasks, index=False)
    vectors = save_model(home / "planted"), "--tasks", tasks
    path = home / "function-vectors.csv"
    shell("study", "function-vectors", *vectors, "--prompts", 8, "--out", path)
    spec = ("--models", gpt2_folder, "--types", "positional", *few, "--out", home / "sweep")
    shell("sweep", "run", *spec, "--quiet")
    banks = save_treebanks(home / "pud", ["en", "zh"])
    spoken = ("--corpus", banks, "--out", home / "spoken", "--quick", "--quiet")
    shell("sweep", "languages", gpt2_folder, *spoken)
    shell("sweep", "emergence", home / "sweep", "--out", home / "emergence.csv")
    values = {"model": gpt2_folder, "run": runs[0], "head": "L0H0", "corpus": text}
    values |= {"max_tokens": 600, "windows": 9, "quiet": True}
    values |= {"clean": "x1z", "corrupt": "x2z", "heads": "all"}
    values |= {"text": "x1z x1z", "template": "duplicate"}
    (home / "labels.csv").write_text("head,label\nL5H3,induction\n")
    labels = ("--labels", home / "labels.csv", "--out", home / "judge_labels.csv")
    shell("verify", "atlas:mini", *labels)
    (home / "why.csv").write_text(shell("why", runs[0], "L0H0", "L1H1", "--format", "csv"))
    for study in STUDIES:
        if study.name not in WRITTEN_OTHERWISE and study.command:
            words = words_with(study.name, values | {"out": home / f"{study.name}.csv"})
            shell(*study.words.split(), *words)
    places = {
        "heads.csv": runs[0],
        "evidence.csv.gz": runs[0],
        "causal.csv": tested,
        "feature_model.csv": runs[0],
        "effects.csv": runs[0],
        "sweep.csv": home / "sweep",
        "languages.csv": home / "spoken",
    }

    files = {
        "ablate": "causal.csv",
        "explain": "feature_model.csv",
        "sweep": "sweep.csv",
        "languages": "languages.csv",
        "function_vectors": "function-vectors.csv",
    }

    def read(name: str) -> pd.DataFrame:
        file = files.get(name, name if ".csv" in name else f"{name}.csv")
        path = places.get(file, home) / file
        return pd.read_csv(path, keep_default_na=False, na_values=[""])

    read.folder = runs[0]
    return read


WRITTEN_OTHERWISE = set(
    (
        "ablate compare emergence explain function_vectors haystacks headvis judge_labels "
        "languages match_heads prune sweep task verify weights"
    ).split()
)
"""Studies with other arguments than those that their names tell, or without a table of `--out`."""


UNWRITTEN = {"task", "explain_at", "haystacks", "headvis", "score_programs", "verify"}
"""Studies whose tables are not read here: they need other models, files or scores."""
TABLES = ["heads.csv", "evidence.csv.gz", "effects.csv"]
TABLES += [study.name for study in STUDIES if study.name not in UNWRITTEN]


def by_type(column: str) -> str:
    """Columns that there are one of for each type go by one name on the page."""
    for name in (*hs.head_types(), *NO_TYPE):
        if column == name:
            return column.replace(name, "TYPE")
    return column


@pytest.mark.parametrize("name", TABLES)
def test_the_page_names_the_columns_of_the_table_and_no_others(written, name):
    columns = list(dict.fromkeys(map(by_type, written(name).columns)))
    assert columns_of(name) == columns


def test_the_page_describes_no_table_that_is_not_checked():
    assert set(DESCRIBED) == {*TABLES, "run.json"} | UNWRITTEN


def test_every_description_is_of_a_column():
    for name in ("heads.csv", "evidence.csv.gz", "effects.csv"):
        assert {row[0] for row in ROWS[name]} <= set(columns_of(name))
    listed = {column for name in TABLES for column in columns_of(name)}
    assert {row[0] for row in ROWS[""]} <= listed


BOUNDS = re.compile(r"[\[(](-?[\d.]+), (-?[\d.]+)[\])]|≥ (-?[\d.]+)")


@pytest.mark.parametrize("name", TABLES)
def test_what_is_written_lies_in_the_range_that_the_page_gives(written, name):
    table, checked = written(name), 0
    for column, stated, _ in DESCRIBED[name]:
        bounds = BOUNDS.search(stated.replace("−", "-"))
        if bounds is None or column not in table:
            continue
        low = float(bounds[1] or bounds[3])
        values = pd.to_numeric(table[column]).dropna()
        assert (values >= low - 1e-6).all(), (column, values.min())
        assert bounds[2] is None or (values <= float(bounds[2]) + 1e-6).all(), column
        checked += 1
    assert checked or table.empty


OPEN = {"relations", "baselines", "effects", "files", "settings", "thresholds"}
"""Facts of run.json whose keys are relations, files, or declared elsewhere."""


def test_the_page_names_the_facts_of_run_json_and_no_others(written):
    info = json.loads((written.folder / "run.json").read_text(encoding="utf-8"))
    names = set()
    for key, value in info.items():
        is_open = key in OPEN
        nested = isinstance(value, dict) and not is_open
        names |= {f"{key}.{inner}" for inner in value} if nested else {key}
    # of texts in a chat template
    names |= {"chat.before", "chat.after"}
    # of quick runs, and of those that chose their precision
    names |= {"preliminary", *(f"precision.{k}" for k in PrecisionCheck("bfloat16", "", 1).record)}
    assert {row[0] for row in DESCRIBED["run.json"]} == names


def test_the_page_names_every_file_of_a_run_folder(written):
    files = {p.relative_to(written.folder).as_posix() for p in written.folder.rglob("*.*")}
    for name in files:
        assert f"`{name}`" in PAGE, name
