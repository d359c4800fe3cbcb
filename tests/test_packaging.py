"""What is published works by itself: sdist, wheel, and an environment that never saw the checkout."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import sysconfig
import tarfile
import tomllib
import zipfile
from pathlib import Path

import pandas as pd
import pytest
import yaml

ROOT = Path(__file__).parents[1]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
LEFT_OUT = {"__pycache__", "_build", "generated"}
"""What tools leave behind in folders of source."""


def call(*command: object, cwd: Path) -> str:
    environment = {k: v for k, v in os.environ.items() if not k.startswith(("PYTHON", "COV_"))}
    done = subprocess.run(
        [*map(str, command)], cwd=cwd, env=environment | {"HF_HUB_OFFLINE": "1", "COLUMNS": "100"},
        capture_output=True, text=True, timeout=300, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


@pytest.fixture(scope="module")
def sdist(tmp_path_factory) -> Path:
    folder = tmp_path_factory.mktemp("sdist")
    call(sys.executable, "-m", "hatchling", "build", "-t", "sdist", "-d", folder, cwd=ROOT)
    (path,) = folder.glob("*.tar.gz")
    return path


@pytest.fixture(scope="module")
def wheel(sdist, tmp_path_factory) -> Path:
    """Built from the sdist, as pip does where no wheel is published."""
    folder = tmp_path_factory.mktemp("wheel")
    pip = (sys.executable, "-m", "pip", "wheel", "--no-deps", "--no-index", "--no-build-isolation")
    call(*pip, "--quiet", "--wheel-dir", folder, sdist, cwd=folder)
    (path,) = folder.glob("*.whl")
    return path


@pytest.fixture(scope="module")
def installed(wheel, tmp_path_factory) -> Path:
    """The programs of an environment that has the wheel, and borrows what it depends on.

    A `.pth` file inside a borrowed folder is not read, so that the editable install of this
    checkout stays out.
    """
    home = tmp_path_factory.mktemp("empty") / "env"
    call(sys.executable, "-m", "venv", "--without-pip", home, cwd=home.parent)
    pip = (sys.executable, "-m", "pip", "--python", home / "bin" / "python", "install", "--quiet")
    call(*pip, "--no-deps", "--no-index", wheel, cwd=home.parent)
    (packages,) = (home / "lib").glob("python*/site-packages")
    borrowed = dict.fromkeys(sysconfig.get_path(kind) for kind in ("purelib", "platlib"))
    (packages / "borrowed.pth").write_text("\n".join(borrowed))
    return home / "bin"


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
