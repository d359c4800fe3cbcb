"""Names say what a value is: no function, class, argument or variable is called by a filler."""

from __future__ import annotations

import ast
import re
from collections import defaultdict
from pathlib import Path

PROJECT = Path(__file__).parents[2]
ROOT = PROJECT / "headscope"
FILLERS = frozenset(
    "found own each asked ask beside told tell kept made given said look looks looked coming these "
    "rest place wanted chosen taken turned drawn further room alike whole shown named ours theirs "
    "left come came goes how most more less few such thing".split()
)
USERS_TYPE_IT = "users type it: an argument of `hs`, an option, or a field of a result"
EXCEPTIONS = {
    "how": (4, USERS_TYPE_IT),
    "each": (3, USERS_TYPE_IT),
    "most": (1, USERS_TYPE_IT),
    "told": (1, USERS_TYPE_IT),
    "own": (1, "a method that is looked up by the name of its metric"),
}
"""Fillers that stand for a reason, and how often at most."""


def bindings(tree: ast.AST) -> list[str]:
    """Names of functions, classes, arguments and variables."""
    names = []
    for node in ast.walk(tree):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
            names.append(node.name)
        elif isinstance(node, ast.arg):
            names.append(node.arg)
        elif isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
            names.append(node.id)
    return names


def fillers() -> dict[str, list[str]]:
    """Files that bind a filler, by filler."""
    found = defaultdict(list)
    for path in sorted(ROOT.rglob("*.py")):
        for name in bindings(ast.parse(path.read_text(encoding="utf-8"))):
            if (word := name.strip("_").lower()) in FILLERS:
                found[word].append(str(path.relative_to(ROOT)))
    return found


def test_no_name_is_a_filler_but_for_a_reason():
    for word, places in fillers().items():
        assert word in EXCEPTIONS, f"{word} says nothing of its value: {sorted(set(places))}"
        assert len(places) <= EXCEPTIONS[word][0], f"{word} stands in {places}"


def test_no_name_in_an_example_of_the_pages_is_a_filler():
    for page in (PROJECT / "README.md", *sorted((PROJECT / "docs").rglob("*.md"))):
        examples = re.findall(r"```python\n(.*?)```", page.read_text(encoding="utf-8"), re.DOTALL)
        names = [name for example in examples for name in bindings(ast.parse(example))]
        assert not FILLERS & {*names}, page
