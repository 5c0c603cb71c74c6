"""verl's settings of a trial, complete: what the engine adds to a trial's own overrides so that verl runs it here.

Pure, and verl is not imported. In order of rising precedence: the platform's settings, the seeds, the trial's own
overrides, and what makes the run this trial (`identity`). The keys are verl 0.9.1's, `+` marks those it lacks.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from sweep.core import verl_cpus
from sweep.core import verl_keys as keys
from sweep.core.device_memory import MIN_FREE_GIB
from sweep.core.overrides import NOTHING, Overrides
from sweep.core.trial import Trial
from sweep.engines.verl.warm_table import CPU_ROLLOUT

TRAINER_MODE = "sweep"
"""Name under which our trainer registers with verl."""

ENDLESS_EPOCHS = 1_000_000
"""More epochs than any trial has: verl ends a run silently, with exit code 0, when its epochs run out."""

RESEEDING_WORKER = "sweep.engines.verl.plugins.vllm_reseed.ReseedingWorkerExtension"
"""vLLM's worker with one more method: its random state can be set back between trials."""

CPU_RESEEDING_WORKER = "sweep.engines.verl.plugins.vllm_reseed_cpu.CpuReseedingWorkerExtension"
"""The same for vLLM's CPU build, whose weights can be loaded anew besides."""

_LAUNCH_VARIABLES = "+ray_kwargs.ray_init.runtime_env.env_vars."


@dataclass(frozen=True, slots=True)
class EngineSettings:
    """How verl runs here. `platform_settings` is `cpu_settings()` or `gpu_settings(...)`.

    `poll_seconds`: how often verl looks for finished rollouts; its own 2 s would round every time to 2 s.
    `warmup_steps`: unmeasured steps of a fresh runtime before its first trial, so that trials compare.
    """

    on_cpu: bool
    slots: int = 1
    platform_settings: Overrides = NOTHING
    variables: Mapping[str, str] = field(default_factory=dict)
    poll_seconds: float = 0.05
    warmup_steps: int = 2


def cpu_settings() -> Overrides:
    """One process trains and a transformers server generates, both on the CPU; nothing is compiled."""
    return Overrides.of(
        {
            keys.DEVICE: "cpu",
            keys.ROLLOUT_NAME: CPU_ROLLOUT,
            keys.TENSOR_PARALLEL: 1,
            "actor_rollout_ref.rollout.agent.num_workers": 1,
            "reward.num_workers": 0,  # rewards are computed inside the agent loops
            "actor_rollout_ref.model.enable_gradient_checkpointing": False,
            "critic.model.enable_gradient_checkpointing": False,
            "data.dataloader_num_workers": 0,
            "actor_rollout_ref.actor.use_torch_compile": False,
            "actor_rollout_ref.actor.fsdp_config.use_torch_compile": False,
            "actor_rollout_ref.ref.fsdp_config.use_torch_compile": False,
            "critic.fsdp.use_torch_compile": False,
            **_SCALED_DOT_PRODUCT,
            **_ONE_QUEUE,
        }
    )


def cpu_vllm_settings() -> Overrides:
    """As `cpu_settings`, but verl's own vLLM rollout generates, in vLLM's CPU build.

    That build cannot put its weights aside (vLLM config/model.py, sleep mode), so it stays awake while verl trains.
    """
    return cpu_settings().merged(
        {
            keys.ROLLOUT_NAME: "vllm",
            "actor_rollout_ref.rollout.dtype": "float32",
            "actor_rollout_ref.rollout.enforce_eager": True,
            "actor_rollout_ref.rollout.disable_log_stats": False,
            "actor_rollout_ref.rollout.free_cache_engine": False,
            "+actor_rollout_ref.rollout.enable_sleep_mode": False,
            f"+{keys.WORKER_EXTENSION}": CPU_RESEEDING_WORKER,
            "actor_rollout_ref.rollout.checkpoint_engine.update_weights_bucket_megabytes": BUCKET_MIB,
        }
    )


BUCKET_MIB = 64
"""Shared memory for a push of weights; verl's 2048 would be a third of a small machine's. Ours: a tiny model has 1."""


def gpu_settings(flash_attention: bool, gpus_per_node: int = 1) -> Overrides:
    """vLLM generates; attention is PyTorch's where flash-attn is missing, and then sequences are padded.

    On up to `FEW_GPUS` GPUs a node one queue process carries all samples; more keep verl's eight.
    """
    return Overrides.of(
        {
            keys.ROLLOUT_NAME: "vllm",
            "actor_rollout_ref.rollout.disable_log_stats": False,  # preemptions are counted there
            f"+{keys.WORKER_EXTENSION}": RESEEDING_WORKER,
            f"+{keys.MIN_FREE_GIB}": MIN_FREE_GIB,
            **({} if flash_attention else _SCALED_DOT_PRODUCT),
            **(_ONE_QUEUE if gpus_per_node <= FEW_GPUS else {}),
        }
    )


