"""The doctor on whole logs: which line is the cause, in which phase, and what may be done."""

from __future__ import annotations

import pytest

from sweep.core.failure import FailureClass, Retry
from sweep.health.doctor import Confidence, Evidence, classify, diagnose_log
from sweep.health.doctor_catalog import load_catalog

EXAMPLES = [(failure.code, line) for failure in load_catalog().failures for line in failure.examples]

SERVER = "(vLLMHttpServer pid=21, ip=10.0.0.2) "
ENGINE = f"{SERVER}(EngineCore_DP0 pid=31) ERROR 03-19 11:07:19 [core.py:1006] "
ENGINE_DEATH = """\
(TaskRunnerV1 pid=11) ray init done
<engine>EngineCore failed to start.
<engine>Traceback (most recent call last):
<engine>  File "/v/vllm/v1/worker/gpu_worker.py", line 300, in determine_available_memory
<engine>  File "/v/vllm/v1/worker/gpu_model_runner.py", line 3485, in profile_run
<engine><cause>
<server>Traceback (most recent call last):
<server>  File "/v/vllm/v1/engine/utils.py", line 729, in launch_core_engines
<server>RuntimeError: Engine core initialization failed. See root cause above. Failed core proc(s): {}
Error executing job with overrides: ['data.train_batch_size=256']
Traceback (most recent call last):
  File "/x/verl/trainer/main_ppo.py", line 80, in run_ppo
ray.exceptions.RayTaskError(RuntimeError): ray::TaskRunnerV1.run() (pid=11, ip=10.0.0.2)
RuntimeError: Engine core initialization failed. See root cause above. Failed core proc(s): {}
"""


def engine_death(cause: str) -> str:
    """A real engine's death with the given last line of its traceback, under all of its wrappers."""
    filled = ENGINE_DEATH.replace("<engine>", ENGINE).replace("<server>", SERVER)
    return filled.replace("<cause>", cause)


@pytest.mark.parametrize(("code", "line"), EXAMPLES)
def test_every_known_failure_is_recognised_by_its_example(code: str, line: str) -> None:
    assert diagnose_log(line).code == code


@pytest.mark.parametrize(("code", "line"), EXAMPLES)
def test_prefixes_colours_and_repetition_marks_hide_nothing(code: str, line: str) -> None:
    wrapped = f"\x1b[36m(WorkerDict pid=4378, ip=10.1.2.3)\x1b[0m {line}\x1b[32m [repeated 7x across cluster]\x1b[0m"
    assert diagnose_log(wrapped).code == code


@pytest.mark.parametrize(
    ("cause", "code", "failure_class"),
    [
        ("torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 1.50 GiB.", "CUDA_OOM", FailureClass.OOM_GPU),
        ("ValueError: No available memory for the cache blocks.", "KV_CACHE_NONE", FailureClass.INFEASIBLE_CONFIG),
        ("ModuleNotFoundError: No module named 'flashinfer'", "MODULE_MISSING", FailureClass.ENV_FAULT),
        ("TypeError: unhashable type: 'list'", "UNCATALOGUED_ERROR", FailureClass.SOFTWARE_BUG),
    ],
)
def test_the_engines_own_error_is_found_under_its_wrappers(cause: str, code: str, failure_class: FailureClass) -> None:
    found = diagnose_log(engine_death(cause))
    assert (found.code, found.failure_class, found.line_number, found.cause_line) == (code, failure_class, 6, cause)


def test_an_engine_that_hides_its_error_is_an_unknown_death_worth_one_more_try() -> None:
    found = diagnose_log("RuntimeError: Engine core initialization failed. See root cause above.")
    assert (found.code, found.retry, found.max_retries) == ("ENGINE_DEATH", Retry.SAME, 1)


def test_the_phase_of_an_engine_error_at_start_is_the_rollouts_start() -> None:
    found = diagnose_log(engine_death("torch.OutOfMemoryError: CUDA out of memory."))
    assert found.phase == "rollout_start"
    assert found.moves["actor_rollout_ref.rollout.max_num_batched_tokens"] == "lower"


