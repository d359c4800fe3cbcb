"""The package works alone: sdist, wheel, and an environment without the checkout."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import tarfile
import tomllib
import zipfile
from collections.abc import Iterable
from importlib.metadata import Distribution, distribution
from itertools import chain
from pathlib import Path

import pandas as pd
import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name
from packaging.version import Version

from headscope.models.packaged import reserved_names
from headscope.packages import EXTRAS

ROOT = Path(__file__).parents[1]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
LEFT_OUT = {"__pycache__", "_build", "generated"}
"""Folders that tools leave behind in folders of source."""


def call(*command: object, cwd: Path, code: int = 0) -> str:
    """Output of a command that ends with this code; its stderr if that is not 0."""
    environment = {k: v for k, v in os.environ.items() if not k.startswith(("PYTHON", "COV_"))}
    done = subprocess.run(
        [*map(str, command)],
        cwd=cwd,
        env=environment | {"HF_HUB_OFFLINE": "1", "COLUMNS": "100"},
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    assert done.returncode == code, done.stdout + done.stderr
    return done.stderr if code else done.stdout


@pytest.fixture(scope="session")
def sdist(tmp_path_factory) -> Path:
    folder = tmp_path_factory.mktemp("sdist")
    call(sys.executable, "-m", "hatchling", "build", "-t", "sdist", "-d", folder, cwd=ROOT)
    (path,) = folder.glob("*.tar.gz")
    return path


@pytest.fixture(scope="session")
def wheel(sdist, tmp_path_factory) -> Path:
    """Built from the sdist, as pip does where no wheel is published."""
    folder = tmp_path_factory.mktemp("wheel")
    pip = (sys.executable, "-m", "pip", "wheel", "--no-deps", "--no-index", "--no-build-isolation")
    call(*pip, "--quiet", "--wheel-dir", folder, sdist, cwd=folder)
    (path,) = folder.glob("*.whl")
    return path


def required_by(name: str) -> dict[str, Distribution]:
    """The installed distributions that pip installs for one, without its extras."""
    found: dict[str, Distribution] = {}
    missing = [name]
    while missing:
        own = canonicalize_name(missing.pop())
        if own in found:
            continue
        found[own] = distribution(own)
        for requirement in map(Requirement, found[own].requires or ()):
            if requirement.marker is None or requirement.marker.evaluate({"extra": ""}):
                missing.append(requirement.name)
    return found


def link(packages: Path, names: Iterable[str]) -> None:
    """Make these distributions part of an environment, by links to the files of this one."""
    for name in names:
        each = distribution(name)
        tops = {file.parts[0] for file in each.files or ()} - {"..", "__pycache__"}
        for top in tops:
            target = packages / top
            if not target.exists():
                target.symlink_to(str(each.locate_file(top)))


@pytest.fixture(scope="module")
def installed(wheel, tmp_path_factory) -> Path:
    """The programs of an environment with the wheel and what it requires, and nothing else.

    What it requires is not installed again: that takes minutes.
    """
    home = tmp_path_factory.mktemp("empty") / "env"
    call(sys.executable, "-m", "venv", "--without-pip", home, cwd=home.parent)
    pip = (sys.executable, "-m", "pip", "--python", home / "bin" / "python", "install", "--quiet")
    call(*pip, "--no-deps", "--no-index", wheel, cwd=home.parent)
    (packages,) = (home / "lib").glob("python*/site-packages")
    asked = [Requirement(each).name for each in PROJECT["dependencies"]]
    link(packages, {name for each in asked for name in required_by(each)})
    return home / "bin"


def pythons() -> list[str]:
    """The versions of Python that the project names."""
    start = "Programming Language :: Python :: 3."
    return [c.rpartition(" ")[2] for c in PROJECT["classifiers"] if c.startswith(start)]


def files_below(*folders: str) -> set[str]:
    paths = (path for folder in folders for path in (ROOT / folder).rglob("*"))
    return {
        path.relative_to(ROOT).as_posix()
        for path in paths
        if path.is_file() and not LEFT_OUT & set(path.relative_to(ROOT).parts)
    }


@pytest.mark.slow
def test_the_sdist_holds_all_that_tests_and_documentation_need(sdist):
    with tarfile.open(sdist) as archive:
        names = {name.partition("/")[2] for name in archive.getnames()}
    folders = (
        *(".ci", ".github", "benchmarks", "data", "docs", "headscope"),
        *("notebooks", "paper", "tests"),
    )
    top = {path.name for path in ROOT.glob("*.md")} | {"CITATION.cff", "LICENSE", "Makefile"}
    wanted = files_below(*folders) | top | {"pyproject.toml", ".pre-commit-config.yaml"}
    assert wanted <= names
    assert names <= wanted | {"PKG-INFO", ".gitignore"}


@pytest.mark.slow
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


def use(programs: Path, folder: Path) -> None:
    """Do what a reader of the README does first, in a folder that is not the checkout."""
    place = "import headscope; print(headscope.__file__)"
    imported = Path(call(programs / "python", "-c", place, cwd=folder).strip())
    assert imported.is_relative_to(programs.parent)
    said = call(programs / "headscope", "--version", cwd=folder)
    assert said == f"headscope {PROJECT['version']}\n"
    call(programs / "headscope", "report", "atlas:smollm2", cwd=folder)
    assert "<script" in (folder / "smollm2.html").read_text(encoding="utf-8")
    classify = ("classify", "mini", "--max-tokens", 2000, "--quiet", "--out", "run")
    printed = call(programs / "headscope", *classify, cwd=folder)
    shape = json.loads((ROOT / "data" / "mini" / "config.json").read_text(encoding="utf-8"))
    assert f"{shape['n_layer']} layers × {shape['n_head']} heads" in printed
    heads = pd.read_csv(folder / "run" / "heads.csv")
    assert heads["tags"].str.contains("induction").sum() >= 2
    info = json.loads((folder / "run" / "run.json").read_text(encoding="utf-8"))
    assert info["provenance"]["versions"]["headscope"] == PROJECT["version"]
    assert "<script" in (folder / "run" / "report.html").read_text(encoding="utf-8")


@pytest.mark.slow
def test_an_environment_of_required_packages_does_the_main_job(installed, tmp_path):
    present = "import importlib.util as u; print([n for n in {!r} if u.find_spec(n)])"
    optional = call(installed / "python", "-c", present.format([*EXTRAS]), cwd=tmp_path)
    assert optional == "[]\n"
    use(installed, tmp_path)
    drawing = ("draw", "atlas", "run")
    assert "headscope[figures]" in call(installed / "headscope", *drawing, cwd=tmp_path, code=2)


@pytest.mark.slow
def test_a_gguf_file_is_read_without_an_extra(installed, smollm2, tmp_path):
    show = (installed / "headscope", "show", smollm2, "L0H0", "The king")
    assert "king" in call(*show, cwd=tmp_path)


@pytest.mark.slow
def test_pip_installs_the_wheel_and_its_extras(wheel, tmp_path):
    """A cold installation: about a minute, and 1.4 GB."""
    call(sys.executable, "-m", "venv", "env", cwd=tmp_path)
    programs = tmp_path / "env" / "bin"
    constraints = [("-c", path) for path in (ROOT / ".ci").glob("constraints*.txt")]
    install = (programs / "python", "-m", "pip", "install", "--quiet", "--no-compile")
    install += tuple(chain.from_iterable(constraints))
    try:
        call(*install, f"einops=={distribution('einops').version}", cwd=tmp_path)
    except AssertionError as error:
        pytest.skip(f"pip reaches no package index: {str(error)[-200:]}")
    call(*install, "torch", cwd=tmp_path)  # alone, as make does
    call(*install, wheel, cwd=tmp_path)
    use(programs, tmp_path)
    drawing = (programs / "headscope", "draw", "atlas", "run")
    said = call(*drawing, cwd=tmp_path, code=2)
    (extra,) = re.findall(r"headscope\[figures\]", said)
    call(*install, extra, cwd=tmp_path)  # the advice holds before anything is published
    call(*drawing, cwd=tmp_path)
    assert (tmp_path / "atlas.pdf").read_bytes().startswith(b"%PDF")


@pytest.mark.slow
def test_the_wheel_is_small_and_atlases_are_in_it(wheel):
    assert wheel.stat().st_size <= 18_000_000
    with zipfile.ZipFile(wheel) as archive:
        names = archive.namelist()
    for name in reserved_names():
        assert f"headscope/data/atlas/{name}.tar.xz" in names


SCRIPTS = [
    path.relative_to(ROOT)
    for folder in ("data", "docs")
    for path in sorted((ROOT / folder).rglob("*.py"))
    if "argparse" in path.read_text(encoding="utf-8")
]


# one process imports torch once; each script finds its own modules, as if it were started alone
HELP = """
import runpy, sys
from pathlib import Path
for script in sys.argv[1:]:
    sys.argv, sys.path[0] = [script, "--help"], str(Path(script).resolve().parent)
    try:
        runpy.run_path(script, run_name="__main__")
    except SystemExit as end:
        print(script if not end.code else end.code)
    for name in [name for name in sys.modules if name.partition(".")[0] in ("data", "docs")]:
        del sys.modules[name]
"""


def test_scripts_outside_the_package_still_start():
    helped = call(sys.executable, "-c", HELP, *SCRIPTS, cwd=ROOT)
    assert len(SCRIPTS) > 3
    for script in SCRIPTS:
        assert f"usage: {script.name}" in helped
        assert f"\n{script}\n" in helped


def test_every_package_that_is_asked_for_has_the_version_that_the_tests_passed_with():
    """Else a release of another package on the day of a test decides whether it passes."""
    pinned = {
        name: Version(version)
        for path in (ROOT / ".ci").glob("constraints*.txt")
        for line in path.read_text(encoding="utf-8").splitlines()
        if "==" in line
        for name, version in [line.split("==")]
    }
    extras = PROJECT["optional-dependencies"].values()
    asked = [Requirement(each) for each in chain(PROJECT["dependencies"], *extras)]
    asked = [each for each in asked if each.name != PROJECT["name"]]
    assert [each.name for each in asked if each.name not in pinned] == []
    assert [str(each) for each in asked if not each.specifier.contains(pinned[each.name])] == []
    assert set(pinned) == {each.name for each in asked} | {"tokenizers"}
