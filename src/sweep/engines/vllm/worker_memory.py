"""`WorkerMemory`: mixed into vLLM's worker (`worker_extension_cls`), it answers how much memory its device has left."""

from __future__ import annotations

GIB = float(2**30)


class WorkerMemory:
    """Runs in the process that holds the GPU; nothing is measured where there is none."""

    def sweep_memory(self) -> dict[str, float]:
        """GiB: `peak` is the most that torch held at once since the start, `free` what the device has left now."""
        import torch

        if not torch.cuda.is_available():
            return {}
        device = torch.cuda.current_device()
        free_bytes, total_bytes = torch.cuda.mem_get_info(device)
        return {
            "peak_allocated_gib": torch.cuda.max_memory_allocated(device) / GIB,
            "peak_reserved_gib": torch.cuda.max_memory_reserved(device) / GIB,
            "free_gib": free_bytes / GIB,
            "total_gib": total_bytes / GIB,
        }
