"""An export beside Neuronpedia's own programs: their loaders into Postgres, their metrics' numbers."""

from __future__ import annotations

import importlib.util
import json
import os
import pwd
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch

import headscope as hs
from headscope.models.load import load_model
from headscope.stimuli.text import TextWindows
from tests.helpers.headvis import METRICS, read
from tests.helpers.places import SHARED

CLIENT = SHARED.parent / "clients" / "neuronpedia_headvis"
SIX = METRICS[:6]
ROW = [
    "selfAttentionScore",
    "prevTokenScore",
    "patternEntropy",
    "qkDistance",
    "qkDistanceVariance",
    "inductionScore",
]
DETAILS = {
    "qkDistanceHistogram": "qk_distance_histogram",
    "topQueryTokens": "top_query_tokens",
    "topKeyTokens": "top_key_tokens",
    "activationHistogram": "histogram",
    "headStatistics": "statistics",
}
RUN = """"modelId" TEXT NOT NULL, "layer" INT NOT NULL, "headIndex" INT NOT NULL, "modelName" TEXT NOT NULL,
"datasetName" TEXT NOT NULL, "nSequences" INT NOT NULL, "dtype" TEXT NOT NULL, "attnImplementation" TEXT NOT NULL,
"id" TEXT PRIMARY KEY, "createdAt" TIMESTAMP NOT NULL, "updatedAt" TIMESTAMP NOT NULL"""
TABLES = f"""
CREATE TABLE "ModelHeadMetrics" ({RUN}, "seqLen" INT NOT NULL, {", ".join(f'"{x}" DOUBLE PRECISION' for x in ROW)},
{", ".join(f'"{x}" JSONB' for x in DETAILS)},
UNIQUE ("modelId", "datasetName", "nSequences", "seqLen", "dtype", "attnImplementation", "layer", "headIndex"));
CREATE TABLE "ModelHeadSequence" ({RUN}, "interval" INT NOT NULL, "tokens" TEXT[], "attentionIndices" INT[],
"attentionValues" DOUBLE PRECISION[], "maxActivation" DOUBLE PRECISION NOT NULL)
"""
"""The columns that their README describes."""

pytestmark = pytest.mark.skipif(
    not CLIENT.is_dir(), reason=f"needs Neuronpedia's programs in {CLIENT}"
)


def programs() -> Path | None:
    """The folder of Postgres' programs."""
    found = shutil.which("initdb")
    folders = [Path(found).parent] if found else sorted(Path("/usr/lib/postgresql").glob("*/bin"))
    return next((folder for folder in reversed(folders) if (folder / "initdb").is_file()), None)


@pytest.fixture(scope="module")
def database() -> Iterator[str]:
    """The address of a Postgres of its own, run by a user without rights, with their two tables."""
    if not all(importlib.util.find_spec(name) for name in ("psycopg2", "dotenv")):
        pytest.skip("needs psycopg2 and python-dotenv, with which Neuronpedia's loaders connect")
    bin_folder = programs()
    if bin_folder is None:
        pytest.skip("needs Postgres")
    import psycopg2

    # short and open to that user, as a socket's path and pytest's folders are not
    with tempfile.TemporaryDirectory(prefix="hs-pg-", ignore_cleanup_errors=True) as name:
        user: dict[str, Any] = {}
        if os.geteuid() == 0:
            account = pwd.getpwnam("nobody")
            os.chown(name, account.pw_uid, account.pw_gid)
            user = {"user": account.pw_uid, "group": account.pw_gid, "extra_groups": []}

        def run(*words: str) -> None:
            with Path(name, "log").open("ab") as log:
                subprocess.run(
                    [str(bin_folder / words[0]), *words[1:]],
                    check=True,
                    cwd=name,
                    stdout=log,
                    stderr=log,
                    **user,
                )

        data = f"{name}/data"
        run("initdb", "-D", data, "-A", "trust", "-U", "postgres", "-E", "UTF8", "--no-sync")
        run("pg_ctl", "-D", data, "-w", "-o", f"-F -c listen_addresses='' -k {name}", "start")
        try:
            address = f"postgresql://postgres@/postgres?host={name}"
            with psycopg2.connect(address) as connection, connection.cursor() as cursor:
                cursor.execute(TABLES)
            connection.close()
            yield address
        finally:
            run("pg_ctl", "-D", data, "-m", "immediate", "stop")


