"""Run folders: a small one with every file, new checksums, and the common files of two."""

from __future__ import annotations

import base64
import gzip
import hashlib
import json
import re
import zlib
from contextlib import suppress
from pathlib import Path

import numpy as np
import pandas as pd

import headscope as hs
from headscope.measure.example import Example
from headscope.runs.contents import CHECKED, INDEX, PATTERNS, RECORD
from headscope.runs.folder import CHECKPOINT, PACKED
from headscope.statistics.causes import CAUSAL_EFFECT, CAUSE_COLUMNS, EDGES
from headscope.statistics.result import Result, RunInfo


def record_of(run: Result) -> RunInfo:
    """The record of a run that was read back."""
    known = RunInfo.__dataclass_fields__
    return RunInfo(**{name: value for name, value in run.info.items() if name in known})


def make_run(folder: Path) -> Path:
    """A small run with every file that a run can have: 2 layers × 2 heads, two examples."""
    size = 9
    a = np.tril(np.ones((2, 2, size, size))) / np.arange(1, size + 1)[:, None]
    tokens = ["<s>", *"abcd", *"abcd"]
    run = hs.score_patterns(
        [a] * 8, None, [tokens] * 8, types=["positional", "induction"], name="=m"
    )
    examples = [
        Example(
            layer=1,
            head=0,
            relation="induction/repeat",
            kind="best",
            mass=0.5,
            window="t#0",
            tokens=tuple(tokens),
            query=6,
            targets=(3,),
            pattern=a[1, 0].astype(np.float16),
            positions=(0, *range(5, 13)),
            left_out=(0.25,),
            length=20,
            more_targets=1,
        ),
        Example(
            layer=1,
            head=0,
            relation="",
            kind="ordinary",
            mass=float("nan"),
            window="t#1",
            tokens=("<s>", "x"),
            query=-1,
            targets=(),
            pattern=np.eye(2, dtype=np.float16),
            positions=(0, 1),
            left_out=(),
            length=2,
        ),
    ]
    cause = {
        "kind": "head",
        "layer": 0,
        "head": 1,
        "type": "induction",
        "behaviour": "repeat",
        "how": "mean",
        "n": 96,
        "clean": -2.5,
        "ablated": -4.75,
        "effect": -2.25,
        "ci_low": -2.5,
        "ci_high": -2.0,
        "control": -0.125,
        "control_low": -0.25,
        "control_high": 0.0,
        "relation": "",
        "excess": -2.125,
        "excess_low": -2.25,
        "excess_high": -2.0,
        "q_value": 0.001,
        "verdict": CAUSAL_EFFECT,
    }
    edges = cause | {
        "kind": "tag",
        "behaviour": EDGES,
        "how": "edges",
        "relation": "repeat",
        "moved": 0.5,
        "clean": 0.0,
        "ablated": 0.5,
        "effect": 0.5,
        "ci_low": 0.25,
        "ci_high": 0.75,
        "excess": 0.25,
        "excess_low": 0.125,
        "excess_high": 0.5,
        "times": 2.0,
        "times_low": 1.5,
        "times_high": 3.0,
    }
    term = {
        "layer": 0,
        "head": 1,
        "explained": 0.75,
        "place": 1,
        "feature": "offset-1",
        "kind": "position",
        "queries": "",
        "weight": 2.5,
        "unique": 0.5,
        "ci_low": 0.25,
        "ci_high": 0.625,
    }
    effect = {
        "layer": 0,
        "head": 1,
        "type": "copy",
        "effect": "looked-at",
        "n": 80,
        "on": 1.5,
        "control": 0.25,
        "lift": 1.25,
        "ci_low": 1.0,
        "ci_high": 1.5,
        "q_value": 0.001,
        "spread": 0.5,
        "second_lift": 1.0,
        "second_low": 0.75,
        "second_high": 1.25,
        "moved": 1.0,
        "moved_low": 0.75,
        "moved_high": 1.25,
        "share": float("nan"),
        "threshold": 0.5,
        "tagged": True,
        "replicates": 0.75,
    }
    facts = {"threshold": 0.5, "sign": 1, "meaning": "raises what it looks at", "source": "ours"}
    facts |= {"second": "tokens that it attends to from elsewhere"}
    settings = run.info.get("settings", {}) | {"keep_sums": True}
    info = run.info | {"effects": {"writes/copy/looked-at": facts}, "settings": settings}
    heads = run.heads.assign(explained=0.75, feature_model="the token before (+2.5)")
    keys = [
        {
            "layer": layer,
            "head": head,
            "k_from": "L0H1" if layer else "",
            "k_composition": 0.125 if layer else float("nan"),
            "k_random_p999": 0.0625,
        }
        for layer in (0, 1)
        for head in (0, 1)
    ]
    made = hs.Run(
        heads,
        run.evidence,
        run.thresholds,
        info,
        run.tally,
        examples,
        pd.DataFrame([cause, edges]).reindex(columns=CAUSE_COLUMNS),
        pd.DataFrame([term]),
        pd.DataFrame([effect]),
        np.full((2, 2, 24, 24), 1 / 24),
        pd.DataFrame(keys),
    )
    return made.save(folder)