@pytest.mark.parametrize(
    ("frame", "phase", "moved"),
    [
        ("update_actor", "actor_update", "actor_rollout_ref.actor.ppo_micro_batch_size_per_gpu"),
        ("_update_critic", "critic_update", "critic.ppo_infer_max_token_len_per_gpu"),
        ("actor_rollout_compute_log_prob", "log_prob", "actor_rollout_ref.rollout.log_prob_micro_batch_size_per_gpu"),
        ("ref_compute_ref_log_prob", "ref_log_prob", "actor_rollout_ref.ref.log_prob_micro_batch_size_per_gpu"),
        ("compute_values", "values", "critic.ppo_infer_max_token_len_per_gpu"),
        ("wake_up", "rollout_wake_up", "actor_rollout_ref.rollout.gpu_memory_utilization"),
        ("update_weights", "weight_sync", "actor_rollout_ref.rollout.gpu_memory_utilization"),
        ("_build_fsdp_module", "model_load", "actor_rollout_ref.actor.fsdp_config.param_offload"),
    ],
)
def test_the_stack_names_the_phase_of_an_oom_and_the_phase_its_remedy(frame: str, phase: str, moved: str) -> None:
    log = f'  File "/x/worker.py", line 12, in {frame}\n  File "/x/y.py", line 3, in inner\nCUDA out of memory.'
    found = diagnose_log(log)
    assert found.phase == phase
    assert moved in found.moves


def test_the_outermost_known_function_decides_when_a_stack_shows_several() -> None:
    log = (
        '  File "/x/a.py", line 1, in update_actor\n'
        '  File "/x/b.py", line 2, in entropy_from_logits\n'
        "torch.OutOfMemoryError: CUDA out of memory."
    )
    assert diagnose_log(log).phase == "actor_update"


def test_frames_of_the_same_process_win_over_those_of_another() -> None:
    log = (
        '(WorkerDict pid=5)   File "/x/a.py", line 1, in compute_log_prob\n'
        '(WorkerDict pid=6)   File "/x/a.py", line 1, in update_actor\n'
        "(WorkerDict pid=5) torch.OutOfMemoryError: CUDA out of memory."
    )
    assert diagnose_log(log).phase == "log_prob"


def test_an_out_of_memory_rank_explains_the_time_out_of_the_others() -> None:
    log = (
        "step:7 - timing_s/step:9.1\n"
        "(WorkerDict pid=5) torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB.\n"
        "(WorkerDict pid=6) [rank1]:[E626 06:24:44.90 ProcessGroupNCCL.cpp:616] [Rank 1] Watchdog caught collective "
        "operation timeout: WorkNCCL(SeqNum=808, OpType=ALLREDUCE, NumelIn=9, NumelOut=9, Timeout(ms)=600000)\n"
        "ray.exceptions.ActorDiedError: The actor died unexpectedly before finishing this task."
    )
    found = diagnose_log(log)
    assert (found.code, found.last_step) == ("CUDA_OOM", 7)
    assert set(found.also_seen) == {"NCCL_TIMEOUT", "UNKNOWN_WORKER_DEATH"}


def test_an_unknown_exception_before_a_time_out_is_the_cause() -> None:
    log = (
        "Traceback (most recent call last):\nKeyError: 'answer'\nWatchdog caught collective operation timeout: WorkNCCL"
    )
    found = diagnose_log(log)
    assert (found.code, found.failure_class, found.line_number) == (
        "UNCATALOGUED_ERROR",
        FailureClass.SOFTWARE_BUG,
        2,
    )


def test_of_two_causes_the_earlier_one_counts() -> None:
    log = "OSError: [Errno 28] No space left on device\nRuntimeError: CUDA out of memory."
    assert diagnose_log(log).code == "DISK_FULL"


