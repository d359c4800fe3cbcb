"""What each place of a Python file points back to, by its grammar alone: nothing is guessed.

Names are resolved by Python's rules of scope. A name that is bound in several places points to the
nearest of them above it in the text, which need not be the one that has run last.
"""

from __future__ import annotations

import ast
import tokenize
from collections.abc import Iterable, Iterator
from typing import TypeGuard

from headscope.corpus.arrows import Arrow, arrow
from headscope.corpus.code.scopes import (
    DEF,
    IMPORT,
    PARAMETER,
    USE,
    VARIABLE,
    Names,
    Occurrence,
    names_of,
    parameters_of,
)
from headscope.corpus.code.source import Source

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
Named = ast.FunctionDef | ast.AsyncFunctionDef
_Stretch = dict[object, int]
"""The last place so far of each of several things, in the order of the text."""


def arrows_of(source: Source) -> list[Arrow]:
    """Every arrow of a file, in the order of their queries."""
    names = names_of(source.tree, source.place, source.after)
    found = [
        *_of_names(names, _called(source)),
        *_of_calls(source, names),
        *_of_brackets(source),
        *_of_blocks(source),
        *_of_attributes(source, names),
        *_of_returns(source),
    ]
    kept = [each for each in found if each is not None]
    return sorted(kept, key=lambda each: (each.query, KINDS.index(each.kind)))


def _of_names(names: Names, called: set[int]) -> Iterator[Arrow | None]:
    """From uses to what binds the name, and to its use before."""
    bound: dict[int, _Stretch] = {}
    """Of each scope the last binding of each of its own variables and parameters."""
    seen: dict[int, _Stretch] = {}
    """Of each function the last occurrence of each variable in it."""
    last: dict[object, Occurrence] = {}
    imports: _Stretch = {}
    defs: _Stretch = {}
    binder: dict[object, Occurrence] = {}
    for each, binds in names.events():
        variable = each.variable
        if variable is None:
            continue
        if binds:
            binder[variable] = each
            if each.role in (VARIABLE, PARAMETER):
                bound.setdefault(variable[0], {})[variable] = each.start
            else:
                (imports if each.role == IMPORT else defs)[variable] = each.start
            continue
        around = seen.setdefault(names.function(each.within), {})
        before, origin = last.get(variable), binder.get(variable)
        if each.role == USE:
            if before is not None and before.role == USE and variable in around:
                yield arrow("previous-use", each.start, [around[variable]], around.values())
            if origin is not None and origin.role in (VARIABLE, PARAMETER):
                own = bound[variable[0]].values()
                yield arrow("definition", each.start, [origin.start], own)
            elif origin is not None and origin.role == IMPORT:
                yield arrow("import", each.start, [origin.start], imports.values())
            elif origin is not None and each.start in called:
                yield arrow("call", each.start, [origin.start], defs.values())
        last[variable] = each
        around[variable] = each.start


def _called(source: Source) -> set[int]:
    """Where names stand that are called."""
    return {
        source.place(node.func.lineno, node.func.col_offset)
        for node in _nodes(source.tree)
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Name)
    }


def _of_calls(source: Source, names: Names) -> Iterator[Arrow | None]:
    """From arguments to the parameters of a function of the file, and from methods to theirs."""
    functions = {place: node for node, place in _functions(source, _nodes(source.tree))}
    origins = _origins(names)
    methods = {
        node: {each.name: place for each, place in _functions(source, node.body)}
        for node in _nodes(source.tree)
        if isinstance(node, ast.ClassDef)
    }
    for owner, call in _calls(source.tree):
        if isinstance(call.func, ast.Name):
            found = origins.get(source.place(call.func.lineno, call.func.col_offset))
        elif _is_self(call.func) and owner is not None:
            found = methods[owner].get(call.func.attr)
            if found is not None:
                query = _attribute(source, call.func)
                yield arrow("call", query, [found], methods[owner].values())
        else:
            found = None
        if found is not None and found in functions:
            yield from _arguments(source, call, functions[found])


def _origins(names: Names) -> dict[int, int]:
    """For each use of a name that a `def` or `class` bound last, where that is."""
    bound: dict[object, Occurrence] = {}
    found = {}
    for each, binds in names.events():
        if each.variable is None:
            continue
        if binds:
            bound[each.variable] = each
        elif each.variable in bound and bound[each.variable].role == DEF:
            found[each.start] = bound[each.variable].start
    return found


