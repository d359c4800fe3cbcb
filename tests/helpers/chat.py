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
