"""Links of a Python file's places to what they point back to, by grammar alone: no guesses.

Names are resolved by Python's rules of scope. A name that is bound in several places points to the
nearest of them above it in the text, which need not be the one that has run last.
"""

from __future__ import annotations

import ast
import tokenize
from collections.abc import Iterable, Iterator, Mapping
from typing import TypeGuard

from headscope.corpus.code.scopes import (
    IMPORT,
    PARAMETER,
    USE,
    VARIABLE,
    Names,
    Occurrence,
    names_of,
    parameters_of,
)
from headscope.corpus.code.source import SourceFile
from headscope.corpus.gold_links import Arrow, arrow

KINDS = (
    "definition",
    "previous-use",
    "call",
    "parameter",
    "bracket",
    "block",
    "attribute",
    "import",
    "return",
)
OPENERS = {")": "(", "]": "[", "}": "{"}
_FAR = 64
"""Brackets and blocks before a query that are looked through for candidates."""
FunctionNode = ast.FunctionDef | ast.AsyncFunctionDef
_Stretch = dict[object, int]
"""The last place so far of each of several things, in the order of the text."""


def arrows_of(source: SourceFile) -> list[Arrow]:
    """Every arrow of a file, in the order of their queries."""
    names = names_of(source)
    called = {
        source.start(call.func)
        for _, call in _calls(source.tree)
        if isinstance(call.func, ast.Name)
    }
    of_names = [link for link in _of_names(names, called) if link is not None]
    candidates = [
        *of_names,
        *_of_calls(source, {link.query: link.right[0] for link in of_names if link.kind == "call"}),
        *_of_brackets(source),
        *_of_blocks(source),
        *_of_attributes(source, names),
        *_of_returns(source),
    ]
    arrows = [candidate for candidate in candidates if candidate is not None]
    return sorted(arrows, key=lambda link: (link.query, KINDS.index(link.kind)))


def _of_names(names: Names, called: set[int]) -> Iterator[Arrow | None]:
    """Arrows from uses to what binds the name, and to its use before."""
    bound: dict[int, _Stretch] = {}
    """Last binding of each variable and parameter of a scope, by scope."""
    seen: dict[int, _Stretch] = {}
    """Last occurrence of each variable in a function, by function."""
    last: dict[object, Occurrence] = {}
    imports: _Stretch = {}
    defs: _Stretch = {}
    binder: dict[object, Occurrence] = {}
    for occurrence, binds in names.events():
        variable = occurrence.variable
        if variable is None:
            continue
        if binds:
            binder[variable] = occurrence
            if occurrence.role in (VARIABLE, PARAMETER):
                bound.setdefault(variable[0], {})[variable] = occurrence.start
            else:
                (imports if occurrence.role == IMPORT else defs)[variable] = occurrence.start
            continue
        around = seen.setdefault(names.function(occurrence.within), {})
        before, origin = last.get(variable), binder.get(variable)
        if occurrence.role == USE:
            if before is not None and before.role == USE and variable in around:
                yield arrow("previous-use", occurrence.start, [around[variable]], around.values())
            if origin is not None and origin.role in (VARIABLE, PARAMETER):
                candidates = bound[variable[0]].values()
                yield arrow("definition", occurrence.start, [origin.start], candidates)
            elif origin is not None and origin.role == IMPORT:
                yield arrow("import", occurrence.start, [origin.start], imports.values())
            elif origin is not None and occurrence.start in called:
                yield arrow("call", occurrence.start, [origin.start], defs.values())
        last[variable] = occurrence
        around[variable] = occurrence.start


def _of_calls(source: SourceFile, origins: Mapping[int, int]) -> Iterator[Arrow | None]:
    """Arrows from arguments to the parameters of a function of the file, and of a method.

    Args:
        source: the file.
        origins: for each name that is called, where its `def` or `class` names it.
    """
    functions = {position: node for node, position in _functions(source, _nodes(source.tree))}
    methods = {
        node: {method.name: position for method, position in _functions(source, node.body)}
        for node in _nodes(source.tree)
        if isinstance(node, ast.ClassDef)
    }
    for owner, call in _calls(source.tree):
        if isinstance(call.func, ast.Name):
            definition = origins.get(source.start(call.func))
        elif _is_self(call.func) and owner is not None:
            definition = methods[owner].get(call.func.attr)
            if definition is not None:
                query = _attribute(source, call.func)
                yield arrow("call", query, [definition], methods[owner].values())
        else:
            definition = None
        if definition is not None and definition in functions:
            yield from _arguments(source, call, functions[definition])


def _arguments(
    source: SourceFile, call: ast.Call, function: FunctionNode
) -> Iterator[Arrow | None]:
    static = any(
        isinstance(e, ast.Name) and e.id == "staticmethod" for e in function.decorator_list
    )
    skipped = int(isinstance(call.func, ast.Attribute) and not static)
    positional = [*function.args.posonlyargs, *function.args.args][skipped:]
    parameters = parameters_of(function)[skipped:]
    positions = {keyword.arg: source.start(keyword) for keyword in parameters}
    for number, argument in enumerate(call.args[: len(positional)]):
        if isinstance(argument, ast.Starred):
            break
        if isinstance(argument, ast.Name):
            query = source.start(argument)
            yield arrow("parameter", query, [positions[positional[number].arg]], positions.values())
    for keyword in call.keywords:
        if keyword.arg in positions:
            query = source.start(keyword)
            yield arrow("parameter", query, [positions[keyword.arg]], positions.values())


