"""Arguments of a function, read from its source: importing a study would take seconds of torch.

What the reader understands is what signatures here are made of: names, `None`, numbers and text as
defaults, constants of the same module or of one that it imports them from, and options in a
TypedDict, whose default stands in `Annotated[…, Default(…)]`.
"""

from __future__ import annotations

import ast
import inspect
import re
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from importlib.util import find_spec
from typing import Any

from headscope.errors import HeadscopeError


@dataclass(frozen=True)
class Argument:
    """An argument of a function."""

    module: str
    name: str
    annotation: ast.expr
    help: str
    """The first sentence that the docstring says of it."""
    value: ast.expr | None
    """The default as it is written."""

    @property
    def default(self) -> Any:
        """The default, `inspect.Parameter.empty` where there is none."""
        return inspect.Parameter.empty if self.value is None else _constant(self.module, self.value)


@dataclass(frozen=True)
class Signature:
    """What a function takes, and the first paragraph of its docstring."""

    summary: str
    arguments: tuple[Argument, ...]

    def takes(self, name: str) -> bool:
        """Whether an argument has this name."""
        return any(argument.name == name for argument in self.arguments)


@cache
def signature_of(path: str) -> Signature:
    """The signature of a function that is named as `package.module:function`.

    >>> [a.name for a in signature_of("headscope.run:load").arguments]
    ['folder', 'with_tally']
    """
    module, _, name = path.partition(":")
    _, function = _home(module, name)
    if not isinstance(function, ast.FunctionDef):
        raise HeadscopeError(f"{path} is no function")
    docstring = inspect.cleandoc(ast.get_docstring(function) or "")
    return Signature(docstring.partition("\n\n")[0], tuple(_arguments(module, function, docstring)))


def _arguments(module: str, function: ast.FunctionDef, docstring: str) -> Iterator[Argument]:
    arguments, texts = function.args, _described(docstring)
    positional = [*arguments.posonlyargs, *arguments.args]
    missing = [None] * (len(positional) - len(arguments.defaults))
    defaults = [*missing, *arguments.defaults, *arguments.kw_defaults]
    for argument, default in zip([*positional, *arguments.kwonlyargs], defaults, strict=True):
        annotation, _ = _annotated(argument.annotation or ast.Name("Any"))
        text = texts.get(argument.arg, "")
        yield Argument(module, argument.arg, annotation, text, default)
    options = arguments.kwarg and arguments.kwarg.annotation
    if isinstance(options, ast.Subscript) and isinstance(options.slice, ast.Name):
        yield from _fields(module, options.slice.id)


def _fields(module: str, name: str) -> Iterator[Argument]:
    """The options of a TypedDict, after those of its bases."""
    home, options = _home(module, name)
    if not isinstance(options, ast.ClassDef):
        return
    for base in options.bases:
        if isinstance(base, ast.Name) and base.id != "TypedDict":
            yield from _fields(home, base.id)
    for field, after in zip(options.body, [*options.body[1:], None], strict=True):
        if isinstance(field, ast.AnnAssign) and isinstance(field.target, ast.Name):
            words = after.value if isinstance(after, ast.Expr) else None
            text = str(words.value) if isinstance(words, ast.Constant) else ""
            annotation, default = _annotated(field.annotation)
            yield Argument(home, field.target.id, annotation, first_sentence(text), default)


def _annotated(annotation: ast.expr) -> tuple[ast.expr, ast.expr]:
    """The type and the default of `Annotated[type, Default(value)]`; None is the default else."""
    default: ast.expr = ast.Constant(None)
    if not (isinstance(annotation, ast.Subscript) and ast.unparse(annotation.value) == "Annotated"):
        return annotation, default
    kind, *notes = annotation.slice.elts  # type: ignore[attr-defined]
    for note in notes:
        if isinstance(note, ast.Call) and ast.unparse(note.func) == "Default":
            default = note.args[0]
    return kind, default


def _described(docstring: str) -> dict[str, str]:
    """The first sentence of each argument that a docstring's `Args:` describes."""
    section = re.search(r"^Args:\n(.*?)(?=^\S|\Z)", docstring, flags=re.MULTILINE | re.DOTALL)
    entries = re.findall(
        r"^    (\w+): (.*?)(?=^    \w|\Z)", section[1] if section else "", re.MULTILINE | re.DOTALL
    )
    return {name: first_sentence(text) for name, text in entries}


def first_sentence(text: str) -> str:
    r"""The first sentence of a description, as help that no program renders.

    >>> first_sentence("most `features` of\n  a rule. See below.")
    'Most features of a rule.'
    >>> first_sentence("`mean`, or `zero`.")
    'mean, or zero.'
    """
    sentence = re.split(r"(?<=[.])\s+(?=[A-Z])", " ".join(text.split()))[0]
    return (sentence[:1].upper() + sentence[1:]).replace("`", "")


def _constant(module: str, node: ast.expr) -> Any:
    """The value of a default."""
    if isinstance(node, ast.Name):
        home, assigned = _home(module, node.id)
        if isinstance(assigned, ast.expr):
            return _constant(home, assigned)
    try:
        return ast.literal_eval(node)
    except ValueError as error:
        raise HeadscopeError(f"{module}: {ast.unparse(node)} is no plain default") from error


def _home(module: str, name: str) -> tuple[str, ast.AST]:
    """The module that defines a name, and the definition, or the value that it is given there."""
    for node in _source(module).body:
        if isinstance(node, ast.FunctionDef | ast.ClassDef) and node.name == name:
            return module, node
        if isinstance(node, ast.ImportFrom) and name in [alias.name for alias in node.names]:
            return _home(str(node.module), name)
        if isinstance(node, ast.Assign):
            for target in node.targets:
                if isinstance(target, ast.Name) and target.id == name:
                    return module, node.value
                if isinstance(target, ast.Tuple) and isinstance(node.value, ast.Tuple):
                    for part, value in zip(target.elts, node.value.elts, strict=True):
                        if isinstance(part, ast.Name) and part.id == name:
                            return module, value
    raise HeadscopeError(f"{module} defines no {name}")


@cache
def _source(module: str) -> ast.Module:
    spec = find_spec(module)
    source: str | None = spec.loader.get_source(module) if spec and spec.loader else None  # type: ignore[attr-defined]
    if source is None:
        raise HeadscopeError(f"the source of {module} is not there, and its options stand in it")
    return ast.parse(source)
