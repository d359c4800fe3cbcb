"""The documentation builds without a warning and a network, and shows what the code says."""

from __future__ import annotations

import os
import re
import runpy
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import torch

import headscope as hs
from headscope import relations
from headscope.cli.app import WORDS
from tests.helpers.studies import COMMANDS

DOCS = Path(__file__).parents[2] / "docs"
sys.path.insert(0, str(DOCS))

from generate import file_of  # noqa: E402


@pytest.fixture(scope="module")
def built(tmp_path_factory) -> Path:
    out = tmp_path_factory.mktemp("docs")
    options = ("-W", "--keep-going", "-q", "-b", "html", "-d", str(out / "doctrees"))
    # a proxy that answers nothing: whoever asks the network ends there
    nowhere = {"http_proxy": "http://127.0.0.1:9", "https_proxy": "http://127.0.0.1:9"}
    done = subprocess.run(
        [sys.executable, "-m", "sphinx", *options, str(DOCS), str(out / "html")],
        env=os.environ | nowhere,
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return out / "html"


def words(page: Path) -> str:
    """A page's text without its tags."""
    return re.sub(r"<[^>]+>", "", page.read_text(encoding="utf-8"))


@pytest.mark.slow
def test_the_interface_shows_every_name_that_the_package_exports(built):
    index = (built / "generated" / "api" / "index.html").read_text(encoding="utf-8")
    for name in hs.__all__:
        file = f"{file_of(name)}.html"
        assert f'href="{file}"' in index
        page = (built / "generated" / "api" / file).read_text(encoding="utf-8")
        assert re.search(rf'id="(?:module-)?headscope(?:\.[\w.]+)?\.{name}"', page), name


@pytest.mark.slow
def test_the_columns_of_a_study_are_a_table_in_the_interface(built):
    page = (built / "generated" / "api" / "prune.html").read_text(encoding="utf-8")
    cells = [
        re.sub(r"<[^>]+>", "", cell) for cell in re.findall(r"<td>(.*?)</td>", page, re.DOTALL)
    ]
    assert [cell.strip() for cell in cells[::3]] == hs.prune.study.names


@pytest.mark.slow
def test_every_command_has_a_page_with_all_of_its_options(built):
    for name, command in COMMANDS.items():
        page = words(built / "generated" / "commands" / f"{'-'.join(WORDS[name])}.html")
        spellings = [word for option in command.params for word in option.opts if word[:1] == "-"]
        assert all(word in page for word in spellings), name
    assert len(COMMANDS) > 15


@pytest.mark.slow
def test_no_docstring_is_read_as_html(built):
    pages = set(built.rglob("*.html")) - set(built.glob("generated/notebooks/*"))  # with outputs
    for page in pages:
        assert not re.search(r"<s>|<b>|<p>&gt;&gt;&gt;", page.read_text(encoding="utf-8")), page


@pytest.mark.slow
def test_the_pages_ask_no_other_host(built):
    for page in built.rglob("*.html"):
        text = page.read_text(encoding="utf-8")
        assert not re.findall(r'(?:src|<link[^>]*href)="(?:https?:)?//[^"]*"', text), page


def python_blocks(page: str) -> list[str]:
    """The Python of a how-to page."""
    text = (DOCS / "how-to" / page).read_text(encoding="utf-8")
    return re.findall(r"```python\n(.*?)```", text, flags=re.DOTALL)


def test_the_examples_of_other_programs_run(monkeypatch):
    monkeypatch.chdir(DOCS.parent)
    names: dict[str, Any] = {}
    for page in ("neuronpedia_and_transformerlens.md", "patterns_of_other_programs.md"):
        for block in python_blocks(page):
            if "traced" not in block:
                exec(block, names)
    assert names["ablated"].shape == (1, names["tokens"].shape[1], 1024)
    assert not torch.equal(names["ablated"], names["bridge"](names["tokens"]))
    assert names["paths"].shape == (6, 8)
    assert names["paths"][names["layer"] + 1 :].abs().min() > 0
    assert names["scored"].heads["primary"].eq("unclassified").all()  # random queries and keys
    assert len(names["scored"].heads) == 24
    assert names["names"][3].startswith("L5H3 induction")


@pytest.mark.parametrize("program", ["nnsight", "nnterp"])
def test_a_tracer_ablates_the_same_heads_as_hooks(program, monkeypatch, tmp_path):
    pytest.importorskip(program)
    monkeypatch.chdir(DOCS.parent)
    hooks, *blocks = python_blocks("neuronpedia_and_transformerlens.md")
    names: dict[str, Any] = {}
    exec(hooks, names)
    (block,) = [block for block in blocks if f"from {program} import" in block]
    # these programs read the source of what they trace
    file = tmp_path / "example.py"
    file.write_text(block, encoding="utf-8")
    traced = runpy.run_path(str(file), init_globals=names)["logits"]
    torch.testing.assert_close(traced, names["ablated"], rtol=1e-4, atol=1e-4)


def test_the_relation_and_the_type_on_the_page_about_extending_are_scored(monkeypatch):
    monkeypatch.setattr(relations, "_registered", dict(relations._registered))
    names: dict[str, object] = {}
    for block in python_blocks("your_relation.md"):
        exec(block, names)
    evidence = names["run"].evidence
    assert set(evidence["type"] + "/" + evidence["relation"]) == {"words/two-back"}
    assert evidence["n"].min() > 1000
    assert hs.head_types()["words"].relations == (names["two_back"],)
    boxes = hs.classify("mini", types=["boxes"], max_tokens=500).evidence
    assert boxes["n"].tolist() == [16] * len(boxes)
