"""The tokenizer of the tiny model: a byte-level Qwen2 tokenizer that knows the words of the arithmetic task.

Every text can be encoded. Digits are one token each, as in Qwen2; a word of the task is one token, so that prompts
stay short. It is a plain `Qwen2Tokenizer`, since transformers 5 loads any qwen2 checkpoint as one.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from transformers import Qwen2Tokenizer

END_OF_TEXT = "<|endoftext|>"
TURN_START = "<|im_start|>"
TURN_END = "<|im_end|>"

SPACE = "\u0120"
"""How byte-level tokenizers spell the byte of a space."""

WORDS = (
    "What",
    f"{SPACE}is",
    f"{SPACE}+",
    f"{SPACE}Answer",
    f"{SPACE}with",
    f"{SPACE}the",
    f"{SPACE}number",
    f"{SPACE}only",
    "user",
    "assistant",
    "system",
)

CHAT_TEMPLATE = (
    "{% for message in messages %}"
    "<|im_start|>{{ message['role'] }}\n{{ message['content'] }}<|im_end|>\n"
    "{% endfor %}"
    "{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}"
)
"""Qwen2's turns without its default system message."""


def tiny_tokenizer() -> Qwen2Tokenizer:
    """A tokenizer of about 300 tokens; saved and loaded again it encodes identically."""
    from tokenizers.pre_tokenizers import ByteLevel
    from transformers import Qwen2Tokenizer

    vocabulary = {symbol: index for index, symbol in enumerate(sorted(ByteLevel.alphabet()))}
    merges = []
    for word in WORDS:
        for length in range(2, len(word) + 1):  # a word grows by one letter a merge
            if word[:length] not in vocabulary:
                vocabulary[word[:length]] = len(vocabulary)
                merges.append((word[: length - 1], word[length - 1]))
    tokenizer = Qwen2Tokenizer(
        vocab=vocabulary,
        merges=merges,
        unk_token=END_OF_TEXT,
        pad_token=END_OF_TEXT,
        eos_token=TURN_END,
        extra_special_tokens=[TURN_START],
    )
    tokenizer.chat_template = CHAT_TEMPLATE
    return tokenizer
