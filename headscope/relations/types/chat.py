"""Chat heads attend from the assistant's answer to one message of the conversation.

Queries are the tokens of the last answer. Keys are all tokens of one message, without the tokens of
the chat template. Messages are unrelated sentences of varying lengths, so that neither content nor
distance tells them apart. Only the system prompt has one place, the first: its heads must also
attend to the system prompt of a second conversation that follows another one. A head tied to some
absolute positions behind the first is told apart only as far as messages differ in place.
"""

from __future__ import annotations

from functools import partial

import numpy as np

from headscope.corpus.document import Turn
from headscope.corpus.window import Window
from headscope.relations.controls import DRAWS, keys_from
from headscope.relations.head_type import HeadType
from headscope.relations.pairs import Pairs, no_pairs, pairs, without
from headscope.relations.relation import Relation, Threshold
from headscope.stimuli.conversations import ASSISTANT, CONVERSATIONS, SYSTEM, USER

THRESHOLD = 0.1
SOURCE = "ours: a tenth of a head's attention"
LATER = "system-later"


def tokens_of_message(window: Window, role: str, *, later: bool | None = None) -> Pairs:
    """Each token of the last answer with all tokens of the last message of a role before it.

    Args:
        window: a conversation, or two.
        role: of the message.
        later: whether a conversation comes before; None for either.
    """
    if not window.turns or window.turns[-1].role != ASSISTANT:
        return no_pairs()
    *before, answer = window.turns
    is_later = sum(turn.role == ASSISTANT for turn in before) > 1
    messages = [turn for turn in before if turn.role == role]
    if not messages or (later is not None and later != is_later):
        return no_pairs()
    query, key = np.meshgrid(_places(answer), _places(messages[-1]), indexing="ij")
    return pairs(query.ravel(), key.ravel())


def _places(turn: Turn) -> np.ndarray:
    return np.arange(turn.start, turn.stop)


def _message_of(window: Window, positions: np.ndarray) -> np.ndarray:
    """Number of the message that each token belongs to; −1 for tokens of the template."""
    number = np.full(len(window), -1)
    for message, turn in enumerate(window.turns):
        number[turn.start : turn.stop] = message
    return np.asarray(number[positions])


def other_messages(window: Window, targets: Pairs, rng: np.random.Generator) -> Pairs:
    """Same query, tokens of the other messages before the answer.

    A head that attends to the first tokens or to all tokens has no lift.
    """
    number = _message_of(window, np.arange(len(window)))
    own = [*np.unique(number[targets.key]), len(window.turns) - 1, -1]
    return keys_from(window, np.flatnonzero(~np.isin(number, own)), targets, rng)


def same_distance_in_another_message(
    window: Window, targets: Pairs, rng: np.random.Generator
) -> Pairs:
    """Other tokens of the answer, same distance, if the key is a token of another message.

    A head that attends to a distance or to the last tokens has no lift.
    """
    answer = window.turns[-1]
    distance = np.repeat(targets.query - targets.key, DRAWS)
    owner = np.repeat(targets.owner, DRAWS)
    query = rng.integers(answer.start, answer.stop, len(owner))
    key = query - distance
    is_message = (key > 0) & (_message_of(window, key.clip(min=0)) >= 0)
    return without(pairs(query[is_message], key[is_message], owner[is_message]), targets)


def _relation(name: str, meaning: str, role: str, *, later: bool | None = None) -> Relation:
    # the system prompt is always first: its heads must find that of a later conversation too
    is_pair = name == LATER
    return Relation(
        "chat",
        name,
        partial(tokens_of_message, role=role, later=later),
        other_messages,
        Threshold(
            THRESHOLD,
            SOURCE,
            meaning,
            broad=True,
            taggable=not is_pair,
            paired_relation=f"chat/{LATER}" if role == SYSTEM and not is_pair else None,
        ),
        stimuli=(CONVERSATIONS.name,),
        matched_control=same_distance_in_another_message,
    )


TYPE = HeadType(
    name="chat",
    letter="H",
    order=165,
    colour="#aa4499",
    relations=(),
    chat_relations=(
        _relation("system", "the system prompt", SYSTEM, later=False),
        _relation(LATER, "the system prompt of a second conversation", SYSTEM, later=True),
        _relation("last-user", "the user's last message", USER),
        _relation("turn-before", "the answer before the user's last message", ASSISTANT),
    ),
    stimuli=(CONVERSATIONS,),
    looks_at="from the assistant's answer: the system prompt, the user's last message, or the "
    "answer before it",
    control_keys="tokens of the other messages",
    matched_control_keys="tokens of other messages, at the same distance from other tokens of the "
    "answer",
    on_request=True,
)
