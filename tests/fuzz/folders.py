"""Run folders altered by hand, and everything that is done with a run folder."""

from __future__ import annotations

import csv
import hashlib
import io
import json
import os
import shutil
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from hypothesis import strategies as st
from rich.console import Console

import headscope as hs
from headscope.errors import HeadscopeError
from headscope.measure.example import Example
from headscope.run import load
from headscope.runs.contents import CHECKED, INDEX, PATTERNS, RECORD, TALLY
from headscope.runs.listing import list_heads, write_heads
from headscope.statistics.causes import CAUSAL_EFFECT, CAUSE_COLUMNS, EDGES
from headscope.studies.verify import verify
from headscope.views.html_page import atlas_html
from headscope.views.summary import head_lines, summary

FILES = (RECORD, *CHECKED)
TABLES = ("evidence.csv", "heads.csv")
TENSORS = (TALLY, PATTERNS)


def make_run(folder: Path, *, keep_sums: bool = False) -> Path:
    """A small run with every file that a run can have: 2 layers × 2 heads, two examples.

    Its sums are packed, or all of them are there.
    """
    size = 9
    a = np.tril(np.ones((2, 2, size, size))) / np.arange(1, size + 1)[:, None]
    tokens = ["<s>", *"abcd", *"abcd"]
    run = hs.score_patterns(
        [a] * 8, None, [tokens] * 8, types=["positional", "induction"], name="=m"
    )
    examples = [
        Example(
            1, 0, "induction/repeat", "best", 0.5, "t#0", tuple(tokens), 6, (3,), a[1, 0].astype(np.float16),
            positions=(0, *range(5, 13)), left_out=(0.25,), length=20, more_targets=1,
        ),
        Example(
            1, 0, "", "ordinary", float("nan"), "t#1", ("<s>", "x"), -1, (), np.eye(2, dtype=np.float16),
            positions=(0, 1), left_out=(), length=2,
        ),
    ]  # fmt: skip
    cause = {
        "kind": "head", "layer": 0, "head": 1, "type": "induction",
        "behaviour": "repeat", "how": "mean", "n": 96, "clean": -2.5, "ablated": -4.75,
        "effect": -2.25, "ci_low": -2.5, "ci_high": -2.0, "control": -0.125,
        "control_low": -0.25, "control_high": 0.0, "relation": "",
        "excess": -2.125, "excess_low": -2.25, "excess_high": -2.0, "q_value": 0.001,
        "verdict": CAUSAL_EFFECT,
    }  # fmt: skip
    edges = cause | {
        "kind": "tag", "behaviour": EDGES, "how": "edges", "relation": "repeat", "moved": 0.5,
        "clean": 0.0, "ablated": 0.5, "effect": 0.5, "ci_low": 0.25, "ci_high": 0.75,
        "excess": 0.25, "excess_low": 0.125, "excess_high": 0.5,
        "times": 2.0, "times_low": 1.5, "times_high": 3.0,
    }  # fmt: skip
    term = {
        "layer": 0, "head": 1, "explained": 0.75, "place": 1, "feature": "offset-1",
        "kind": "position", "queries": "", "weight": 2.5,
        "unique": 0.5, "ci_low": 0.25, "ci_high": 0.625,
    }  # fmt: skip
    effect = {
        "layer": 0, "head": 1, "type": "copy", "effect": "looked-at", "n": 80, "on": 1.5,
        "control": 0.25, "lift": 1.25, "ci_low": 1.0, "ci_high": 1.5, "q_value": 0.001,
        "spread": 0.5, "second_lift": 1.0, "second_low": 0.75, "second_high": 1.25,
        "moved": 1.0, "moved_low": 0.75, "moved_high": 1.25,
        "share": float("nan"), "threshold": 0.5, "tagged": True, "confirmed": 1.0,
    }  # fmt: skip
    facts = {"threshold": 0.5, "sign": 1, "meaning": "raises what it looks at", "source": "ours"}
    facts |= {"second": "tokens that it looks at from elsewhere"}
    settings = run.info.get("settings", {}) | {"keep_sums": keep_sums}
    info = run.info | {"effects": {"writes/copy/looked-at": facts}, "settings": settings}
    heads = run.heads.assign(explained=0.75, feature_model="the token before (+2.5)")
    keys = [
        {"layer": layer, "head": head, "k_from": "L0H1" if layer else "",
         "k_composition": 0.125 if layer else float("nan"), "k_random_p999": 0.0625}
        for layer in (0, 1) for head in (0, 1)
    ]  # fmt: skip
    made = hs.Run(
        heads, run.evidence, run.thresholds, info, run.tally, examples,
        pd.DataFrame([cause, edges]).reindex(columns=CAUSE_COLUMNS), pd.DataFrame([term]), pd.DataFrame([effect]),
        np.full((2, 2, 24, 24), 1 / 24), pd.DataFrame(keys),
    )  # fmt: skip
    return made.save(folder)


