"""The wheel without its extras imports no package that its dependencies do not bring, and says what is missing.

The environment borrows the packages of the one that tests run in, and hides from Python and from
importlib.metadata each that headscope's dependencies do not bring.
"""

from __future__ import annotations

import shutil
import tomllib
from importlib.metadata import PackageNotFoundError, distribution, packages_distributions
from pathlib import Path

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

from tests.helpers.installed import ROOT, call
from tests.helpers.models import edit_config
from tests.models.gguf_files import save_gguf, sizes_of

PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
HIDING = '''
import sys
from importlib.machinery import PathFinder

MODULES, DISTRIBUTIONS = {modules!r}, {distributions!r}


class Plain(PathFinder):
    """Finds what the dependencies bring, and nothing else."""

    @classmethod
    def find_spec(cls, fullname, path=None, target=None):
        if fullname.partition(".")[0] in MODULES:
            return None
        return super().find_spec(fullname, path, target)

    @classmethod
    def find_distributions(cls, *args, **kwargs):
        for found in super().find_distributions(*args, **kwargs):
            if found.name.lower().replace("_", "-").replace(".", "-") not in DISTRIBUTIONS:
                yield found


sys.meta_path[sys.meta_path.index(PathFinder)] = Plain
'''


def brought() -> set[str]:
    """The distributions that headscope's dependencies bring here, themselves among them."""
    found: set[str] = set()
    waiting = [Requirement(each) for each in PROJECT["dependencies"]]
    while waiting:
        requirement = waiting.pop()
        name = canonicalize_name(requirement.name)
        extras = requirement.extras or {""}
        try:
            needs = distribution(name).requires or []
        except PackageNotFoundError:  # of another system
            continue
        if name in found and not requirement.extras:
            continue
        found.add(name)
        for each in map(Requirement, needs):
            if each.marker is None or any(each.marker.evaluate({"extra": e}) for e in extras):
                waiting.append(each)
    return found | {"headscope"}


def hidden() -> tuple[set[str], set[str]]:
    """The modules and the distributions that are here and that no dependency brings."""
    plain = brought()
    modules = {
        module
        for module, owners in packages_distributions().items()
        if plain.isdisjoint(map(canonicalize_name, owners))
    }
    every = {
        canonicalize_name(owner) for some in packages_distributions().values() for owner in some
    }
    return modules, every - plain


@pytest.fixture(scope="module")
def python(installed) -> Path:
    """The Python of an environment with the wheel and nothing of its extras."""
    (packages,) = (installed.parent / "lib").glob("python*/site-packages")
    modules, distributions = hidden()
    (packages / "plain_install.py").write_text(
        HIDING.format(modules=modules, distributions=distributions)
    )
    # after borrowed.pth: the borrowed folders are on the path then
    (packages / "plain_install.pth").write_text("import plain_install\n")
    return installed / "python"


def test_every_module_but_the_widget_s_is_imported_without_extras(python, tmp_path):
    code = (
        "import headscope, importlib, pkgutil\n"
        "for module in pkgutil.walk_packages(headscope.__path__, 'headscope.'):\n"
        "    if module.name != 'headscope.__main__':\n"
        "        try: importlib.import_module(module.name)\n"
        "        except ModuleNotFoundError as error: print(module.name, error.name)\n"
    )
    assert call(python, "-c", code, cwd=tmp_path) == "headscope.serve.head_widget anywidget\n"


def test_a_gguf_file_is_read(python, tokenizer, tmp_path):
    save_gguf(tmp_path / "model.gguf", sizes_of(2), tokenizer=tokenizer)
    words = ("classify", "model.gguf", "--types", "positional", "--quick", "--max-tokens", 500)
    call(python, "-m", "headscope", *words, "-q", cwd=tmp_path)
    assert (tmp_path / "runs" / "model" / "heads.csv").is_file()


def test_what_needs_a_package_that_is_not_there_says_how_to_install_it(
    python, gpt2_folder, tmp_path
):
    packed = shutil.copytree(gpt2_folder, tmp_path / "packed")
    quantised = {"quant_method": "bitsandbytes", "load_in_4bit": True}
    edit_config(packed, quantization_config=quantised)
    for words, said in (
        (("sweep", "run", "--models", "mini", "--out", "by-ray", "--address", "there"),
         "--address there needs ray (No module named 'ray'): pip install 'headscope[ray]'"),
        (("classify", "packed"), "requires bitsandbytes: `pip install"),
    ):  # fmt: skip
        ended = call(python, "-m", "headscope", *words, "-q", cwd=tmp_path, code=2)
        assert said in " ".join(ended.split())
