"""A vLLM worker that can start its sampling anew: vLLM seeds its workers once, when the engine starts.

Chosen by `+actor_rollout_ref.rollout.engine_kwargs.vllm.worker_extension_cls` with this class's full name. Imported
only inside vLLM's worker processes.

Source: vllm v1/worker/gpu_worker.py, which seeds after warm-up.
"""

from __future__ import annotations

from verl.workers.rollout.vllm_rollout.utils import vLLMColocateWorkerExtension

from sweep.engines.verl.plugins.process_seeds import seed_process


class ReseedingWorkerExtension(vLLMColocateWorkerExtension):  # type: ignore[misc]
    """verl's own extension, and one more method for `collective_rpc`."""

    def warm_reseed(self, seed: int) -> None:
        """Every random generator of this worker, the device's too, starts from the seed."""
        seed_process(seed)