def test_an_error_that_two_more_steps_followed_is_not_the_cause() -> None:
    log = "ValueError: bad sample\nstep:1 - a:1\nstep:2 - a:1\nstep:3 - a:1\nRuntimeError: CUDA error: out of memory"
    assert diagnose_log(log).code == "CUDA_OOM"


def test_an_error_that_one_late_step_line_followed_still_is() -> None:
    log = "step:1 - a:1\nRuntimeError: CUDA error: out of memory\nstep:2 - a:1\nActorDiedError: the actor is dead"
    assert diagnose_log(log).code == "CUDA_OOM"


def test_a_survived_error_is_named_with_little_confidence_when_nothing_else_ended_the_log() -> None:
    log = "RuntimeError: CUDA error: out of memory\nstep:1 - a:1\nstep:2 - a:1\nstep:3 - a:1"
    found = diagnose_log(log)
    assert (found.code, found.confidence) == ("CUDA_OOM", Confidence.LOW)


def test_the_same_error_is_found_again_after_one_that_was_survived() -> None:
    log = "\n".join(
        [
            '  File "/x/a.py", line 1, in compute_log_prob',
            "CUDA out of memory.",
            *(f"step:{step} - a:1" for step in range(1, 200)),
            '  File "/x/a.py", line 1, in update_actor',
            "CUDA out of memory.",
        ]
    )
    found = diagnose_log(log)
    assert (found.line_number, found.phase, found.last_step) == (203, "actor_update", 199)


def test_a_failure_after_the_last_step_is_teardown_noise_and_the_trial_counts() -> None:
    log = "Training Progress: 100%|##########| 210/210 [2:00:01<00:00]\nRuntimeError: CUDA error: out of memory"
    found = diagnose_log(log)
    assert (found.failure_class, found.retry, found.counts_as_result) == (
        FailureClass.TEARDOWN_NOISE,
        Retry.NO,
        True,
    )


def test_a_failure_before_the_last_step_is_none() -> None:
    log = "Training Progress:  99%|#########9| 209/210 [2:00:01<00:30]\nRuntimeError: CUDA error: out of memory"
    assert diagnose_log(log).code == "CUDA_OOM"


def test_the_known_number_of_steps_decides_even_without_a_progress_bar() -> None:
    log = "step:60 - a:1\nActorDiedError: the actor is dead because of SIGTERM"
    assert diagnose_log(log, Evidence(total_steps=60)).code == "TEARDOWN_FAILURE"
    assert diagnose_log(log, Evidence(total_steps=61)).code == "UNKNOWN_WORKER_DEATH"


def test_a_death_while_saving_resumes_from_the_checkpoint_before() -> None:
    log = (
        "Saving model to /ck/global_step_50/actor\nstep:50 - a:1\nstep:59 - a:1\n"
        "Saving model to /ck/global_step_60/actor\n"
        "A worker died or was killed while executing a task by an unexpected system error."
    )
    found = diagnose_log(log)
    assert (found.code, found.resume_from, found.confidence) == ("KILLED_DURING_SAVE", "global_step_50", Confidence.LOW)


def test_a_finished_save_is_no_death_while_saving() -> None:
    log = "Saving model to /ck/global_step_60/actor\nstep:60 - a:1\nA worker died or was killed while executing a task"
    found = diagnose_log(log)
    assert (found.code, found.phase) == ("UNKNOWN_WORKER_DEATH", "training")


@pytest.mark.parametrize(
    ("free", "failure_class", "retry"),
    [
        (37.60, FailureClass.INFEASIBLE_CONFIG, Retry.NEW_CONFIG),
        (37.40, FailureClass.ENV_FAULT, Retry.AFTER_FIX),
    ],
)
def test_a_twentieth_of_the_card_separates_a_neighbour_from_the_drivers_overhead(
    free: float, failure_class: FailureClass, retry: Retry
) -> None:
    line = (
        f"ValueError: Free memory on device cuda:0 ({free}/50.0 GiB) on startup is less than desired GPU memory "
        "utilization (0.8, 40.0 GiB)."
    )
    found = diagnose_log(line)
    assert (found.failure_class, found.retry) == (failure_class, retry)
    assert found.computed["shortfall_gib"] == pytest.approx(40.0 - free)


