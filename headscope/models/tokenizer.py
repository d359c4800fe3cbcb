"""A Hugging Face tokenizer, as far as headscope needs it."""

from __future__ import annotations

import copy
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import replace
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
import transformers
from jaxtyping import Bool, Int
from numpy import ndarray

from headscope.attention_kind import CAUSAL, AttentionKind
from headscope.corpus.align import TokenizedDocument
from headscope.corpus.document import Document, Turn
from headscope.corpus.window import NO_FRAME, ChatTemplate, Frame, TemplateText
from headscope.errors import CorpusError, ModelError
from headscope.models.weight_files import pretrained_source
from headscope.models.weights import in_one_sentence

LONGEST_WORD = 100
"""Characters of the longest word that WordPiece splits (`max_input_chars_per_word` of BERT)."""


class Tokenizer:
    """Text to tokens with character offsets, and tokens to text.

    Args:
        backend: a fast `transformers` tokenizer (only those know character offsets).
        name: the model's name, for messages.
        bos: text of the token to put before each document; the tokenizer's own when None.
        rows: of the model's embedding; None if no model belongs to it.
        attention_kind: of the model; an encoder's texts stand between two special tokens.

    Raises:
        ModelError: no offsets, no beginning-of-text token, or tokens that the model has no
            embedding for.
    """

    def __init__(
        self,
        backend: Any,
        *,
        name: str,
        bos: str | None = None,
        rows: int | None = None,
        attention_kind: AttentionKind = CAUSAL,
    ) -> None:
        if not getattr(backend, "is_fast", False):
            raise ModelError(
                f"{name}: its tokenizer is a slow one without character offsets; headscope needs "
                "them to map words to tokens. A tokenizer.json in the model's folder would do"
            )
        self._backend = backend
        # an encoder's classification token stands at the beginning
        self.name = name
        is_encoder = attention_kind.sees_future
        if is_encoder and bos is None:
            bos = backend.cls_token or backend.bos_token
        self.bos_string, self.bos = _find_bos(backend, name, bos)
        self.frame = NO_FRAME
        if is_encoder:
            # its windows end with its separator, or with its end of text, if it has either
            end = backend.sep_token or backend.eos_token
            self.frame = Frame(attention_kind=attention_kind)
            if end is not None:
                closing = int(backend.convert_tokens_to_ids(end))
                self.frame = Frame(closing, str(end), attention_kind)
        """End of each window, and whether its tokens see those after them."""
        self.mask: int | None = backend.mask_token_id if is_encoder else None
        """The token that stands for one to be filled in."""
        self._text: dict[int, str] = {}
        self._rows = rows
        self.template: ChatTemplate | None = None
        """Template text around each document, as around a user's message."""
        self.plain_prompts = False
        """True if special tokens in a prompt are plain text, as in a corpus."""
        if rows is not None:
            special = [token for token in (self.frame.end, self.mask) if token is not None]
            self._check_ids([self.bos, *special, *ordinary_ids(backend)], "its vocabulary")

    def save(self, folder: str | Path) -> None:
        """Write the files of the tokenizer to a folder."""
        self._backend.save_pretrained(folder)

    def in_chat(self) -> Tokenizer:
        """The same tokenizer for documents in its chat template.

        Raises:
            ModelError: it has none, or belongs to an encoder.
        """
        if self.frame.attention_kind.sees_future:
            raise ModelError(
                f"{self.name}: --chat does not take an encoder, which predicts no next token; "
                "leave it out"
            )
        if not getattr(self._backend, "chat_template", None):
            raise ModelError(f"{self.name}: its tokenizer has no chat template; leave --chat out")
        # what stands around a message of the user, and what opens the answer to it
        before, after = self._around("user")
        _, answer = self._around("user", add_generation_prompt=True)
        # some templates take no second message of the user, or no system prompt
        again, end, lead, system = None, "", "", None
        with suppress(ModelError):
            _, _, again, _ = self._around("user", "assistant", "user")
            _, between, end = self._around("user", "assistant")
            begun = between.removeprefix(answer)
            lead = begun if not begun.strip(" ") else ""
        with suppress(ModelError):
            first, second, _ = self._around("system", "user")
            system = first.removeprefix(self.bos_string), second

        # a default system prompt stands where another would
        default = None
        opening = before.removeprefix(self.bos_string)
        if system is not None:
            first, second = system
            stop = len(opening) - len(second)
            if stop > len(first) and opening.startswith(first) and opening.endswith(second):
                _, offsets = self._encoded(opening, special=True)
                is_inside = (offsets[:, 1] > len(first)) & (offsets[:, 0] < stop)
                inside = np.flatnonzero(is_inside) + 1
                default = Turn("system", int(inside[0]), int(inside[-1]) + 1)

        # these texts are the same around every document, so they are encoded once
        parts = []
        for text in (opening, after, answer):
            tokens, _ = self._encoded(text, special=True)
            self._check_ids(tokens, "its chat template")
            parts.append(TemplateText(text, tuple(tokens), tuple(self.spell(tokens))))
        tokenizer = copy.copy(self)
        tokenizer.template = ChatTemplate(
            before=parts[0],
            after=parts[1],
            answer=parts[2],
            lead=lead,
            special=frozenset(self._backend.all_special_ids)
            | frozenset(self._backend.added_tokens_decoder),
            text=(before, after),
            again=again,
            end=end,
            system=system,
            default=default,
        )
        return tokenizer

    def _around(self, *roles: str, **options: bool) -> list[str]:
        """What its chat template puts before, between and after messages of these roles.

        Raises:
            ModelError: it has no template, or one that fails or changes the messages.
        """
        contents = [_MESSAGE.format(number) for number in range(len(roles))]
        messages = [
            {"role": role, "content": content}
            for role, content in zip(roles, contents, strict=True)
        ]
        # a template is a program, and may fail in any way
        with in_one_sentence(self.name, "--chat needs a chat template, and its own fails"):
            text = str(self._backend.apply_chat_template(messages, tokenize=False, **options))
        # a message that is changed or repeated leaves no one place for a document
        texts = []
        for content in contents:
            before, message, text = text.partition(content)
            if not message or content in text:
                raise ModelError(
                    f"{self.name}: its chat template does not hold a user's message once as it "
                    "stands; --chat cannot read it, leave it out"
                )
            texts.append(before)
        return [*texts, text]

    def with_plain_prompts(self, plain: bool) -> Tokenizer:
        """The same tokenizer, with another value of `plain_prompts`."""
        tokenizer = copy.copy(self)
        tokenizer.plain_prompts = plain
        return tokenizer

    def encode(self, document: Document, *, special: bool = False) -> TokenizedDocument:
        """The document's tokens, without a beginning-of-text token.

        Args:
            document: a text of a corpus.
            special: whether `<s>` in it is that token, instead of three or more pieces of text. In
                a conversation it is in the template, and not in the messages.
        """
        # messages and the template between them are encoded one by one
        tokens: list[int] = []
        offsets = [np.empty((0, 2), np.int64)]
        start = 0
        end = Turn("", len(document.text), len(document.text))
        for turn in (*document.turns, end):
            # a space before a message is of its first token
            begins = len(document.text[: turn.start].rstrip(" ")) if turn.role else turn.start
            for stop, in_template in ((begins, bool(document.turns)), (turn.stop, False)):
                if start == stop:
                    continue
                text = document.text[start:stop]
                part, places = self._encoded(text, special=special or in_template)
                tokens += part
                offsets.append(places + start)
                start = stop
        # an added token may have no embedding as long as no text holds it
        self._check_ids(tokens, f"the text of {document.name}")
        return TokenizedDocument(
            document, np.array(tokens, np.int64), self.spell(tokens), np.concatenate(offsets)
        )

    def _encoded(self, text: str, *, special: bool) -> tuple[list[int], Int[ndarray, "token 2"]]:
        """Tokens of a text, and the characters that each of them holds."""
        encoded = self._backend(
            text,
            return_offsets_mapping=True,
            add_special_tokens=False,
            split_special_tokens=not special,
            verbose=False,
        )
        offsets = np.array(encoded["offset_mapping"], np.int64).reshape(-1, 2)
        pieces = self._backend.convert_ids_to_tokens(encoded["input_ids"])
        is_blank = np.array([piece == "\u2581" for piece in pieces], bool)
        # the tokenizer gives it the first character of the word that follows
        offsets[is_blank, 1] = offsets[is_blank, 0]
        return list(encoded["input_ids"]), offsets

    def encode_prompt(self, document: Document) -> TokenizedDocument:
        """A prompt's tokens, without those that the model's windows begin and end with anyway.

        Special tokens are special unless `plain_prompts`. Their characters make no words, as those
        of a chat template make none. A prompt that begins with the beginning-of-text token itself
        has it once.
        """
        if self.plain_prompts:
            return self.encode(document)
        tokenized = self.without_special_words(self.encode(document, special=True))
        tokens = tokenized.tokens
        # within a template, the message begins and ends elsewhere
        if self.template is not None:
            return tokenized
        start = int(tokens[:1].tolist() == [self.bos])
        stop = len(tokens)
        if self.frame.end is not None and tokens[start:][-1:].tolist() == [self.frame.end]:
            stop -= 1
        return replace(
            tokenized,
            tokens=tokens[start:stop],
            strings=tokenized.strings[start:stop],
            offsets=tokenized.offsets[start:stop],
        )

    def without_special_words(self, tokenized: TokenizedDocument) -> TokenizedDocument:
        """The text without the words that lie in special tokens, such as `im_start`."""
        is_special = self._is_special(tokenized)
        if not is_special.any():
            return tokenized
        inside = np.zeros(len(tokenized.document.text), bool)
        for start, end in tokenized.offsets[is_special].tolist():
            inside[start:end] = True
        words = [word for word in tokenized.document.words if not inside[word.start]]
        return replace(tokenized, document=replace(tokenized.document, words=tuple(words)))

    def check_length(self, text: str, limit: int) -> None:
        """Refuse a text that cannot be so few tokens, before the time that its tokens would take.

        Args:
            text: a prompt or a sentence of a user.
            limit: the largest number of tokens.

        Raises:
            CorpusError: it has more characters than so many of the longest tokens.
        """
        characters = limit * self._longest_token
        if len(text) > characters:
            raise CorpusError(
                f"the text {text[:40]!r}… has {len(text):,} characters; {limit:,} tokens of "
                f"{self.name} have {characters:,} at most, so shorten it"
            )

    @cached_property
    def _longest_token(self) -> int:
        """Characters of the longest token; an unknown word is one token, and may be long too."""
        return max(LONGEST_WORD, *map(len, self._backend.get_vocab()))

    def count_special(self, text: str) -> int:
        """The number of special tokens in a prompt, as `encode_prompt` reads it."""
        return int(self._is_special(self.encode_prompt(Document("prompt", text, ()))).sum())

    def _is_special(self, tokenized: TokenizedDocument) -> Bool[ndarray, " token"]:
        """True at each special token, except one for unknown text that the text does not spell."""
        is_special = np.isin(tokenized.tokens, self._special_tokens)
        unknown = np.flatnonzero(tokenized.tokens == self._backend.unk_token_id)
        for position in unknown.tolist():
            start, end = tokenized.offsets[position]
            is_special[position] = tokenized.document.text[start:end] == self._backend.unk_token
        return is_special

    @cached_property
    def _special_tokens(self) -> list[int]:
        added = self._backend.added_tokens_decoder.items()
        marked = {token for token, content in added if content.special}
        return sorted(marked | set(self._backend.all_special_ids))

    def spell(self, tokens: Sequence[int]) -> list[str]:
        """The text of each token alone; a fragment of a character gives U+FFFD."""
        new = sorted(set(tokens) - self._text.keys())
        if new:
            texts = self._backend.batch_decode(
                [[token] for token in new], clean_up_tokenization_spaces=False
            )
            self._text.update(zip(new, texts, strict=True))
        return [self._text[token] for token in tokens]

    def decode(self, tokens: Sequence[int]) -> str:
        """The text of tokens one after the other."""
        return str(self._backend.decode(tokens, clean_up_tokenization_spaces=False))

    def _check_ids(self, tokens: Sequence[int], source: str) -> None:
        highest = max(tokens, default=0)
        if self._rows is not None and highest >= self._rows:
            raise ModelError(
                f"{self.name}: token {highest} in {source} ({self.spell([highest])[0]!r}) has no "
                f"embedding: the model has {self._rows:,} of them, numbered from 0; is the "
                "tokenizer another model's?"
            )

    def ordinary_tokens(self, vocabulary_size: int) -> Int[ndarray, " token"]:
        """All token ids that the model has and that stand for text: no special or added token."""
        special = set(self._backend.all_special_ids)
        added = set(self._backend.added_tokens_decoder)
        size = min(vocabulary_size, len(self._backend))
        tokens = sorted(set(range(size)) - special - added)
        return np.array(tokens, np.int64)


