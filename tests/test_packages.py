"""Optional packages are imported in one module; everything else is a dependency."""

from __future__ import annotations

import ast
import re
import sys
import tomllib
from collections.abc import Iterator
from pathlib import Path

import pytest

import headscope as hs
from headscope.errors import HeadscopeError
from headscope.packages import EXTRAS, optional_package
from tests.helpers.shell import headscope

ROOT = Path(__file__).parents[1]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
MODULES = {"pyyaml": "yaml"}
"""Names of modules that differ from their distribution's."""


def sources() -> list[tuple[str, ast.Module]]:
    paths = sorted((ROOT / "headscope").rglob("*.py"))
    return [(path.relative_to(ROOT).as_posix(), ast.parse(path.read_text())) for path in paths]


def module_of(requirement: str) -> str:
    name = re.match(r"[\w.-]+", requirement)[0].lower()
    return MODULES.get(name, name.replace("-", "_"))


def run_nodes(tree: ast.AST) -> Iterator[ast.AST]:
    """All nodes but those below `if TYPE_CHECKING`, which only mypy reads."""
    for node in ast.iter_child_nodes(tree):
        if isinstance(node, ast.If) and ast.unparse(node.test) == "TYPE_CHECKING":
            continue
        yield node
        yield from run_nodes(node)


def imports(tree: ast.Module) -> set[str]:
    """The packages that a module imports when it runs, wherever it does."""
    found = set()
    for node in run_nodes(tree):
        if isinstance(node, ast.Import):
            found |= {alias.name.partition(".")[0] for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and node.module and not node.level:
            found.add(node.module.partition(".")[0])
    return found


def test_what_is_imported_is_a_dependency_or_comes_with_an_extra_that_is_asked_for():
    plain = {*map(module_of, PROJECT["dependencies"]), *sys.stdlib_module_names, "headscope"}
    plain.add("tokenizers")  # of which transformers consists
    other = {(name, package) for name, tree in sources() for package in imports(tree) - plain}
    # these modules are loaded, or these functions called, where the package is known to be there
    processes, widget = "headscope/studies/sweep.py", "headscope/serve/head_widget.py"
    server, guard = "headscope/serve/server.py", "headscope/serve/guard.py"
    assert other == {
        (processes, "ray"),
        (widget, "anywidget"),
        (widget, "traitlets"),
        (server, "anyio"),
        (server, "starlette"),
        (server, "uvicorn"),
        (guard, "starlette"),
        ("headscope/views/figures.py", "matplotlib"),
        ("headscope/views/study_figure.py", "matplotlib"),
    }


def test_the_extras_that_are_advised_bring_their_packages():
    for package, extra in EXTRAS.items():
        assert package in map(module_of, PROJECT["optional-dependencies"][extra])


def test_documents_install_from_the_repository_and_name_extras_that_exist():
    """headscope's name on the package index means nothing before its first release."""
    pages = [*ROOT.glob("*.md"), *(ROOT / "docs").rglob("*.md")]
    lines = [line for page in pages for line in page.read_text(encoding="utf-8").splitlines()]
    advised = [line for line in lines if "pip install" in line]
    named = [extra for line in advised for extra in re.findall(r"\[([\w,]+)\]", line)]
    assert named
    assert {name for extra in named for name in extra.split(",")} <= {
        *PROJECT["optional-dependencies"]
    }
    url = PROJECT["urls"]["Source"]
    assert [line for line in advised if re.search(r"install headscope(?!\[)", line)] == []
    assert any(f"pip install git+{url}" in line for line in advised)


def test_a_package_that_cannot_be_imported_is_named_with_the_command_that_installs_it(
    tmp_path, monkeypatch
):
    (tmp_path / "ray.py").write_text("raise RuntimeError('made for another torch')")
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.delitem(sys.modules, "ray", raising=False)
    with pytest.raises(HeadscopeError, match=r"headscope\[ray"):
        optional_package("x", "ray")
    assert optional_package("x", "json").loads("1") == 1


@pytest.mark.parametrize(
    ("package", "command"),
    [
        ("starlette", "serve no-such-model --no-open"),
        ("uvicorn", "serve no-such-model --no-open"),
        ("matplotlib", "draw atlas no-such-run --out atlas.pdf"),
        ("matplotlib", "show no-such-model L0H0 text --out head.png"),
        ("matplotlib", "study redundancy no-such-model --figure heads.svg"),
        ("matplotlib", "compare no-such-run no-such-run --figure changes.png"),
    ],
)
def test_a_command_without_its_package_names_the_extra_before_it_loads_anything(
    package, command, tmp_path, monkeypatch
):
    monkeypatch.setitem(sys.modules, package, None)  # importing it fails
    done = headscope(*command.split(), cwd=tmp_path)
    assert done.returncode == 2
    assert f"headscope[{EXTRAS[package]}]" in done.stderr
    assert list(tmp_path.iterdir()) == []


def test_a_figure_in_python_without_matplotlib_names_the_extra(mini_run, monkeypatch):
    run = hs.load(mini_run)
    patterns = hs.patterns("mini", "a b a")
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    drawn = [
        run.figure,
        hs.weights("mini").figure,
        hs.show(patterns, "L0H0").figure,
        hs.show(patterns, "L0").figure,
    ]
    for figure in drawn:
        with pytest.raises(HeadscopeError, match=r"headscope\[figures"):
            figure()
