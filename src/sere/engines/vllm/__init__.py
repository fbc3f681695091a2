"""vLLM V1: one key in ``--additional-config`` re-routes any Mixture-of-Experts model; see ``docs/vllm.md``.

.. code-block:: console

    vllm serve MODEL --additional-config '{"sere": {"artifact": "DIR", "policy": "sere", "top_s": 2}}'

Importing this package imports neither vLLM nor torch.
"""

from sere.engines.vllm.plugin import KEY, register

__all__ = ["KEY", "register"]