def test_numbers_of_a_message_that_is_wrapped_over_lines_are_found() -> None:
    log = (
        "ValueError: Free memory on device cuda:0 (12.38/287.69 GiB) on startup\n"
        "is less than desired GPU memory utilization (0.92, 264.67 GiB)."
    )
    assert diagnose_log(log).computed["shortfall_gib"] == pytest.approx(252.29)


def test_an_oom_tells_fragmentation_only_if_the_memory_was_there() -> None:
    line = (
        "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate {wanted} GiB. GPU 0 has a total capacity of "
        "79.11 GiB of which 8.85 GiB is free. 60.49 GiB is allocated by PyTorch, and 6.77 GiB is reserved by PyTorch "
        "but unallocated."
    )
    assert diagnose_log(line.format(wanted="15.61")).computed["fragmented"] is True
    assert diagnose_log(line.format(wanted="15.63")).computed["fragmented"] is False


def test_an_oom_after_ten_good_steps_is_late() -> None:
    steps = "\n".join(f"step:{step} - a:1" for step in range(1, 11))
    assert diagnose_log(f"{steps}\nCUDA out of memory.").computed["late"] is True
    assert "late" not in diagnose_log("step:9 - a:1\nCUDA out of memory.").computed


def test_no_remedy_of_an_oom_asks_for_expandable_segments() -> None:
    for frame in ("update_actor", "wake_up", "compute_log_prob", "generate_sequences"):
        found = diagnose_log(f'  File "x", line 1, in {frame}\nCUDA out of memory.')
        assert not any("expandable" in text for text in found.fix)


def test_a_host_out_of_memory_is_told_from_a_gpus_by_its_text_not_its_type() -> None:
    log = (
        "ray.exceptions.OutOfMemoryError: Task was killed due to the node running low on memory.\n"
        "Memory on the node was 246.41GB / 251.54GB (0.979583), which exceeds the memory usage threshold of 0.95.\n"
        " 11 56.2GB ray::WorkerDict\n"
    )
    found = diagnose_log(log)
    assert (found.code, found.failure_class) == ("HOST_OOM", FailureClass.OOM_HOST)
    assert found.computed["consumers"] == ["56.2GB ray::WorkerDict"]
    assert "ppo_micro_batch_size" not in " ".join(found.moves)


def test_end_of_file_alone_is_not_a_worker_that_failed_to_register() -> None:
    line = "ActorDiedError: Worker exit type: SYSTEM_ERROR connection error code 2. End of file."
    assert diagnose_log(line).code == "UNKNOWN_WORKER_DEATH"


def test_granted_cpus_come_first_only_where_fewer_were_granted_than_the_host_has() -> None:
    line = "Failed to register worker 01ab to Raylet."
    short = diagnose_log(line, Evidence(granted_cpus=8, host_cpus=112))
    full = diagnose_log(line, Evidence(granted_cpus=112, host_cpus=112))
    assert "num_cpus=8" in short.fix[0]
    assert "num_cpus=" not in full.fix[0]


def test_an_inspection_failure_shows_the_error_above_it_as_its_cause() -> None:
    log = (
        "ERROR registry.py: Error in inspecting model architecture 'Qwen2ForCausalLM'\n"
        "Traceback (most recent call last):\n"
        "AttributeError: module 'x' has no attribute 'y'\n"
        "subprocess.CalledProcessError: Command '[python]' returned non-zero exit status 1.\n"
        "ValueError: Model architectures ['Qwen2ForCausalLM'] failed to be inspected."
    )
    found = diagnose_log(log)
    assert (found.code, found.line_number, found.abort_campaign) == ("VLLM_INSPECT", 3, True)


