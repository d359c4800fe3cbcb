"""A chat template like ChatML, with a default system prompt, for tokenizers of the tests."""

from __future__ import annotations

import copy
from typing import Any

CHATML = (
    "{% for message in messages %}"
    "{% if loop.first and message['role'] != 'system' %}"
    "{{ MARK + 'system\nBe kind to the old keys.' + MARK + '\n' }}{% endif %}"
    "{{ MARK + message['role'] + '\n' + message['content'] + MARK + '\n' }}{% endfor %}"
    "{% if add_generation_prompt %}{{ MARK + 'assistant\n' }}{% endif %}"
)
LIKE_GEMMA = (
    "{{ MARK }}{% if messages[0]['role'] == 'system' %}"
    "{% set first = messages[0]['content'] + '\n\n' %}{% set rows = messages[1:] %}"
    "{% else %}{% set first = '' %}{% set rows = messages %}{% endif %}"
    "{% for message in rows %}{% if (message['role'] == 'user') != (loop.index0 % 2 == 0) %}"
    "{{ raise_exception('roles must alternate') }}{% endif %}"
    "{{ MARK + ('model' if message['role'] == 'assistant' else 'user') + '\n' "
    "+ (first if loop.first else '') + message['content'] + MARK + '\n' }}{% endfor %}"
    "{% if add_generation_prompt %}{{ MARK + 'model\n' }}{% endif %}"
)
"""Begins with the beginning-of-text token; a system prompt is in the user's first message."""
LIKE_MISTRAL = (
    "{{ MARK }}{% for message in messages %}{% if message['role'] == 'user' %}"
    "{{ '[A] ' + message['content'] + ' [B]' }}{% elif message['role'] == 'assistant' %}"
    "{{ ' ' + message['content'] + MARK }}{% else %}{{ raise_exception('no system') }}"
    "{% endif %}{% endfor %}"
)
"""Takes no system prompt; a space begins each message."""
CONVERSATION = [
    {"role": "system", "content": "You are old."},
    {"role": "user", "content": "Who lost the keys?"},
    {"role": "assistant", "content": "She told him."},
    {"role": "user", "content": "Who found them?"},
    {"role": "assistant", "content": "The king."},
]


def with_chat_template(backend: Any, template: str = CHATML) -> Any:
    """A tokenizer of transformers with this template; MARK is its beginning-of-text token."""
    words = copy.deepcopy(backend)
    words.chat_template = template.replace("MARK", repr(words.bos_token))
    return words
