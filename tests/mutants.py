"""Seeded mutants, run by hand: how many small mistakes in the code do the tests notice?

`python -m tests.mutants --count 150 --seed 0 --rooms relations,measure --out results.csv`

A mutant is one small change of a room's code: another operator, a negated condition, a constant
± 1, a slice without a bound, a deleted call, None returned, two swapped arguments. In a forked
process, the tests that run its lines run, quickest first, until one fails. A first run of all
tests of `TESTS`, kept in `.pytest_cache`, records which tests run which lines. Lines that no test
runs, as those that run at import, count for all tests that run a function of the module, or for all
of the room. Left out are tests that fail, skip, take `SLOW` seconds, or come after a quarter of
`LIMIT` seconds of others.

mutmut leaves out functions with decorators and tables of modules, which are half of `relations`;
cosmic-ray starts Python anew for each mutant, which takes longer than most tests here.
"""

from __future__ import annotations

import ast
import csv
import hashlib
import importlib
import json
import multiprocessing
import os
import random
import resource
import time
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from importlib.machinery import SourceFileLoader
from pathlib import Path
from typing import Any

import coverage
import pytest
import typer

ROOT = Path(__file__).parents[1]
TESTS = ("relations", "measure", "statistics", "models", "stimuli", "oracles")
SLOW, LIMIT = 10, 80
"""Seconds of the processor: of a test, and of a mutant, which is killed after them."""
PAIRS: tuple[tuple[type[ast.AST], type[ast.AST]], ...] = (
    (ast.Lt, ast.LtE),
    (ast.Gt, ast.GtE),
    (ast.Eq, ast.NotEq),
    (ast.Is, ast.IsNot),
    (ast.In, ast.NotIn),
    (ast.And, ast.Or),
    (ast.Add, ast.Sub),
    (ast.Mult, ast.Div),
    (ast.FloorDiv, ast.Mod),
    (ast.BitAnd, ast.BitOr),
)
OPERATORS = {one: other for pair in PAIRS for one, other in (pair, pair[::-1])}
SYMMETRIC = ("min", "max")
"""Functions that give the same result if two arguments are swapped."""
NEVER_MUTATED = ("annotation", "returns", "decorator_list")
PASSED = (0, 5)
"""Exit codes of pytest: all tests passed, or no test was selected."""
LOADED_ONCE = ("hypothesis", "scipy.stats", "transformer_lens")
"""Modules that each forked process would load anew."""


@dataclass
class Place:
    """A node of a tree that can be replaced: `container[key]`."""

    container: Any
    key: Any
    replacement: ast.AST
    statement: Any
    at_import: bool

    def mutate(self) -> tuple[str, str]:
        """Replace the node; the first line of its statement before and after."""
        is_statement = self.container[self.key] is self.statement
        before = ast.unparse(self.statement)
        self.container[self.key] = self.replacement
        after = ast.unparse(self.replacement if is_statement else self.statement)
        return before.splitlines()[0], after.splitlines()[0]


def places(node: ast.AST, statement: Any = None, at_import: bool = True) -> Iterator[Place]:
    """All places below a node."""
    for name, value in ast.iter_fields(node):
        if name in NEVER_MUTATED:
            continue
        is_later = name == "body" and isinstance(node, ast.FunctionDef | ast.Lambda)
        early = at_import and not is_later
        container = value if isinstance(value, list) else vars(node)
        children = enumerate(value) if isinstance(value, list) else [(name, value)]
        for key, child in children:
            inner = child if isinstance(child, ast.stmt | ast.Lambda) else statement
            for replacement in replacements(name, child):
                yield Place(container, key, replacement, inner, early)
            if isinstance(child, ast.AST) and not isinstance(child, ast.Raise | ast.JoinedStr):
                yield from places(child, inner, early)


def replacements(name: str, node: Any) -> Iterator[ast.AST]:
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
            yield ast.Constant(value + 1)
            yield ast.Constant(value - 1)
        case ast.Slice(lower=lower, upper=upper):
            if lower is not None:
                yield ast.Slice(None, upper, node.step)
            if upper is not None:
                yield ast.Slice(lower, None, node.step)
        case ast.Expr(value=ast.Call()) | ast.AugAssign():
            yield ast.Pass()
        case ast.Return(value=ast.expr() as value) if ast.unparse(value) != "None":
            yield ast.Return(ast.Constant(None))
        case ast.Call(args=[first, second, *others]) if ast.unparse(node.func) not in SYMMETRIC:
            yield ast.Call(node.func, [second, first, *others], node.keywords)