def test_an_inspection_failure_because_of_a_full_gpu_is_a_full_gpu() -> None:
    log = "RuntimeError: CUDA error: out of memory\nValueError: Model architectures ['X'] failed to be inspected."
    assert diagnose_log(log).code == "CUDA_OOM"


def test_a_bare_inspection_failure_falls_back_to_its_own_line() -> None:
    found = diagnose_log("ValueError: Model architectures ['X'] failed to be inspected.")
    assert (found.code, found.line_number) == ("VLLM_INSPECT", 1)


def test_hydras_wrapper_shows_the_error_inside() -> None:
    log = (
        "Error executing job with overrides: ['data.train_batch_size=16']\n"
        "hydra.errors.InstantiationException: Error in call to target 'verl.workers.config.actor.FSDPActorConfig':\n"
        "ValueError('train_batch_size (16) must be >= actor.ppo_mini_batch_size (128)')"
    )
    found = diagnose_log(log)
    assert (found.code, found.computed["train"], found.computed["mini"]) == ("TRAIN_LT_MINI", 16, 128)


def test_an_unknown_exception_before_the_first_step_blames_the_configuration_only_for_checks() -> None:
    assert diagnose_log("ValueError: surprising").failure_class is FailureClass.INFEASIBLE_CONFIG
    assert diagnose_log("step:1 - a:1\nValueError: surprising").failure_class is FailureClass.SOFTWARE_BUG
    assert diagnose_log("TypeError: surprising").failure_class is FailureClass.SOFTWARE_BUG


@pytest.mark.parametrize(
    ("log", "evidence", "code"),
    [
        ("", Evidence(), "EMPTY_LOG"),
        ("Started a local Ray instance.", Evidence(), "SILENT_START"),
        ("step:5 - a:1", Evidence(), "ENDED_WITHOUT_ERROR"),
        ("step:5 - a:1", Evidence(exit_code=0, total_steps=10), "ENDED_EARLY"),
        ("step:5 - a:1", Evidence(exit_code=137), "KILLED_BY_SIGNAL"),
        ("step:5 - a:1", Evidence(exit_code=-9), "KILLED_BY_SIGNAL"),
        ("Saving model to /c/global_step_6/actor", Evidence(exit_code=137), "KILLED_DURING_SAVE"),
        ("step:5 - a:1", Evidence(exit_code=0, total_steps=5), "NO_FAILURE_FOUND"),
        ("step:5 - a:1\n'Final validation metrics: {}'", Evidence(), "NO_FAILURE_FOUND"),
    ],
)
def test_a_log_without_an_error_is_read_by_how_it_ends(log: str, evidence: Evidence, code: str) -> None:
    assert diagnose_log(log, evidence).code == code


def test_lines_may_come_one_by_one_with_or_without_line_ends() -> None:
    lines = ["step:3 - a:1\n", "CUDA out of memory.\r\n"]
    assert diagnose_log(iter(lines)) == diagnose_log("step:3 - a:1\nCUDA out of memory.")


def test_a_cause_in_the_middle_of_an_endless_line_is_found() -> None:
    assert diagnose_log("x" * 20_000 + " CUDA out of memory " + "y" * 20_000).code == "CUDA_OOM"


def test_braces_in_a_remedy_are_filled_or_fall_back() -> None:
    assert "transfer_queue" in diagnose_log("ModuleNotFoundError: No module named 'transfer_queue'").fix[0]
    assert "{" not in diagnose_log("RuntimeEnvSetupError: broken").fix[0]


RAY_DEATH = (
    "ray.exceptions.ActorDiedError: The actor died unexpectedly before finishing this task.\n"
    "\tclass_name: create_colocated_worker_cls.<locals>.WorkerDict\n\tpid: 4378\n"
    "The actor is dead because its worker process has died. Worker exit type: SYSTEM_ERROR Worker exit detail: Worker "
    "unexpectedly exits with a connection error code 2. End of file. There are some potential root causes. (1) The "
    "process is killed by SIGKILL by OOM killer due to high memory usage. (2) ray stop --force is called. (3) The "
    "worker is crashed unexpectedly due to SIGSEGV or other unexpected errors."
)