def _arguments(source: Source, call: ast.Call, function: Named) -> Iterator[Arrow | None]:
    static = any(
        isinstance(e, ast.Name) and e.id == "staticmethod" for e in function.decorator_list
    )
    skipped = int(isinstance(call.func, ast.Attribute) and not static)
    taken = [*function.args.posonlyargs, *function.args.args][skipped:]
    own = parameters_of(function)[skipped:]
    named = {each.arg: source.place(each.lineno, each.col_offset) for each in own}
    for number, argument in enumerate(call.args[: len(taken)]):
        if isinstance(argument, ast.Starred):
            break
        if isinstance(argument, ast.Name):
            query = source.place(argument.lineno, argument.col_offset)
            yield arrow("parameter", query, [named[taken[number].arg]], named.values())
    for each in call.keywords:
        if each.arg in named:
            query = source.place(each.lineno, each.col_offset)
            yield arrow("parameter", query, [named[each.arg]], named.values())


def _of_brackets(source: Source) -> Iterator[Arrow | None]:
    """From a closing bracket to the one that it closes, among all that open before it."""
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


def _of_blocks(source: Source) -> Iterator[Arrow | None]:
    """From the first word of a line to that of the line that opened its block."""
    opened: list[int] = []
    waiting: list[int] = []
    line = None
    """Where the line begins whose tokens come."""
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


def _of_attributes(source: Source, names: Names) -> Iterator[Arrow | None]:
    """From an attribute to the name at the head of its object."""
    standing = {each.start: names.function(each.within) for each in names.found}
    in_order = [each for each in names.found if each.variable is not None]
    asked = sorted(_attributes(source))
    around: dict[int, _Stretch] = {}
    coming = iter(in_order)
    waiting = next(coming, None)
    for query, root in asked:
        while waiting is not None and waiting.start < query:
            stretch = around.setdefault(names.function(waiting.within), {})
            stretch[waiting.variable] = waiting.start
            waiting = next(coming, None)
        if root in standing:
            yield arrow("attribute", query, [root], around.get(standing[root], {}).values())


def _attributes(source: Source) -> Iterator[tuple[int, int]]:
    for node in _nodes(source.tree):
        if isinstance(node, ast.Attribute):
            root: ast.expr = node
            while isinstance(root, ast.Attribute | ast.Subscript | ast.Call):
                root = root.func if isinstance(root, ast.Call) else root.value
            if isinstance(root, ast.Name):
                yield _attribute(source, node), source.place(root.lineno, root.col_offset)


def _of_returns(source: Source) -> Iterator[Arrow | None]:
    """From `return` and `yield` to the `def` that they return from, among all above."""
    defs: list[int] = []
    returns: list[tuple[int, int]] = []

    def walk(node: ast.AST, inside: int | None) -> None:
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            inside = source.place(node.lineno, node.col_offset)
            defs.append(inside)
        elif isinstance(node, ast.Lambda | ast.JoinedStr):
            return
        elif isinstance(node, ast.Return | ast.Yield | ast.YieldFrom) and inside is not None:
            returns.append((source.place(node.lineno, node.col_offset), inside))
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
    """Every call with the class that it stands in."""
    for node in ast.iter_child_nodes(tree):
        if isinstance(node, ast.JoinedStr):
            continue
        if isinstance(node, ast.Call):
            yield owner, node
        yield from _calls(node, node if isinstance(node, ast.ClassDef) else owner)


def _functions(source: Source, nodes: Iterable[ast.AST]) -> Iterator[tuple[Named, int]]:
    """The functions among some nodes, and where their names stand."""
    for node in nodes:
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            start = source.after(source.place(node.lineno, node.col_offset), ("async", "def"))
            if start is not None:
                yield node, start


def _is_self(function: ast.expr) -> TypeGuard[ast.Attribute]:
    return (
        isinstance(function, ast.Attribute)
        and isinstance(function.value, ast.Name)
        and function.value.id in ("self", "cls")
    )


def _attribute(source: Source, node: ast.Attribute) -> int:
    """Where the attribute's name begins."""
    return source.place(node.end_lineno or 0, node.end_col_offset or 0) - len(node.attr)