def signed(folder: Path) -> None:
    """State the checksums of the files as they are, as someone would who wants them believed."""
    with suppress(ValueError, FileNotFoundError):  # no index, or one that is no longer JSON
        index = json.loads((folder / INDEX).read_bytes())
        index["sha256"] = hashlib.sha256((folder / PATTERNS).read_bytes()).hexdigest()
        (folder / INDEX).write_text(json.dumps(index))
    path = folder / RECORD
    info = json.loads(path.read_bytes())
    info["files"] = {
        name: hashlib.sha256(stored(folder, name)).hexdigest()
        for name in CHECKED
        if (folder / PACKED.get(name, name)).is_file()
    }
    path.write_text(json.dumps(info), encoding="utf-8")
    sign_record(path)


def stored(folder: Path, name: str) -> bytes:
    """The content of a file of a run; as it is if it is not the archive that it should be."""
    content = (folder / PACKED.get(name, name)).read_bytes()
    with suppress(OSError, EOFError):
        return gzip.decompress(content) if name in PACKED else content
    return content


def sign_record(path: Path) -> None:
    """State the checksum of what run.json says: of its JSON with sorted keys, without spaces."""
    info = json.loads(path.read_bytes())
    info["provenance"].pop("sha256", None)
    text = json.dumps(info, sort_keys=True, separators=(",", ":"), ensure_ascii=True)
    info["provenance"]["sha256"] = hashlib.sha256(text.encode()).hexdigest()
    path.write_text(json.dumps(info), encoding="utf-8")


def data_of(report: Path) -> str:
    """The JSON that a report's page unpacks."""
    found = re.search(r'id="data">([^<]+)<', report.read_text(encoding="utf-8"))
    assert found
    return zlib.decompress(base64.b64decode(found[1])).decode("ascii")


def content(run: Path) -> dict[str, bytes]:
    """Every file of a run folder, without times and the way from this folder to its model."""
    files = {
        str(path.relative_to(run)): path.read_bytes()
        for path in sorted(run.rglob("*"))
        if path.is_file()
    }
    # the page's data are compressed, and hold times too
    page, data = files["report.html"], data_of(run / "report.html").encode()
    files["report.html"] = re.sub(rb'(?<=id="data">)[^<]+', lambda match: data, page)
    info = json.loads(files["run.json"])
    times = info["provenance"]
    places = json.dumps(info.get("places"), indent=1).replace("\n", "\n ")
    files["run.json"] = files["run.json"].replace(places.encode(), b"where")
    for name in ("run.json", "report.html"):
        for value in (times["time"], times.get("seconds", {}), times.get("sha256")):
            # as run.json spells it, one fact a line, and as the page does
            for indent, separators in ((1, None), (None, (",", ":"))):
                text = json.dumps(value, indent=indent, separators=separators)
                text = text.replace("\n", "\n  ") if indent else text
                files[name] = files[name].replace(text.encode(), b"when")
    return files


def state_of(out: Path) -> Path:
    """The sums of a run that was broken off, by the folder in which it would have been written."""
    return out.parent / f".{out.name}.partial" / CHECKPOINT