def load(program: str, exports: Path, address: str) -> str:
    done = subprocess.run(
        [sys.executable, str(CLIENT / program), str(exports)],
        env={**os.environ, "DATABASE_URL": address, "PYTHONDONTWRITEBYTECODE": "1"},
        cwd=exports, capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr[-2000:]
    return done.stdout


def test_neuronpedia_s_loaders_take_an_export_as_it_is(run_folder, texts, tmp_path, database):
    import psycopg2

    folder = tmp_path / "exports" / "gpt2-small" / "headvis" / "texts"
    hs.headvis(run_folder, folder, sequences=30, max_length=48)
    for program in ("load-head-metrics.py", "load-head-sequences.py"):
        load(program, tmp_path / "exports", database)
    connection = psycopg2.connect(database)
    with connection.cursor() as cursor:
        columns = ", ".join(f'"{name}"' for name in ("layer", "headIndex", *ROW, *DETAILS))
        cursor.execute(f'SELECT {columns} FROM "ModelHeadMetrics" ORDER BY 1, 2')
        metrics = cursor.fetchall()
        cursor.execute(
            'SELECT DISTINCT "modelId", "datasetName", "nSequences", "seqLen" FROM "ModelHeadMetrics"'
        )
        assert cursor.fetchall() == [("gpt2-small", texts.name, 30, 48)]
        cursor.execute(
            'SELECT "layer", "headIndex", "interval", "tokens", "attentionIndices", "attentionValues", '
            '"maxActivation" FROM "ModelHeadSequence"'
        )
        sequences = {(*row[:3], *map(tuple, row[3:6]), row[6]) for row in cursor.fetchall()}
    connection.close()
    rows = {(row["layer"], row["head"]): row for row in read(folder / "scatter_data.json")}
    assert [row[:2] for row in metrics] == sorted(rows)
    for layer, head, *values in metrics:
        assert values[:6] == [rows[layer, head][name] for name in SIX]
        file = read(folder / "heads" / f"L{layer}H{head}.json")
        assert values[6:] == [file[name] for name in DETAILS.values()]
        for each in file["sequences"]:
            arrays = (each["tokens"], each["attention_indices"], each["attention_values"])
            row = (layer, head, each["interval"], *map(tuple, arrays), each["max_activation"])
            sequences.remove(row)
    assert not sequences
    # the same export again is known by what its config says was read
    told = load("load-head-metrics.py", tmp_path / "exports", database)
    assert "Imported 0 ModelHeadMetrics row(s), skipped 8" in told


class Numbered:
    """A tokenizer for their script whose texts are the numbers of windows."""

    pad_token, pad_token_id, padding_side = "<pad>", 0, "right"

    def __init__(self, windows: list[list[int]]) -> None:
        self.windows = windows

    def __call__(self, texts: list[str], **_: Any) -> SimpleNamespace:
        rows = [self.windows[int(text)] for text in texts]
        longest = max(map(len, rows))
        ids = torch.tensor([row + [0] * (longest - len(row)) for row in rows])
        mask = torch.tensor([[1] * len(row) + [0] * (longest - len(row)) for row in rows])
        return SimpleNamespace(input_ids=ids, attention_mask=mask)

    def decode(self, ids: list[int]) -> str:
        return str(ids[0])


def test_six_metrics_are_those_of_neuronpedia_s_script(
    export, gpt2_folder, texts, tmp_path, monkeypatch
):
    spec = importlib.util.spec_from_file_location("theirs", CLIENT / "compute-head-metrics.py")
    theirs: Any = importlib.util.module_from_spec(spec)
    monkeypatch.setitem(sys.modules, "theirs", theirs)
    spec.loader.exec_module(theirs)
    encoder = load_model(str(gpt2_folder)).tokenizer
    text = TextWindows([texts], encoder, max_tokens=60 * 64, max_length=64, seed=0)
    windows = [w.tokens.tolist() for w in text if len(w) > 2][:60]
    monkeypatch.setattr(theirs.AutoTokenizer, "from_pretrained", lambda *_, **__: Numbered(windows))
    monkeypatch.setattr(
        theirs, "load_dataset", lambda **_: [{"text": str(i)} for i in range(len(windows))]
    )
    (tmp_path / "names.json").write_text(json.dumps({"tiny": str(gpt2_folder)}))
    options = {
        "--model-name": gpt2_folder, "--dataset-name": "texts", "--n-sequences": len(windows), "--dtype": "float32",
        "--exports-dir": tmp_path, "--np-model-map": tmp_path / "names.json", "--device": "cpu", "--seq-len": 64,
    }  # fmt: skip
    words = [str(word) for option in options.items() for word in option]
    monkeypatch.setattr(sys, "argv", ["compute-head-metrics.py", *words])
    theirs.main()
    expected = read(tmp_path / "tiny" / "headvis" / "texts" / "scatter_data.json")
    found = read(Path(export.values["folder"]) / "scatter_data.json")
    assert len(expected) == len(found) == 8
    for one, other in zip(found, expected, strict=True):
        assert {name: one[name] for name in other} == pytest.approx(other, abs=1.01e-4)
    assert list(other)[2:] == SIX
    assert len({row["induction_score"] for row in expected}) == 8
