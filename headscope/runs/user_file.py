"""A file that the user names: read whole, if not too large; YAML, no key of it given twice."""

from __future__ import annotations

from collections.abc import Hashable
from pathlib import Path
from typing import Any

import yaml

from headscope.errors import HeadscopeError

MOST_BYTES = 64 * 2**20


def given_file(path: str | Path, would_do: str, *, max_bytes: int = MOST_BYTES) -> bytes:
    """The bytes of a file.

    Args:
        path: what was given.
        would_do: what an error says that would do.
        max_bytes: the largest file that is read.

    Raises:
        HeadscopeError: there is no such file, a folder or a pipe, which may never end, or more
            bytes.
    """
    path = Path(path)
    try:
        if path.exists() and not path.is_file():
            raise HeadscopeError(f"{path}: no file; give {would_do}")
        with path.open("rb") as file:
            raw = file.read(max_bytes + 1)
    except (OSError, ValueError) as error:
        reason = getattr(error, "strerror", None) or "no path"
        raise HeadscopeError(f"{path}: cannot be read ({reason}); give {would_do}") from error
    if len(raw) > max_bytes:
        raise HeadscopeError(f"{path}: more than {max_bytes:,} bytes; give {would_do}")
    return raw


def read_yaml(raw: bytes, path: str | Path) -> Any:
    """The values of a YAML document: texts, numbers, lists and mappings.

    The keys of a mapping differ (YAML 1.2, 3.2.1.3). PyYAML keeps the last of two that do not, and
    drops the other; here they are an error, at any depth.

    Args:
        raw: the file's bytes.
        path: the file, for errors.

    Raises:
        HeadscopeError: it is no YAML, asks for an object of Python, or gives a key twice.

    >>> read_yaml(b"models: [mini]", "a.yaml")
    {'models': ['mini']}
    >>> read_yaml(b"{seed: 1, seed: 2}", "a.yaml")
    Traceback (most recent call last):
    headscope.errors.HeadscopeError: a.yaml: seed is given twice, on line 1 and on line 1; keep one
    """
    try:
        return yaml.load(raw, _Loader)
    except _GivenTwiceError as error:
        raise HeadscopeError(f"{path}: {error}; keep one") from error
    except (ValueError, RecursionError, yaml.YAMLError) as error:
        reason = " ".join(str(error).split())
        raise HeadscopeError(f"{path}: cannot be read as YAML: {reason:.300}") from error


class _GivenTwiceError(Exception):
    """A key that a mapping has twice."""


class _Loader(yaml.SafeLoader):  # type: ignore[misc]
    """PyYAML's, which looks at a mapping's keys before merges (`<<`) bring those of others."""

    def compose_mapping_node(self, anchor: Any) -> yaml.MappingNode:
        mapping = super().compose_mapping_node(anchor)
        lines: dict[Hashable, int] = {}
        for node, _ in mapping.value:
            if not isinstance(node, yaml.ScalarNode):
                continue  # lists and mappings as keys are PyYAML's to refuse
            key = "<<" if node.tag == _MERGE else self.construct_object(node)
            line = node.start_mark.line + 1
            if key in lines:
                raise _GivenTwiceError(
                    f"{node.value:.60} is given twice, on line {lines[key]} and on line {line}"
                )
            lines[key] = line
        return mapping


_MERGE = "tag:yaml.org,2002:merge"
