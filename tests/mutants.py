"""Seeded mutants, run by hand: how many small mistakes in the code do the tests notice?

`python -m tests.mutants --count 300 --seed 0 --rooms relations,measure --out results.csv`

A mutant is one small change of a room's code: another operator, a negated condition, a constant ± 1, a slice without a bound, a deleted call,
None returned, two swapped arguments. In a forked process it meets tests that run its lines, quickest first, until one fails. A run of
`TESTS`, kept in `.pytest_cache`, records these. Lines that run at import count for all tests that run a function of the module, or all of
the room. Left out are tests that fail, skip, take `SLOW` seconds, or come after a quarter of `LIMIT` seconds of others.
"""

from __future__ import annotations

import ast
import csv
import hashlib
import json
import multiprocessing
import os
import random
import resource
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator
from importlib.machinery import SourceFileLoader
from itertools import accumulate, islice
from pathlib import Path
from typing import Any

import coverage
import pytest
import typer

ROOT = Path(__file__).parents[1]
TESTS = ("relations", "measure", "statistics", "models", "stimuli", "oracles")
SLOW, LIMIT = 10, 80  # seconds; a mutant that takes LIMIT of a processor is killed
PAIRS = "Lt LtE, Gt GtE, Eq NotEq, Is IsNot, In NotIn, And Or, Add Sub, Mult Div, FloorDiv Mod, BitAnd BitOr"
OPERATORS = {getattr(ast, a): getattr(ast, b) for p in PAIRS.split(", ") for a, b in (p.split(), p.split()[::-1])}  # fmt: skip


def places(node: ast.AST, statement: Any = None, at_import: bool = True) -> Iterator[Any]:
    """Nodes `container[key]` that can change, their replacements and statements; do these run at import?"""
    for name, value in ast.iter_fields(node):
        if name in ("annotation", "returns", "decorator_list"):
            continue
        is_later = name == "body" and isinstance(node, ast.FunctionDef | ast.Lambda)
        early = at_import and not is_later
        container = value if isinstance(value, list) else vars(node)
        for key, child in enumerate(value) if isinstance(value, list) else [(name, value)]:
            inner = child if isinstance(child, ast.stmt | ast.Lambda) else statement
            for replacement in replacements(name, child):
                yield container, key, replacement, inner, early
            if isinstance(child, ast.AST) and not isinstance(child, ast.Raise | ast.JoinedStr):
                yield from places(child, inner, early)


def replacements(name: str, node: Any) -> Iterator[Any]:
    """Nodes that can stand in the place of a node of a field."""
    if type(node) in OPERATORS:
        yield OPERATORS[type(node)]()
    if name in ("test", "ifs") and ast.unparse(node) != "TYPE_CHECKING":
        yield ast.UnaryOp(ast.Not(), node)
    match node:
        case ast.UnaryOp(op=ast.Not() | ast.USub()):
            yield node.operand
        case ast.Constant(value=bool(value)):
            yield ast.Constant(not value)
        case ast.Constant(value=int(value) | float(value)):
            yield from (ast.Constant(value + 1), ast.Constant(value - 1))
        case ast.Slice(lower=lower, upper=upper):
            yield from [ast.Slice(None, upper, node.step)] * (lower is not None)
            yield from [ast.Slice(lower, None, node.step)] * (upper is not None)
        case ast.Expr(value=ast.Call()) | ast.AugAssign():
            yield ast.Pass()
        case ast.Return(value=ast.expr()):
            yield ast.Return(ast.Constant(None))
        case ast.Call(args=[first, second, *others]):
            yield ast.Call(node.func, [second, first, *others], node.keywords)


class Record:
    """A plug-in of pytest: seconds of tests, and tests of each context, a test or a shared fixture."""

    def __init__(self) -> None:
        self.coverage = coverage.Coverage(None, source=[str(ROOT / "headscope")], config_file=False)
        self.context = ""
        self.tests = defaultdict[str, list[str]](list)
        self.seconds = Counter[str]()

    def switch(self, context: str) -> None:
        self.context = context
        self.coverage.switch_context(context)

    @pytest.hookimpl(tryfirst=True)
    def pytest_runtest_protocol(self, item: Any) -> None:
        for context in (item.nodeid, *item.fixturenames):
            self.tests[context].append(item.nodeid)
        self.switch(item.nodeid)

    @pytest.hookimpl(wrapper=True)
    def pytest_fixture_setup(self, fixturedef: Any) -> Iterator[Any]:
        before = self.context
        self.switch(before if fixturedef.scope == "function" else fixturedef.argname)
        result = yield
        self.switch(before)
        return result

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        self.seconds[report.nodeid] += report.duration if report.passed else SLOW

    def write(self, path: Path) -> None:
        """Run all tests; write the quick ones, quickest first, and by file and line their numbers."""
        with self.coverage.collect():
            pytest.main([*(f"tests/{room}" for room in TESTS), "-m", "not slow"], [self])
        quick = sorted((time, test) for test, time in self.seconds.items() if time < SLOW)
        numbers = {test: number for number, (_, test) in enumerate(quick)}
        data = self.coverage.get_data()
        by_line = {
            file: {
                line: sorted({numbers[test] for context in contexts for test in self.tests[context] if test in numbers})
                for line, contexts in data.contexts_by_lineno(file).items()
            }
            for file in data.measured_files()
        }  # fmt: skip
        path.write_text(json.dumps([quick, by_line]))


