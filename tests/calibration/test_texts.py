"""Reading texts and cutting them into sequences; what cannot be used is refused by name."""

from __future__ import annotations

import importlib.util
import json

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from sere.calibration import load_texts
from sere.calibration.packing import pack
from sere.demo.tasks import heldout
from sere.errors import DataError
from tests.calibration.fakes import TEXTS, Characters


def test_a_text_file_is_split_at_blank_lines(tmp_path):
    path = tmp_path / "texts.txt"
    path.write_text("one\nstill one\n\n \n\ntwo\r\n\r\nthree\n", encoding="utf-8", newline="")
    assert load_texts(path) == ["one\nstill one", "two", "three"]


def test_json_lines_give_the_named_field(tmp_path):
    path = tmp_path / "texts.jsonl"
    path.write_text('{"text": "a", "body": "x"}\n\n{"text": "b", "body": "y"}\n', encoding="utf-8")
    assert load_texts(path) == ["a", "b"]
    assert load_texts(str(path), field="body") == ["x", "y"]


def test_parquet_gives_the_named_column(tmp_path):
    path = tmp_path / "texts.parquet"
    pq.write_table(pa.table({"text": ["a", None, "b"], "number": [1, 2, 3]}), path)
    assert load_texts(path) == ["a", "b"]
    with pytest.raises(DataError, match=r"no column 'txt'.*Did you mean 'text'.*--field"):
        load_texts(path, field="txt")
    with pytest.raises(DataError, match="column 'number' holds no strings"):
        load_texts(path, field="number")


def test_a_list_is_taken_as_it_is_without_blanks():
    assert load_texts(["a", "  ", " b\n"]) == ["a", "b"]


def test_the_bundled_sample_is_text_and_tasks_that_are_not_held_out():
    texts = load_texts()
    assert texts == load_texts("sample")
    tasks = [
        text for text in texts if text.split(":")[0] in {"add", "sub", "mul", "max", "sort", "rev", "get"}
    ]
    assert len(tasks) > 1000
    assert 240_000 < sum(map(len, texts)) < 400_000
    hidden = {example.prompt + example.answer for example in heldout()}
    assert not hidden & set(texts)


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        ("empty.txt", b"", "holds no text"),
        ("blank.txt", b" \n\n\t\n", "holds no text"),
        ("picture.txt", b"\x89PNG\r\n\x1a\n\xff\xfe", "not UTF-8"),
        ("zeros.txt", b"abc\0def", "binary"),
        ("broken.jsonl", b'{"text": "a"}\n{"text": \n', "line 2: no JSON"),
        ("list.jsonl", b"[1, 2]\n", "line 1: no JSON object"),
        ("field.jsonl", b'{"body": "a"}\n', "line 1: no field 'text'.*body.*--field"),
        ("number.jsonl", b'{"text": 3}\n', "'text' is no string"),
        ("deep.jsonl", b"[" * 100_000, "line 1: no JSON"),
        ("bare.jsonl", b"{}\n", "line 1: no field 'text'. It has none with a name"),
        ("LOUD.JSONL", b'{"body": "a"}\n', "line 1: no field 'text'"),
        ("broken.parquet", b"PAR1nonsense", "no parquet file or is damaged"),
    ],
)
def test_files_that_cannot_be_used_are_named(tmp_path, name, content, message):
    path = tmp_path / name
    path.write_bytes(content)
    with pytest.raises(DataError, match=message) as caught:
        load_texts(path)
    assert name in str(caught.value)


def test_missing_files_folders_and_lists_of_other_things_are_named(tmp_path):
    with pytest.raises(DataError, match="there is no file"):
        load_texts(tmp_path / "nothing.txt")
    with pytest.raises(DataError, match="is a folder"):
        load_texts(tmp_path)
    with pytest.raises(DataError, match="no string"):
        load_texts(["a", 3])
    with pytest.raises(DataError, match="holds no text"):
        load_texts([])


def test_a_file_that_may_not_be_read_is_named(tmp_path, monkeypatch):
    def refuse(*args, **options):
        raise PermissionError(13, "Permission denied")

    path = tmp_path / "secret.txt"
    path.write_text("abc")
    monkeypatch.setattr(type(path), "read_text", refuse)
    with pytest.raises(DataError, match=r"cannot read .*secret\.txt: Permission denied"):
        load_texts(path)


def test_parquet_without_pyarrow_says_what_to_install(tmp_path, monkeypatch):
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    with pytest.raises(DataError, match=r"pip install 'sere-moe\[parquet\]'"):
        load_texts(tmp_path / "texts.parquet")


def test_documents_are_joined_with_the_end_token_and_cut_into_full_sequences():
    ids = pack(["ab"] * 20, Characters(), sequences=3, length=5, seed=0)
    a, b = 2 + ord("a") % 90, 2 + ord("b") % 90
    assert ids.tolist() == [[a, b, 1, a, b], [1, a, b, 1, a], [b, 1, a, b, 1]]
    assert pack(["ab"] * 20, Characters(None), sequences=2, length=3, seed=0).tolist() == [
        [a, b, a],
        [b, a, b],
    ]


def test_the_seed_decides_the_order():
    one, again, other = (pack(TEXTS, Characters(), sequences=4, length=16, seed=seed) for seed in (0, 0, 1))
    assert one.tolist() == again.tolist()
    assert one.tolist() != other.tolist()


def test_texts_too_short_say_how_far_they_go_and_what_to_lower():
    with pytest.raises(DataError, match=r"enough for 3 sequences of 16, not 400.*--sequences 3"):
        pack(["x" * 50], Characters(), sequences=400, length=16, seed=0)


def test_the_sample_has_enough_tokens_for_the_default_at_four_and_a_half_characters_a_token():
    class Coarse:
        eos_token_id = 0

        def __call__(self, texts, **options):
            return {"input_ids": [[1] * max(1, int(len(text) / 4.5)) for text in texts]}

    assert pack(load_texts(), Coarse(), sequences=400, length=128, seed=0).shape == (400, 128)


def test_json_lines_may_hold_line_separators_inside_strings(tmp_path):
    path = tmp_path / "texts.jsonl"
    path.write_text(json.dumps({"text": "a\u2028b"}, ensure_ascii=False) + "\n", encoding="utf-8")
    assert load_texts(path) == ["a\u2028b"]


@pytest.mark.parametrize("name", ["~nobody-of-that-name/x.txt", "a\0b.txt", "x" * 5000, 3, b"abc", {"a": 1}])
def test_what_is_no_path_and_no_list_is_named(name):
    with pytest.raises(DataError, match=r"path|cannot read|cannot be a|no file"):
        load_texts(name)


def test_half_a_surrogate_pair_becomes_the_replacement_character(tmp_path):
    path = tmp_path / "texts.jsonl"
    path.write_text('{"text": "a\\ud800b \\ud83d\\ude00"}\n', encoding="utf-8")
    assert load_texts(path) == load_texts(["a\ud800b \U0001f600"]) == ["a\ufffdb \U0001f600"]


def test_texts_too_short_for_one_sequence_do_not_advise_one():
    with pytest.raises(DataError, match=r"enough for 0 sequences of 16, not 4\. Lower the sequence length"):
        pack(["x"], Characters(), sequences=4, length=16, seed=0)
