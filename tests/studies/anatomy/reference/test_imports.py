"""The package stands alone: a reader needs nothing else of headscope."""

from __future__ import annotations

import ast
import subprocess
import sys
from pathlib import Path

import pytest

from headscope.studies.anatomy import reference

FILES = sorted(Path(reference.__file__).parent.rglob("*.py"))


def _imports(path: Path) -> set[str]:
    tree = ast.walk(ast.parse(path.read_text(encoding="utf-8")))
    nodes = [node for node in tree if isinstance(node, ast.Import | ast.ImportFrom)]
    named = {alias.name for node in nodes if isinstance(node, ast.Import) for alias in node.names}
    return named | {node.module or "" for node in nodes if isinstance(node, ast.ImportFrom)}


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.stem)
def test_of_headscope_only_the_errors_are_imported(path):
    ours = {name for name in _imports(path) if name.split(".")[0] == "headscope"}
    outside = {name for name in ours if not name.startswith("headscope.studies.anatomy.reference")}
    assert outside <= {"headscope.errors"}


def test_the_files_and_their_imports_are_found():
    assert len(FILES) > 5
    (attention,) = (path for path in FILES if path.stem == "multi_head")
    assert {
        "torch",
        "headscope.errors",
        "headscope.studies.anatomy.reference.positions",
    } <= _imports(attention)


def test_the_weights_of_a_layer_can_be_taken_without_loading_transformers():
    code = "import sys, headscope.studies.anatomy.reference; print('transformers' in sys.modules, 'torch' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.split() == ["False", "True"]
