"""The challenge set: sentences of GUM and UD English EWT in which baselines are wrong.

`data/challenge/make.py` chose them, so that with the text of a default run every relation that
English can decide has at least 100 hard queries.
"""

from __future__ import annotations

from headscope.corpus.read import corpus_files, read_documents
from headscope.corpus.shipped import data_folder
from headscope.corpus.window import Window
from headscope.stimuli.stimulus import Stimulus, TextTokenizer, cut_document

CHALLENGE = Stimulus(name="challenge", example_windows=0)


def challenge_windows(tokenizer: TextTokenizer, max_length: int, max_tokens: int) -> list[Window]:
    """The first windows of the challenge set, of at most so many tokens together."""
    documents = read_documents(corpus_files([data_folder() / "challenge"]))
    windows: list[Window] = []
    tokens = 0
    for number, document in enumerate(documents):
        for window in cut_document(document, tokenizer, CHALLENGE.name, max_length, number=number):
            tokens += len(window)
            if tokens > max_tokens:
                return windows
            windows.append(window)
    return windows
