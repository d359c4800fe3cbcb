"""`run.json` read back: each fact of the kind that tables, views and the report rely on."""

from __future__ import annotations

import hashlib
import json
from dataclasses import fields
from pathlib import Path, PurePath
from typing import Any

from headscope.errors import RunError
from headscope.relations.relation import TagThresholds
from headscope.runs.folder import altered

FORMAT_VERSION = 2
"""Of run folders; folders of another version are not read."""
VERSION = "format_version"
"""The key of the version in `run.json`."""
_DEEPEST = 20  # lists and objects inside one another; a run has 4
_NUMBER = (int, float)
_LARGEST = 1e15  # of any number: a float holds all smaller integers

_FACTS: dict[str, type] = {
    "model": dict,
    "relations": dict,
    "provenance": dict,
    "types": list,
    "notes": list,
    "preliminary": list,
    "precision": dict,
    "reliability": dict,
    "simple_rules": dict,
    "parts": list,
    "effects": dict,
    "settings": dict,
    "corpora": dict,
    "thresholds": dict,
    "files": dict,
    "places": dict,
    "text_loss": dict,
    "text_read": dict,
    "decidable": dict,
    "command": str,
    "engine": str,
    "bos": str,
}
ATTENTION_LAYERS = "attention_layers"
"""The key, among the model's facts, of the layers that have softmax attention, where not all do."""
SHA256 = "sha256"
"""The key, in the provenance, of the checksum that `run.json` states of itself."""
_NEEDED = ("model", "relations", "provenance", "files")
_OF_A_MODEL = ("name", "revision", "dtype")
"""What is asked of a model that can be loaded again; one of given patterns has a name alone."""


def read_record(path: Path) -> tuple[dict[str, Any], dict[str, TagThresholds]]:
    """The content of `run.json`, and the rules of its relations.

    Raises:
        RunError: it is not what a run writes; the message says which fact is wrong.
    """
    try:
        info = json.loads(path.read_text(encoding="utf-8"), parse_constant=_refuse)
        _check_values(info, 0)
        _expect(info, dict, "its content")
        _check_version(path, info.get(VERSION))
        _check_facts(info)
        if info["provenance"].get(SHA256) != record_sha256(info):
            raise altered(path)
        return info, {name: _rule(name, facts) for name, facts in info["relations"].items()}
    except (OSError, ValueError, RecursionError) as error:
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


def _check_version(path: Path, version: Any) -> None:
    if version != FORMAT_VERSION:
        raise RunError(f"{path.parent} was made by an earlier version of headscope: classify again")


def _refuse(constant: str) -> float:
    raise ValueError(f"{constant} is no number in JSON")


def _check_values(value: Any, depth: int) -> None:
    if depth > _DEEPEST:
        raise ValueError(f"more than {_DEEPEST} lists or objects inside one another")
    if isinstance(value, _NUMBER) and not abs(value) <= _LARGEST:
        raise ValueError(f"a number beyond {_LARGEST:g}")
    if isinstance(value, dict | list):
        for part in value.values() if isinstance(value, dict) else value:
            _check_values(part, depth + 1)


