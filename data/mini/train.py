"""Train `mini`: a small GPT-2-layout model whose heads have really learned.

    PYTHONPATH=. python data/mini/train.py --text FOLDER_OR_FILE … --work FOLDER [--minutes 60]

Half of the rows are text. A third are repeats of 4 to 40 tokens (half of those random tokens, half
stretches of text), which is how induction heads grow quickly (Olsson et al. 2022). A sixth are
random tokens of which each that was there before is followed by a mark: to predict it a model must
find the earlier one. Phases that read short rows at random positions and phases that read whole
contexts take turns. The state is written every few minutes, and the same command goes on from it;
`heads-from-STEP.csv` in WORK has the heads of each type, every 500 steps. One seed; two CPU cores
suffice.
"""

from __future__ import annotations

import argparse
import json
import time
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch
from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers
from torch import Tensor
from transformers import GPT2Config, GPT2LMHeadModel, PreTrainedTokenizerFast

import headscope as hs
from data.corpora.make import controlled_corpus
from headscope.corpus.read import corpus_files, read_documents

BOS = "<|endoftext|>"
VOCABULARY, LAYERS, HEADS, WIDTH, CONTEXT = 1024, 6, 8, 256, 256
INNER = 256
"""Width of the feed-forward layers: narrow ones leave more of the work to the heads."""
MARKED = "\0"  # stands in no text
MUON_RATE, ADAM_RATE, WARMUP = 4e-3, 2e-3, 50
CONTROLLED_DOCUMENTS, CONTROLLED_SEED = 1200, 12  # other sentences than the corpus that ships
CONTROLLED_SHARE = 0.2


class Phase(NamedTuple):
    """Rows of one length."""

    until: int
    """Step at which it ends."""
    length: int
    rows: int


PHASES = (
    Phase(3500, 96, 48),
    Phase(5000, CONTEXT, 16),
    Phase(6300, 96, 48),
    Phase(7700, CONTEXT, 16),
)
STEPS = PHASES[-1].until
RATES = ((0, 1.0), (2500, 1.0), (5000, 0.0), (5050, 1.0), (6200, 1.0), (STEPS, 0.0))
"""Learning rate as a share of its peak: straight lines between these steps. It falls to 0 twice:
after the first fall the previous-token head was still growing."""


def main() -> None:
    asked = _arguments()
    asked.work.mkdir(parents=True, exist_ok=True)
    texts = [d.text for d in read_documents(corpus_files(asked.text))]
    built = controlled_corpus(CONTROLLED_DOCUMENTS, seed=CONTROLLED_SEED)
    sentences = [x.removeprefix("# text = ") for x in built.split("\n") if x.startswith("# text")]
    tokenizer = load_tokenizer(asked.work, [*texts, " ".join(sentences)])
    train, held_out = tokens_of(tokenizer, texts)
    (mark,) = tokenizer(MARKED)["input_ids"]
    grammar = np.array(tokenizer(" ".join(sentences), add_special_tokens=False)["input_ids"])
    print(f"{len(train):,} + {len(grammar):,} tokens, {len(held_out):,} held out", flush=True)
    torch.manual_seed(0)
    model = new_model()
    optimizers = make_optimizers(model)
    step, log = resume(asked.work, model, optimizers)
    heads = hs.HeadCallback(out=asked.work / f"heads-from-{step}.csv", overwrite=True)
    heads.read(step, model, tokenizer)
    start = saved = time.monotonic()
    while step < STEPS and time.monotonic() - start < asked.minutes * 60:
        rng = np.random.default_rng([0, step])
        phase = next(p for p in PHASES if step < p.until)
        rows, positions = batch(train, grammar, mark, phase, rng)
        set_rates(optimizers, step)
        loss = model(rows, labels=rows, position_ids=positions, use_cache=False).loss
        for optimizer in optimizers:
            optimizer.zero_grad(set_to_none=True)
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        for optimizer in optimizers:
            optimizer.step()
        step += 1
        if step % 50 == 0:
            log.append({"step": step, "loss": round(float(loss), 3), **measure(model, held_out)})
            print(log[-1], f"{time.monotonic() - start:.0f}s", flush=True)
        if step % heads.every == 0:
            heads.read(step, model, tokenizer)
        if time.monotonic() - saved > 240:
            save(asked.work, model, tokenizer, optimizers, step, log)
            saved = time.monotonic()
    save(asked.work, model, tokenizer, optimizers, step, log)
    (asked.work / "emergence.csv").write_text(emergence(asked.work, log))


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description="Train headscope's mini model.")
    parser.add_argument("--text", nargs="+", type=Path, required=True)
    parser.add_argument("--work", type=Path, required=True)
    parser.add_argument("--minutes", type=float, default=60)
    return parser.parse_args()


def new_model() -> GPT2LMHeadModel:
    """GPT-2's layout and initialisation, no dropout."""
    return GPT2LMHeadModel(
        GPT2Config(
            vocab_size=VOCABULARY,
            n_layer=LAYERS,
            n_head=HEADS,
            n_embd=WIDTH,
            n_positions=CONTEXT,
            n_inner=INNER,
            bos_token_id=0,
            eos_token_id=0,
            resid_pdrop=0.0,
            embd_pdrop=0.0,
            attn_pdrop=0.0,
        )
    )


