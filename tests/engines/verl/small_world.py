"""A model with random weights, a few prompts and a reward, made for tests in a second and small enough for any."""

from __future__ import annotations

from pathlib import Path

from sweep.tasks import arithmetic
from sweep.tasks.tiny_lessons import untaught_model
from sweep.tasks.tiny_recipe import RECIPE
from sweep.tasks.tiny_tokenizer import tiny_tokenizer

MODEL_SEED = 3
REWARD_FILE = Path(__file__).with_name("digits_reward.py")


def write_model(folder: Path) -> Path:
    """The folder, with a model and tokenizer that `from_pretrained` loads."""
    import torch

    torch.manual_seed(MODEL_SEED)
    tokenizer = tiny_tokenizer()
    model = untaught_model(RECIPE, tokenizer)
    model.generation_config.eos_token_id = tokenizer.eos_token_id
    model.generation_config.pad_token_id = tokenizer.pad_token_id
    model.save_pretrained(folder)
    tokenizer.save_pretrained(folder)
    return folder


def settings(folder: Path) -> dict[str, object]:
    """verl's settings of a trial in this world: 8 prompts a step, responses of up to 12 tokens."""
    model = str(write_model(folder / "model"))
    files = arithmetic.make(folder / "data", train_rows=64, val_rows=8)
    return {
        "actor_rollout_ref.model.path": model,
        "critic.model.path": model,
        "data.train_files": str(files.train),
        "data.val_files": str(files.val),
        "reward.custom_reward_function.path": str(REWARD_FILE),
        "data.train_batch_size": 8,
        "data.max_prompt_length": 64,
        "data.max_response_length": 12,
        "actor_rollout_ref.actor.ppo_mini_batch_size": 4,
        "actor_rollout_ref.actor.ppo_micro_batch_size_per_gpu": 4,
        "actor_rollout_ref.rollout.log_prob_micro_batch_size_per_gpu": 8,
        "actor_rollout_ref.ref.log_prob_micro_batch_size_per_gpu": 8,
        "critic.ppo_micro_batch_size_per_gpu": 4,
        "actor_rollout_ref.actor.optim.lr": 1e-3,
        "critic.optim.lr": 2e-3,
        "algorithm.adv_estimator": "gae",
        "algorithm.use_kl_in_reward": True,
        "algorithm.kl_ctrl.kl_coef": 0.001,
        "algorithm.kl_penalty": "low_var_kl",
        "actor_rollout_ref.rollout.max_num_seqs": 8,
        "actor_rollout_ref.rollout.max_num_batched_tokens": 512,
        "reward.num_workers": 0,
        "trainer.n_gpus_per_node": 1,
        "trainer.nnodes": 1,
    }