def test_rays_list_of_potential_causes_is_no_cause() -> None:
    assert diagnose_log(RAY_DEATH).code == "UNKNOWN_WORKER_DEATH"


@pytest.mark.parametrize(
    "warning",
    [
        "(raylet) /tmp/ray/session_1 is over 95% full, available space: 11 GB; capacity: 460 GB.",
        "Warning: The following resource request cannot be scheduled right now: {'CPU': 1.0}",
    ],
)
def test_a_warning_is_the_cause_only_if_nothing_better_follows(warning: str) -> None:
    assert diagnose_log(f"{warning}\nKeyError: 'x'").code == "UNCATALOGUED_ERROR"
    assert diagnose_log(f"{warning}\nCUDA out of memory.").code == "CUDA_OOM"
    alone = diagnose_log(f"{warning}\n{RAY_DEATH}")
    assert alone.code in ("DISK_FULL", "RESOURCES_PENDING")
    assert alone.confidence is Confidence.LOW


ULIMIT = (
    "Found ulimit of 1024 and failed to automatically increase with error current limit exceeds maximum limit. This "
    "can cause fd limit errors like `OSError: [Errno 24] Too many open files`. Consider increasing with ulimit -n"
)
LIBRARY = "Failed with ImportError('libx.so: cannot open shared object file')"


@pytest.mark.parametrize(
    "warning",
    [
        f"WARNING 03-19 11:07:19 [cuda.py:22] {LIBRARY}",
        f"(APIServer pid=7) WARNING 11-30 09:00:00 [utils.py:3] {LIBRARY}",
        f"WARNING:vllm:{LIBRARY}",
        f"2026-11-30 09:00:00,123 WARNING services.py:3 -- {LIBRARY}",
        f"2026-11-30 09:00:00.123 | WARNING  | m:f:12 - {LIBRARY}",
        f"[2026-11-30 09:00:00,123 W 31 31] core_worker.cc:12: {LIBRARY}",
        f"(raylet) [2026-11-30 09:00:00,123 W 31 31] (raylet) x.cc:12: {LIBRARY}",
        f"[W1130 09:00:00.123456789 ProcessGroupNCCL.cpp:47] {LIBRARY}",
        f"[rank0]:[W1130 09:00:00.123456789 ProcessGroupNCCL.cpp:47] {LIBRARY}",
        f"W0000 00:00:1764490000.123 77 cuda_dnn.cc:5] {LIBRARY}",
        f"/v/torch/cuda/__init__.py:51: FutureWarning: {LIBRARY}",
        f"UserWarning: {LIBRARY}",
        f"wandb: WARNING {LIBRARY}",
        f"INFO 03-19 11:07:19 [cuda.py:22] {LIBRARY}",
    ],
)
def test_what_is_only_warned_of_is_the_cause_of_nothing_that_shows(warning: str) -> None:
    for text, code in (
        ("KeyError: 'x'", "UNCATALOGUED_ERROR"),
        ("CUDA out of memory.", "CUDA_OOM"),
        (RAY_DEATH, "UNKNOWN_WORKER_DEATH"),
        ("Watchdog caught collective operation timeout: WorkNCCL", "NCCL_TIMEOUT"),
        ("step:5 - a:1", "ENDED_WITHOUT_ERROR"),
        ("Training Progress: 100%|#| 5/5", "NO_FAILURE_FOUND"),
    ):
        for log in (f"{warning}\n{text}", f"{text}\n{warning}"):
            found = diagnose_log(log)
            assert found.code == code, log
    assert diagnose_log(warning, Evidence(exit_code=137)).code == "KILLED_BY_SIGNAL"
    assert diagnose_log(warning, Evidence(silent_seconds=3600.0)).code in ("SILENT_HANG", "SILENT_START")


