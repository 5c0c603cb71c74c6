"""The verl settings that findings advise on, beside those in `sweep.core.verl_keys`; spelled nowhere else here.

Source: verl 0.9.1 trainer/config/ppo_trainer.yaml and its groups.
"""

from __future__ import annotations

ACTOR_WARMUP_STEPS = "actor_rollout_ref.actor.optim.lr_warmup_steps"
CLIP_GRAD = "actor_rollout_ref.actor.optim.clip_grad"
ENTROPY_COEFF = "actor_rollout_ref.actor.entropy_coeff"
PPO_EPOCHS = "actor_rollout_ref.actor.ppo_epochs"
PARAM_OFFLOAD = "actor_rollout_ref.actor.fsdp_config.param_offload"
OPTIMIZER_OFFLOAD = "actor_rollout_ref.actor.fsdp_config.optimizer_offload"
LOG_PROB_MICRO_BATCH = "actor_rollout_ref.rollout.log_prob_micro_batch_size_per_gpu"
FREE_CACHE_ENGINE = "actor_rollout_ref.rollout.free_cache_engine"
ROLLOUT_TEMPERATURE = "actor_rollout_ref.rollout.temperature"
ROLLOUT_TOP_K = "actor_rollout_ref.rollout.top_k"
CRITIC_LR = "critic.optim.lr"
CRITIC_MICRO_BATCH = "critic.ppo_micro_batch_size_per_gpu"
CRITIC_WARMUP = "trainer.critic_warmup"
MAX_RESPONSE_LENGTH = "data.max_response_length"
DATALOADER_WORKERS = "data.dataloader_num_workers"
REWARD_FUNCTION = "reward.custom_reward_function.path"
TOTAL_EPOCHS = "trainer.total_epochs"
TOTAL_STEPS = "trainer.total_training_steps"
DYNAMIC_BATCH = "actor_rollout_ref.actor.use_dynamic_bsz"
ADV_ESTIMATOR = "algorithm.adv_estimator"