def ordinary_ids(backend: Any) -> list[int]:
    """The ids of a tokenizer's vocabulary, without the tokens that were added to it."""
    added = set(backend.added_tokens_decoder)
    return [token for token in backend.get_vocab().values() if token not in added]


def _find_bos(backend: Any, name: str, text: str | None) -> tuple[str, int]:
    if text is not None:
        token = backend.get_vocab().get(text)
        if token is None:
            raise ModelError(f"{name}: {text!r:.60} is not a token of its vocabulary")
        return text, token
    if backend.bos_token_id is None:
        raise ModelError(
            f"{name}: its vocabulary has no beginning-of-text (BOS) token, and headscope puts one "
            "before every document. Name the token to use with --bos"
        )
    return backend.bos_token, int(backend.bos_token_id)


def substitute_bos(backend: Any, config: Any) -> tuple[str | None, tuple[str, ...]]:
    """The token that serves as BOS if a decoder's tokenizer has none, and a note on it.

    It is the one that the model's configuration names, else EOS, which TransformerLens takes. Qwen
    names its end-of-text token, which separated documents in training. A configuration's default
    may be an ordinary token, which cannot serve.
    """
    if backend.bos_token_id is not None:
        return None, ()
    bos: str | None = backend.eos_token
    config_bos = getattr(config, "bos_token_id", None)
    # some configurations list several
    if isinstance(config_bos, int) and config_bos in {
        *backend.all_special_ids,
        *backend.added_tokens_decoder,
    }:
        bos = str(backend.convert_ids_to_tokens(config_bos))
    if bos is None:
        return None, ()
    return bos, (
        f"the tokenizer has no BOS token: {bos} is put before each document, and the model may not "
        "have been trained with it there; --bos names another token",
    )


_MESSAGE = "a7message{}7of7one7word"
"""A message that no template changes, by which its place is found."""


def load_tokenizer(name: str, path: Path) -> Any:
    """The tokenizer in a model's folder or `.gguf` file; none of its own code is run.

    Raises:
        ModelError: transformers cannot load it.
    """
    with in_one_sentence(name, "transformers cannot load its tokenizer"):
        backend = transformers.AutoTokenizer.from_pretrained(**pretrained_source(path))
    if not ordinary_ids(backend):
        files = ", ".join(dict.fromkeys(getattr(backend, "vocab_files_names", {}).values()))
        raise ModelError(
            f"{name}: its tokenizer has no vocabulary; is one of its files missing ({files})?"
        )
    return backend
