"""Which layers of a vLLM model are re-routed, and the veto on kernels that route."""

from __future__ import annotations

from types import SimpleNamespace

import pytest
import torch

from sere.engines.vllm.banner import _numbers
from sere.engines.vllm.layers import layer_index, obstacle, survey
from sere.engines.vllm.veto import no_routing_in_kernels
from sere.errors import EngineError


def test_the_layer_is_the_first_number_of_a_name():
    assert layer_index("model.layers.12.mlp.experts") == 12
    assert layer_index("language_model.model.layers.3.block_sparse_moe.experts") == 3


def test_numbers_are_written_as_ranges():
    assert _numbers([0, 1, 2, 5, 7, 8]) == "layers 0 to 2, 5, 7 to 8"
    assert _numbers([4]) == "layers 4"


def moe_config(**changes):
    values = {"pcp_size": 1, "experts_per_token": 8, "is_sequence_parallel": False}
    return SimpleNamespace(**{**values, **changes})


def config(micro_batches=False, fast_prefill=False):
    return SimpleNamespace(
        parallel_config=SimpleNamespace(use_ubatching=micro_batches),
        cache_config=SimpleNamespace(kv_sharing_fast_prefill=fast_prefill),
    )


def runner(**changes):
    from vllm.model_executor.layers.fused_moe.router.base_router import BaseRouter

    class Router(BaseRouter):
        routing_method_type = None

        def _compute_routing(self, *_, **__):
            raise NotImplementedError

    moe = moe_config()
    values = {
        "router": Router(8, 64),
        "moe_config": moe,
        "is_monolithic": False,
        "do_naive_dispatch_combine": False,
        "_quant_method": SimpleNamespace(experts_cls=SimpleNamespace(__name__="SomeKernel")),
    }
    return SimpleNamespace(**{**values, **changes})


PLAIN = config()


@pytest.mark.vllm
@pytest.mark.parametrize(
    ("changes", "config", "reason"),
    [
        ({}, PLAIN, None),
        ({"is_monolithic": True}, PLAIN, "SomeKernel) routes inside itself.*--moe-backend"),
        ({"router": object()}, PLAIN, "does not select experts the common way"),
        ({"do_naive_dispatch_combine": True}, PLAIN, "sees the rows of other ranks.*--all2all-backend"),
        ({"moe_config": moe_config(pcp_size=2)}, PLAIN, "rows of other ranks"),
        ({"moe_config": moe_config(is_sequence_parallel=True)}, PLAIN, "rows of other ranks"),
        ({"moe_config": moe_config(experts_per_token=1)}, PLAIN, "one expert only"),
        ({}, config(micro_batches=True), "without --enable-dbo"),
        ({}, config(fast_prefill=True), "without --kv-sharing-fast-prefill"),
    ],
)
def test_a_layer_is_left_alone_for_a_reason(changes, config, reason):
    import re

    found = obstacle(runner(**changes), config)
    assert found is None if reason is None else re.search(reason.replace(")", r"\)"), found)


@pytest.mark.vllm
def test_kernels_that_route_are_refused_while_a_model_is_loaded():
    from vllm.model_executor.layers.fused_moe import modular_kernel

    class Kernel:
        monolithic = True

        @classmethod
        def is_monolithic(cls):
            return cls.monolithic

        @staticmethod
        def _supports_current_device():
            return False

    ask = modular_kernel.FusedMoEExperts.is_supported_config
    with no_routing_in_kernels():
        supported, reason = modular_kernel.FusedMoEExperts.is_supported_config(Kernel, None, None, None, None)
        assert not supported
        assert "which sere needs" in reason
        Kernel.monolithic = False
        _, reason = modular_kernel.FusedMoEExperts.is_supported_config(Kernel, None, None, None, None)
        assert "current device" in reason
    assert modular_kernel.FusedMoEExperts.is_supported_config is ask


def with_draft():
    from vllm.model_executor.layers.fused_moe.runner.moe_runner_interface import MoERunnerInterface

    def of(name):
        values = vars(runner(moe_config=moe_config(num_logical_experts=64)))
        made = type("Runner", (MoERunnerInterface,), {"__init__": torch.nn.Module.__init__, **values})
        made.__abstractmethods__ = frozenset()
        made = made()
        made.layer_name = name
        return made

    own, draft = of("model.layers.0.mlp.experts"), of("model.layers.1.mtp_block.mlp.experts")
    model = torch.nn.Module()
    model.experts = own
    plain = config()
    known = {own.layer_name: own, draft.layer_name: draft}
    plain.compilation_config = SimpleNamespace(static_forward_context=known)
    return model, plain


@pytest.mark.vllm
def test_a_draft_is_left_alone_unless_asked():
    model, plain = with_draft()
    found = survey(model, plain)
    assert [layer.name for layer in found.layers] == ["model.layers.0.mlp.experts"]
    assert "belongs to a draft model" in found.skipped["model.layers.1.mtp_block.mlp.experts"]
    found = survey(model, plain, drafts=True)
    assert [(layer.index, layer.draft) for layer in found.layers] == [(0, False), (1, True)]
    assert not found.skipped


@pytest.mark.vllm
def test_a_draft_alone_is_nothing_to_re_route():
    model, plain = with_draft()
    del model.experts
    with pytest.raises(EngineError, match="no MoE layer"):
        survey(model, plain, drafts=True)
