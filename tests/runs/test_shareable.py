"""A report can be shared: it names files, and never says where they lie."""

from __future__ import annotations

import pytest

from headscope.runs.recorded_paths import name_of, shareable

HOME = "/home/ann/secret"


@pytest.fixture
def info(tmp_path) -> dict:
    return {
        "model": {"name": f"{HOME}/models/tiny.gguf", "layers": 2, "heads": 2},
        "corpora": {
            "asked": [f"{HOME}/gum", f"{HOME}/old/gum", "../../secret/one.txt", "mine/two.txt"],
            "files": {
                f"{HOME}/gum/dev/a.conllu": "1", f"{HOME}/old/gum/dev/a.conllu": "2",
                "../../secret/one.txt": "3", "mine/two.txt": "4",
            },
        },
        "command": f"headscope classify {HOME}/models/tiny.gguf --corpus '{HOME}/gum' --seed 1",
        "notes": [f"{HOME}/gum/dev/a.conllu: 2 mentions left out"],
    }  # fmt: skip


def test_files_are_named_within_their_corpus_and_stay_apart(info):
    shown = shareable(info)
    assert shown["model"]["name"] == "tiny.gguf"
    assert shown["corpora"]["files"] == {
        "gum/dev/a.conllu": "1", "gum/dev/a.conllu (2)": "2", "one.txt": "3", "mine/two.txt": "4",
    }  # fmt: skip
    assert shown["command"] == "headscope classify tiny.gguf --corpus gum --seed 1"
    assert "secret" not in str(shown)
    assert "secret" in str(info)  # which is left as it was


def test_names_of_the_hub_stay_whole():
    assert name_of("EleutherAI/pythia-70m") == "EleutherAI/pythia-70m"
    assert name_of("mini") == "mini"
    assert name_of("/") == "/"
