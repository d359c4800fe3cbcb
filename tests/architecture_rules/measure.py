"""Reads the package's source and says how it is built: `python -m tests.architecture_rules.measure`."""

from __future__ import annotations

import ast
import statistics
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

ROOT = Path(__file__).parents[2] / "headscope"
FORBIDDEN = {
    "corpus": (
        "stimuli",
        "relations",
        "models",
        "measure",
        "statistics",
        "runs",
        "views",
        "studies",
        "serve",
    ),
    "stimuli": (
        "relations",
        "models",
        "measure",
        "statistics",
        "runs",
        "views",
        "studies",
        "serve",
    ),
    "relations": ("models", "measure", "statistics", "runs", "views", "studies", "serve"),
    "models": ("relations", "measure", "statistics", "runs", "views", "studies", "serve"),
    "measure": ("statistics", "runs", "views", "studies", "serve"),
    "statistics": ("runs", "views", "studies", "serve"),
    "runs": ("views", "studies", "serve"),
    "views": ("studies", "serve"),
    "studies": ("serve",),
    "serve": (),
}
"""What each room must not know. Nothing but the entry points knows `cli`, `run` and `classification`'s own
are known to studies alone."""
MAY_CLASSIFY = ("sweep", "validation", "why")
"""The studies that run `classify`; no other study knows another, or the rooms above it."""
TOP = ("run", "classification")
LONG_FUNCTION, MANY_ARGUMENTS = 40, 6


@dataclass
class Module:
    """A file of the package: its name without `headscope.`, its tree, and what it imports."""

    name: str
    path: Path
    tree: ast.Module
    imports: set[str] = field(default_factory=set)

    @property
    def room(self) -> str:
        return self.name.split(".")[0]


def modules() -> dict[str, Module]:
    """Every module by its name; imports inside functions count, those for type checkers do not."""
    found = {}
    for path in sorted(ROOT.rglob("*.py")):
        name = ".".join(path.relative_to(ROOT).with_suffix("").parts).removesuffix("__init__")
        name = name.rstrip(".")
        found[name] = Module(name, path, ast.parse(path.read_text(encoding="utf-8")))
    for module in found.values():
        module.imports = {
            target for target in _imports(module) if target in found and target != module.name
        }
    return found


