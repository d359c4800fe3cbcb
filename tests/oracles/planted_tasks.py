"""A model that does tasks by a circuit that is planted in it, beside heads that only seem to.

Words have random codes. Layer 0 checks each example against each task, and marks its answer with
those that hold. In layer 1 one head carries the marks of all answers to the last token: the
function vector. In layer 2 a head for each task looks at the question there, if its task is marked,
and writes the answer. All tasks ask the same questions, so that nothing else tells which is meant.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np
import torch
from transformers import AutoModelForCausalLM

from tests.oracles.network import (
    HeadMaps,
    NetworkSize,
    mirrored,
    planted_config,
    save_network,
    wave_positions,
)
from tests.oracles.words import BOS, UNKNOWN, save_tokenizer

TASKS, PAIRS = 8, 30
LAYERS, HEADS, WIDTH, CONTEXT = 3, 10, 64, 48
D_MODEL = HEADS * WIDTH
HALF = D_MODEL // 2
CODE, SKETCH, WAVES = 240, 24, 16
WORD = slice(0, CODE)
BOS_TRAIT, QUESTION, ANSWER, PLAIN = CODE, CODE + 1, CODE + 2, CODE + 3
HOLDS = slice(CODE + 4, CODE + 4 + TASKS)
CARRIED = slice(HOLDS.stop, HOLDS.stop + TASKS)
MARK = slice(CARRIED.stop, CARRIED.stop + SKETCH)
POSITION = slice(MARK.stop, MARK.stop + 2 * WAVES)
FREQUENCIES = np.pi * 2.0 ** (-np.arange(WAVES) / 2)
MATCH, NEAR, SINK, FLAG = 50.0, 60.0, 75.0, 40.0
FUNCTION_VECTOR = (1, 0)
LAZY = {
    (1, 1): "copies the last answer",
    (1, 2): "induction",
    (1, 3): "writes one answer",
    (1, 4): "raises all answers of the tasks whose answers it saw",
    (1, 5): "raises all answers of the task that holds, whatever the question",
    (1, 6): "copies the question",
    (1, 7): "writes at random",
}
TRAIT, WAVE = 8.0, 5.0
"""Sizes of traits and marks, and of positional waves, in units of a code's entries: small weights
read what is large, and so take little noise."""
BOOST = 2.5
"""Size of what heads write, in units of a word's own code."""
TEMPERATURE = 0.05
"""Gain of the last norm: logits of some 20."""


def tasks() -> dict[str, list[tuple[str, str]]]:
    """Question and answers: made words, one token each."""
    return {f"t{t}": [(f"q{i}", f"w{t}x{i}") for i in range(PAIRS)] for t in range(TASKS)}


def words() -> list[str]:
    """The vocabulary, special tokens first."""
    pairs = [pair for rows in tasks().values() for pair in rows]
    return [BOS, UNKNOWN, "Q", "A", ":", "It", *dict.fromkeys(w for pair in pairs for w in pair)]


def save_tasks_file(path: Path) -> Path:
    """The tasks as `--tasks` takes them."""
    lines = [f"{name},{q},{a}" for name, rows in tasks().items() for q, a in rows]
    path.write_text("\n".join(["task,question,answer", *lines]) + "\n", encoding="utf-8")
    return path


