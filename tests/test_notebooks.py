"""Every notebook runs from top to bottom, and its outputs are stored as a reader sees them."""

from __future__ import annotations

import re
import tomllib
from pathlib import Path
from typing import Any

import nbclient
import nbformat
import pytest

from headscope.models.packaged import PACKAGED

PROJECT = Path(__file__).parents[1]
NOTEBOOKS = sorted((PROJECT / "notebooks").glob("*.ipynb"))


def code_of(path: Path) -> list[Any]:
    return [c for c in nbformat.read(path, as_version=4).cells if c.cell_type == "code"]


SHARED = """
def remembered(classify):
    runs = {}
    def once(*asked, out=None, **how):
        key = repr((asked, how))
        if key not in runs:
            runs[key] = classify(*asked, **how)
        if out is not None:
            runs[key].save(out)
        return runs[key]
    return once

import headscope as hs
from headscope.studies import ablate
hs.classify = remembered(hs.classify)
ablate.CONTROLS = 2
"""
"""Notebooks share equal runs, with which most begin, and ablate two control heads per head."""
FORGET = "%reset -f"


def quarter(code: str) -> str:
    """A cell that reads a quarter of the text, or half of the windows where they are counted."""
    parts = {"max_tokens": 4, "windows": 2}
    return re.sub(
        r"\b(max_tokens|windows)=([\d_]+)",
        lambda found: f"{found[1]}={int(found[2]) // parts[found[1]]}",
        code,
    )


@pytest.fixture(scope="module")
def executed() -> dict[str, list[Any]]:
    """Code cells of every notebook with their outputs, of one kernel that is reset between them."""
    cell = nbformat.v4.new_code_cell
    cells = {}
    missing = [name for name, model in PACKAGED.items() if not model.path.exists()]
    for path in NOTEBOOKS:
        sources = [c.source for c in code_of(path)]
        if not any(name in source for name in missing for source in sources):
            cells[path.stem] = [cell(quarter(source)) for source in sources]
    whole = [cell(SHARED), *(c for some in cells.values() for c in (cell(FORGET), *some))]
    notebook = nbformat.v4.new_notebook(cells=whole)
    client = nbclient.NotebookClient(
        notebook, timeout=600, kernel_name="python3", allow_errors=True
    )
    client.execute(cwd=NOTEBOOKS[0].parent)
    assert not [out for out in whole[0].outputs if out.output_type == "error"], whole[0].outputs
    return cells


@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)
def test_every_cell_was_run_and_its_output_names_no_place_of_a_machine(path):
    code = code_of(path)
    assert all(c.execution_count for c in code), "make notebooks"
    assert not [out for c in code for out in c.outputs if out.output_type == "error"]
    assert not re.search(r"/(home|root|tmp|Users|work)/", path.read_text(encoding="utf-8"))
    assert path.stat().st_size < 500_000


def test_all_notebooks_install_headscope_by_the_same_cell_from_the_address_of_the_project():
    (cell,) = {code_of(path)[0].source for path in NOTEBOOKS}
    assert "%pip install" in cell
    source = tomllib.loads((PROJECT / "pyproject.toml").read_text("utf-8"))["project"]["urls"]
    assert f"git+{source['Source']}" in cell


@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)
def test_the_badge_opens_this_notebook(path):
    first = nbformat.read(path, as_version=4).cells[0].source
    links = re.findall(r"\]\((https://colab[^)]*)\)", first)
    assert links[-1].endswith(f"/headscope/blob/main/notebooks/{path.name}")


@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)
def test_the_first_result_is_a_picture(path):
    kinds = {kind for out in code_of(path)[1].outputs for kind in out.get("data", {})}
    assert kinds & {"image/png", "image/svg+xml"}


@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)
def test_stored_outputs_are_rounded_and_need_no_kernel(path):
    data = [out.get("data", {}) for cell in code_of(path) for out in cell.outputs]
    assert "application/vnd.jupyter.widget-view+json" not in {
        kind for each in data for kind in each
    }
    for each in data:
        plain = each.get("text/plain", "nothing")
        assert plain
        assert " object at 0x" not in plain or {"image/png", "image/svg+xml"} & set(each)
        if "dataframe" in each.get("text/html", ""):
            assert not re.search(r"\d\.\d{4}", each["text/html"])


def test_half_of_the_notebooks_or_more_read_the_real_model():
    names = [re.findall(r'"(smollm2)"', "".join(c.source for c in code_of(p))) for p in NOTEBOOKS]
    assert sum(map(bool, names)) >= len(NOTEBOOKS) / 2


@pytest.mark.slow
@pytest.mark.parametrize("name", [path.stem for path in NOTEBOOKS])
def test_the_notebook_runs(executed, name):
    if name not in executed:
        pytest.skip("its model is not in the cache: headscope check models --fetch NAME")
    outputs = [out for cell in executed[name] for out in cell.outputs]
    assert ["\n".join(out.traceback) for out in outputs if out.output_type == "error"] == []
    assert {kind for out in outputs for kind in out.get("data", {})} & {"text/html", "image/png"}