def tests_by_line() -> Any:
    """All quick tests with their seconds, and by file and line their numbers."""
    files = {*ROOT.glob("headscope/**/*.py"), *ROOT.glob("tests/**/*.py")} - {Path(__file__)}
    state = hashlib.sha256(b"".join(path.read_bytes() for path in sorted(files))).hexdigest()
    path = ROOT / ".pytest_cache" / f"mutants-{state[:12]}.json"
    if not path.exists():
        exit_code(lambda: Record().write(path))
    return json.loads(path.read_text())


def exit_code(work: Callable[[], object]) -> int | None:
    """Exit code of a function in a process of its own, which is killed if it waits for ever."""
    process = multiprocessing.get_context("fork").Process(target=work)
    process.start()
    process.join(60 * LIMIT)
    process.kill()
    return process.exitcode


def run_tests(tests: list[str], path: str, tree: ast.Module) -> None:
    """Run tests with a changed tree in the place of a file; the exit code is pytest's."""
    code = compile(ast.fix_missing_locations(tree), path, "exec", dont_inherit=True)
    original = SourceFileLoader.get_code
    SourceFileLoader.get_code = lambda file, name: code if file.path == path else original(file, name)  # fmt: skip
    os.dup2(os.open(os.devnull, os.O_WRONLY), 1)
    resource.setrlimit(resource.RLIMIT_CPU, (LIMIT, LIMIT))
    for part in filter(None, (tests[:10], tests[10:])):  # most die before all tests are collected
        if (result := pytest.main([*part, "-x", "-p", "no:cacheprovider"])) not in (0, 5):
            break
    os._exit(result)


def result_of(path: Path, tree: Any, statement: Any, at_import: bool, tests: Any, lines: Any) -> str:  # fmt: skip
    """Killed, survived, or no test: the result of a changed statement."""
    body = getattr(statement, "body", None)
    end = body[0].lineno if isinstance(body, list) else statement.end_lineno + 1
    run = lines if at_import else map(str, range(statement.lineno, max(end, statement.lineno + 1)))
    numbers = {number for line in run for number in lines.get(line, [])}
    selected = [tests[number] for number in sorted(numbers)]
    if at_import and not selected:
        room = f"tests/{path.relative_to(ROOT).parts[1]}/"
        selected = [(time, test) for time, test in tests if test.startswith(room)]
    if not selected:
        return "no test"
    times = accumulate(time for time, _ in selected)
    names = [test for (_, test), total in zip(selected, times, strict=True) if total < LIMIT / 4]
    return "survived" if exit_code(lambda: run_tests(names, str(path), tree)) in (0, 5) else "killed"  # fmt: skip


def main(count: int = 300, seed: int = 0, rooms: str = ",".join(TESTS[:4]), out: typer.FileTextWrite = "-") -> None:  # fmt: skip
    paths = [path for room in rooms.split(",") for path in sorted(ROOT.glob(f"headscope/{room}/**/*.py"))]  # fmt: skip
    mutants = [(path, n) for path in paths for n, _ in enumerate(places(ast.parse(path.read_text())))]  # fmt: skip
    random.Random(seed).shuffle(mutants)
    (
        *map(__import__, ("hypothesis", "scipy.stats", "transformer_lens")),
    )  # once, not in each mutant
    tests, by_line = tests_by_line()
    table, results = csv.writer(out), Counter[str]()
    table.writerow(["file", "line", "before", "after", "result"])
    for path, number in mutants[:count]:
        tree, file = ast.parse(path.read_text()), path.relative_to(ROOT)
        container, key, replacement, statement, at_import = next(islice(places(tree), number, None))
        before = ast.unparse(statement).splitlines()[0]
        changed = replacement if container[key] is statement else statement
        container[key] = replacement
        result = result_of(path, tree, statement, at_import, tests, by_line.get(str(path), {}))
        after = ast.unparse(changed).splitlines()[0]
        table.writerow([file, statement.lineno, before, after, result])
        out.flush()
        results[f"{file.parts[1]} {result}"] += 1
    print(*(f"{name}: {number}" for name, number in sorted(results.items())), sep="\n")


if __name__ == "__main__":
    typer.run(main)
