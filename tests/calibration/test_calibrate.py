"""Calibration of small models: right numbers, nothing left behind, the same bytes again."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
import torch
import torch.nn.functional as F

from sere.calibration import CalibrationConfig, calibrate, summarise
from sere.calibration.packing import pack
from sere.engines.transformers import describe, rerouted
from sere.errors import ArtifactError, CalibrationError, DataError, EngineError
from tests.calibration import oracle
from tests.calibration.fakes import QUICK, TEXTS, Characters, small_model
from tests.engines.transformers.small import build


def expert_outputs(model, ids: torch.Tensor) -> dict[str, np.ndarray]:
    """Every expert on every token, written out for Qwen3: shape [E, N, H] by layer name."""
    found: dict[str, np.ndarray] = {}
    for number, layer in enumerate(model.model.layers):
        experts = layer.mlp.experts

        def keep(module, inputs, number=number, experts=experts):
            rows, out = inputs[0].reshape(-1, 32), []
            for expert in range(8):
                gate, up = F.linear(rows, experts.gate_up_proj[expert]).chunk(2, -1)
                out.append(F.linear(F.silu(gate) * up, experts.down_proj[expert]))
            found[f"model.layers.{number}.mlp.experts"] = torch.stack(out).detach().double().numpy()

        handle = layer.mlp.register_forward_pre_hook(keep)
        handles.append(handle)
    with torch.no_grad():
        model(input_ids=ids)
    while handles:
        handles.pop().remove()
    return found


handles: list = []


@pytest.fixture(scope="module")
def model():
    return small_model()


def test_every_statistic_is_its_definition_averaged_over_batches(model):
    metrics = ("frobenius", "cosine", "cka_linear_unbiased", "cka_rbf_biased")
    config = replace(QUICK, sequences=5, metrics=metrics)
    artifact = calibrate(model, Characters(), TEXTS, config=config)
    ids = pack(TEXTS, Characters(), sequences=5, length=16, seed=0)
    batches = [expert_outputs(model, part) for part in ids.split(2)]
    for layer in artifact.layers:
        for metric in metrics:
            exact = np.mean([oracle.similarity(batch[layer.name], metric) for batch in batches], 0)
            assert artifact.similarity(layer.name, metric).numpy() == pytest.approx(exact, rel=1e-5, abs=1e-6)
        norm = np.mean([np.linalg.norm(batch[layer.name], axis=2).mean(1) for batch in batches], 0)
        assert artifact.tensor(layer.name, "norm").numpy() == pytest.approx(norm, rel=1e-5)


def test_the_artifact_says_what_was_calibrated_and_on_what(model):
    artifact = calibrate(
        model, Characters(), TEXTS, config=QUICK, model_id="some/model", data_name="my texts"
    )
    assert [(each.name, each.index) for each in artifact.layers] == [
        ("model.layers.0.mlp.experts", 0),
        ("model.layers.1.mlp.experts", 1),
    ]
    assert {(each.num_experts, each.top_k) for each in artifact.layers} == {(8, 3)}
    assert (artifact.model.id, artifact.model.architecture) == ("some/model", "qwen3_moe")
    assert (artifact.metrics, artifact.default_metric) == (("frobenius", "cosine"), "frobenius")
    record = artifact.manifest.calibration
    assert (record.data, record.tokens, record.batches, record.dtype) == ("my texts", 96, 3, "float32")


def test_the_first_metric_asked_for_is_the_default_and_the_free_ones_are_served_too(model):
    artifact = calibrate(model, Characters(), TEXTS, config=replace(QUICK, metrics=("cka_poly_biased",)))
    assert artifact.metrics == ("cka_poly_biased", "frobenius", "cosine")
    assert artifact.default_metric == "cka_poly_biased"


def test_two_runs_write_the_same_bytes(model, tmp_path):
    for name in ("one", "two"):
        calibrate(model, Characters(), TEXTS, config=QUICK).save_pretrained(tmp_path / name)
    for file in ("sere.json", "sere.safetensors", "README.md"):
        assert (tmp_path / "one" / file).read_bytes() == (tmp_path / "two" / file).read_bytes()


@pytest.mark.parametrize("chunk", [1, 7, 1000])
def test_the_chunk_size_does_not_matter(model, chunk):
    config = replace(QUICK, metrics=("frobenius", "cka_rbf_unbiased"))
    whole = calibrate(model, Characters(), TEXTS, config=config)
    parts = calibrate(model, Characters(), TEXTS, config=replace(config, chunk_tokens=chunk))
    for name, value in whole.tensors.items():
        scale = float(
            value.abs().max()
        )  # off the diagonal the unbiased gram is a difference of large numbers
        assert torch.allclose(value, parts.tensors[name], rtol=1e-5, atol=2e-6 * scale), name


def test_another_seed_takes_other_texts(model):
    first, second = (
        calibrate(model, Characters(), TEXTS, config=replace(QUICK, seed=seed)) for seed in (0, 1)
    )
    assert first.manifest.calibration.data_sha256 != second.manifest.calibration.data_sha256
    assert first.hash != second.hash


def test_the_model_is_left_as_it_was_even_after_an_error():
    model = small_model().train()
    weights = {name: value.clone() for name, value in model.state_dict().items()}
    calibrate(model, Characters(), TEXTS, config=QUICK)
    with pytest.raises(RuntimeError, match="stop"):
        calibrate(
            model,
            Characters(),
            TEXTS,
            config=QUICK,
            progress=lambda _: (_ for _ in ()).throw(RuntimeError("stop")),
        )
    assert all(module.training for module in model.modules())
    assert not any(module._forward_hooks for module in model.modules())
    assert all(torch.equal(value, weights[name]) for name, value in model.state_dict().items())


def test_progress_counts_layers_and_batches_and_ends_at_one(model):
    seen = []
    calibrate(model, Characters(), TEXTS, config=QUICK, progress=seen.append)
    assert [(each.batch, each.layers_done) for each in seen] == [(b, n) for b in range(3) for n in (1, 2)]
    assert (seen[-1].fraction, seen[-1].seconds_left, seen[-1].batches) == (1.0, 0.0, 3)
    assert all(each.tokens_per_second > 0 for each in seen)


FAMILIES = [
    "gpt_oss",
    "mixtral",
    "deepseek_v2",
    "deepseek_v3",
    "glm4_moe",
    "granitemoe",
    "olmoe",
    "ernie4_5_moe",
    "longcat_flash",
]


@pytest.mark.parametrize("family", FAMILIES)
def test_families_with_biases_gates_shared_experts_and_other_layouts_are_sums_of_their_experts(family):
    # Calibration compares weights times outputs with the layer's own output and fails if they differ.
    artifact = calibrate(build(family), Characters(), TEXTS, config=QUICK)
    for layer in artifact.layers:
        similarity = artifact.similarity(layer.name)
        assert similarity.shape == (layer.num_experts, layer.num_experts)
        assert similarity.min() < 0.9
        assert bool((artifact.tensor(layer.name, "norm") > 0).all())


@pytest.mark.parametrize("implementation", ["eager", "grouped_mm", "batched_mm"])
def test_the_experts_implementation_does_not_matter(model, implementation):
    expected = calibrate(model, Characters(), TEXTS, config=QUICK)
    other = small_model()
    other.set_experts_implementation(implementation)
    found = calibrate(other, Characters(), TEXTS, config=QUICK)
    assert other.config._experts_implementation == implementation
    for name, value in expected.tensors.items():
        assert torch.allclose(value, found.tensors[name], rtol=1e-4, atol=1e-5), name


def test_a_layer_that_is_no_weighted_sum_is_refused(model, monkeypatch):
    experts = model.model.layers[1].mlp.experts
    plain = type(experts).forward
    monkeypatch.setattr(experts, "forward", lambda h, i, w: plain(experts, h, i, w.square()))
    with pytest.raises(CalibrationError, match=r"layers\.1\.mlp\.experts is no weighted sum"):
        calibrate(model, Characters(), TEXTS, config=QUICK)


def test_nan_is_reported_with_layer_and_expert():
    model = small_model()
    with torch.no_grad():
        model.model.layers[1].mlp.experts.down_proj[5, 0, 0] = float("nan")
    with pytest.raises(CalibrationError, match=r"expert 5 of layer model\.layers\.1\.mlp\.experts"):
        calibrate(model, Characters(), TEXTS, config=QUICK)


def test_nan_before_a_layer_is_told_from_nan_in_an_expert():
    model = small_model()
    with torch.no_grad():
        model.model.embed_tokens.weight.fill_(float("nan"))
    with pytest.raises(CalibrationError, match=r"input of layer model\.layers\.0\.mlp\.experts"):
        calibrate(model, Characters(), TEXTS, config=QUICK)


def test_a_dense_model_is_refused():
    from transformers import Qwen3Config, Qwen3ForCausalLM

    sizes = {"hidden_size": 16, "intermediate_size": 16, "num_attention_heads": 2, "num_key_value_heads": 2}
    dense = Qwen3ForCausalLM(Qwen3Config(vocab_size=96, num_hidden_layers=1, head_dim=8, **sizes))
    with pytest.raises(EngineError, match="dense"):
        calibrate(dense, Characters(), TEXTS, config=QUICK)


def test_a_quantised_model_is_refused_by_name_and_method():
    model = small_model()
    model.config.quantization_config = {"quant_method": "gptq", "bits": 4}
    with pytest.raises(CalibrationError, match=r"some/model is quantised \(gptq\).*unquantised checkpoint"):
        calibrate(model, Characters(), TEXTS, config=QUICK, model_id="some/model")
    model.config.quantization_config = {"quant_method": "mxfp4", "dequantize": True}
    assert calibrate(model, Characters(), TEXTS, config=QUICK).metrics == ("frobenius", "cosine")


@pytest.mark.parametrize("dtype", [torch.float8_e4m3fn, torch.int8])
def test_experts_whose_weights_are_no_plain_floats_are_refused(dtype):
    model = small_model()
    experts = model.model.layers[0].mlp.experts
    experts.down_proj = torch.nn.Parameter(experts.down_proj.detach().to(dtype), requires_grad=False)
    with pytest.raises(CalibrationError, match="expert weights of torch"):
        calibrate(model, Characters(), TEXTS, config=QUICK)


def test_a_model_under_a_policy_is_refused(model):
    with rerouted(model, None, "top_k:k=1"), pytest.raises(CalibrationError, match="a policy is applied"):
        calibrate(model, Characters(), TEXTS, config=QUICK)


def test_the_artifact_passes_for_its_model_and_for_no_other(model):
    artifact = calibrate(model, Characters(), TEXTS, config=QUICK)
    artifact.check_model(describe(model))
    with pytest.raises(ArtifactError, match="cannot serve"):
        artifact.check_model(describe(build("mixtral")))


def test_bfloat16_gives_nearly_the_similarities_of_float32(model):
    exact = calibrate(model, Characters(), TEXTS, config=QUICK)
    rough = calibrate(small_model().to(torch.bfloat16), Characters(), TEXTS, config=QUICK)
    name = exact.layers[0].name
    assert torch.allclose(exact.similarity(name), rough.similarity(name), atol=0.02)
    assert rough.manifest.calibration.dtype == "bfloat16"


def test_one_string_is_not_taken_for_a_list_of_letters(model):
    with pytest.raises(DataError, match="one string"):
        calibrate(model, Characters(), "abc", config=QUICK)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"sequences": 0}, "sequences must be at least 1"),
        ({"batch_sequences": 0}, "batch_sequences must be at least 1"),
        ({"chunk_tokens": 0}, "chunk_tokens must be at least 1"),
        ({"metrics": ()}, "Choose one of: frobenius"),
        ({"metrics": ("frobenus",)}, "Did you mean 'frobenius'"),
        ({"sequences": 1, "sequence_length": 3, "metrics": ("cka_rbf_unbiased",)}, "at least 4 tokens"),
    ],
)
def test_settings_out_of_range_are_refused_before_any_work(change, message):
    with pytest.raises(CalibrationError, match=message):
        CalibrationConfig(**change)


def test_the_summary_names_the_most_alike_pair_and_the_least_replaceable_expert():
    model = small_model()
    with torch.no_grad():
        experts = model.model.layers[0].mlp.experts
        experts.gate_up_proj[6], experts.down_proj[6] = experts.gate_up_proj[2], experts.down_proj[2] * 1.001
        experts.down_proj[4] *= 10
    summary = summarise(calibrate(model, Characters(), TEXTS, config=QUICK))[0]
    assert (summary.index, summary.num_experts, summary.metric) == (0, 8, "frobenius")
    assert summary.pairs[0][:2] == (2, 6)
    assert summary.pairs[0][2] > 0.99
    assert summary.critical[0][0] == 4
    assert summary.lowest <= summary.mean <= summary.highest


def test_the_tokenizer_of_another_model_is_refused(model):
    with pytest.raises(DataError, match=r"gives token 1000; the model has only 96\. Load the tokenizer"):
        calibrate(model, Characters(eos_token_id=1000), TEXTS, config=QUICK)


class Parallel(torch.nn.Module):
    """A wrapper like that of data parallelism: no configuration of its own."""

    def __init__(self, module):
        super().__init__()
        self.module = module

    def forward(self, *args, **kwargs):
        return self.module(*args, **kwargs)


def test_a_wrapped_model_is_calibrated_as_the_model_inside():
    model = small_model()
    plain = calibrate(model, Characters(), TEXTS, config=QUICK)
    wrapped = calibrate(Parallel(model), Characters(), TEXTS, config=QUICK)
    assert wrapped.model == plain.model
    values = zip(plain.tensors.values(), wrapped.tensors.values(), strict=True)
    assert all(torch.equal(one, other) for one, other in values)
    model.config.quantization_config = {"quant_method": "gptq", "bits": 4}
    with pytest.raises(CalibrationError, match="quantised"):
        calibrate(Parallel(model), Characters(), TEXTS, config=QUICK)


def test_an_exception_from_the_callback_leaves_the_model_as_it_was():
    model = small_model().train()
    model.model.layers[0].eval()
    modes = [module.training for module in model.modules()]

    def interrupt(_):
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        calibrate(model, Characters(), TEXTS, config=QUICK, progress=interrupt)
    assert [module.training for module in model.modules()] == modes
    assert not any(module._forward_hooks for module in model.modules())
