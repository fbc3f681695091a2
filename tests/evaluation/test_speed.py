"""How speed is measured: in turns, after a warm-up, by medians; with a clock that the tests hold."""

import pytest

from sere.evaluation import speed
from sere.evaluation.decoding import LiveBatch
from sere.evaluation.speed import measure
from sere.evaluation.stepwise import Rerouting
from sere.routing import parse_policy

VARIANTS = {
    "unmodified": Rerouting(None, None),
    "none": Rerouting(None, parse_policy("none")),
    "top": Rerouting(None, parse_policy("top_k:k=1")),
}


def test_policies_take_turns_and_medians_are_reported(model, ids, monkeypatch):
    seconds = {"unmodified": [4.0, 8.0, 6.0], "none": [4.0, 16.0, 5.0], "top": [1.0, 4.0, 6.0]}
    left = {name: list(times) for name, times in seconds.items()}
    order = []

    def decode(_model, _ids, rerouting, _prompt, _warmup):
        name = next(name for name, known in VARIANTS.items() if known is rerouting)
        order.append(name)
        return left[name].pop(0)

    monkeypatch.setattr(speed, "decode_seconds", decode)
    measured = measure(model, ids, VARIANTS, prompt=4, rounds=3, warmup=2)
    assert order == ["unmodified", "none", "top", "none", "top", "unmodified", "top", "unmodified", "none"]
    timed = 6 * (20 - 4 - 2)
    assert measured["unmodified"].tokens_per_second == timed / 6
    assert measured["none"].tokens_per_second == timed / 5
    # Each ratio is taken within its round: 4/1, 8/4, 6/6.
    top = measured["top"]
    assert (top.ratio_low, top.ratio, top.ratio_high) == (1, 2, 4)


@pytest.mark.parametrize("name", VARIANTS)
def test_neither_prefill_nor_warm_up_is_timed(model, ids, monkeypatch, name):
    now = [0.0]

    def slow(method, cost):
        def timed(self, *arguments):
            now[0] += cost
            return method(self, *arguments)

        return timed

    monkeypatch.setattr(LiveBatch, "prefill", slow(LiveBatch.prefill, 1000))
    monkeypatch.setattr(LiveBatch, "step", slow(LiveBatch.step, 1))
    monkeypatch.setattr(speed.time, "perf_counter", lambda: now[0])
    variants = {name: VARIANTS[name]}
    measured = measure(model, ids, variants, prompt=4, rounds=2, warmup=3)
    steps = 20 - 4 - 3
    assert measured[name].tokens_per_second == pytest.approx(6 * steps / steps)


def test_experts_are_counted_outside_of_the_clock_and_only_there(model, ids, monkeypatch):
    counted = []
    on = Rerouting.on

    def watched(self, model, counting=True):
        counted.append(counting)
        return on(self, model, counting)

    monkeypatch.setattr(Rerouting, "on", watched)
    measured = measure(model, ids, {"top": VARIANTS["top"]}, prompt=4, rounds=2)
    assert counted == [True, False, False]
    assert measured["top"].experts.steps == 2 * (20 - 4)
    assert measured["top"].experts.mean_after < measured["top"].experts.mean_before
