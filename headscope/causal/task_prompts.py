"""A task's prompts as one model reads them, and the places where its answers are scored."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np
import torch
from jaxtyping import Bool, Float, Int
from numpy import ndarray
from torch import Tensor, nn

from headscope.causal.rerun import TokenRows
from headscope.causal.roles import PromptText
from headscope.corpus.align import TokenizedDocument
from headscope.corpus.document import Document
from headscope.errors import CorpusError
from headscope.models.model import Model
from headscope.models.stream import batch_tokens_on
from headscope.models.text_window import special_notes
from headscope.models.tokenizer import Tokenizer
from headscope.stimuli.tasks import MIN_PROMPTS, Task, TaskRow

Tokens = tuple[int, ...]
NEAR = 3
"""Difference of shared tokens with which rows still run together."""


@dataclass(frozen=True)
class Continuation:
    """A prompt with one of its answers."""

    prompt: int
    """Number of the prompt."""
    sign: int
    """1 for the answer, −1 for the wrong one."""
    tokens: Tokens
    """The prompt from the beginning-of-text token on, then the answer without its last token."""
    labels: Tokens
    """Tokens of the answer, which the last tokens predict."""
    corrupt: Tokens | None
    """The corrupt prompt, then the same part of the answer; None if the task has none."""

    @property
    def shared(self) -> int:
        """Tokens before the first that the corrupt prompt changes or moves; 0 without one."""
        if self.corrupt is None or len(self.corrupt) != len(self.tokens):
            return 0
        pairs = zip(self.tokens, self.corrupt, strict=True)
        return next((at for at, (one, other) in enumerate(pairs) if one != other), 0)


@dataclass(frozen=True, eq=False)
class PromptBatch:
    """Rows of tokens that run together, and the places in them that are scored."""

    rows: TokenRows
    corrupt: TokenRows | None
    """The corrupt rows, in the same order."""
    half: int
    """The half of the prompts that all rows are of, 0 or 1."""
    start: int
    """Tokens of each row that are the same in the corrupt row; 0 without corrupt rows."""
    prompt_of_row: Int[ndarray, " row"]
    label: Int[Tensor, " place"]
    """The token that is scored at each place."""
    prompt: Int[ndarray, " place"]
    sign: Int[ndarray, " place"]

    def masks(
        self, at: Bool[ndarray, "role prompt position"] | None
    ) -> Bool[Tensor, "role row column"]:
        """Masks of the prompts' positions as masks of the rows; for None one of all positions."""
        shape = self.rows.tokens.shape
        masks = np.ones((1, *shape), bool)
        if at is not None:
            # a batch may be longer than the masks, or shorter
            shared = min(at.shape[-1], shape[1])
            masks = np.zeros((len(at), *shape), bool)
            masks[:, :, :shared] = at[:, self.prompt_of_row, :shared]
        return torch.from_numpy(masks).to(self.rows.tokens.device)