def _imports(module: Module) -> Iterator[str]:
    hidden = {
        id(inner)
        for node in ast.walk(module.tree)
        if isinstance(node, ast.If) and "TYPE_CHECKING" in ast.dump(node.test)
        for statement in node.body
        for inner in ast.walk(statement)
    }
    for node in ast.walk(module.tree):
        if id(node) in hidden:
            continue
        if isinstance(node, ast.Import):
            yield from (_inner(alias.name) for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            # both: a name of a package is a module of it, or comes from its __init__
            for alias in node.names:
                whole = _inner(f"{node.module}.{alias.name}")
                yield whole if _is_module(whole) else _inner(node.module or "")


def _inner(name: str) -> str:
    return name.removeprefix("headscope").removeprefix(".") if name.startswith("headscope") else "?"


def _is_module(name: str) -> bool:
    place = ROOT.joinpath(*name.split("."))
    return place.with_suffix(".py").is_file() or (place / "__init__.py").is_file()


def broken_rules(found: dict[str, Module]) -> list[str]:
    """Every import that a room must not have, as `importer -> imported`."""
    return [
        f"{module.name} -> {target}"
        for module in found.values()
        for target in sorted(module.imports)
        if _forbidden(module.name, target)
    ]


def _forbidden(name: str, target: str) -> bool:
    own, other = name.split("."), target.split(".")
    if other[0] == "cli":
        return own[0] not in ("cli", "__main__")
    if own[0] == "studies" and other[0] != "serve":
        if other[0] in TOP:
            return own[1:2] != [] and own[1] not in MAY_CLASSIFY
        return other[0] == "studies" and len(own) > 1 and other[1:2] != own[1:2]
    if other[0] in TOP:
        return own[0] in FORBIDDEN
    return other[0] in FORBIDDEN.get(own[0], ())


def circles(found: dict[str, Module]) -> list[list[str]]:
    """Groups of modules that import one another by any way round (Tarjan's components)."""
    index: dict[str, int] = {}
    low: dict[str, int] = {}
    stack: list[str] = []
    groups: list[list[str]] = []

    def visit(name: str) -> None:
        index[name] = low[name] = len(index)
        stack.append(name)
        for target in found[name].imports:
            if target not in index:
                visit(target)
                low[name] = min(low[name], low[target])
            elif target in stack:
                low[name] = min(low[name], index[target])
        if low[name] == index[name]:
            place = stack.index(name)
            group = stack[place:]
            del stack[place:]
            if len(group) > 1:
                groups.append(sorted(group))

    for name in found:
        if name not in index:
            visit(name)
    return groups


Function = ast.FunctionDef | ast.AsyncFunctionDef


def functions(module: Module) -> Iterator[Function]:
    """Every function and method of a module."""
    for node in ast.walk(module.tree):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            yield node


def length(function: Function) -> int:
    """Lines of a function, its docstring left out."""
    lines = (function.end_lineno or function.lineno) - function.lineno + 1
    first = function.body[0]
    if ast.get_docstring(function) is not None:
        lines -= (first.end_lineno or first.lineno) - first.lineno + 1
    return lines


def arguments(function: Function) -> int:
    """Arguments of a function, `self` and `cls` left out."""
    named = [*function.args.posonlyargs, *function.args.args, *function.args.kwonlyargs]
    return sum(name.arg not in ("self", "cls") for name in named)


def is_command(module: Module, function: Function) -> bool:
    """Whether a function is a command: its arguments are the command line's options."""
    return module.room == "cli" and bool(function.decorator_list)


def public(module: Module) -> Iterator[ast.ClassDef | Function]:
    """Public functions, classes and their public methods."""
    for node in module.tree.body:
        if not isinstance(node, ast.ClassDef | Function) or node.name.startswith("_"):
            continue
        yield node
        if isinstance(node, ast.ClassDef):
            for inner in node.body:
                if isinstance(inner, Function) and not inner.name.startswith("_"):
                    yield inner


@dataclass(frozen=True)
class Figures:
    """How the package is built, in numbers."""

    top_level: int
    files: int
    lines: int
    median_lines: float
    longest: int
    circles: list[list[str]]
    broken: list[str]
    functions: int
    long_functions: list[str]
    many_arguments: list[str]
    public: int
    undocumented: list[str]
    examples: int


def figures() -> Figures:
    """Measure the package as it is on the disk."""
    found = modules()
    texts = {name: module.path.read_text(encoding="utf-8") for name, module in found.items()}
    lines = {name: text.count("\n") for name, text in texts.items()}
    every = [(module, each) for module in found.values() for each in functions(module)]
    names = [(module, each) for module in found.values() for each in public(module)]
    entries = [p for p in ROOT.iterdir() if p.name not in ("__pycache__", "data")]
    return Figures(
        top_level=len(entries),
        files=len(found),
        lines=sum(lines.values()),
        median_lines=statistics.median(lines.values()),
        longest=max(lines.values()),
        circles=circles(found),
        broken=broken_rules(found),
        functions=len(every),
        long_functions=[
            f"{module.name}.{each.name}: {length(each)}"
            for module, each in every
            if length(each) > LONG_FUNCTION
        ],
        many_arguments=[
            f"{module.name}.{each.name}: {arguments(each)}"
            for module, each in every
            if arguments(each) > MANY_ARGUMENTS and not is_command(module, each)
        ],
        public=len(names),
        undocumented=[
            f"{module.name}.{each.name}" for module, each in names if not ast.get_docstring(each)
        ],
        examples=sum(text.count(">>> ") for text in texts.values()),
    )


def main() -> None:
    """Print the figures, and every place that is over a limit."""
    found = figures()
    print(f"top-level entries        {found.top_level}")
    print(f"files, lines             {found.files}, {found.lines}")
    print(f"median file, longest     {found.median_lines:g}, {found.longest}")
    print(f"circles of imports       {len(found.circles)}")
    print(f"rules broken             {len(found.broken)}")
    share = len(found.long_functions) / found.functions
    print(f"functions over 40 lines  {len(found.long_functions)} of {found.functions}, {share:.1%}")
    print(f"over 6 arguments         {len(found.many_arguments)}")
    documented = 1 - len(found.undocumented) / found.public
    print(f"public names documented  {documented:.1%} of {found.public}")
    print(f"lines of examples        {found.examples}")
    for group in found.circles:
        print("circle:", ", ".join(group))
    for title in ("broken", "long_functions", "many_arguments", "undocumented"):
        for row in getattr(found, title):
            print(f"{title}: {row}")


if __name__ == "__main__":
    main()