def _of_brackets(source: SourceFile) -> Iterator[Arrow | None]:
    """Arrows from a closing bracket to the one that it closes, among all that open before it."""
    openers: list[int] = []
    waiting: list[int] = []
    for token in source.tokens:
        if token.kind != tokenize.OP:
            continue
        if token.text in OPENERS.values():
            openers.append(token.start)
            waiting.append(token.start)
        elif token.text in OPENERS and waiting:
            yield arrow("bracket", token.start, [waiting.pop()], openers[-_FAR:])


def _of_blocks(source: SourceFile) -> Iterator[Arrow | None]:
    """Arrows from the first word of a line to that of the line that opened its block."""
    opened: list[int] = []
    waiting: list[int] = []
    line = None
    """Start of the current line."""
    starts = True
    for token in source.tokens:
        if token.kind == tokenize.INDENT:
            if line is not None:
                opened.append(line)
                waiting.append(line)
        elif token.kind == tokenize.DEDENT:
            if waiting:
                waiting.pop()
        elif token.kind == tokenize.NEWLINE:
            starts = True
        elif starts and token.kind != tokenize.ENDMARKER:
            starts, line = False, token.start
            if waiting and token.kind == tokenize.NAME:
                yield arrow("block", line, waiting[-1:], opened[-_FAR:])


def _of_attributes(source: SourceFile, names: Names) -> Iterator[Arrow | None]:
    """Arrows from an attribute to the name at the head of its object."""
    standing = {
        occurrence.start: names.function(occurrence.within) for occurrence in names.occurrences
    }
    in_order = [occurrence for occurrence in names.occurrences if occurrence.variable is not None]
    attributes = sorted(_attributes(source))
    around: dict[int, _Stretch] = {}
    occurrences = iter(in_order)
    waiting = next(occurrences, None)
    for query, root in attributes:
        while waiting is not None and waiting.start < query:
            stretch = around.setdefault(names.function(waiting.within), {})
            stretch[waiting.variable] = waiting.start
            waiting = next(occurrences, None)
        if root in standing:
            yield arrow("attribute", query, [root], around.get(standing[root], {}).values())


def _attributes(source: SourceFile) -> Iterator[tuple[int, int]]:
    for node in _nodes(source.tree):
        if isinstance(node, ast.Attribute):
            root: ast.expr = node
            while isinstance(root, ast.Attribute | ast.Subscript | ast.Call):
                root = root.func if isinstance(root, ast.Call) else root.value
            if isinstance(root, ast.Name):
                yield _attribute(source, node), source.start(root)


def _of_returns(source: SourceFile) -> Iterator[Arrow | None]:
    """Arrows from `return` and `yield` to the `def` that they return from, among all above."""
    defs: list[int] = []
    returns: list[tuple[int, int]] = []

    def walk(node: ast.AST, inside: int | None) -> None:
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            inside = source.start(node)
            defs.append(inside)
        elif isinstance(node, ast.Lambda | ast.JoinedStr):
            return
        elif isinstance(node, ast.Return | ast.Yield | ast.YieldFrom) and inside is not None:
            returns.append((source.start(node), inside))
        for child in ast.iter_child_nodes(node):
            walk(child, inside)

    walk(source.tree, None)
    defs.sort()
    for query, inside in sorted(returns):
        yield arrow("return", query, [inside], defs)


def _nodes(tree: ast.AST) -> Iterator[ast.AST]:
    """All nodes but those within f-strings, whose places are not known everywhere."""
    waiting = [tree]
    while waiting:
        node = waiting.pop()
        if not isinstance(node, ast.JoinedStr):
            yield node
            waiting += ast.iter_child_nodes(node)


def _calls(
    tree: ast.AST, owner: ast.ClassDef | None = None
) -> Iterator[tuple[ast.ClassDef | None, ast.Call]]:
    for node in ast.iter_child_nodes(tree):
        if isinstance(node, ast.JoinedStr):
            continue
        if isinstance(node, ast.Call):
            yield owner, node
        yield from _calls(node, node if isinstance(node, ast.ClassDef) else owner)


def _functions(source: SourceFile, nodes: Iterable[ast.AST]) -> Iterator[tuple[FunctionNode, int]]:
    for node in nodes:
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            start = source.after(source.start(node), ("async", "def"))
            if start is not None:
                yield node, start


def _is_self(function: ast.expr) -> TypeGuard[ast.Attribute]:
    return (
        isinstance(function, ast.Attribute)
        and isinstance(function.value, ast.Name)
        and function.value.id in ("self", "cls")
    )


def _attribute(source: SourceFile, node: ast.Attribute) -> int:
    return source.end(node) - len(node.attr)
