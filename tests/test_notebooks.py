"""Every notebook runs from top to bottom on `mini`, with no network, and its outputs are stored."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import nbclient
import nbformat
import pytest

NOTEBOOKS = sorted((Path(__file__).parents[1] / "notebooks").glob("*.ipynb"))


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
    for path in NOTEBOOKS:
        code = [c for c in nbformat.read(path, as_version=4).cells if c.cell_type == "code"]
        cells[path.stem] = [cell(quarter(c.source)) for c in code]
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
    code = [c for c in nbformat.read(path, as_version=4).cells if c.cell_type == "code"]
    assert all(c.execution_count for c in code), "make notebooks"
    assert not [out for c in code for out in c.outputs if out.output_type == "error"]
    assert not re.search(r"/(home|root|tmp|Users|work)/", path.read_text(encoding="utf-8"))
    assert path.stat().st_size < 500_000


@pytest.mark.slow
@pytest.mark.parametrize("name", [path.stem for path in NOTEBOOKS])
def test_the_notebook_runs(executed, name):
    outputs = [out for cell in executed[name] for out in cell.outputs]
    assert ["\n".join(out.traceback) for out in outputs if out.output_type == "error"] == []
    assert {kind for out in outputs for kind in out.get("data", {})} & {"text/html", "image/png"}
