"""The wheel without its extras: every command on every kind of input ends with 0 or 2, and in words.

The environment borrows the packages of the one that tests run in, and hides from Python and from
importlib.metadata each that headscope's dependencies do not bring.
"""

from __future__ import annotations

import json
import shutil
import tomllib
from collections.abc import Iterator
from importlib.metadata import PackageNotFoundError, distribution, packages_distributions
from pathlib import Path

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

from tests.fuzz.commands import sound
from tests.fuzz.desk import Desk, make_desk
from tests.helpers.installed import ROOT, call
from tests.helpers.models import edit_config
from tests.helpers.studies import FUNCTIONS, line, named
from tests.models.gguf_files import save_gguf, sizes_of

PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
LINES = Path(__file__).parent / "helpers" / "command_lines.py"
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
ASKED = {
    ("sweep", "run", "--models", "mini", "--out", "by-ray", "--address", "there"):
        "--address there needs ray, which is not installed: pip install 'headscope[ray]'",
    ("classify", "packed"): "requires bitsandbytes: `pip install",
}  # fmt: skip
"""What needs a package that is not there, and how it is said."""
SHORT = ("--max-tokens", "50", "--types", "positional")
MORE = {
    "sweep": SHORT,
    "classify": ("--types", "positional"),
    "ablate": ("--heads", "0.0"),
    "languages": ("--types", "positional"),
}
OF_MINI = ("classify", "sweep", "function_vectors")
"""Commands that are asked of `mini` too, which is larger: two, and one that needs a model of
words."""
NEVER = ("serve",)
"""Commands that never end if their input is sound: they get bad input."""


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


@pytest.fixture(scope="module")
def desk(tmp_path_factory, gpt2_folder, tokenizer) -> Desk:
    """A desk with a model of each kind on it, sound and broken."""
    desk = make_desk(tmp_path_factory.mktemp("plain") / "desk")
    home = desk.home
    shutil.copytree(gpt2_folder, home / "model")
    save_gguf(home / "model.gguf", sizes_of(2), tokenizer=tokenizer)
    (home / "broken.gguf").write_bytes((home / "model.gguf").read_bytes()[:1000])
    shutil.copytree(gpt2_folder, home / "packed")
    edit_config(
        home / "packed", quantization_config={"quant_method": "bitsandbytes", "load_in_4bit": True}
    )
    return desk


def command_lines(desk: Desk) -> Iterator[list[str]]:
    """Every command on every kind of model, text and run that it takes, each written elsewhere."""
    arguments = sound(desk)
    for name in FUNCTIONS:
        words = [*arguments[name], *MORE.get(name, ())]
        if name in NEVER:
            yield from (line(name, kind) for kind in ("packed", "broken.gguf", "missing"))
            continue
        kinds = ("model", "model.gguf", "broken.gguf", "packed")
        if name in OF_MINI:
            kinds = ("mini", *kinds)
        for kind in kinds if "mini" in words else ("",):
            for text in ("keys.conllu", "notes.txt") if name == "classify" else ("keys.conllu",):
                swapped = {
                    "mini": kind,
                    "keys.conllu": text,
                    "new": f"new-{name}-{kind}",
                    "swept": f"swept-{kind or 'mini'}",
                    "spoken": f"spoken-{kind}",
                }
                if name != "sweep" or kind not in ("broken.gguf", "packed"):
                    yield line(name, *(swapped.get(word, word) for word in words), *over(name))
    for asked in ASKED:
        yield [*asked, "--quiet"]


def over(name: str) -> list[str]:
    return ["--overwrite"] if name in ("classify", "gallery", "headvis") else []


@pytest.fixture(scope="module")
def ends(python, desk, tmp_path_factory) -> dict[tuple[str, ...], dict[str, object]]:
    """How each command line ended."""
    folder = tmp_path_factory.mktemp("lines")
    (desk.home / "notes.txt").write_text(
        "The old keys were in the house. She told them that.\n" * 20
    )
    lines, results = folder / "lines.json", folder / "results.json"
    lines.write_text(json.dumps(list(command_lines(desk))))
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("HEADSCOPE_CACHE", str(folder / "cache"))
        call(python, "-P", LINES, lines, results, cwd=desk.home)
    assert list((folder / "cache" / "unpacked").iterdir())  # of the GGUF file
    return {tuple(each["line"]): each for each in json.loads(results.read_text())}


def test_the_environment_has_nothing_of_the_extras_and_all_of_the_dependencies(python, tmp_path):
    code = (
        "import importlib.util as u, importlib.metadata as m\n"
        "def there(name):\n"
        "    try: return bool(m.version(name))\n"
        "    except m.PackageNotFoundError: return False\n"
        "print([(n, u.find_spec(n) is not None, there(n)) for n in ('ray', 'gguf', 'pytest')])"
    )
    assert call(python, "-c", code, cwd=tmp_path) == (
        "[('ray', False, False), ('gguf', True, True), ('pytest', False, False)]\n"
    )


def test_every_command_on_every_kind_of_input_ends_in_words(ends):
    odd = [each for each in ends.values() if each["code"] not in (0, None, 2)]
    assert odd == []
    assert [each for each in ends.values() if "Traceback" in each["said"]] == []
    silent = [each for each in ends.values() if each["code"] == 2 and not each["said"].strip()]
    assert silent == []
    names = set(map(named, ends))
    assert names == set(FUNCTIONS)
    assert not [each for each in ends.values() if "No such option" in each["said"]]
    done = {named(line) for line, each in ends.items() if each["code"] in (0, None)}
    assert names - done <= {*NEVER, "emergence", "explain", "prune", "verify"}  # text too short
    assert len(ends) > 50


def test_a_gguf_file_and_a_folder_are_read_by_a_plain_install(ends):
    for kind in ("mini", "model", "model.gguf"):
        read = [each for line, each in ends.items() if line[:2] == ("classify", kind)]
        assert [each["code"] for each in read] == [0] * len(read), read
        assert read
    (counted,) = (
        each for line, each in ends.items() if line[:3] == ("study", "anatomy", "model.gguf")
    )
    assert counted["code"] == 0, counted


def test_what_needs_a_package_that_is_not_there_says_how_to_install_it(ends):
    for asked, said in ASKED.items():
        end = ends[(*asked, "--quiet")]
        assert end["code"] == 2, end
        assert said in " ".join(end["said"].split()), end
