"""Copies, threads, interrupts, wrappers, training: what people do to a model that is under a policy."""

from __future__ import annotations

import copy
import io
import threading
from collections.abc import Callable

import pytest
import torch
from torch import nn

import sere
from sere.engines.transformers import describe
from sere.errors import ArtifactError, EngineError, PolicyError
from tests.engines.transformers import small
from tests.engines.transformers.drive import cached, random_artifact, random_ids
from tests.engines.transformers.test_apply import traces

POLICY = "sere:top_s=1,floor=0"
GREEDY = {"max_new_tokens": 6, "do_sample": False, "eos_token_id": None, "pad_token_id": 0}


@pytest.fixture
def model():
    return small.build("qwen3_moe")


def saved(model: nn.Module) -> None:
    torch.save(model, io.BytesIO())


@pytest.mark.parametrize("part", [lambda model: model, lambda model: model.model], ids=["whole", "part"])
@pytest.mark.parametrize("duplicate", [copy.deepcopy, copy.copy, saved])
def test_a_copy_of_a_model_under_a_policy_is_refused(model, duplicate, part):
    with sere.rerouted(model, random_artifact(model), POLICY):
        with pytest.raises(EngineError, match="neither copied nor pickled"):
            duplicate(part(model))
        assert traces(model) > 0
    duplicate(part(model))
    assert traces(model) == 0


def test_a_model_under_a_policy_saves_its_plain_weights(model, tmp_path):
    with sere.rerouted(model, random_artifact(model), POLICY):
        model.save_pretrained(tmp_path)
    loaded = type(model).from_pretrained(tmp_path)
    assert traces(loaded) == 0
    ids = random_ids(3, 5)
    assert torch.equal(loaded.generate(ids, **GREEDY), model.generate(ids, **GREEDY))


def test_threads_that_generate_at_the_same_time_get_what_they_get_alone(model):
    # Prompts of three lengths, so that one thread's prompt runs beside another's decoding.
    prompts = [random_ids(4, 3 + number % 3, seed=number) for number in range(6)]
    found: dict[int, torch.Tensor] = {}

    def work(number: int) -> None:
        for _ in range(3):
            found[number] = model.generate(prompts[number], **GREEDY)

    with sere.rerouted(model, random_artifact(model), POLICY) as handle:
        alone = [model.generate(prompt, **GREEDY) for prompt in prompts]
        handle.reset()
        workers = [threading.Thread(target=work, args=(number,)) for number in range(len(prompts))]
        for worker in workers:
            worker.start()
        for worker in workers:
            worker.join()
        counted = handle.counters().total
    assert all(torch.equal(found[number], expected) for number, expected in enumerate(alone))
    assert counted["decode_rows"] == 3 * len(prompts) * 4 * 5 * small.LAYERS


def test_threads_do_not_see_each_others_steps(model):
    """One thread stands still in the middle of decoding while another runs a prompt of the same shape."""
    inside, go_on = threading.Event(), threading.Event()

    def wait(*_):
        if threading.current_thread() is not threading.main_thread():
            inside.set()
            go_on.wait(60)

    with sere.rerouted(model, random_artifact(model), POLICY) as handle, torch.no_grad():
        cache = cached(model(input_ids=random_ids(4, 3), use_cache=True))
        handle.reset()
        stop = model.model.layers[1].register_forward_pre_hook(wait)
        worker = threading.Thread(
            target=torch.no_grad()(model), kwargs={"input_ids": random_ids(4, 1), "cache": cache}
        )
        worker.start()
        assert inside.wait(60)
        model(input_ids=random_ids(4, 1), use_cache=True)
        go_on.set()
        worker.join()
        stop.remove()
        rows = [(table["decode_rows"], table["prefill_rows"]) for table in handle.counters().layers.values()]
    assert rows == [(4, 4), (4, 4)]


def test_a_step_that_was_interrupted_from_the_keyboard_does_not_leak_into_the_next(model):
    def interrupt(*_):
        raise KeyboardInterrupt

    with sere.rerouted(model, random_artifact(model), POLICY) as handle, torch.no_grad():
        cache = cached(model(input_ids=random_ids(4, 3), use_cache=True))
        stop = model.model.layers[0].mlp.register_forward_pre_hook(interrupt)
        with pytest.raises(KeyboardInterrupt):
            model(input_ids=random_ids(4, 1), cache=cache)
        stop.remove()
        handle.reset()
        model(input_ids=random_ids(4, 1))  # the same shape, but a prompt
        counted = handle.counters().total
    assert (counted["decode_rows"], counted["prefill_rows"]) == (0, 4 * small.LAYERS)


