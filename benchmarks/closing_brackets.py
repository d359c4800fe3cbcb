"""Heads that attend from a closing bracket in prose to the bracket that it closes.

    python benchmarks/closing_brackets.py smollm2 --max-tokens 16000

In prose the nearest earlier opening bracket is almost always the right one, so that no text of this
kind separates a head for pairs from a head for the nearest bracket; the second line counts it.
`code/bracket` measures the same in Python files, where brackets are nested.
"""

from __future__ import annotations

import argparse

import numpy as np

import headscope as hs

OPENING = {")": "(", "]": "[", "}": "{"}
LISTED = 5


def bracket_pairs(window: hs.Window) -> list[tuple[int, int]]:
    """Rows of the closing brackets of a window, each with the row of the bracket that it closes."""
    pairs, open_rows = [], []
    marks = window.words.lemma.tolist()
    for row, mark in enumerate(marks):
        if mark in OPENING.values():
            open_rows.append(row)
        elif mark in OPENING and open_rows and marks[open_rows[-1]] == OPENING[mark]:
            pairs.append((row, open_rows.pop()))
    return pairs


def other_marks(window: hs.Window, targets: hs.Pairs, rng: np.random.Generator) -> hs.Pairs:
    """Same query, other punctuation marks."""
    marks = window.words.last[window.words.upos == "PUNCT"]
    return hs.controls.keys_from(window, marks, targets, rng)


@hs.relation("brackets", "closed", control=other_marks)
def closed(window: hs.Window) -> hs.Pairs:
    """The opening bracket of the closing bracket"""
    rows = np.array(bracket_pairs(window), int).reshape(-1, 2)
    return hs.pairs(window.words.last[rows[:, 0]], window.words.last[rows[:, 1]])


def nearest_is_right(windows: list[hs.Window]) -> tuple[int, int]:
    """Closing brackets whose nearest earlier opening bracket is their own, and all."""
    right = total = 0
    for window in windows:
        is_opening = np.isin(window.words.lemma, list(OPENING.values()))
        for closing, opening in bracket_pairs(window):
            right += int(np.flatnonzero(is_opening[:closing])[-1] == opening)
            total += 1
    return right, total


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("model")
    parser.add_argument("--max-tokens", type=int, default=16_000)
    asked = parser.parse_args()
    run = hs.classify(asked.model, relations=[closed], max_tokens=asked.max_tokens, all=True)
    best = run.evidence.sort_values("lift", ascending=False).head(LISTED)
    print(best[["layer", "head", "n", "mass", "control", "hit_rate", "verdict"]].to_string())
    right, total = nearest_is_right(hs.windows(None, asked.model, max_tokens=asked.max_tokens))
    print(f"the nearest opening bracket is the right one at {right} of {total} closing brackets")


if __name__ == "__main__":
    main()
