"""Arguments of public functions as pydantic models: each type states its bounds and its help once.

`checked` makes a model of a function's signature. The command line, completion, the reference and
the `Args:` of a docstring come from the fields of that model.
"""

from __future__ import annotations

import functools
import inspect
import os
import sys
import textwrap
from collections.abc import Callable, Mapping, Sequence
from numbers import Integral, Real
from pathlib import Path, PurePath
from reprlib import Repr
from types import SimpleNamespace
from typing import Annotated, Any, ParamSpec, TypeVar, get_type_hints

import numpy as np
from pydantic import (
    AfterValidator,
    BaseModel,
    ConfigDict,
    Field,
    PlainValidator,
    ValidationError,
    create_model,
)
from pydantic.fields import FieldInfo

from headscope.errors import ArgumentError, nearest_name
from headscope.heads import head_name, parse_head
from headscope.random_state import random_state_kept

_P = ParamSpec("_P")
_R = TypeVar("_R")
ATLASES = "atlas:smollm2, atlas:minilm or atlas:mini"
A_RUN = f"A run folder, or {ATLASES} (also without atlas:)"
A_MODEL_OR_RUN = f"A model as for classify, a run folder, or {ATLASES}"
"""Descriptions of an argument that is a run, and of one that is a model or a run."""
IN_PYTHON = "; in Python"
"""Start of the end of a description that a command's help omits."""
PLAIN = "Read special tokens in the text, such as those of chat templates, as plain text."
"""Description of the argument `plain` of what reads a user's text."""
CHAT = "Read the text in the model's chat template, as a user's message."
"""Description of the argument `chat` of what reads a user's text."""
LARGEST = 2**63 - 1
"""Largest whole number that torch takes as a seed."""


class Options(BaseModel):
    """Arguments by name; a NumPy number becomes Python's.

    Raises:
        ArgumentError: a value is invalid; the message names it and what is allowed.
    """

    model_config = ConfigDict(
        strict=True, extra="forbid", frozen=True, arbitrary_types_allowed=True, allow_inf_nan=False
    )

    def __init__(self, **values: Any) -> None:
        plain = {
            name: value.item() if isinstance(value, np.generic) else value
            for name, value in values.items()
        }
        try:
            super().__init__(**plain)
        except ValidationError as error:
            raise ArgumentError(_message(error, type(self).model_fields)) from error


class Flag(str):
    """Name of an argument on the command line, such as `--as`; empty if commands do not take it."""


def checked(function: Callable[_P, _R]) -> Callable[_P, _R]:
    """Check the arguments of a function by the pydantic model of its signature.

    The global random state is the same after a call as before.

    The model is `function.options()`. Arguments that the function takes by `**` are not part of it.
    A docstring without `Args:` gets one, from the descriptions of the fields.

    Raises:
        ArgumentError: when the function is called with an invalid value.
    """
    # what comes by `*` is missing from the bound arguments if there is nothing, and is checked too
    signature = inspect.signature(function)
    kinds = {parameter.kind: name for name, parameter in signature.parameters.items()}
    starred = kinds.get(inspect.Parameter.VAR_POSITIONAL)

    # made at the first call: building every model would slow each import down
    @functools.cache
    def options() -> type[Options]:
        return create_model(function.__name__, __base__=Options, **_fields(function))

    @functools.wraps(function)
    def call(*args: _P.args, **kwargs: _P.kwargs) -> _R:
        bound = signature.bind(*args, **kwargs)
        if starred is not None:
            bound.arguments.setdefault(starred, ())
        fields = options().model_fields
        values = {name: value for name, value in bound.arguments.items() if name in fields}
        valid = options()(**values)
        bound.arguments |= {name: getattr(valid, name) for name in values}
        with random_state_kept():
            return function(*bound.args, **bound.kwargs)

    # the model of the arguments serves the command line too
    call.__dict__["options"] = options
    call.__doc__ = _documented(function)
    # `help` prints types without their bounds and help
    with_bounds = inspect.signature(function)
    types = _argument_types(function, with_metadata=False)
    parameters = [
        parameter.replace(annotation=types.get(name, parameter.annotation))
        for name, parameter in with_bounds.parameters.items()
    ]
    call.__dict__["__signature__"] = with_bounds.replace(parameters=parameters)
    return call