def use(folder: Path) -> None:
    """Everything that the commands do with a run, to the last byte of output."""
    run = load(folder, with_tally=True)
    console = Console(file=io.StringIO(), width=100)
    for head in ("0.0", "1.1"):
        run.why(head).encode("utf-8", "backslashreplace")
    console.print(summary(run))
    chosen = list_heads(run)
    console.print(head_lines(chosen))
    for form in ("csv", "json"):
        write_heads(chosen, form)
    for kind in set(run.evidence["type"]):
        list_heads(run, kind)
    atlas_html(run), repr(run)
    assert "<script>alert" not in run.report()
    with suppress(HeadscopeError):  # nothing is published for two heads in two layers
        verify(run, model="gpt2")
    copy = run.save(folder.with_name("copy"), overwrite=True)
    again = load(copy)
    assert again.heads.equals(run.heads)
    assert again.thresholds == run.thresholds
    assert again.info | {"relations": None} == run.info | {"relations": None}


def signed(folder: Path) -> None:
    """State the checksums of the files as they are, as someone would who wants them believed."""
    path = folder / RECORD
    with suppress(*NOT_JSON):
        index = json.loads(_raw(folder / INDEX))
        index["sha256"] = hashlib.sha256(_raw(folder / PATTERNS)).hexdigest()
        (folder / INDEX).write_text(json.dumps(index))
    with suppress(*NOT_JSON):
        info = json.loads(_raw(path))
        info["files"] = {
            name: hashlib.sha256((folder / name).read_bytes()).hexdigest()
            for name in CHECKED if (folder / name).is_file()
        }  # fmt: skip
        path.write_text(json.dumps(info), encoding="utf-8")
    sign_record(path)


def sign_record(path: Path) -> None:
    """State the checksum of what run.json says: of its JSON with sorted keys, without spaces."""
    with suppress(*NOT_JSON, AttributeError):
        info = json.loads(_raw(path))
        info["provenance"].pop("sha256", None)
        text = json.dumps(info, sort_keys=True, separators=(",", ":"), ensure_ascii=True)
        info["provenance"]["sha256"] = hashlib.sha256(text.encode()).hexdigest()
        path.write_text(json.dumps(info), encoding="utf-8")


NOT_JSON = (OSError, ValueError, KeyError, TypeError, RecursionError)
"""Errors of files that are no longer JSON and cannot be signed."""


Change = Callable[[Path], None]


def _raw(path: Path) -> bytes:
    if not path.is_file():
        raise FileNotFoundError(path)  # or a pipe, which nobody writes to
    return path.read_bytes()


nasty: list[Any] = [
    None, True, -1, 0, 1, 2, 0.5, 10**9, 10**400, -(10**400), 1e308, float("nan"), float("inf"), "", "\ud83d", "\0",
    "=1+1", "-x", "'", "a\rb", "../../etc/passwd", "/etc/passwd", "</script><script>alert(1)</script>",
    "\x1b[31m", "x" * 10_000, [], {}, [[]], {"": None}, ["x"] * 50, "positional", "unclassified", "best",
]  # fmt: skip
_numbers = [1, 0, 2, 3, 8, 10**6, 2**31, 2**63, 2**64, -1]
_cells = ["", "=1", "-1", "1", "0.5", "1e999", "nan", "-inf", "True", "x", "9" * 30, "9" * 5000, '"', "\0", "a,b", "'=",
          "\r", "\ud83d", "positional", "unclassified", ";", "1000000000", "éé", "</script>"]  # fmt: skip


@st.composite
def _json_change(draw: st.DrawFn, name: str) -> Change:
    value, key = (
        draw(st.sampled_from(nasty)),
        draw(st.sampled_from(["x", "layers", "files", "../x", ""])),
    )
    picks = draw(st.lists(st.integers(0, 30), min_size=1, max_size=5))
    how = draw(st.sampled_from(["set", "set", "set", "delete", "add"]))

    def change(folder: Path) -> None:
        path = folder / name
        top = at = json.loads(_raw(path))
        for pick in picks:
            keys = list(at) if isinstance(at, dict) else list(range(len(at)))
            if not keys:
                break
            parent, where = at, keys[pick % len(keys)]
            at = parent[where]
            if not isinstance(at, dict | list):
                break
        if how == "set":
            parent[where] = value
        elif how == "delete":
            del parent[where]
        elif isinstance(parent, dict):
            parent[key] = value
        else:
            parent.append(value)
        path.write_text(json.dumps(top), encoding="utf-8")

    return change


