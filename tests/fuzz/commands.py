"""Every command of the command line with bad arguments, in this process."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Literal, get_args, get_origin, get_type_hints

import typer

from tests.fuzz.desk import Desk, odd_message
from tests.fuzz.user_files import FAULTY_FILES
from tests.helpers.shell import headscope
from tests.helpers.studies import COMMANDS, FUNCTIONS, line, words_with
from tests.limits import Hang

NUMBERS = ["a", "1.5", "-1", "nan", "", "9" * 30, "9" * 5000, "0x1", "²"]
SHARES = ["a", "nan", "inf", "-1", "", "9" * 400]
NAMES = ["", " ", "nonsense", "\x1b[31mred", "x" * 5000, "\udcff", "a,b"]
HEADS = ["", "nine", "L9H9", "-1.-1", "L0", "0.0.0", "²H1", "L" + "9" * 5000 + "H1", "\x1b[31m"]
WORDS = {
    "head": HEADS,
    "heads": [*HEADS, "0.0,", "0.0 1.1"],
    "text": ["", "\ud800", "x " * 100_000],
    "clean": ["", "\ud800", "x " * 100_000],
    "corrupt": ["", "\ud800", "x1z"],
    "answer": ["", "\ud800", "x1z"],
    "wrong": ["", "\ud800", "x1z"],
    "types": [*NAMES, ",", "positional,poetic"],
    "type": NAMES,
    "device": NAMES,
    "revision": ["main"],
    "revisions": ["step1"],
    "languages": ["nonsense", "fr", "en", "de,xx"],
    "address": ["nonsense"],
    "host": NAMES,
}
"""Bad values of options that are text, by the name of the option."""
LEFT_OUT = {"bos", "overwrite", "help", "install_completion", "show_completion"}
"""Any text may be a token's, and flags have no values."""
PER_CELL = {"models", "revisions", "corpus", "device", "device_map", "dtype", "engine"}
"""Options whose bad value fails one cell of a sweep: its table names it, with exit code 1."""
SUFFIXES = {"out": ".csv", "figure": ".png"}
FOLDERS = {"cards", "classify", "gallery", "headvis", "languages", "sweep", "task"}
"""Commands whose --out is a folder."""
CORPORA = ["bad.conllu", "wide.txt"]


def sound(desk: Desk) -> dict[str, list[str]]:
    """Arguments of each command with which it would work."""
    text = ["--corpus", "keys.conllu", "--max-tokens", "50"]
    values = {
        "model": "mini",
        "run": desk.run,
        "runs": desk.run,
        "head": "0.0",
        "corpus": "keys.conllu",
        "max_tokens": 50,
        "windows": 8,
        "quiet": True,
    }
    plain = {name: words_with(name, values) for name in COMMANDS}
    return plain | {
        "classify": ["mini", *text, "--out", "new", "-q"],
        "report": [desk.given],
        "show": ["mini", "0.0", "a"],
        "why": ["mini", "0.0", *text, "--types", "positional"],
        "atlas": [desk.given, "--out", "new.pdf"],
        "verify": [desk.run, "--as", "distilgpt2"],
        "ablate": [desk.run],
        "prune": ["mini", *text],
        "sweep": ["--models", "mini", "--out", "swept", "-q"],
        "emergence": ["swept"],
        "languages": (
            "mini --corpus de_keys-ud-test.conllu --corpus en_keys-ud-test.conllu "
            "--max-tokens 50 --out spoken -q"
        ).split(),
        "serve": [desk.run, "--no-open"],  # never as it stands: it would answer until interrupted
        "cards": [desk.run, "--out", "new"],
        "explain": ["mini", "--corpus", "keys.conllu", "--windows", "8"],
        "gallery": [desk.run, "--out", "new"],
        "headvis": [desk.run, "--out", "new", "--corpus", "keys.conllu", "--sequences", "9"],
        "function_vectors": ["mini", "--tasks", "past", "--prompts", "6"],
        "task": ["mini", "induction", "--quick", "--prompts", "8", "--out", "new", "-q"],
        "patch": [
            desk.run,
            *"--clean x1z --corrupt x2z --answer a --wrong b --heads L0H0".split(),
        ],
    }