_SCALED_DOT_PRODUCT: dict[str, object] = {
    "+actor_rollout_ref.model.override_config.attn_implementation": "sdpa",
    "+critic.model.override_config.attn_implementation": "sdpa",
    "actor_rollout_ref.model.use_remove_padding": False,
    "critic.model.use_remove_padding": False,
}
"""Packing sequences without padding needs flash-attn's own functions on a GPU (verl utils/attention_utils.py)."""

_ONE_QUEUE: dict[str, object] = {keys.QUEUE_UNITS: 1}

FEW_GPUS = 2
"""Up to here one queue process is plenty: a batch is some hundred sequences. Ours."""


def gpus_of(trial: Trial) -> int:
    """GPUs (on the CPU: logical ones) that the trial's verl reserves."""
    return gpus_per_node(trial) * _whole(trial, keys.NODES)


def cpus_of(trial: Trial, settings: EngineSettings) -> int:
    """CPUs that Ray must have for the trial's verl: what it reserves, on a GPU host at least the floor."""
    return verl_cpus.needed(gpus_of(trial), _queue_cpus(trial, settings), on_cpu=settings.on_cpu)


def reserved_cpus_of(trial: Trial, settings: EngineSettings) -> int:
    """CPUs that the trial's verl reserves, without which it cannot start at all."""
    return verl_cpus.reserved(gpus_of(trial), _queue_cpus(trial, settings))


def _queue_cpus(trial: Trial, settings: EngineSettings) -> int:
    together = settings.platform_settings.merged(trial.overrides)
    return verl_cpus.of_queue(together.get(keys.QUEUE_UNITS), together.get(keys.QUEUE_BACKEND))


def gpus_per_node(trial: Trial) -> int:
    """GPUs that the trial's verl reserves on each node."""
    return _whole(trial, keys.GPUS_PER_NODE)


def _whole(trial: Trial, key: str) -> int:
    value = trial.overrides.get(key, keys.DEFAULTS[key])
    return value if isinstance(value, int) else keys.DEFAULTS[key]


def seeds(seed: int) -> Overrides:
    """The seed for everything that draws: data order, rollout, weights, critic's head, order of mini-batches.

    verl leaves `data.seed` null, which is one fixed order for all runs, and seeds the critic's head by nothing.
    """
    return Overrides.of(
        {
            "data.seed": seed,
            "actor_rollout_ref.rollout.seed": seed,
            "actor_rollout_ref.actor.fsdp_config.seed": seed,
            "actor_rollout_ref.actor.data_loader_seed": seed,
            "actor_rollout_ref.ref.fsdp_config.seed": seed,
            "critic.fsdp.seed": seed,
            "critic.data_loader_seed": seed,
            "+sweep.value_head_seed": seed,
        }
    )


def identity(trial: Trial, folder: str, settings: EngineSettings, reuse: bool) -> Overrides:
    """What no override of a trial may change: its length, its places, our trainer."""
    return Overrides.of(
        {
            "trainer.v1.trainer_mode": TRAINER_MODE,
            "trainer.total_training_steps": trial.steps,
            "trainer.total_epochs": ENDLESS_EPOCHS,
            "trainer.logger": ["file"],
            "trainer.project_name": "sweep",
            "trainer.experiment_name": trial.id,
            "trainer.default_local_dir": f"{folder}/checkpoints",
            "trainer.resume_mode": "disable",
            "+sweep.poll_seconds": settings.poll_seconds,
            "+sweep.warmup_steps": settings.warmup_steps,
            "+sweep.reuse": reuse,
        }
    )


DEFAULTS = Overrides.of({"trainer.val_before_train": False, "trainer.save_freq": -1, "trainer.test_freq": -1})
"""A trial is for its curve: it validates and saves only if asked to."""


def complete(trial: Trial, folder: str, settings: EngineSettings, reuse: bool) -> Overrides:
    """Every verl setting of the trial, its files under `folder`."""
    parts = (
        DEFAULTS,
        settings.platform_settings,
        Overrides.of({f"+{keys.SCHEDULE_STEPS}": trial.steps}),
        seeds(trial.seed),
        trial.overrides,
        identity(trial, folder, settings, reuse),
    )
    return Overrides.of([pair for part in parts for pair in part])


def resumed_from(path: str) -> Overrides:
    """What has verl go on from the checkpoint of one step."""
    return Overrides.of({"trainer.resume_mode": "resume_path", "trainer.resume_from_path": path})


def launch_arguments(overrides: Overrides, variables: Mapping[str, str]) -> tuple[str, ...]:
    """Arguments of Python for verl's own entry point; the variables reach each of its processes through Ray."""
    quiet = ("hydra.run.dir=.", "hydra.output_subdir=null", "hydra/job_logging=stdout")  # no outputs/ folder
    return ("-m", "verl.trainer.main_ppo", *overrides.command_line(), *worker_variables(variables), *quiet)


def worker_variables(variables: Mapping[str, str]) -> tuple[str, ...]:
    """The environment of verl's Ray workers, as overrides."""
    return Overrides.of({_LAUNCH_VARIABLES + name: value for name, value in variables.items()}).command_line()
