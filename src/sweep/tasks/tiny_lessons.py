"""Makes the tiny model: a Qwen2 of about 246,000 parameters, taught addition well enough to know the right digit and
badly enough to say it only now and then.

PPO needs such a start. From random weights the reward can only rise by forgetting the reference, at more than one nat
a token; here it rises by sharpening what is already known, so that KL stays around the healthy band of METHOD
section 6 and every lever has an effect within tens of steps. Runs in a process of its own (`python -m`), so that the
campaign's driver needs no torch.
"""

from __future__ import annotations

import random
import sys
from collections.abc import Iterator
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Any

from sweep.tasks.arithmetic import Addition, endless_columns
from sweep.tasks.tiny_recipe import RECIPE, Lesson, Recipe
from sweep.tasks.tiny_tokenizer import tiny_tokenizer

if TYPE_CHECKING:
    from torch import Tensor
    from transformers import Qwen2ForCausalLM, Qwen2Tokenizer


def write_model(folder: Path, recipe: Recipe = RECIPE) -> None:
    """Writes model, generation settings and tokenizer to `folder`, as `from_pretrained` expects them."""
    import torch

    torch.set_num_threads(1)  # the order of sums, and so the weights, must not depend on the machine's cores
    torch.manual_seed(recipe.seed)
    tokenizer = tiny_tokenizer()
    model = untaught_model(recipe, tokenizer)
    teach(model, tokenizer, recipe)
    model.generation_config.eos_token_id = tokenizer.eos_token_id
    model.generation_config.pad_token_id = tokenizer.pad_token_id
    model.save_pretrained(folder)
    tokenizer.save_pretrained(folder)


def untaught_model(recipe: Recipe, tokenizer: Qwen2Tokenizer) -> Qwen2ForCausalLM:
    """The model with random weights from torch's current seed."""
    from transformers import Qwen2Config, Qwen2ForCausalLM

    return Qwen2ForCausalLM(
        Qwen2Config(
            vocab_size=recipe.vocabulary,
            hidden_size=recipe.hidden_size,
            intermediate_size=2 * recipe.hidden_size,
            num_hidden_layers=recipe.layers,
            num_attention_heads=recipe.heads,
            num_key_value_heads=recipe.heads,
            max_position_embeddings=recipe.positions,
            tie_word_embeddings=False,
            use_sliding_window=False,
            bos_token_id=None,
            eos_token_id=tokenizer.eos_token_id,
            pad_token_id=tokenizer.pad_token_id,
        )
    ).float()


def teach(model: Qwen2ForCausalLM, tokenizer: Qwen2Tokenizer, recipe: Recipe) -> None:
    """Trains the model in place through the recipe's lessons, the learning rate falling to a twentieth."""
    import torch

    steps = sum(lesson.steps for lesson in recipe.lessons)
    optimizer = torch.optim.AdamW(model.parameters(), lr=recipe.lr, betas=(0.9, 0.98), weight_decay=0.0)
    schedule = torch.optim.lr_scheduler.LambdaLR(
        optimizer, lambda step: min((step + 1) / recipe.warmup_steps, max(0.05, 1 - step / steps))
    )
    questions = endless_columns(random.Random(recipe.seed), recipe.columns)
    for lesson in (each for each in recipe.lessons for _ in range(each.steps)):
        loss = _lesson_loss(model, tokenizer, recipe, lesson, questions)
        optimizer.zero_grad()
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        schedule.step()


def _lesson_loss(
    model: Any, tokenizer: Qwen2Tokenizer, recipe: Recipe, lesson: Lesson, questions: Iterator[Addition]
) -> Tensor:
    """Cross-entropy to the right digit mixed with a share of doubt spread over all digits.

    The model reads answers with that share of wrong digits in them, as it will read its own.
    """
    import torch

    pairs = list(islice(questions, recipe.batch))
    prompts = torch.stack([_prompt(tokenizer, pair) for pair in pairs])  # (batch, prompt)
    digit_ids = torch.tensor(tokenizer.convert_tokens_to_ids(list("0123456789")))  # (10,)
    right = digit_ids[torch.tensor([[int(digit) for digit in pair.answer()] for pair in pairs])]  # (batch, columns)
    random_digits = digit_ids[torch.randint(0, 10, right.shape)]
    read = torch.where(torch.rand(right.shape) < lesson.doubt, random_digits, right)
    logits = model(input_ids=torch.cat([prompts, read], dim=1)).logits[:, prompts.shape[1] - 1 :]
    target = torch.zeros_like(logits)  # (batch, columns + 1, vocabulary)
    target[:, :-1].index_fill_(2, digit_ids, lesson.doubt / 10)
    target[:, :-1].scatter_add_(2, right[..., None], torch.full((*right.shape, 1), 1 - lesson.doubt))
    target[:, -1, tokenizer.eos_token_id] = 1.0
    return -(target * logits.log_softmax(-1)).sum(-1).mean()


def _prompt(tokenizer: Qwen2Tokenizer, pair: Addition) -> Tensor:
    import torch

    message = [{"role": "user", "content": pair.question()}]
    return torch.tensor(tokenizer.apply_chat_template(message, add_generation_prompt=True, return_dict=False))


if __name__ == "__main__":
    write_model(Path(sys.argv[1]))