@st.composite
def _cell_change(draw: st.DrawFn) -> Change:
    name, value = draw(st.sampled_from(TABLES)), draw(st.sampled_from(_cells))
    row, column = draw(st.integers(0, 60)), draw(st.integers(0, 17))
    how = draw(st.sampled_from(["set", "set", "set", "row", "column", "double", "longer"]))

    def change(folder: Path) -> None:
        path = folder / name
        rows = list(csv.reader(io.StringIO(_raw(path).decode())))
        at, cell = row % len(rows), column % len(rows[0])
        if how == "set":
            rows[at][cell] = value
        elif how == "row":
            del rows[at]
        elif how == "column":
            rows = [r[:cell] + r[cell + 1 :] for r in rows]
        elif how == "double":
            rows.append(rows[at])
        else:
            rows[at].append(value)
        out = io.StringIO()
        csv.writer(out, lineterminator="\n").writerows(rows)
        path.write_bytes(out.getvalue().encode("utf-8", "surrogatepass"))

    return change


@st.composite
def _header_change(draw: st.DrawFn) -> Change:
    """A safetensors header that says another shape, dtype, place or length."""
    name, pick = draw(st.sampled_from(TENSORS)), draw(st.integers(0, 40))
    key = draw(st.sampled_from(["shape", "dtype", "data_offsets", "length", "name"]))
    numbers = draw(st.lists(st.sampled_from(_numbers), max_size=4))
    dtype = draw(
        st.sampled_from(["F64", "F32", "F16", "BF16", "I64", "U8", "BOOL", "F8_E4M3", "X", ""])
    )

    def change(folder: Path) -> None:
        path = folder / name
        raw = _raw(path)
        length = int.from_bytes(raw[:8], "little")
        header, body = json.loads(raw[8 : 8 + length]), raw[8 + length :]
        tensor = sorted(k for k in header if k != "__metadata__")[
            pick % (len(header) or 1) % len(header)
        ]
        if key == "length":
            path.write_bytes((numbers or [0])[0].to_bytes(9, "little", signed=True)[:8] + raw[8:])
            return
        if key == "name":
            header[str(numbers)] = header.pop(tensor)
        else:
            header[tensor][key] = dtype if key == "dtype" else numbers
        text = json.dumps(header).encode()
        path.write_bytes(len(text).to_bytes(8, "little") + text + body)

    return change  # fmt: skip


@st.composite
def _byte_change(draw: st.DrawFn) -> Change:
    name, share = draw(st.sampled_from(FILES)), draw(st.floats(0, 1))
    ways = ("cut", "flip", "insert", "other", "empty", "gone", "folder", "link out", "loop", "pipe")
    how = draw(st.sampled_from(ways))
    put = draw(
        st.one_of(st.binary(min_size=1, max_size=8), st.just(b"[" * 5000), st.just(b"9" * 5000))
    )
    other = draw(st.sampled_from(FILES))

    def change(folder: Path) -> None:
        path = folder / name
        raw = _raw(path)
        at = int(share * (len(raw) - 1))
        if how in ("gone", "folder", "link out", "loop", "pipe"):
            path.unlink()
        if how == "folder":
            path.mkdir()
        elif how == "link out":
            outside = folder.with_name("outside")
            outside.write_bytes(raw)
            path.symlink_to(outside)
        elif how == "loop":
            path.symlink_to(path)
        elif how == "pipe":
            os.mkfifo(path)
        elif how != "gone":
            path.write_bytes({
                "cut": raw[:at], "flip": raw[:at] + bytes([raw[at] ^ put[0]]) + raw[at + 1 :],
                "insert": raw[:at] + put + raw[at:], "other": _raw(folder / other), "empty": b"",
            }[how])  # fmt: skip

    return change


changes = st.one_of(
    _json_change(RECORD), _json_change(RECORD), _json_change(INDEX), _cell_change(), _header_change(), _byte_change(),
)  # fmt: skip


header_changes = _header_change()
"""Changes that are refused by more than their checksum."""


def check_folder(sound: Path, work: Path, made: list[Change], *, sign: bool) -> bool:
    """Use an altered copy of a run; whether it could be used. Altered files are refused by name."""
    for name in ("run", "copy", "outside"):
        if (work / name).is_dir():
            shutil.rmtree(work / name)
    folder = shutil.copytree(sound, work / "run")
    for change in made:
        with suppress(Exception):  # the first change can leave nothing for the second
            change(folder)
    present = [
        name for name in CHECKED if any(os.path.lexists(at / name) for at in (sound, folder))
    ]
    altered = {name for name in present if not _same(sound / name, folder / name)}
    if sign:
        signed(folder)
    try:
        use(folder)
    except HeadscopeError as error:
        message = str(error)
        assert len(message) < 1500 + len(str(folder)), message
        if altered and not sign and _same(sound / RECORD, folder / RECORD):
            assert any(name in message for name in altered), message
        return False
    if not sign and _same(sound / RECORD, folder / RECORD):
        assert not altered, altered
    return True


def _same(one: Path, two: Path) -> bool:
    return two.is_file() and not two.is_symlink() and one.read_bytes() == two.read_bytes()