class Muon(torch.optim.Optimizer):
    """Momentum whose matrix updates are made orthogonal (Jordan et al. 2024).

    torch's own does the iteration in bfloat16, which CPUs without such instructions do slowly.
    A fused `c_attn` is three matrices side by side, each made orthogonal alone.
    """

    def __init__(self, parameters: list[Tensor], lr: float, decay: float = 0.05) -> None:
        super().__init__(parameters, {"lr": lr, "decay": decay})

    @torch.no_grad()
    def step(self, closure: None = None) -> None:  # type: ignore[override]
        for group in self.param_groups:
            for p in group["params"]:
                momentum = self.state[p].setdefault("momentum", torch.zeros_like(p))
                momentum.lerp_(p.grad, 0.05)
                update = p.grad.lerp(momentum, 0.95)
                parts = update.split(p.shape[0], 1) if p.shape[1] == 3 * p.shape[0] else [update]
                update = torch.cat([orthogonal(part) for part in parts], 1)
                p.mul_(1 - group["lr"] * group["decay"]).sub_(update, alpha=group["lr"])


def orthogonal(matrix: Tensor) -> Tensor:
    """The nearest matrix with orthogonal rows, scaled to the size of an Adam update."""
    wide = matrix if matrix.shape[0] <= matrix.shape[1] else matrix.T
    x = wide / (wide.norm() + 1e-7)
    for _ in range(5):  # the quintic Newton-Schulz iteration of Jordan et al. 2024
        a = x @ x.T
        x = 3.4445 * x + (-4.7750 * a + 2.0315 * a @ a) @ x
    x = x if wide is matrix else x.T
    return x * (0.2 * max(matrix.shape) ** 0.5)  # Liu et al. 2025, section 2.2


def make_optimizers(model: GPT2LMHeadModel) -> list[torch.optim.Optimizer]:
    """Muon for the matrices of the blocks, AdamW for embeddings, biases and norms."""
    matrices = [p for name, p in model.named_parameters() if p.ndim == 2 and ".h." in name]
    known = {id(p) for p in matrices}
    rest = [p for p in model.parameters() if id(p) not in known]
    return [
        Muon(matrices, MUON_RATE),
        torch.optim.AdamW(rest, lr=ADAM_RATE, betas=(0.9, 0.95), weight_decay=0.0),
    ]


def set_rates(optimizers: list[torch.optim.Optimizer], step: int) -> None:
    """The learning rates of a step."""
    share = min(1, (step + 1) / WARMUP) * float(np.interp(step, *zip(*RATES, strict=True)))
    for optimizer, rate in zip(optimizers, (MUON_RATE, ADAM_RATE), strict=True):
        for group in optimizer.param_groups:
            group["lr"] = rate * share


def load_tokenizer(work: Path, texts: list[str]) -> PreTrainedTokenizerFast:
    """A byte-level BPE of our own, trained once."""
    path = work / "tokenizer.json"
    if path.exists():
        backend = Tokenizer.from_file(str(path))
    else:
        backend = Tokenizer(models.BPE())
        backend.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
        backend.decoder = decoders.ByteLevel()
        backend.train_from_iterator(
            texts,
            trainers.BpeTrainer(
                vocab_size=VOCABULARY,
                special_tokens=[BOS],
                show_progress=False,
                initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
            ),
        )
        backend.save(str(path))
    return PreTrainedTokenizerFast(
        tokenizer_object=backend, bos_token=BOS, eos_token=BOS, model_max_length=CONTEXT
    )


def tokens_of(
    tokenizer: PreTrainedTokenizerFast, texts: list[str]
) -> tuple[np.ndarray, np.ndarray]:
    """Training and held-out tokens: every twentieth paragraph of each text is held out."""
    train: list[int] = []
    held_out: list[int] = []
    for text in texts:
        paragraphs = [" ".join(p.split()) for p in text.split("\n\n") if p.strip()]
        for i, paragraph in enumerate(paragraphs):
            ids = tokenizer(paragraph + "\n", add_special_tokens=False, verbose=False)["input_ids"]
            (held_out if i % 20 == 19 else train).extend(ids)
    return np.array(train), np.array(held_out)


def batch(
    train: np.ndarray, grammar: np.ndarray, mark: int, phase: Phase, rng: np.random.Generator
) -> tuple[Tensor, Tensor]:
    """Rows of tokens behind a BOS, and their positions."""
    rows = np.zeros((phase.rows, phase.length), np.int64)
    for i, row in enumerate(rows):
        text = grammar if rng.random() < CONTROLLED_SHARE else train
        start = int(rng.integers(0, len(text) - phase.length))
        row[1:] = text[start : start + phase.length - 1]
        if i % 6 == 5:
            _fill_with_marks(row, mark, rng)
        elif i % 2:
            _fill_with_repeats(row, train[start % (len(train) - phase.length) :], rng)
    first = rng.integers(0, CONTEXT - phase.length + 1, (phase.rows, 1))
    return torch.from_numpy(rows), torch.from_numpy(first + np.arange(phase.length))