@dataclass(frozen=True, eq=False)
class TaskPrompts:
    """The prompts of a task that a tokenizer can ask, with their groups."""

    name: str
    continuations: Sequence[Continuation]
    texts: Sequence[PromptText]
    """The prompts with the text of each token."""
    groups: Int[ndarray, " prompt"]
    """Number of the group of each prompt; groups are resampled as one."""
    compares: bool
    """True if each prompt has a wrong answer."""
    notes: tuple[str, ...]

    @classmethod
    def of(cls, task: Task, model: Model) -> TaskPrompts:
        """Spell a task; prompts that cannot be asked are left out, with a note.

        Raises:
            CorpusError: fewer than two prompts remain.
        """
        continuations: list[Continuation] = []
        texts: list[PromptText] = []
        groups: list[str] = []
        read: list[str] = []
        faults: list[str] = []
        for number, row in enumerate(task.rows):
            # prompts are numbered without those that are left out
            prompt = len(groups)
            try:
                continuations += _spelled(row, prompt, model)
            except CorpusError as error:
                faults.append(str(error))
                continue
            # the beginning-of-text token stands for no characters
            tokenized = _encoded(model.tokenizer, row.prompt)
            offsets = np.concatenate([np.zeros((1, 2), np.int64), tokenized.offsets])
            texts.append(PromptText(row, (model.tokenizer.bos_string, *tokenized.strings), offsets))
            groups.append(row.group or f"row {number}")
            read += [row.prompt, row.corrupt]
        # fewer prompts have no interval
        if len(groups) < MIN_PROMPTS:
            raise CorpusError(
                f"{task.name}: {len(groups)} of {len(task.rows)} prompts can be asked of "
                f"{model.name}, and at least {MIN_PROMPTS} are needed; {faults[0]}"
            )
        notes = [*task.notes, *special_notes(model, read)]
        if model.tokenizer.template is not None:
            notes.append(
                "each prompt is a user's message in the model's chat template, and its answer "
                "begins the assistant's turn"
            )
        if faults:
            notes.append(f"{len(faults)} prompts were left out; the first: {faults[0]}")
        # prompts of one group are resampled together
        _, group_numbers = np.unique(groups, return_inverse=True)
        return cls(task.name, continuations, texts, group_numbers, task.compares, tuple(notes))

    @property
    def count(self) -> int:
        """Number of prompts."""
        return len(self.groups)

    @cached_property
    def halves(self) -> Int[ndarray, " prompt"]:
        """Half of each prompt, 0 or 1; groups are drawn, because files often alternate."""
        count = int(self.groups.max()) + 1
        order = np.random.default_rng(0).permutation(count)
        half_of_group = (order >= count // 2).astype(int)
        halves: ndarray = half_of_group[self.groups]
        return halves

    def batches(self, device: str) -> Iterator[PromptBatch]:
        """Prompts of one half and of similar length that run together; equal rows run once."""
        for half in (0, 1):
            by_row: dict[tuple[int, Tokens], list[Continuation]] = {}
            for one in self.continuations:
                if self.halves[one.prompt] == half:
                    by_row.setdefault((one.prompt, one.tokens), []).append(one)
            yield from _batches_of(list(by_row.values()), half, device)


def _batches_of(
    by_row: Sequence[Sequence[Continuation]], half: int, device: str
) -> Iterator[PromptBatch]:
    """Batches of rows that share about as many tokens with their corrupt rows, shortest first."""
    ordered = sorted(by_row, key=lambda members: (members[0].shared, len(members[0].tokens)))
    start = 0
    limit = batch_tokens_on(device)
    while start < len(ordered):
        stop = start + 1
        # rows join until padding would pass the limit, or too little would be shared
        while stop < len(ordered):
            width = max(len(members[0].tokens) for members in ordered[start : stop + 1])
            shares_less = ordered[stop][0].shared - ordered[start][0].shared > NEAR
            if (stop + 1 - start) * width > limit or shares_less:
                break
            stop += 1
        yield _batch(ordered[start:stop], half, device)
        start = stop


def _batch(by_row: Sequence[Sequence[Continuation]], half: int, device: str) -> PromptBatch:
    """One batch of rows, each with the continuations that it scores."""
    # the places of the answers' tokens, the last of which comes after a row's last token
    row: list[int] = []
    position: list[int] = []
    label: list[int] = []
    prompt: list[int] = []
    sign: list[int] = []
    for number, members in enumerate(by_row):
        for one in members:
            stop = len(one.tokens) + 1
            position += range(stop - len(one.labels), stop)
            label += one.labels
            row += [number] * len(one.labels)
            prompt += [one.prompt] * len(one.labels)
            sign += [one.sign] * len(one.labels)

    def numbers(values: Sequence[int]) -> Int[Tensor, " number"]:
        return torch.tensor(values, dtype=torch.long, device=device)

    def token_rows(tokens: Sequence[Tokens]) -> TokenRows:
        # the padding is a token of the rows, as some models embed every id
        padded = nn.utils.rnn.pad_sequence(
            [numbers(one) for one in tokens], batch_first=True, padding_value=tokens[0][0]
        )
        lengths = numbers([len(one) for one in tokens])
        return TokenRows(padded, lengths, numbers([]), numbers([]))

    # the continuations of a row differ in their scored tokens alone
    firsts = [members[0] for members in by_row]
    rows = token_rows([one.tokens for one in firsts])
    # only a batch whose rows all have a corrupt prompt runs one
    corrupt_tokens = [one.corrupt for one in firsts if one.corrupt is not None]
    return PromptBatch(
        rows=rows._replace(row=numbers(row), position=numbers(position), labels=numbers(label)),
        corrupt=token_rows(corrupt_tokens) if len(corrupt_tokens) == len(firsts) else None,
        half=half,
        start=min(one.shared for one in firsts),
        prompt_of_row=np.array([one.prompt for one in firsts]),
        label=numbers(label),
        prompt=np.array(prompt),
        sign=np.array(sign),
    )


def _spelled(row: TaskRow, prompt: int, model: Model) -> list[Continuation]:
    """The continuations of a prompt.

    Raises:
        CorpusError: the tokenizer joins the prompt and an answer, or they are too long.
    """
    tokenizer = model.tokenizer
    # texts are checked before a long one is encoded
    for text in (row.prompt, row.answer, row.wrong, row.corrupt):
        tokenizer.check_length(text, model.context)
    prompt_tokens = _tokens(tokenizer, row.prompt)
    corrupt = (tokenizer.bos, *_tokens(tokenizer, row.corrupt)) if row.corrupt else None
    continuations = []
    for sign, answer in ((1, row.answer), (-1, row.wrong)):
        if not answer:
            continue
        if tokenizer.template is None:
            # labels stand behind the prompt's own tokens, which must not change with the answer
            joined = _tokens(tokenizer, row.prompt + answer)
            labels = joined[len(prompt_tokens) :]
        else:
            # the assistant's turn begins without a space in most templates
            alone = Document("answer", tokenizer.template.lead + answer.lstrip(" "), ())
            labels = tuple(tokenizer.encode_prompt(alone).tokens.tolist())
            joined = prompt_tokens + labels
        if joined != prompt_tokens + labels or not labels:
            raise CorpusError(
                f"{row.prompt[-40:]!r} and {answer!r:.40}: the tokenizer joins the end of the "
                "prompt and the answer; end the prompt earlier"
            )
        tokens = (tokenizer.bos, *prompt_tokens, *labels[:-1])
        # the last label is predicted and not read
        longest = max(len(tokens), len(corrupt or ()) + len(labels) - 1)
        if longest > model.context:
            raise CorpusError(
                f"{row.prompt[:40]!r}: {longest} tokens; {model.name} reads {model.context}"
            )
        continuations.append(
            Continuation(
                prompt=prompt,
                sign=sign,
                tokens=tokens,
                labels=labels,
                corrupt=None if corrupt is None else (*corrupt, *labels[:-1]),
            )
        )
    return continuations


def _tokens(tokenizer: Tokenizer, text: str) -> Tokens:
    return tuple(_encoded(tokenizer, text).tokens.tolist())


def _encoded(tokenizer: Tokenizer, text: str) -> TokenizedDocument:
    """A prompt's tokens after the first; in a chat template up to where an answer begins."""
    prompt = tokenizer.encode_prompt(Document("prompt", text, ()))
    template = tokenizer.template
    if template is None:
        return prompt
    before, after = template.before, template.answer
    # the template stands for no characters of the prompt
    around = (len(before.tokens), len(after.tokens))
    return replace(
        prompt,
        tokens=np.array([*before.tokens, *prompt.tokens, *after.tokens], np.int64),
        strings=(*before.strings, *prompt.strings, *after.strings),
        offsets=np.pad(prompt.offsets, (around, (0, 0))),
    )


def aligned_at_end(
    values: Float[Tensor, "row source_position ..."],
    source_lengths: Int[Tensor, " row"],
    target: Float[Tensor, "row position ..."],
    target_lengths: Int[Tensor, " row"],
) -> Float[Tensor, "row position ..."]:
    """The values of one set of rows at the positions of another; the last tokens coincide.

    Positions before the beginning of a shorter source keep the target's own values.
    """
    aligned = target.clone()
    pairs = zip(source_lengths.tolist(), target_lengths.tolist(), strict=True)
    for row, (source_end, target_end) in enumerate(pairs):
        shared = min(source_end, target_end)
        of_source = slice(source_end - shared, source_end)
        of_target = slice(target_end - shared, target_end)
        aligned[row, of_target] = values[row, of_source]
    return aligned