class Parallel(nn.Module):
    """A wrapper like that of data parallelism: no configuration of its own."""

    def __init__(self, module: nn.Module) -> None:
        super().__init__()
        self.module = module

    def forward(self, *args, **kwargs):
        return self.module(*args, **kwargs)


class Adapted(nn.Module):
    """A wrapper like that of adapters: what it does not have, it takes from the model deep inside."""

    def __init__(self, module: nn.Module) -> None:
        super().__init__()
        self.base_model = Parallel(module)

    def __getattr__(self, name):
        try:
            return super().__getattr__(name)
        except AttributeError:
            return getattr(self.base_model.module, name)

    def forward(self, *args, **kwargs):
        return self.base_model(*args, **kwargs)


@pytest.mark.parametrize("wrap", [Parallel, Adapted, torch.compile], ids=["parallel", "adapted", "compiled"])
def test_a_wrapped_model_takes_the_artifact_of_the_model_inside(model, wrap):
    artifact, wrapped = random_artifact(model), wrap(model)
    assert describe(wrapped).fingerprint == describe(model).fingerprint
    with sere.rerouted(model, artifact, POLICY):
        expected = model.generate(random_ids(4, 5), **GREEDY)
    with sere.rerouted(wrapped, artifact, POLICY) as handle:
        assert torch.equal(model.generate(random_ids(4, 5), **GREEDY), expected)
        assert handle.counters().total["rerouted"] > 0
    assert traces(wrapped) == 0


@pytest.mark.parametrize(
    "outside", [Parallel, Adapted, lambda model: model.model, lambda model: model.model.layers]
)
def test_remove_finds_a_policy_that_was_applied_from_elsewhere(model, outside):
    sere.apply(model, None, "none")
    sere.remove(outside(model))
    assert traces(model) == 0
    sere.apply(Parallel(model), None, "none")
    sere.remove(model)
    assert traces(model) == 0


def test_a_policy_applied_in_inference_mode_works_outside_of_it(model):
    with torch.inference_mode():
        artifact = random_artifact(model)
        sere.apply(model, artifact, POLICY)
        model.generate(random_ids(4, 5), **GREEDY)
    expected = model.generate(random_ids(4, 5), **GREEDY)
    model(input_ids=random_ids(2, 3)).logits.sum().backward()
    sere.remove(model)
    with sere.rerouted(model, random_artifact(model), POLICY):
        assert torch.equal(model.generate(random_ids(4, 5), **GREEDY), expected)


def gradient(model: nn.Module) -> torch.Tensor:
    model.zero_grad()
    ids, mask = random_ids(3, 6), torch.ones(3, 6, dtype=torch.long)
    mask[0, :3] = 0
    labels = ids.masked_fill(mask == 0, -100)
    labels[0, 3] = -100  # it is predicted from padding, whose rows may be pointed elsewhere
    model(input_ids=ids, attention_mask=mask, labels=labels, use_cache=False).loss.backward()
    return model.get_input_embeddings().weight.grad.clone()


def test_gradients_pass_through_a_policy_with_and_without_checkpointing(model):
    model.train()
    plain = gradient(model)
    with sere.rerouted(model, random_artifact(model), POLICY):
        torch.testing.assert_close(gradient(model), plain)  # training has no decode rows
        model.gradient_checkpointing_enable()
        torch.testing.assert_close(gradient(model), plain)


def test_checkpointing_cannot_tell_padding_and_is_refused_where_prompts_move(model):
    model.train()
    model.gradient_checkpointing_enable()
    before = traces(model)
    with (
        sere.rerouted(model, random_artifact(model), f"{POLICY},phase=all"),
        pytest.raises(EngineError, match="gradient_checkpointing_disable"),
    ):
        gradient(model)
    assert traces(model) == before


@pytest.mark.parametrize(
    ("call", "error", "message"),
    [
        (lambda model: sere.apply(model, None, None), PolicyError, "not NoneType"),
        (lambda model: sere.apply(model, None, 2), PolicyError, "not int"),
        (lambda model: sere.apply(model, 3, POLICY), ArtifactError, "not by int"),
        (lambda model: sere.apply(model, ["folder"], POLICY), ArtifactError, "not by list"),
        (lambda model: sere.apply("model", None, "none"), EngineError, "got str"),
        (lambda model: sere.apply(None, None, "none"), EngineError, "got NoneType"),
        (lambda model: sere.remove("model"), EngineError, "got str"),
        (
            lambda model: sere.apply(model, random_artifact(model), POLICY, metric="cosin"),
            ArtifactError,
            "'cosin'",
        ),
    ],
)
def test_arguments_of_the_wrong_kind_are_named_and_leave_the_model_alone(
    model, call: Callable, error, message
):
    with pytest.raises(error, match=message):
        call(model)
    assert traces(model) == 0