def test_a_warning_that_is_all_there_is_is_named_with_little_confidence_and_ends_no_campaign() -> None:
    found = diagnose_log(f"WARNING 03-19 11:07:19 [cuda.py:22] {LIBRARY}")
    assert (found.code, found.confidence, found.abort_campaign) == ("LIBRARY_MISSING", Confidence.LOW, False)
    assert diagnose_log(LIBRARY).abort_campaign is True


@pytest.mark.parametrize(
    "warning",
    [
        ULIMIT,
        f"(APIServer pid=4711) WARNING 11-30 09:00:00 [launcher.py:51] {ULIMIT}",
        "Not enough pinned memory may lead to CUDA out of memory.",
        "Set expandable_segments to avoid CUDA out of memory.",
        "A larger value might result in: RuntimeError: CUDA out of memory",
        "If you see CUDA out of memory, lower it.",
    ],
)
def test_an_error_that_is_only_spoken_of_has_not_happened(warning: str) -> None:
    assert diagnose_log(warning).code == "ENDED_WITHOUT_ERROR"
    assert diagnose_log(f"{warning}\n{RAY_DEATH}").code == "UNKNOWN_WORKER_DEATH"


@pytest.mark.parametrize(
    ("line", "code"),
    [
        ("OSError: [Errno 24] Too many open files", "LIMIT_REACHED"),
        (f"{ULIMIT}\nOSError: [Errno 24] Too many open files", "LIMIT_REACHED"),
        ("CUDA out of memory. Setting expandable_segments may help to avoid it.", "CUDA_OOM"),
        (
            "ERROR: Unexpected bus error. This might be caused by insufficient shared memory (shm).",
            "SHARED_MEMORY_SHORT",
        ),
    ],
)
def test_an_error_that_happened_is_one_whatever_else_is_said(line: str, code: str) -> None:
    assert diagnose_log(line).code == code


def test_an_exception_that_training_survived_before_is_not_the_cause_when_it_comes_again() -> None:
    log = "\n".join(
        [f"ValueError: unparsable answer\nstep:{step} - a:1" for step in range(1, 6)]
        + ["ValueError: unparsable answer", "Watchdog caught collective operation timeout: WorkNCCL"]
    )
    assert diagnose_log(log).code == "NCCL_TIMEOUT"


def test_a_second_trial_in_one_log_is_not_over_because_the_first_was() -> None:
    log = "step:1 - a:1\nstep:2 - a:1\nTraining Progress: 100%|#| 2/2 [00:01<00:00]\nstep:1 - a:1\nCUDA out of memory."
    found = diagnose_log(log)
    assert (found.code, found.last_step) == ("CUDA_OOM", 1)


def test_the_last_step_line_after_its_progress_bar_changes_nothing() -> None:
    log = "Training Progress: 100%|#| 2/2 [00:01<00:00]\nstep:2 - a:1\nActorDiedError: the actor is dead"
    assert diagnose_log(log).code == "TEARDOWN_FAILURE"


@pytest.mark.parametrize(("silent", "code"), [(1199.0, "ENDED_WITHOUT_ERROR"), (1200.0, "SILENT_HANG")])
def test_long_silence_is_a_hang(silent: float, code: str) -> None:
    assert diagnose_log("step:5 - a:1", Evidence(silent_seconds=silent)).code == code


def test_silence_at_the_start_is_a_start_that_hangs() -> None:
    found = diagnose_log("Started a local Ray instance.", Evidence(silent_seconds=5000.0))
    assert (found.code, found.failure_class) == ("SILENT_START", FailureClass.HANG)


def test_a_campaign_hears_the_class_the_cause_and_what_to_do() -> None:
    oom = classify("torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 1.50 GiB.")
    assert oom.failure_class is FailureClass.OOM_GPU and "1.50 GiB" in oom.text
    assert len(oom.fix) >= 2 and oom.retry is Retry.NEW_CONFIG and not oom.abort
    missing = classify(engine_death("ModuleNotFoundError: No module named 'flashinfer'"))
    assert missing.failure_class is FailureClass.ENV_FAULT and missing.abort