def _argument_types(function: Callable[..., Any], *, with_metadata: bool) -> dict[str, Any]:
    """The type of each argument, with or without the `Annotated` around it.

    The return type is left out: its module may be imported for type checkers only.
    """
    annotations = inspect.get_annotations(function)
    annotations.pop("return", None)
    arguments = SimpleNamespace(__annotations__=annotations)
    names = vars(sys.modules[function.__module__])
    return get_type_hints(arguments, names, include_extras=with_metadata)


def _fields(function: Callable[..., Any]) -> dict[str, Any]:
    """The type and default of each argument, as `create_model` takes them."""
    types = _argument_types(function, with_metadata=True)
    fields: dict[str, Any] = {}
    for name, parameter in inspect.signature(function).parameters.items():
        if name not in types or parameter.kind is parameter.VAR_KEYWORD:
            continue
        kind: Any = types[name]
        if parameter.kind is parameter.VAR_POSITIONAL:
            # all arguments that come by `*` are one field, a list, with the help of its items
            description = FieldInfo.from_annotation(kind).description
            one_or_more = Annotated[Sequence[kind], Field(min_length=1, description=description)]
            fields[name] = (one_or_more, ())
        elif parameter.default is parameter.empty:
            fields[name] = (kind, ...)
        else:
            fields[name] = (kind, parameter.default)
    return fields


def _documented(function: Callable[..., Any]) -> str | None:
    """The docstring, with an `Args:` section if it has none and the fields have descriptions."""
    docstring = inspect.getdoc(function)
    if docstring is None or "Args:" in docstring:
        return docstring
    # a line for each argument with a description, before what is raised
    entries = []
    for name, (kind, _) in _fields(function).items():
        description = FieldInfo.from_annotation(kind).description
        if description:
            entry = f"{name}: {description}"
            entries.append(
                textwrap.fill(entry, 96, initial_indent="    ", subsequent_indent=" " * 8)
            )
    if not entries:
        return docstring
    section = "\n".join(["Args:", *entries])
    before, raises, after = docstring.partition("Raises:")
    if not raises:
        return f"{docstring}\n\n{section}"
    return f"{before}{section}\n\n{raises}{after}"


ALLOWED = {
    "bool_type": "be a valid boolean",
    "callable_type": "be callable",
    "dataclass_exact_type": "be an instance of {class_name}",
    "finite_number": "be a finite number",
    "float_type": "be a valid number",
    "greater_than": "be greater than {gt}",
    "greater_than_equal": "be greater than or equal to {ge}",
    "int_type": "be a valid integer",
    "is_instance_of": "be an instance of {class}",
    "less_than": "be less than {lt}",
    "less_than_equal": "be less than or equal to {le}",
    "literal_error": "be {expected}",
    "missing": "have all its fields",
    "model_type": "be a valid dictionary or instance of {class_name}",
    "named_tuple_type": "be an instance of {class_name}",
    "none_required": "be None",
    "sequence_str": "be a list, not text",
    "string_too_short": "have at least {min_length} character",
    "string_type": "be a valid string",
    "string_unicode": "be text in Unicode",
    "too_short": "have at least {min_length} item",
    "tuple_type": "be a valid tuple",
    "value_error": "{error}",
}
"""Allowed values in place of an invalid one, by pydantic's type of the error."""


def not_allowed(allowed: str) -> ValueError:
    """The error of a validator; `allowed` follows "it should", such as "be a name"."""
    return ValueError(allowed)


