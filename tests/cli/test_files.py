"""No file of the user is lost, in or beside the outputs of each command."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import get_args, get_type_hints

import pytest
from typer.testing import CliRunner

import headscope as hs
from headscope.cli import app
from headscope.errors import HeadscopeError
from headscope.models.locate import run_name
from headscope.run import load
from tests.fuzz import commands
from tests.helpers.run_folders import make_run
from tests.helpers.shell import headscope
from tests.helpers.studies import COMMANDS, FUNCTIONS, line, words_with

FOLDERS = {(name, "out") for name in commands.FOLDERS} | {("prune", "save")}
"""Outputs that are folders; what is in them is tried on its own."""
OUTPUTS = [
    (name, option.name, option.opts[0])
    for name, command in sorted(COMMANDS.items())
    for option in command.params
    if option.param_type_name == "option"
    and option.name in ("out", "figure")
    and (name, option.name) not in FOLDERS
]
NEEDED = {
    name: words_with(
        name,
        {"head": "L0H0", "text": "text", "clean": "a", "corrupt": "b", "template": "previous"},
    )
    for name in COMMANDS
} | {"languages": ["nowhere", "--corpus", "nowhere"]}


@pytest.fixture(scope="module")
def sound(tmp_path_factory) -> Path:
    return make_run(tmp_path_factory.mktemp("sound") / "run")


@pytest.fixture
def folder(sound, tmp_path) -> Path:
    return shutil.copytree(sound, tmp_path / "runs" / "run")


def everything(folder: Path) -> dict[str, bytes]:
    return {str(p.relative_to(folder)): p.read_bytes() for p in folder.rglob("*") if p.is_file()}


def test_every_output_is_known():
    """A new option that takes a path must be an input, or join the rule that is tested here."""
    paths = {
        (command, name)
        for command, function in FUNCTIONS.items()
        for name, hint in get_type_hints(function).items()
        if Path in (hint, *get_args(hint)) or list[Path] in get_args(hint)
    } | {
        (command, option.name)
        for command, row in COMMANDS.items()
        for option in row.params
        if option.metavar == "PATH"
    }
    inputs = {"corpus", "file", "labels", "programs", "run", "runs", "scores", "sweep"}
    assert {(n, o) for n, o in paths if o not in inputs} == FOLDERS | {
        (n, o) for n, o, _ in OUTPUTS
    }
    for name, _, _ in OUTPUTS:
        assert "overwrite" in [option.name for option in COMMANDS[name].params], name


@pytest.mark.parametrize(("command", "option", "flag"), OUTPUTS, ids=lambda part: str(part))
def test_a_file_that_is_there_survives_every_command(command, option, flag, tmp_path):
    suffix = {"out": ".csv", "figure": ".svg"}.get(option, ".html")
    suffix = {"report": ".html", "show": ".svg", "atlas": ".svg"}.get(command, suffix)
    precious = tmp_path / f"precious{suffix}"
    precious.write_text("precious")
    arguments = [*line(command), *NEEDED[command], flag, str(precious)]
    refused = CliRunner().invoke(app, arguments)
    assert isinstance(refused.exception, HeadscopeError)
    for option in (flag, "--overwrite"):
        assert option in str(refused.exception)
    if command == "shapes":  # reads nothing, and so nothing fails
        return
    failed = CliRunner().invoke(app, [*arguments, "--overwrite"])
    assert isinstance(failed.exception, HeadscopeError)
    assert "exists already" not in str(failed.exception)
    assert everything(tmp_path) == {precious.name: b"precious"}


def test_overwrite_replaces_the_file_and_no_other(folder):
    (folder / "notes.txt").write_text("mine")
    for command, name in (("atlas", "a.svg"), ("report", "r.html")):
        target = folder / name
        target.write_text("old")
        before = everything(folder)
        assert (
            CliRunner().invoke(app, [*line(command), str(folder), "--out", str(target)]).exit_code
            == 1
        )
        done = CliRunner().invoke(
            app, [*line(command), str(folder), "--out", str(target), "--overwrite"]
        )
        assert done.exit_code == 0, done.exception
        after = everything(folder)
        assert after.pop(name) != before.pop(name)
        assert after == before


OF_ONE_WORD = "export headvis RUN --corpus word.txt --heads all --out headvis"
"""Its sequences have at least three tokens, and the file has one word."""


@pytest.mark.parametrize(
    ("words", "names"),
    [
        ("study prune mini --save there", ["there exists already", "new folder"]),
        ("ablate RUN", ["causal.csv exists already", "--overwrite"]),
        ("task mini ioi --out told", ["task.html exists already", "--out", "--overwrite"]),
        (OF_ONE_WORD, ["word.txt", "3 tokens"]),
        ("classify mini --types ,", ["','", "a name"]),
        ("compare RUN --match", ["two runs"]),
    ],
)
def test_a_shared_check_names_what_came_and_what_would_do(words, names, mini_run, tmp_path):
    run = shutil.copytree(mini_run, tmp_path / "run")
    (run / "causal.csv").touch()
    (tmp_path / "there").mkdir()
    (tmp_path / "told").mkdir()
    (tmp_path / "told" / "task.html").touch()
    (tmp_path / "word.txt").write_text("a")
    done = headscope(*words.replace("RUN", str(run)).split(), cwd=tmp_path)
    assert done.returncode == 2, done.stderr
    assert [name for name in names if name not in done.stderr] == []
    assert sorted(path.name for path in tmp_path.iterdir()) == ["run", "there", "told", "word.txt"]


@pytest.mark.parametrize("name", ["heads.csv", "report.html"])
def test_a_file_of_a_run_is_no_output_even_with_overwrite(folder, name):
    before = everything(folder)
    command = "report" if name.endswith("html") else "redundancy"
    refused = CliRunner().invoke(
        app, [*line(command), str(folder), "--out", str(folder / name), "--overwrite"]
    )
    assert isinstance(refused.exception, HeadscopeError)
    assert name in str(refused.exception)
    assert everything(folder) == before


def test_what_the_user_put_into_a_run_folder_survives_overwrite(folder):
    mine = {"atlas.pdf": b"1", "notes/a.txt": b"2", "patterns/mine.json": b"3", ".hidden": b"4"}
    for name, content in mine.items():
        (folder / name).parent.mkdir(exist_ok=True)
        (folder / name).write_bytes(content)
    (folder / "link").symlink_to("notes/a.txt")
    run = load(folder, with_tally=True)
    run.save(folder, overwrite=True)
    after = everything(folder)
    assert mine.items() <= after.items()
    assert after["link"] == b"2"
    assert sorted(path.name for path in folder.parent.iterdir()) == ["run"]
    load(folder, with_tally=True)


def test_the_working_folder_is_not_replaced(folder, monkeypatch):
    run, before = load(folder, with_tally=True), everything(folder)
    (folder / "sub").mkdir()
    for place, out in ((folder, "."), (folder / "sub", ".."), (folder / "sub", str(folder))):
        monkeypatch.chdir(place)
        with pytest.raises(HeadscopeError, match=folder.name):
            run.save(out, overwrite=True)
    assert everything(folder) == before


@pytest.mark.parametrize("model", [".", "./", "..", "../", "a/..", "../model", "x/../."])
def test_a_run_is_named_after_the_folder_and_never_dot(tmp_path, monkeypatch, model):
    (tmp_path / "model" / "a").mkdir(parents=True)
    (tmp_path / "model" / "x").mkdir()
    monkeypatch.chdir(tmp_path / "model")
    assert run_name(model) == (tmp_path.name if model in ("..", "../") else "model")
    with pytest.raises(HeadscopeError, match="--out"):
        run_name("/")


def test_other_runs_survive_the_run_of_the_working_folder(gpt2_folder, tmp_path, monkeypatch):
    model = shutil.copytree(gpt2_folder, tmp_path / "model")
    make_run(model / "runs" / "precious")
    before = everything(model)
    monkeypatch.chdir(model)
    words = ["classify", ".", "--types", "induction", "--max-tokens", "500", "--overwrite", "-q"]
    done = CliRunner().invoke(app, words)
    assert done.exit_code == 0, done.exception
    assert before.items() <= everything(model).items()
    assert (model / "runs" / "model" / "run.json").is_file()
    assert hs.load(model / "runs" / "precious").heads.shape[0] == 4
