"""What is published works by itself: sdist, wheel, and an environment that never saw the checkout."""

from __future__ import annotations

import json
import tarfile
import tomllib
import zipfile
from pathlib import Path

import pandas as pd
import yaml

from tests.helpers.installed import ROOT, call

PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
LEFT_OUT = {"__pycache__", "_build", "generated"}
"""What tools leave behind in folders of source."""


def files_below(*folders: str) -> set[str]:
    paths = (path for folder in folders for path in (ROOT / folder).rglob("*"))
    return {
        path.relative_to(ROOT).as_posix()
        for path in paths
        if path.is_file() and not LEFT_OUT & set(path.relative_to(ROOT).parts)
    }


def test_the_sdist_holds_all_that_tests_and_documentation_need(sdist):
    with tarfile.open(sdist) as archive:
        names = {name.partition("/")[2] for name in archive.getnames()}
    folders = (".ci", ".github", "benchmarks", "data", "docs", "headscope", "notebooks", "tests")
    top = {path.name for path in ROOT.glob("*.md")} | {"CITATION.cff", "LICENSE", "Makefile"}
    wanted = files_below(*folders) | top | {"pyproject.toml", ".pre-commit-config.yaml"}
    assert wanted <= names
    assert names <= wanted | {"PKG-INFO", ".gitignore"}


def test_the_wheel_holds_every_file_of_the_package_and_of_data(wheel):
    with zipfile.ZipFile(wheel) as archive:
        listed = archive.namelist()
        (meta,) = (archive.read(name).decode() for name in listed if name.endswith("/METADATA"))
    names = {name for name in listed if ".dist-info/" not in name}
    licences = {name.partition("/licenses/")[2] for name in listed}
    assert licences >= {"LICENSE", "data/gum/LICENSE.txt", "data/gum/documents.csv"}
    assert "\nLicense-Expression: MIT AND CC-BY-4.0 AND " in meta
    data = {f"headscope/{name}" for name in files_below("data")}
    assert names == files_below("headscope") | data
    assert "headscope/py.typed" in names
    assert {Path(name).suffix for name in names} >= {".py", ".html", ".css", ".js", ".conllu"}


def test_an_empty_environment_classifies_mini_outside_the_checkout(installed, tmp_path):
    place = "import headscope; print(headscope.__file__)"
    imported = Path(call(installed / "python", "-c", place, cwd=tmp_path).strip())
    assert imported.is_relative_to(installed.parent)
    said = call(installed / "headscope", "--version", cwd=tmp_path)
    assert said == f"headscope {PROJECT['version']}\n"
    classify = ("classify", "mini", "--max-tokens", 2000, "--quiet", "--out", "run")
    printed = call(installed / "headscope", *classify, cwd=tmp_path)
    shape = json.loads((ROOT / "data" / "mini" / "config.json").read_text(encoding="utf-8"))
    assert f"{shape['n_layer']} layers × {shape['n_head']} heads" in printed
    heads = pd.read_csv(tmp_path / "run" / "heads.csv")
    assert heads["tags"].str.contains("induction").sum() >= 2
    info = json.loads((tmp_path / "run" / "run.json").read_text(encoding="utf-8"))
    assert info["provenance"]["versions"]["headscope"] == PROJECT["version"]
    assert "<script" in (tmp_path / "run" / "report.html").read_text(encoding="utf-8")


def test_one_version_is_stated_everywhere():
    citation = yaml.safe_load((ROOT / "CITATION.cff").read_text(encoding="utf-8"))
    changes = (ROOT / "CHANGELOG.md").read_text(encoding="utf-8")
    newest = changes.partition("\n## [")[2].partition("]")[0]
    assert str(citation["version"]) == newest == PROJECT["version"]


def test_the_workflow_tries_each_python_that_the_project_names():
    workflow = (ROOT / ".github" / "workflows" / "test.yml").read_text(encoding="utf-8")
    tried = yaml.safe_load(workflow)["jobs"]["test"]["strategy"]["matrix"]["python"]
    start = "Programming Language :: Python :: 3."
    named = [c.rpartition(" ")[2] for c in PROJECT["classifiers"] if c.startswith(start)]
    assert tried == named
    assert PROJECT["requires-python"] == f">={tried[0]}"


def test_hooks_before_a_commit_need_no_network():
    hooks = yaml.safe_load((ROOT / ".pre-commit-config.yaml").read_text(encoding="utf-8"))
    assert {repository["repo"] for repository in hooks["repos"]} == {"local"}
    entries = [hook["entry"] for repository in hooks["repos"] for hook in repository["hooks"]]
    assert [entry.split()[0] for entry in entries] == [
        ".venv/bin/ruff", ".venv/bin/ruff", ".venv/bin/mypy"
    ]  # fmt: skip