def _message(invalid: ValidationError, known: dict[str, FieldInfo]) -> str:
    """The first invalid argument: its value, and what is allowed."""
    errors = invalid.errors(include_url=False)
    name = str(errors[0]["loc"][0])
    if errors[0]["type"] == "extra_forbidden":
        suggestion = nearest_name(name, known)
        return f"no argument named {name!r:.80}{suggestion}; choose from: {', '.join(known)}"
    of_argument = [error for error in errors if error["loc"][0] == name]
    # a union has an error for each of its types; those of an item of a list say more
    of_items = [error for error in of_argument if _item(error)]
    details = of_items or of_argument
    value = described(details[0]["input"])
    # alternatives without repetition, such as "be a valid integer or None"
    alternatives: dict[str, None] = {}
    for error in details:
        template = ALLOWED.get(error["type"])
        if template is None:
            alternatives[f"be valid ({error['msg']})"] = None
        else:
            alternatives[template.format(**error.get("ctx", {}))] = None
    first, *others = alternatives
    allowed = " or ".join([first, *(text.removeprefix("be ") for text in others)])
    return f"{name}{_item(details[0])} is {value}; it should {allowed}"


def _item(error: Mapping[str, Any]) -> str:
    """The place of an invalid item in its list, such as `[2]`; empty for a whole value."""
    return "".join(f"[{part}]" for part in error["loc"] if isinstance(part, int))


def described(value: Any) -> str:
    """A value in words, on one line and short; the type alone of anything but plain values."""
    # Python refuses to print a number of thousands of digits
    if isinstance(value, Integral) and abs(int(value)) > 10**40:
        return "a number of more than 40 digits"
    if isinstance(value, PurePath):
        value = str(value)
    if value is None or isinstance(value, bool | Integral | Real | str | bytes):
        return " ".join(_SHORT.repr(value).split())
    if isinstance(value, list | tuple | set | dict) and not value:
        return f"an empty {type(value).__name__}"
    if isinstance(value, list | tuple) and all(isinstance(item, str | int) for item in value):
        return " ".join(_SHORT.repr(value).split())
    shape = getattr(value, "shape", None)
    of_shape = f" of shape {tuple(shape)}" if isinstance(shape, tuple) else ""
    return f"a value of type {type(value).__name__}{of_shape}"


_SHORT = Repr()
_SHORT.maxstring = _SHORT.maxother = 80
_SHORT.maxlist = _SHORT.maxtuple = 2


def _name(value: Any) -> str:
    is_text = isinstance(value, str)
    has_half_character = is_text and any("\ud800" <= c <= "\udfff" for c in value)
    if not is_text or not value.strip() or "\0" in value or has_half_character:
        raise not_allowed("be a name")
    return str(value)


def check_path(path: Any) -> str | Path:
    """A path that can name a file.

    Raises:
        ValueError: it cannot; the message states the allowed values.
    """
    try:
        _name(os.fspath(path))
    except (TypeError, ValueError, AttributeError) as error:
        raise not_allowed("be the path of a file or folder") from error
    return path if isinstance(path, str) else Path(path)


def several(value: Any, what: str) -> tuple[Any, ...]:
    """The items of a list.

    Raises:
        ValueError: the value is text or no list, or the list is empty.
    """
    try:
        items = None if isinstance(value, str | bytes | Mapping) else tuple(value)
    except TypeError:  # such as a tensor of one number
        items = None
    if not items:
        raise not_allowed(f"be {what}, or a list of at least one")
    return items


def check_paths(value: Any) -> tuple[str | Path, ...]:
    """One path or several as a tuple.

    Raises:
        ValueError: the value is no path and no list of paths.
    """
    if isinstance(value, str | os.PathLike):
        return (check_path(value),)
    return tuple(map(check_path, several(value, "the path of a file or folder")))


def several_names(value: Any) -> tuple[str, ...]:
    """Names from a list, or from text with commas between them.

    Raises:
        ValueError: no list of names; the message states the allowed values.
    """
    texts = map(_name, [value] if isinstance(value, str) else several(value, "a name"))
    parts = [part.strip() for text in texts for part in text.split(",")]
    names = several(filter(None, parts), "a name")
    return tuple(dict.fromkeys(map(_name, names)))


def check_head(value: Any) -> str | tuple[int, int]:
    """The name of a head, or its layer and number as a pair of Python's integers.

    Raises:
        ValueError: neither; the message states the allowed values.
    """
    if isinstance(value, str):
        return value
    if isinstance(value, tuple | list) and len(value) == 2:
        layer, head = value
        if _is_index(layer) and _is_index(head):
            return int(layer), int(head)
    raise not_allowed("be the name of a head, such as L5H1, or a pair such as (5, 1)")


