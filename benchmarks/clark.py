"""Clark et al. 2019's own measure of syntax (4.2) on an encoder, as `benchmarks/clark.py minilm`.

As in their notebook (clarkkev/attention-analysis 4e3f959, Syntax_Analysis.ipynb): sentences by
themselves between [CLS] and [SEP]; attention among words, summed over the pieces of a key and
averaged over those of a query (`bpe_utils.py`, mean); a word's prediction is the other word that it
looks at most, or, in the other direction, the other word that looks at it most; the special tokens
are left out; the best of offsets −3 to 2 stands beside. Text and labels are GUM's, in Universal
Dependencies. As in theirs, the best head is chosen on the text that it is scored on.
"""

from __future__ import annotations

import argparse
from collections import Counter, defaultdict
from collections.abc import Iterator, Sequence

import numpy as np
import pandas as pd
import torch
from numpy import ndarray

from headscope.corpus.document import Document, own_label
from headscope.corpus.read import read_corpus
from headscope.corpus.shipped import asked_corpora, data_folder
from headscope.heads import head_name
from headscope.models.engines.engine import stream_patterns
from headscope.models.load import load_model
from headscope.models.model import Model

OFFSETS = range(-3, 3)
DIRECTIONS = ("dep>head", "head>dep")
Sums = dict[str, ndarray]
SHORTEST, LONGEST = 2, 120
"""Words of a sentence that is read."""


def sentences(documents: Sequence[Document]) -> Iterator[tuple[list[str], list[int], list[str]]]:
    """Forms, heads (−1 of a root) and labels of each sentence."""
    for document in documents:
        of_sentence = defaultdict(list)
        for index, word in enumerate(document.words):
            of_sentence[word.sentence].append((index, word))
        for rows in of_sentence.values():
            first = rows[0][0]
            if SHORTEST <= len(rows) <= LONGEST:
                heads = [word.head - first if word.head >= 0 else -1 for _, word in rows]
                labels = [own_label(word.deprel) for _, word in rows]
                yield [word.form for _, word in rows], heads, labels


def word_attention(model: Model, forms: list[str]) -> ndarray:
    """Attention between the words of a sentence, of shape [layer head word word]."""
    pieces = [model.tokenizer.encode(Document("word", form, ())).tokens for form in forms]
    owner = np.repeat(np.arange(len(forms)), [len(tokens) for tokens in pieces])
    tokens = np.concatenate([[model.tokenizer.bos], *pieces, [model.tokenizer.frame.end]])
    layers: dict[int, ndarray] = {}

    def take(layer: int, pattern: torch.Tensor) -> None:
        layers[layer] = pattern[0].numpy()

    stream_patterns(model.engine, torch.from_numpy(tokens.astype(np.int64))[None], take)
    pattern = np.stack([layers[layer] for layer in sorted(layers)])[:, :, 1:-1, 1:-1]
    of_word = np.eye(len(forms))[owner]  # piece × word
    mean = of_word.T / np.maximum(of_word.sum(0), 1)[:, None]
    attention = mean @ (pattern @ of_word)
    attention[..., np.arange(len(forms)), np.arange(len(forms))] = 0
    return np.asarray(attention)


def measure(model: Model, documents: Sequence[Document]) -> tuple[Sums, Sums, Counter[str]]:
    """Right predictions by label: of each direction and head, of each offset; and all words."""
    right: Sums = defaultdict(lambda: np.zeros((2, model.layers, model.heads)))
    by_offset: Sums = defaultdict(lambda: np.zeros(len(OFFSETS)))
    count: Counter[str] = Counter()
    for forms, heads, labels in sentences(documents):
        attention = word_attention(model, forms)
        predictions = attention.argmax(-1), attention.swapaxes(-1, -2).argmax(-1)
        for word, (head, label) in enumerate(zip(heads, labels, strict=True)):
            if head < 0:
                continue
            count[label] += 1
            right[label] += np.stack([where[..., word] == head for where in predictions])
            by_offset[label] += [word + offset == head for offset in OFFSETS]
    return right, by_offset, count


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("model", nargs="?", default="minilm")
    parser.add_argument("--every", type=int, default=1, help="read one document of so many")
    options = parser.parse_args()
    torch.set_num_threads(1)
    model = load_model(options.model)
    documents = [doc for path in asked_corpora(None) for doc in read_corpus(path)]
    right, by_offset, count = measure(model, documents[:: options.every])
    known = pd.read_csv(data_folder() / "known_heads.csv")
    print("| Clark et al. | label, words | best head | direction | best offset |")
    print("|---|---|---|---|---|")
    for row in known[known["model"] == "bert-base"].itertuples():
        label = row.relation.split("/")[1].removesuffix(":dep>head")
        if not count[label]:
            continue
        shares = right[label] / count[label]
        direction, layer, head = np.unravel_index(shares.argmax(), shares.shape)
        best = int(by_offset[label].argmax())
        print(
            f"| {row.type} {float(row.score):.3f} | `{label}`, {count[label]:,} "
            f"| {head_name(int(layer), int(head))}: {shares.max():.2f} | `{DIRECTIONS[direction]}` "
            f"| {OFFSETS[best]:+d}: {by_offset[label][best] / count[label]:.2f} |"
        )


if __name__ == "__main__":
    main()
