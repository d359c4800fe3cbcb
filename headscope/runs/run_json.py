"""`run.json` signed and read back."""

from __future__ import annotations

import hashlib
import json
from pathlib import Path
from typing import Any

from headscope.errors import RunError
from headscope.relations.relation import TagThresholds
from headscope.runs.folder import UNREADABLE, altered

FORMAT_VERSION = 2
"""Of run folders; folders of another version are not read."""
VERSION = "format_version"
"""The key of the version in `run.json`."""
SHA256 = "sha256"
"""The key, in the provenance, of the checksum that `run.json` states of itself."""
_NEEDED = ("model", "relations", "provenance", "files")


def read_record(path: Path) -> tuple[dict[str, Any], dict[str, TagThresholds]]:
    """The content of `run.json`, and the rules of its relations.

    Raises:
        RunError: an earlier version wrote it, or the content is not what a run writes.
    """
    try:
        info = json.loads(path.read_text(encoding="utf-8"))
        if info.get(VERSION) != FORMAT_VERSION:
            raise RunError(
                f"{path.parent} was made by an earlier version of headscope: classify again"
            )
        if missing := [name for name in _NEEDED if name not in info]:
            raise ValueError(f"{missing[0]} is missing")
        if info["provenance"].get(SHA256) != record_sha256(info):
            raise altered(path)
        return info, {name: TagThresholds(**rule) for name, rule in info["relations"].items()}
    except UNREADABLE as error:
        raise RunError(f"{path}: this run is damaged: {error!s:.300}") from error


def signed(info: dict[str, Any]) -> dict[str, Any]:
    """The content of `run.json`, with its own checksum in the provenance."""
    return info | {"provenance": info["provenance"] | {SHA256: record_sha256(info)}}


def record_sha256(info: dict[str, Any]) -> str:
    """The sha256 of what `run.json` says, but for the one that it states of itself.

    It is that of the canonical text, so that spaces and the order of keys do not count: JSON with
    sorted keys, without spaces, and nothing outside ASCII.
    """
    provenance = {key: v for key, v in info["provenance"].items() if key != SHA256}
    signed_part = info | {"provenance": provenance}
    text = json.dumps(signed_part, sort_keys=True, separators=(",", ":"), ensure_ascii=True)
    return hashlib.sha256(text.encode("ascii")).hexdigest()


def record_bytes(info: dict[str, Any]) -> bytes:
    """`run.json` as it is written, signed."""
    text = json.dumps(signed(info), indent=1, ensure_ascii=False, allow_nan=False) + "\n"
    return text.encode("utf-8", "backslashreplace")
