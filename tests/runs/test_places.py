"""No file of a run says where its model and its text lie on the disk, and both are found again."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest
from safetensors import safe_open

import headscope as hs
from headscope.errors import CorpusError, ModelError, RunError
from headscope.runs.contents import RECORD
from tests.helpers.models import save_model
from tests.helpers.run_folders import data_of
from tests.helpers.shell import headscope

TEXT = "Alice was very tired. She looked at the old keys again. " * 60


def written(*arguments: object) -> None:
    """Run a command that must succeed."""
    done = headscope(*arguments)
    assert done.returncode == 0, (arguments, done.stderr)


@pytest.fixture(scope="module")
def home(gpt2_folder, tmp_path_factory) -> Path:
    """The secret folder of somebody with a model and a corpus; runs lie outside of it."""
    folder = tmp_path_factory.mktemp("disk") / "hidden-ann"
    shutil.copytree(gpt2_folder, folder / "models" / "tiny")
    (folder / "texts" / "dev").mkdir(parents=True)
    (folder / "texts" / "dev" / "alice.txt").write_text(TEXT)
    return folder


@pytest.fixture(scope="module")
def out(home) -> Path:
    run = home.parent / "shared" / "run"
    asked = ("--max-tokens", 600, "--max-length", 32, "--types", "positional,induction")
    written(
        "classify", home / "models" / "tiny", "--corpus", home / "texts", "--out", run, *asked, "-q"
    )
    return run


def said_in(folder: Path, secret: str) -> list[str]:
    """The files below a folder that hold a text, in their bytes or their names."""
    found = []
    for path in sorted(folder.rglob("*")):
        if path.is_file():
            held = path.read_bytes().decode("utf-8", "replace")
            if path.suffix == ".safetensors":
                with safe_open(path, "numpy") as file:
                    held += json.dumps(file.metadata() or {})
            # as JSON and as HTML say it, too
            if secret in held or json.dumps(secret)[1:-1] in held or secret in path.name:
                found.append(path.relative_to(folder).as_posix())
    return found


def test_no_file_of_a_run_says_where_its_model_and_its_text_lie(home, out):
    assert len([path for path in out.rglob("*") if path.is_file()]) >= 7
    assert said_in(out, str(home.parent)) == []
    info = json.loads((out / RECORD).read_text())
    assert info["model"]["name"] == "tiny"
    assert info["corpora"]["asked"] == ["texts"]
    assert list(info["corpora"]["files"]) == ["texts/dev/alice.txt"]
    assert info["command"].startswith("headscope classify tiny --corpus texts ")
    assert info["places"] == {
        "model": "../../hidden-ann/models/tiny",
        "corpora": ["../../hidden-ann/texts"],
    }
    assert "hidden-ann" not in (out / "report.html").read_text() + data_of(out / "report.html")


def test_what_shares_no_folder_with_the_run_has_no_place(home, out):
    from headscope.runs import recorded_paths as places

    run = hs.load(out)
    far = {**run.info, "places": {"model": "/elsewhere/tiny", "corpora": ["/elsewhere/texts"]}}
    assert places.outward(far, out)["places"] == {"model": None, "corpora": [None]}
    shared = out.parent / "far"
    hs.Run(run.heads, run.evidence, run.thresholds, far).save(shared)
    again = hs.load(shared)
    with pytest.raises(ModelError, match=r"'tiny'.*--model"):
        again.show("L0H0", "the keys")
    with pytest.raises(CorpusError, match=r"'texts'.*--c"):
        hs.redundancy(again, source=home / "models" / "tiny", windows=2)
    assert again.show("L0H0", "the keys", source=home / "models" / "tiny").pattern.shape[0] > 2


def test_a_run_finds_its_model_and_its_text_and_so_it_does_when_all_are_moved(home, out, tmp_path):
    before = hs.load(out).show("L1H2", "the old keys").pattern
    moved = tmp_path / "disk"
    shutil.copytree(home.parent, moved)
    run = hs.load(moved / "shared" / "run")
    assert run.info["places"]["model"] == str(moved / "hidden-ann" / "models" / "tiny")
    assert (run.show("L1H2", "the old keys").pattern == before).all()
    assert hs.redundancy(run, windows=2).values["queries"] > 0
    (moved / "hidden-ann" / "models" / "tiny").rename(moved / "small")
    run = hs.load(moved / "shared" / "run")  # the earlier one keeps its model
    with pytest.raises(ModelError, match=r"'tiny'.*--model"):
        run.show("L1H2", "the old keys")
    for command in (
        ("show", run_folder := moved / "shared" / "run", "L1H2", "keys"),
        ("study", "redundancy", run_folder, "--windows", 2),
        ("study", "weights", run_folder),
    ):
        written(*command, "--model", moved / "small")


def test_another_model_is_refused_where_the_run_asks_for_its_own(out, tokenizer, tmp_path):
    other = save_model("gpt2", tokenizer, tmp_path / "other", spread=0.3)
    with pytest.raises(RunError, match="weights"):
        hs.load(out).show("L0H0", "the keys", source=other)


def table_and_figure(path: Path) -> tuple[object, ...]:
    """Options for a table and a figure of one name."""
    return ("--out", path.with_suffix(".csv"), "--figure", path.with_suffix(".svg"))


def test_no_file_that_a_command_writes_says_where_its_model_lies(home, out, tmp_path):
    model, text = home / "models" / "tiny", home / "texts"
    two = out.parent / "two"
    shutil.copytree(out, two)
    made = tmp_path / "made"
    made.mkdir()
    written("compare", out, two, "--out", made / "compare.csv")
    written("study", "redundancy", two, "--windows", 2, *table_and_figure(made / "r"))
    written("study", "weights", two, "--out", made / "w.csv")
    written("show", two, "L0H0", "the keys", "--out", made / "show.html")
    on_text = ("--corpus", text, "--max-tokens")
    written("study", "prune", two, *on_text, 1200, *table_and_figure(made / "p"))
    written("study", "collapse", model, *on_text, 100, *table_and_figure(made / "c"))
    written("report", two, "--out", made / "page.html")
    assert len(list(made.iterdir())) == 10
    assert said_in(made, str(home.parent)) == []


def test_no_file_of_a_sweep_says_where_its_models_lie(home):
    (home / "broken").mkdir(exist_ok=True)
    elsewhere = home / "more" / "tiny"
    if not elsewhere.exists():
        shutil.copytree(home / "models" / "tiny", elsewhere)
    folder = home.parent / "shared" / "sweep"
    models = f"{home}/models/tiny,{elsewhere},{home}/broken"
    given = ("--models", models, "--corpus", home / "texts", "--out", folder)
    limits = ("--max-tokens", 300, "--types", "positional", "-q")
    assert headscope("sweep", "run", *given, *limits).returncode == 1  # the broken one
    assert said_in(folder, str(home.parent)) == []
    plan = json.loads((folder / "sweep.json").read_text())
    assert [cell["model"] for cell in plan["cells"]] == ["tiny", "tiny (2)", "broken"]
    assert [cell["status"] for cell in plan["cells"]] == ["complete", "complete", "failed"]
    assert "broken: no config.json" in plan["cells"][2]["error"]