@dataclass(frozen=True)
class Parameter:
    """An argument or option of a command, as its function declares it."""

    name: str
    kind: Any
    flag: str
    """The option's name; empty for an argument."""
    required: bool


def parameters(command: Callable[..., Any]) -> list[Parameter]:
    """Parameters of a command, without its flags."""
    found = []
    hints = get_type_hints(command, include_extras=True)
    for name, parameter in inspect.signature(command).parameters.items():
        kind, info = get_args(hints[name])
        members = (*get_args(kind), kind)
        is_choice = any(get_origin(each) is Literal for each in members)
        plain = Literal if is_choice else next(each for each in members if isinstance(each, type))
        if plain is bool or name in LEFT_OUT:
            continue
        is_option = isinstance(info, typer.models.OptionInfo)
        flag = (info.param_decls or [f"--{name.replace('_', '-')}"])[0] if is_option else ""
        found.append(Parameter(name, plain, flag, parameter.default is parameter.empty))
    return found


def attempts(desk: Desk) -> Iterator[list[str]]:
    """Command lines of which each has one fault."""
    yield from (["nonsense"], ["--nonsense"], [""], ["\x1b[31m"], ["study", "nonsense"])
    for name, function in FUNCTIONS.items():
        base, taken = sound(desk)[name], parameters(function)
        yield line(name, *base, "--nonsense")
        yield line(name) if name == "compare" else line(name, *base, *["too"] * 9)
        places = [parameter for parameter in taken if not parameter.flag]
        if any(place.required for place in places):
            yield line(name)
        for parameter in taken:
            for value in _bad(desk, name, parameter):
                if parameter.flag:
                    yield line(name, *base, parameter.flag, value)
                else:
                    at = places.index(parameter)
                    words = [*base[:at], value, *base[at + 1 : len(places)]]
                    yield line(name, *base[len(places) :], "--", *words)


def _bad(desk: Desk, command: str, parameter: Parameter) -> Sequence[str]:
    name, kind = parameter.name, parameter.kind
    if command == "sweep" and name in PER_CELL:
        return []
    if name in WORDS:
        # why takes a list of heads with a comma behind it
        return [word for word in WORDS[name] if (command, word) != ("why", "0.0,")]
    if kind is Literal:
        return NAMES
    if kind in (int, float):
        return NUMBERS if kind is int else SHARES
    if name == "out" and command in FOLDERS:
        files = ["notes.rst", "notes.rst/x", "x" * 5000]
        # cards are written beside what is in a folder
        return files if command == "cards" else [*files, "folder", "", "/", ".", "..", "runs/.."]
    if name in SUFFIXES:
        suffix = {"atlas": ".pdf", "show": ".html", "report": ".html"}.get(command, SUFFIXES[name])
        return list(desk.bad_targets(suffix).values())
    paths = list(desk.bad_paths().values())
    if name in FAULTY_FILES:
        return [*paths, "pipe.csv", "pipe.jsonl", *FAULTY_FILES[name]]
    if name == "file":
        return [*paths, "bad.yaml", "odd.yaml"]
    if name == "corpus":
        return [path for path in paths if path != ".."] + CORPORA  # where there are corpora
    return paths


def fault_of(desk: Desk, line: list[str]) -> str:
    """Fault of a bad command line, which should end with exit code 2; empty if it does."""
    wrong = ""
    with desk.guarded() as changed:
        try:
            done = headscope(*line)
            wrong = _odd_end(done.returncode, done.stderr)
        except Hang as hang:
            wrong = str(hang)
        except BaseException as error:
            wrong = f"{type(error).__name__}: {error!s:.200}"
    wrong = "; ".join([wrong, *changed][not wrong :])
    return f"{' '.join(f'{word!r:.60}' for word in line)}: {wrong}" if wrong else ""


def _odd_end(code: object, told: str) -> str:
    if code != 2:
        return f"ended with {code}"
    if "Traceback" in told:
        return "showed a traceback"
    said = [line for line in told.splitlines() if line.startswith("headscope: ")]
    if not said:
        return "" if "Usage:" in told else f"said nothing: {told!r:.300}"
    return odd_message(told[told.index(said[-1]) :])