def _is_index(value: Any) -> bool:
    return isinstance(value, Integral) and not isinstance(value, bool) and int(value) >= 0


def several_heads(value: Any) -> tuple[str, ...]:
    """Names of heads from names or pairs: one, a list, or text with commas between names.

    Raises:
        ValueError: no list of heads; the message states the allowed values.
    """
    if isinstance(value, str):
        return several_names(value)
    if isinstance(value, tuple) and len(value) == 2 and all(map(_is_index, value)):
        return (head_name(*parse_head(check_head(value))),)
    names: list[str] = []
    for item in several(value, "a name"):
        if isinstance(item, tuple):
            names.append(head_name(*parse_head(check_head(item))))
        else:
            names += several_names(item)
    return tuple(dict.fromkeys(names))


_OF_A_MODEL = ("engine", "run_with_hooks", "get_input_embeddings")
"""Attributes of a model that headscope loaded, of one of TransformerLens, and of transformers."""


def check_model(value: Any) -> Any:
    """A path as text, or an object that may be a model.

    Raises:
        ValueError: neither; the message states the allowed values.
    """
    if isinstance(value, str | os.PathLike):
        return str(check_path(value))
    if not (isinstance(value, tuple) or any(hasattr(value, name) for name in _OF_A_MODEL)):
        raise not_allowed(
            "be the name or path of a model, a (model, tokenizer) pair, a loaded model, or "
            "a TransformerBridge"
        )
    return value


Name = Annotated[str, AfterValidator(_name)]
Names = Annotated[str | Sequence[str], PlainValidator(several_names)]
"""A list of names, or text with commas between them; becomes a tuple."""
PathName = Annotated[str | Path, PlainValidator(check_path)]
Paths = Annotated[str | Path | Sequence[str | Path], PlainValidator(check_paths)]
NonNegative = Annotated[int, Field(ge=0, le=LARGEST)]
Positive = Annotated[int, Field(ge=1, le=LARGEST)]
Model = Annotated[
    Any,
    PlainValidator(check_model),
    Field(
        description="A name or path as for classify, a loaded model, or a (model, tokenizer) pair."
    ),
]
Source = Annotated[
    Any,
    PlainValidator(lambda value: None if value is None else check_model(value)),
    Flag("--model"),
    Field(description="The run's model, or its path if it has moved."),
]
Corpus = Annotated[
    Paths | None,
    Field(description="Files or folders of text. Default: gum, which ships."),
]
RunCorpus = Annotated[
    Paths | None,
    Field(description="Files or folders of text. Default: the text of the run."),
]
MaxTokens = Annotated[Positive, Field(description="Maximum tokens of text.")]
Windows = Annotated[Positive, Field(description="Number of windows of text.")]
Seed = Annotated[NonNegative, Flag(""), Field(description="Random seed.")]
Revision = Annotated[
    Name | None,
    Flag(""),
    Field(description="Branch, tag or commit on the hub, such as step1000."),
]
Device = Annotated[
    Name, Field(description="Device, such as cpu or cuda; auto uses a GPU if there is one.")
]
Heads = Annotated[
    Name, Field(description="tagged, all, a type, a relation, or names such as L5H1,L6H9.")
]
Head = Annotated[
    str | tuple[int, int],
    PlainValidator(check_head),
    Field(description="L5H1, 5.1 or (5, 1) for layer 5, head 1."),
]
HeadNames = Annotated[
    str | tuple[int, int] | Sequence[str | tuple[int, int]], PlainValidator(several_heads)
]
"""A list of heads, or text with commas between names; becomes a tuple."""
Overwrite = Annotated[bool, Field(description="Replace existing files.")]
Text = Annotated[str, Field(description="Text, in Unicode.")]
Plain = Annotated[bool, Field(description=PLAIN)]
Chat = Annotated[bool, Field(description=CHAT)]
Width = Annotated[
    Annotated[float, Field(ge=2, le=40)] | None,
    Field(description="Width of the figure in inches, such as 3.3 for a column."),
]
OnMessage = Annotated[
    Callable[[str], None],
    Flag(""),
    Field(description="Function that is called with a line of text."),
]
