"""Atlases of a folder or a URL: published as a data set, and read back with their checksums."""

from __future__ import annotations

import shutil
import threading
from collections.abc import Iterator
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pandas as pd
import pytest

import headscope as hs
from data.atlas.pack import EVIDENCE, HEADS, SCHEMA, export_atlases
from headscope.runs.atlas import TABLE
from tests.helpers.atlases import assert_equal_within_rounding


class Quiet(SimpleHTTPRequestHandler):
    """Files of a folder; each request is kept."""

    requests: list[str]

    def log_request(self, code: int | str = "-", size: int | str = "-") -> None:
        del code, size
        self.requests.append(self.path)


@pytest.fixture(scope="module")
def packed(mini_run, tmp_path_factory) -> Path:
    """A folder of one atlas, `own`, which no test changes."""
    folder = tmp_path_factory.mktemp("packed")
    hs.load(mini_run).save(folder / "own")
    export_atlases([folder / "own"], folder / "atlases")
    return folder / "atlases"


@pytest.fixture
def published(packed, tmp_path) -> Path:
    """A copy of the folder for one test."""
    return shutil.copytree(packed, tmp_path / "atlases")


@pytest.fixture
def served(published, monkeypatch, tmp_path) -> Iterator[tuple[str, type[Quiet]]]:
    """The URL of the folder on this machine, and what is asked there; the cache is empty."""
    monkeypatch.setenv("HEADSCOPE_CACHE", str(tmp_path / "cache"))
    handler = type("Handler", (Quiet,), {"requests": []})
    server = ThreadingHTTPServer(("127.0.0.1", 0), partial(handler, directory=str(published)))
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    yield f"http://127.0.0.1:{server.server_port}", handler
    server.shutdown()
    server.server_close()
    thread.join()


def test_an_atlas_of_a_folder_is_the_run(published, mini_run):
    run = hs.load(f"atlas:{published}/own")
    assert_equal_within_rounding(run, hs.load(mini_run))


def test_an_atlas_of_a_url_is_fetched_once_for_every_command(served, command, mini_run):
    url, handler = served
    assert_equal_within_rounding(hs.load(f"atlas:{url}/own"), hs.load(mini_run))
    code, said, note = command("why", f"atlas:{url}/own", "L5H1")
    assert (code, note) == (0, "")
    assert said == command("why", mini_run, "L5H1")[1]
    assert handler.requests.count("/own.tar.xz") == 1


def test_a_copy_in_the_cache_that_was_changed_is_fetched_again(served, tmp_path, mini_run):
    url, handler = served
    hs.load(f"atlas:{url}/own")
    (copy,) = (tmp_path / "cache").rglob("own.tar.xz")
    copy.write_bytes(b"changed")
    assert_equal_within_rounding(hs.load(f"atlas:{url}/own"), hs.load(mini_run))
    assert handler.requests.count("/own.tar.xz") == 2


@pytest.mark.parametrize("by_url", [False, True])
@pytest.mark.parametrize("fault", ["another file", "no atlas", "no table", "a foreign table"])
def test_what_is_not_the_stated_atlas_is_refused(by_url, fault, published, served, command):
    place = served[0] if by_url else published
    match fault:
        case "another file":
            (published / "own.tar.xz").write_bytes((published / "README.md").read_bytes())
            named = "checksum"
        case "no atlas":
            table = (published / TABLE).read_text().replace("own.tar.xz", "owl.tar.xz")
            (published / TABLE).write_text(table)
            named = "owl"
        case "no table":
            (published / TABLE).unlink()
            named = TABLE
        case _:
            (published / TABLE).write_text("layer,head\n1,2\n")
            named = TABLE
    code, _, said = command("why", f"atlas:{place}/own", "L5H1")
    assert code == 2
    assert named in said
    assert "Traceback" not in said


def test_a_place_that_nobody_serves_is_refused(command):
    code, _, said = command("why", "atlas:http://127.0.0.1:9/own", "L5H1")
    assert code == 2
    assert "127.0.0.1:9" in said


def test_pandas_and_datasets_open_the_tables(published, mini_run, monkeypatch, tmp_path):
    monkeypatch.setenv("HF_DATASETS_CACHE", str(tmp_path / "datasets"))
    import datasets

    run = hs.load(mini_run)
    monkeypatch.setattr(datasets.config, "HF_DATASETS_CACHE", tmp_path / "datasets")
    heads = datasets.load_dataset(str(published))["train"]
    evidence = datasets.load_dataset(str(published), "evidence")["train"]
    assert heads["name"][:] == list(run.heads.index)
    assert evidence.num_rows == len(run.evidence)
    assert sum(evidence["tagged"]) == run.evidence["tagged"].sum() > 10

    table = pd.read_csv(published / EVIDENCE)
    assert set(table["model"]) == {"own"}
    schema = pd.read_csv(published / SCHEMA)
    assert [*schema.loc[schema["table"] == EVIDENCE, "column"]] == [*table.columns]
    assert [*schema.loc[schema["table"] == HEADS, "column"]] == heads.column_names
    assert schema["meaning"].str.len().min() > 5