def _check_facts(info: Any) -> None:
    for name in _NEEDED:
        if name not in info:
            raise ValueError(f"{name} is missing")
    for name, kind in _FACTS.items():
        if name in info:
            _expect(info[name], kind, name)
    model = info["model"]
    _expect(model.get("name"), str, "the model's name")
    if model.keys() & {"layers", "heads"}:
        for name in ("layers", "heads"):
            _expect(model.get(name), int, f"the model's {name}")
    if ATTENTION_LAYERS in model:
        _check_layers(model[ATTENTION_LAYERS], model.get("layers"))
    if "weights_sha256" in model:
        _expect(info.get("bos"), str, "bos")
        for name in _OF_A_MODEL:
            _expect(model.get(name), str, f"the model's {name}")
    _expect(info["provenance"].get("versions"), dict, "versions")
    _expect(info.get("corpora", {}).get("files", {}), dict, "the corpora's files")
    _check_places(info.get("places", {}))
    for name, facts in info.get("effects", {}).items():
        _expect(facts, dict, f"the effect {name!r:.100}")
        for key, expected_kind in _OF_AN_EFFECT.items():
            _expect(facts.get(key), expected_kind, f"{key} of the effect {name!r:.100}")
    for name in ("types", "notes", "parts", "preliminary"):
        for text in info.get(name, ()):
            _expect(text, str, f"each of the {name}")
    for name, text in info.get("files", {}).items():
        _expect(text, str, f"the checksum of {name!r:.100}")
    loss = info.get("text_loss", {})
    for name in (
        "unigram",
        "tokens",
        "windows",
        "better",
        *(["model"] if loss.get("model") is not None else []),
    ):
        if loss:
            _expect(loss.get(name), _NUMBER, f"{name} of the text's loss")
    read = info.get("text_read", {})
    for name in ("tokens", "of", "looks", "expected_changes"):
        if read and (name != "expected_changes" or read.get(name) is not None):
            _expect(read.get(name), _NUMBER, f"{name} of the text read")
    precision = info.get("precision", {})
    for name in ("dtype", "reason") if precision else ():
        _expect(precision.get(name), str, f"{name} of the precision")
    for name in ("tokens", "mean_difference", "largest_difference"):
        if name in precision:
            _expect(precision.get(name), _NUMBER, f"{name} of the precision")
    decidable = info.get("decidable", {"relations": 0, "of": 0})
    for name in ("relations", "of"):
        _expect(decidable.get(name), int, f"{name} of the decidable relations")
    for name, value in info.get("reliability", {}).items():
        if value is not None:
            _expect(value, _NUMBER, f"the reliability of {name!r:.100}")


_OF_AN_EFFECT: dict[str, type | tuple[type, ...]] = {
    "floor": _NUMBER,
    "sign": int,
    "meaning": str,
    "second": str,
    "source": str,
}


def _check_layers(numbers: Any, layers: Any) -> None:
    _expect(numbers, list, ATTENTION_LAYERS)
    for number in numbers:
        _expect(number, int, f"each of {ATTENTION_LAYERS}")
    if not numbers or numbers != sorted({*numbers}) or not 0 <= numbers[0] <= numbers[-1] < layers:
        raise ValueError(
            f"{ATTENTION_LAYERS} must be numbers of some of {layers} layers in order, not "
            f"{numbers!r:.60}"
        )


def _check_places(places: dict[str, Any]) -> None:
    corpora = places.get("corpora", [])
    _expect(corpora, list, "the corpora's places")
    for path in (places.get("model"), *corpora):
        if path is not None:
            _expect(path, str, "a place")
        if path is not None and ("\0" in path or PurePath(path).is_absolute()):
            raise ValueError(f"a place must be a way from the run folder, not {path!r:.60}")


def _expect(value: Any, kind: type | tuple[type, ...], what: str) -> None:
    if not isinstance(value, kind) or (isinstance(value, bool) and kind is not bool):
        kinds = kind if isinstance(kind, tuple) else (kind,)
        names = " or ".join(_JSON[kind] for kind in kinds)
        raise ValueError(f"{what} must be {names}, not {value!r:.60}")


_JSON = {
    dict: "an object",
    list: "a list",
    str: "a text",
    bool: "a truth value",
    int: "a number",
    float: "a fraction",
}


def _rule(name: str, facts: Any) -> TagThresholds:
    what = f"the rule of {name!r:.100}"
    _expect(facts, dict, what)
    if unknown := sorted(set(facts) - {field.name for field in fields(TagThresholds)}):
        raise ValueError(f"{what} has {unknown[0]!r:.100}, which no rule has")
    for key, kind in _OF_A_RULE.items():
        value = facts.get(key)
        if value is not None or key in ("floor", "source", "meaning"):
            _expect(value, kind, f"{key} in {what}")
    return TagThresholds(**{key: value for key, value in facts.items() if value is not None})


_OF_A_RULE: dict[str, type | tuple[type, ...]] = {
    "broad": bool,
    "floor": _NUMBER,
    "source": str,
    "meaning": str,
    "taggable": bool,
    "times_chance": _NUMBER,
    "beat_baseline_by": _NUMBER,
    "companion": str,
}
