"""The verl settings that the rules themselves reason about, spelled in full, with verl 0.9.1's defaults."""

from __future__ import annotations

MINI_BATCH = "actor_rollout_ref.actor.ppo_mini_batch_size"
CRITIC_MINI_BATCH = "critic.ppo_mini_batch_size"
TRAIN_BATCH = "data.train_batch_size"
ACTOR_MICRO_BATCH = "actor_rollout_ref.actor.ppo_micro_batch_size_per_gpu"
ACTOR_DYNAMIC_BATCH = "actor_rollout_ref.actor.use_dynamic_bsz"
LOG_PROB_MICRO_BATCH = "actor_rollout_ref.rollout.log_prob_micro_batch_size_per_gpu"
REF_MICRO_BATCH = "actor_rollout_ref.ref.log_prob_micro_batch_size_per_gpu"
ULYSSES = "actor_rollout_ref.actor.fsdp_config.ulysses_sequence_parallel_size"
GPUS_PER_NODE = "trainer.n_gpus_per_node"
NODES = "trainer.nnodes"
ROLLOUT_N = "actor_rollout_ref.rollout.n"
MAX_BATCHED_TOKENS = "actor_rollout_ref.rollout.max_num_batched_tokens"
MAX_SEQS = "actor_rollout_ref.rollout.max_num_seqs"
MEMORY_UTILIZATION = "actor_rollout_ref.rollout.gpu_memory_utilization"
TENSOR_PARALLEL = "actor_rollout_ref.rollout.tensor_model_parallel_size"
KL_COEF = "algorithm.kl_ctrl.kl_coef"
KL_TYPE = "algorithm.kl_ctrl.type"
KL_IN_REWARD = "algorithm.use_kl_in_reward"
KL_LOSS = "actor_rollout_ref.actor.use_kl_loss"
ACTOR_LR = "actor_rollout_ref.actor.optim.lr"
SCHEDULE_STEPS = "sweep.schedule_steps"
LAM = "algorithm.lam"

DEFAULTS: dict[str, int] = {MINI_BATCH: 256, TRAIN_BATCH: 1024, GPUS_PER_NODE: 8, NODES: 1}
"""Source: verl 0.9.1 trainer/config/ppo_trainer.yaml and its groups."""