def _fill_with_marks(row: np.ndarray, mark: int, rng: np.random.Generator) -> None:
    size = int(rng.integers(len(row) // 4, len(row)))
    drawn = rng.choice(np.arange(1, VOCABULARY), size, replace=False)
    place, seen = 1, set[int]()
    while place < len(row):
        token = int(rng.choice(drawn))
        row[place] = token
        place += 1
        if token in seen and place < len(row):
            row[place] = mark
            place += 1
        seen.add(token)


def _fill_with_repeats(row: np.ndarray, text: np.ndarray, rng: np.random.Generator) -> None:
    # several repeats of different lengths in one row, so that no fixed distance predicts them
    place = 1
    while place < len(row):
        n = int(rng.integers(4, 41))
        unit = rng.integers(1, VOCABULARY, n) if rng.random() < 0.5 else text[place : place + n]
        copies = np.tile(unit, int(rng.integers(2, 4)))
        row[place : place + len(copies)] = copies[: len(row) - place]
        place += len(copies)


@torch.inference_mode()
def measure(model: GPT2LMHeadModel, held_out: np.ndarray) -> dict[str, Any]:
    """Held-out loss in nats per token, and the four best heads' masses by kind."""
    model.eval()
    rows = torch.zeros(8, CONTEXT, dtype=torch.long)
    rows[:, 1:] = torch.from_numpy(held_out[: 8 * (CONTEXT - 1)].reshape(8, -1))
    text = float(model(rows, labels=rows, use_cache=False).loss)
    best = {name: mass.flatten().topk(4).values for name, mass in head_masses(model).items()}
    model.train()
    return {"text": round(text, 3), **{k: [round(float(x), 2) for x in v] for k, v in best.items()}}


@torch.inference_mode()
def head_masses(model: GPT2LMHeadModel) -> dict[str, Tensor]:
    """Every head's mass `[layer head]` by kind, on eight repeats of 50 random tokens."""
    n = 50
    random = torch.from_numpy(np.random.default_rng(1).integers(1, VOCABULARY, (8, n)))
    repeat = torch.cat([torch.zeros(8, 1, dtype=torch.long), random, random], 1)
    model.set_attn_implementation("eager")
    patterns = torch.stack(model(repeat, output_attentions=True, use_cache=False).attentions)
    model.set_attn_implementation("sdpa")
    query, inside = torch.arange(n + 1, 2 * n + 1), torch.arange(2, n)
    masses = {
        "previous": patterns[..., inside, inside - 1],
        "induction": patterns[..., query, query - n + 1],
        "duplicate": patterns[..., query, query - n],
        "current": patterns[..., inside, inside],
        "first": patterns[..., inside, 0],
    }
    return {name: mass.mean((1, -1)) for name, mass in masses.items()}


def emergence(work: Path, log: list[dict[str, Any]]) -> str:
    """A CSV of every head's masses at up to ten checkpoints, with the held-out loss beside them."""
    folders = sorted(work.glob("step*"), key=_step)
    chosen = [
        folders[i] for i in np.unique(np.linspace(0, len(folders) - 1, 10).round().astype(int))
    ]
    lines = ["step,loss,layer,head,previous,induction,duplicate,current,first"]
    for folder in chosen:
        masses = head_masses(GPT2LMHeadModel.from_pretrained(folder).eval())
        nearest = min(log, key=lambda row: abs(row["step"] - _step(folder)), default={})
        loss = nearest.get("text", "")
        for layer in range(LAYERS):
            for head in range(HEADS):
                values = ",".join(f"{float(mass[layer, head]):.4f}" for mass in masses.values())
                lines.append(f"{_step(folder)},{loss},{layer},{head},{values}")
    return "\n".join(lines) + "\n"


def _step(folder: Path) -> int:
    return int(folder.name.removeprefix("step"))


def resume(
    work: Path, model: GPT2LMHeadModel, optimizers: list[torch.optim.Optimizer]
) -> tuple[int, list[dict[str, Any]]]:
    """Step and log of the state in the folder; the start where there is none."""
    path = work / "state.pt"
    if not path.exists():
        return 0, []
    state = torch.load(path, weights_only=True)
    model.load_state_dict(state["model"])
    for optimizer, saved in zip(optimizers, state["optimizers"], strict=True):
        optimizer.load_state_dict(saved)
    return state["step"], json.loads((work / "log.json").read_text())


def save(
    work: Path,
    model: GPT2LMHeadModel,
    tokenizer: PreTrainedTokenizerFast,
    optimizers: list[torch.optim.Optimizer],
    step: int,
    log: list[dict[str, Any]],
) -> None:
    """Write the state to go on from, and the model as it is now."""
    state = {
        "model": model.state_dict(),
        "step": step,
        "optimizers": [optimizer.state_dict() for optimizer in optimizers],
    }
    torch.save(state, work / "state.pt")
    (work / "log.json").write_text(json.dumps(log))
    model.save_pretrained(work / f"step{step}")
    tokenizer.save_pretrained(work / f"step{step}")


if __name__ == "__main__":
    main()