class Recorder:
    """A plug-in of pytest: seconds of the processor of tests, and tests of each context.

    A context is a test or a shared fixture.
    """

    def __init__(self) -> None:
        self.coverage = coverage.Coverage(None, source=[str(ROOT / "headscope")], config_file=False)
        self.context = ""
        self.tests = defaultdict[str, list[str]](list)
        self.seconds = Counter[str]()

    def switch(self, context: str) -> None:
        self.context = context
        self.coverage.switch_context(context)

    @pytest.hookimpl(wrapper=True, tryfirst=True)
    def pytest_runtest_protocol(self, item: Any) -> Iterator[Any]:
        for context in (item.nodeid, *item.fixturenames):
            self.tests[context].append(item.nodeid)
        self.switch(item.nodeid)
        # of the processor: other work on the machine makes no test slow
        start = time.process_time()
        result = yield
        self.seconds[item.nodeid] += time.process_time() - start
        return result

    @pytest.hookimpl(wrapper=True)
    def pytest_fixture_setup(self, fixturedef: Any) -> Iterator[Any]:
        before = self.context
        self.switch(before if fixturedef.scope == "function" else fixturedef.argname)
        result = yield
        self.switch(before)
        return result

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        if not report.passed:
            self.seconds[report.nodeid] += SLOW

    def tests_of(self, contexts: list[str], quick: dict[str, float]) -> list[str]:
        """The quick tests of some contexts."""
        found = {test for context in contexts for test in self.tests[context]}
        return sorted(found & set(quick))

    def write(self, path: Path) -> None:
        """Run all tests, and write a `Record`."""
        with self.coverage.collect():
            pytest.main([*(f"tests/{room}" for room in TESTS), "-m", "not slow"], [self])
        quick = {test: seconds for test, seconds in self.seconds.items() if seconds < SLOW}
        data = self.coverage.get_data()
        lines = {}
        for file in data.measured_files():
            by_line = data.contexts_by_lineno(file)
            lines[file] = {n: self.tests_of(contexts, quick) for n, contexts in by_line.items()}
        path.write_text(json.dumps({"seconds": quick, "lines": lines}))


@dataclass
class Record:
    """Which quick tests run which lines."""

    seconds: dict[str, float]
    lines: dict[str, dict[str, list[str]]]
    """Tests by file and by the number of a line."""

    def quickest(self, tests: set[str]) -> list[str]:
        """Tests in the order of their seconds, up to a quarter of `LIMIT`."""
        selected: list[str] = []
        total = 0.0
        for test in sorted(tests, key=lambda test: self.seconds[test]):
            total += self.seconds[test]
            if total >= LIMIT / 4:
                break
            selected.append(test)
        return selected

    def tests_for(self, path: Path, place: Place) -> list[str]:
        """Tests that run the statement of a mutant."""
        by_line = self.lines.get(str(path), {})
        numbers = [] if place.at_import else lines_of(place.statement)
        tests = {test for number in numbers for test in by_line.get(number, [])}
        if not tests:
            tests = {test for tests in by_line.values() for test in tests}
        if not tests:
            room = f"tests/{path.relative_to(ROOT).parts[1]}/"
            tests = {test for test in self.seconds if test.startswith(room)}
        return self.quickest(tests)


def lines_of(statement: Any) -> list[str]:
    """Numbers of the lines of a statement, without those of its body."""
    body = getattr(statement, "body", None)
    end = body[0].lineno if isinstance(body, list) else statement.end_lineno + 1
    return [str(n) for n in range(statement.lineno, max(end, statement.lineno + 1))]


def recorded() -> Record:
    """Record of the code and the tests as they are, made at the first call."""
    files = {*ROOT.glob("headscope/**/*.py"), *ROOT.glob("tests/**/*.py")} - {Path(__file__)}
    state = hashlib.sha256(b"".join(path.read_bytes() for path in sorted(files))).hexdigest()
    path = ROOT / ".pytest_cache" / f"mutants-{state[:12]}.json"
    path.parent.mkdir(exist_ok=True)
    if not path.exists():
        exit_code(lambda: Recorder().write(path))
    return Record(**json.loads(path.read_text()))


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

    def get_code(loader: SourceFileLoader, name: str) -> Any:
        return code if loader.path == path else original(loader, name)

    SourceFileLoader.get_code = get_code
    os.dup2(os.open(os.devnull, os.O_WRONLY), 1)
    resource.setrlimit(resource.RLIMIT_CPU, (LIMIT, LIMIT))
    result = 0
    # most mutants die before all tests are collected
    for part in (tests[:10], tests[10:]):
        if part and result in PASSED:
            result = int(pytest.main([*part, "-x", "-p", "no:cacheprovider"]))
    os._exit(result)


def result_of(tests: list[str], path: Path, tree: ast.Module) -> str:
    """Result of a mutant: killed, survived, or no test."""
    if not tests:
        return "no test"
    code = exit_code(partial(run_tests, tests, str(path), tree))
    return "survived" if code in PASSED else "killed"


def main(
    count: int = 150,
    seed: int = 0,
    rooms: str = ",".join(TESTS[:4]),
    out: typer.FileTextWrite = "-",
) -> None:
    paths = [path for room in rooms.split(",") for path in ROOT.glob(f"headscope/{room}/**/*.py")]
    mutants = []
    for path in sorted(paths):
        found = places(ast.parse(path.read_text()))
        mutants += [(path, number) for number, _ in enumerate(found)]
    random.Random(seed).shuffle(mutants)
    for name in LOADED_ONCE:
        importlib.import_module(name)
    record = recorded()
    table, results = csv.writer(out), Counter[str]()
    table.writerow(["file", "line", "before", "after", "result"])
    for path, number in mutants[:count]:
        tree, file = ast.parse(path.read_text()), path.relative_to(ROOT)
        place = list(places(tree))[number]
        before, after = place.mutate()
        result = result_of(record.tests_for(path, place), path, tree)
        table.writerow([file, place.statement.lineno, before, after, result])
        out.flush()
        results[f"{file.parts[1]} {result}"] += 1
    for name, times in sorted(results.items()):
        print(f"{name}: {times}")


if __name__ == "__main__":
    typer.run(main)