def save_model(folder: Path, *, noise: float = 0.0, seed: int = 0, carries: bool = True) -> Path:
    """Write the model; without its function vector where it does not carry."""
    rng = np.random.default_rng(seed)
    vocabulary = words()
    table = np.zeros((len(vocabulary), D_MODEL))
    table[:, WORD] = rng.choice([-1.0, 1.0], (len(vocabulary), CODE))
    table[0, BOS_TRAIT] = TRAIT
    table[:, PLAIN] = TRAIT
    for row, word in enumerate(vocabulary):
        table[row, QUESTION] = TRAIT * word.startswith("q")
        table[row, ANSWER] = TRAIT * word.startswith("w")
    code = {word: table[row, WORD].copy() for row, word in enumerate(vocabulary)}
    maps = [HeadMaps(LAYERS, HEADS, into=D_MODEL, out=WIDTH) for _ in "qkv"]
    q, k, v = (part.weight for part in maps)
    o = np.zeros_like(v)  # transposed
    sketch = np.linalg.qr(rng.normal(size=(CODE, SKETCH)))[0]
    root = np.sqrt(WIDTH)

    def near(at: tuple[int, int], offset: int, score: float) -> None:
        """Positional waves in the last channels of a head."""
        waves = WIDTH - 2 * WAVES + np.arange(WAVES)
        cos, sin = POSITION.start + np.arange(WAVES), POSITION.start + WAVES + np.arange(WAVES)
        size, far = score / WAVES * root / WAVE, offset * FREQUENCIES
        k[at][cos, waves] = k[at][sin, waves + WAVES] = 1 / WAVE
        q[at][cos, waves] = q[at][sin, waves + WAVES] = size * np.cos(far)
        q[at][sin, waves], q[at][cos, waves + WAVES] = size * np.sin(far), -size * np.sin(far)

    def flag(at: tuple[int, int], channel: int, trait: int, score: float) -> None:
        q[at][PLAIN, channel], k[at][trait, channel] = score * root / TRAIT, 1 / TRAIT

    for t, rows in enumerate(tasks().values()):
        table_of_task = sum(np.outer(code[a], code[b]) for b, a in rows) / CODE
        left, sizes, right = np.linalg.svd(table_of_task)
        most = WIDTH - 2 * WAVES - 1
        check = (0, t)
        # as many directions as a head has beside its waves; the rest of the match is lost
        q[check][WORD, :most] = left[:, :most] * sizes[:most] * MATCH * PAIRS / most / CODE * root
        k[check][WORD, :most] = right[:most].T
        near(check, 3, NEAR)
        flag(check, most, BOS_TRAIT, SINK)
        v[check][QUESTION, 0], o[check][HOLDS.start + t, 0] = 1 / TRAIT, TRAIT
        answer = (2, t)
        q[answer][CARRIED.start + t, 0] = MATCH * root / TRAIT
        k[answer][QUESTION, 0] = 1 / TRAIT
        near(answer, 2, NEAR)
        flag(answer, 1, BOS_TRAIT, SINK)
        rank = min(PAIRS, WIDTH)
        v[answer][WORD, :rank] = right[:rank].T
        o[answer][WORD, :rank] = left[:, :rank] * sizes[:rank] * BOOST
    previous = (0, 8)
    near(previous, 1, NEAR)
    v[previous][WORD, :SKETCH] = sketch
    o[previous][MARK, :SKETCH] = np.eye(SKETCH)

    def on_answers(at: tuple[int, int]) -> None:
        flag(at, 0, ANSWER, FLAG)
        flag(at, 1, BOS_TRAIT, FLAG / 2)

    def copies(at: tuple[int, int]) -> None:
        basis = np.linalg.qr(rng.normal(size=(CODE, WIDTH)))[0]
        v[at][WORD], o[at][WORD] = basis, basis * CODE / WIDTH / 2

    means = [np.mean([code[a] for _, a in rows], 0) for rows in tasks().values()]
    channels = np.arange(TASKS)
    for head in range(1, 8):
        on_answers((1, head))
    if carries:
        on_answers(FUNCTION_VECTOR)
        v[FUNCTION_VECTOR][np.arange(HOLDS.start, HOLDS.stop), channels] = 1 / TRAIT
        o[FUNCTION_VECTOR][np.arange(CARRIED.start, CARRIED.stop), channels] = TRAIT
    near((1, 1), 7, NEAR)
    copies((1, 1))
    q[1, 2] = k[1, 2] = 0.0
    q[1, 2][WORD, :SKETCH] = sketch * MATCH / SKETCH * root
    k[1, 2][MARK, :SKETCH] = np.eye(SKETCH)
    flag((1, 2), SKETCH, BOS_TRAIT, MATCH / 2)
    copies((1, 2))
    v[1, 3][PLAIN, 0], o[1, 3][WORD, 0] = 1 / TRAIT, code["w0x0"] / 2
    for t, rows in enumerate(tasks().values()):
        v[1, 4][WORD, t] = np.mean([code[a] for _, a in rows], 0) / CODE * PAIRS
        o[1, 4][WORD, t] = means[t] * BOOST
    v[1, 5][np.arange(HOLDS.start, HOLDS.stop), channels] = 1 / TRAIT
    o[1, 5][WORD, :TASKS] = np.stack(means, 1) * 2 * BOOST
    q[1, 6] = k[1, 6] = 0.0
    flag((1, 6), 0, QUESTION, MATCH)
    near((1, 6), 2, NEAR)
    copies((1, 6))
    v[1, 7][WORD] = rng.normal(size=(CODE, WIDTH)) / np.sqrt(CODE)
    o[1, 7][WORD] = rng.normal(size=(CODE, WIDTH)) / WIDTH
    table = mirrored(table, HALF)
    o[:, :, HALF:] = -o[:, :, :HALF]
    for part in (q, k, v, o):
        for layer in range(LAYERS):
            spread = noise * np.sqrt((part[layer] ** 2).mean())
            part[layer] += rng.normal(0, spread, part[layer].shape)
    maps.append(HeadMaps(LAYERS, HEADS, into=WIDTH, out=D_MODEL))
    maps[-1].weight = o.transpose(0, 1, 3, 2)
    size = NetworkSize(len(vocabulary), LAYERS, HEADS, WIDTH, CONTEXT)
    squared = (
        CODE + 2 * TRAIT**2 + WAVES * WAVE**2
    )  # of half of the stream; what layers write is little next to it
    gain = float(np.sqrt(2 * squared / D_MODEL))
    save_network(
        planted_config("gpt2", size, {}),
        maps,
        folder,
        embedding=table,
        positions=WAVE * wave_positions(size, FREQUENCIES, POSITION.start, HALF),
        gains=[gain, gain, 1.5 * gain],  # layer 1 writes as much again
    )
    network = AutoModelForCausalLM.from_pretrained(folder)
    with torch.no_grad():
        network.transformer.ln_f.weight.fill_(TEMPERATURE)
    network.save_pretrained(folder)
    save_tokenizer(vocabulary, folder, context=CONTEXT)
    return folder
