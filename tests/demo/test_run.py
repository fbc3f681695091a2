"""The demonstration as a whole, in its short form, on an untrained model of the bundled kind."""

import io
import json

import pytest
from rich.console import Console

from sere.artifact import Artifact
from sere.demo import run
from sere.demo.run import DemoRecord, lower_quartile, run_demo
from sere.demo.tables import fidelity_table, in_words, speed_table
from sere.errors import DataError
from tests.evaluation.conftest import byte_tokenizer, tiny_model


@pytest.fixture(scope="module")
def checkpoint(tmp_path_factory):
    folder = tmp_path_factory.mktemp("checkpoint")
    tiny_model(num_experts=32).save_pretrained(folder)
    byte_tokenizer().save_pretrained(folder)
    return folder


@pytest.fixture(scope="module")
def finished(checkpoint, tmp_path_factory):
    out = tmp_path_factory.mktemp("out") / "demo"
    console = Console(file=io.StringIO(), width=120)
    record = run_demo(out, quick=True, threads=1, model=checkpoint, console=console)
    return out, record, console.file.getvalue()


def test_it_leaves_an_artifact_and_one_record(finished):
    out, record, _ = finished
    assert sorted(path.name for path in out.iterdir()) == ["artifact", "demo.json"]
    artifact = Artifact.from_pretrained(out / "artifact")
    assert record.comparison.artifact == artifact.hash
    stored = json.loads((out / "demo.json").read_text(encoding="utf-8"))
    assert DemoRecord.model_validate(stored).model_dump(mode="json") == record.model_dump(mode="json")


def test_all_policies_and_both_controls_are_compared(finished):
    _, record, _ = finished
    assert [result.policy for result in record.comparison.results] == [
        "unmodified",
        "none",
        *run.policies(record.threshold),
    ]
    assert len(record.comparison.results) == 8


def test_the_record_names_the_model_and_no_folder(finished, checkpoint):
    _, record, _ = finished
    assert record.comparison.model.id == "sere-demo-moe"
    assert str(checkpoint) not in record.model_dump_json()


def test_it_prints_two_tables_that_explain_themselves(finished):
    _, record, text = finished
    assert text.index("What is read, what is lost") < text.index("What it gains")
    none = record.comparison.result("none", 16)
    assert f"{none.experts.after:.1f}" in text
    assert "Experts read: distinct experts per layer and decoding step" in text
    for heading in ("same", "first", "perplex-", "tasks", "tokens per", "speed-up"):
        assert heading in text


def test_both_tables_fit_eighty_columns(finished):
    _, record, _ = finished
    console = Console(file=io.StringIO(), width=80)
    console.print(fidelity_table(record.comparison, record.threshold), speed_table(record.real_size))
    lines = console.file.getvalue().splitlines()
    assert max(map(len, lines)) <= 80
    assert sum(line.rstrip().endswith(("│", "┃")) for line in lines) > 20
    assert "…" not in console.file.getvalue()


def test_the_threshold_is_what_three_quarters_of_the_pairs_reach(finished):
    import torch

    out, record, _ = finished
    artifact = Artifact.from_pretrained(out / "artifact")
    values = []
    for layer in artifact.layers:
        similarity = artifact.similarity(layer.name)
        values += [similarity[i, j] for i in range(32) for j in range(i)]
    reached = (torch.stack(values) >= record.threshold).float().mean()
    assert record.threshold == lower_quartile(artifact)
    assert float(reached) == pytest.approx(0.75, abs=0.05)


def test_an_output_that_cannot_be_written_is_refused_before_any_work(tmp_path, checkpoint):
    (tmp_path / "file").write_text("", encoding="utf-8")
    with pytest.raises(DataError, match="Choose another output"):
        run_demo(tmp_path / "file" / "out", quick=True, model=checkpoint)


def test_an_interruption_leaves_no_record(tmp_path, checkpoint, monkeypatch):
    def interrupted(*_args):
        raise KeyboardInterrupt

    monkeypatch.setattr(run, "run_real_size", interrupted)
    console = Console(file=io.StringIO())
    with pytest.raises(KeyboardInterrupt):
        run_demo(tmp_path, quick=True, threads=1, model=checkpoint, console=console)
    assert [path.name for path in tmp_path.iterdir()] == ["artifact"]
    Artifact.from_pretrained(tmp_path / "artifact")


def test_an_interrupted_second_run_leaves_no_record_of_the_first(tmp_path, checkpoint, monkeypatch):
    def interrupted(*_args, **_settings):
        raise KeyboardInterrupt

    (tmp_path / "demo.json").write_text("{}", encoding="utf-8")
    monkeypatch.setattr(run, "compare", interrupted)
    with pytest.raises(KeyboardInterrupt):
        run_demo(tmp_path, quick=True, threads=1, model=checkpoint, console=Console(file=io.StringIO()))
    assert [path.name for path in tmp_path.iterdir()] == ["artifact"]


def test_the_short_run_says_that_its_figures_are_rough(finished):
    assert "figures are rough" in finished[2]


@pytest.mark.parametrize(
    ("policy", "words"),
    [
        ("unmodified", "unmodified model"),
        ("top_k:k=2", "top-2: each token keeps its 2 heaviest experts"),
        ("sere:top_s=1", "sere S=1: each token's heaviest expert kept for"),
        ("sere:top_s=2", "sere S=2: each token's 2 heaviest experts kept for the whole batch"),
        ("sere:top_s=2,threshold=0.3", "sere S=2, but replaced only where at least 0.30 alike"),
        ("refit:share=0.07", "refit 7%: experts go until that share of the rows' energy is gone"),
    ],
)
def test_policies_are_said_in_words(policy, words):
    assert in_words(policy).startswith(words)
