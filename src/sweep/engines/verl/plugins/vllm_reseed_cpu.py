"""`ReseedingWorkerExtension` for vLLM's CPU build, with weights that can be loaded more than once.

That build packs each weight for oneDNN when it is first loaded and drops the parameter it came from, so that verl's
next push finds nothing to write to; PyTorch's own linear layers keep it. Imported only inside vLLM's worker processes.

Source: vllm model_executor/layers/utils.py, `dispatch_cpu_unquantized_gemm`.
"""

from __future__ import annotations

from vllm import _custom_ops

from sweep.engines.verl.plugins.vllm_reseed import ReseedingWorkerExtension

_custom_ops._supports_onednn = False


class CpuReseedingWorkerExtension(ReseedingWorkerExtension):
    """Chosen by its name, which brings this module into the worker before its model is loaded."""
