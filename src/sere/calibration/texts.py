"""Read calibration texts: plain text, JSON lines, parquet, a list, or the bundled sample."""

from __future__ import annotations

import importlib.util
import json
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from importlib.resources import files
from pathlib import Path

from sere.errors import DataError, did_you_mean

SAMPLE = "sample"
"""Name of the bundled sample."""


def load_texts(source: str | Path | Sequence[str] | None = None, *, field: str = "text") -> list[str]:
    """Load documents.

    Args:
        source: A ``.jsonl`` or ``.parquet`` file, any other file as UTF-8 text with a blank line
            between documents, a sequence of strings, or None or ``"sample"`` for the bundled sample.
        field: Field or column that holds the text, for JSON lines and parquet.

    Returns:
        The documents that are not blank, in their order, stripped. Half of a surrogate pair, which JSON
        can hold and no tokenizer takes, becomes the replacement character.

    Raises:
        DataError: If the file cannot be read, is binary, has no such field, or holds no text.

    """
    if source is None or source == SAMPLE:
        name, found = "the bundled sample", _paragraphs(_sample())
    elif isinstance(source, (str, Path)):
        name, found = str(source), _read(Path(source), field)
    elif isinstance(source, Iterable) and not isinstance(source, (bytes, Mapping)):
        name, found = "the list of texts", list(source)
        if not all(isinstance(text, str) for text in found):
            raise DataError("the list of texts holds something that is no string. Pass strings only.")
    else:
        raise DataError(f"texts cannot be a {type(source).__name__}. Name a file or pass a list of strings.")
    texts = [_whole(text.strip()) for text in found if text.strip()]
    if not texts:
        raise DataError(f"{name} holds no text. Give a file with text in it.")
    return texts


def _whole(text: str) -> str:
    try:
        text.encode()
    except UnicodeEncodeError:
        return text.encode("utf-16", "surrogatepass").decode("utf-16", "replace")
    return text


def _sample() -> str:
    return (files("sere.calibration") / "sample" / "calibration.txt").read_text(encoding="utf-8")


def _read(path: Path, field: str) -> list[str]:
    suffix = path.suffix.lower()
    try:
        path = path.expanduser()
        if path.is_dir():
            raise DataError(f"{path} is a folder. Name one text, .jsonl or .parquet file.")
        if suffix == ".parquet":
            return _parquet(path, field)
        content = path.read_text(encoding="utf-8-sig")
    except FileNotFoundError as error:
        raise DataError(f"there is no file {path}. Check the path.") from error
    except OSError as error:
        raise DataError(f"cannot read {path}: {error.strerror or error}. Check its permissions.") from error
    except UnicodeDecodeError as error:
        raise DataError(f"{path} is not UTF-8 text. Convert it, or give .jsonl or .parquet.") from error
    except (RuntimeError, ValueError) as error:  # no such home folder, or a zero byte in the name
        if isinstance(error, DataError):
            raise
        raise DataError(f"{str(path)!r} is no path of a file: {error}. Check the path.") from error
    if "\0" in content:
        raise DataError(f"{path} is a binary file. Give plain text, .jsonl or .parquet.")
    if suffix in (".jsonl", ".ndjson"):
        return list(_json_lines(path, content, field))
    return _paragraphs(content)


def _paragraphs(content: str) -> list[str]:
    return re.split(r"\n[ \t\r]*\n", content)


def _json_lines(path: Path, content: str, field: str) -> Iterator[str]:
    for number, line in enumerate(content.split("\n"), 1):
        if not line.strip():
            continue
        try:
            row = json.loads(line)
        except (ValueError, RecursionError) as error:
            raise DataError(f"{path}, line {number}: no JSON. Every line must be one JSON object.") from error
        if not isinstance(row, dict):
            raise DataError(f"{path}, line {number}: no JSON object. Every line must be one JSON object.")
        if field not in row:
            raise DataError(
                f"{path}, line {number}: no field {field!r}.{_others(field, row)} Name it with --field."
            )
        if not isinstance(row[field], str):
            raise DataError(
                f"{path}, line {number}: field {field!r} is no string. Name another with --field."
            )
        yield row[field]


def _others(field: str, known: Iterable[str]) -> str:
    named = [name for name in known if name]
    return did_you_mean(field, named) if named else " It has none with a name."


def _parquet(path: Path, field: str) -> list[str]:
    if importlib.util.find_spec("pyarrow") is None:
        raise DataError("reading parquet needs pyarrow. Run: pip install 'sere-moe[parquet]'.")
    import pyarrow
    import pyarrow.parquet

    try:
        columns = pyarrow.parquet.read_schema(path).names
        if field not in columns:
            raise DataError(f"{path} has no column {field!r}.{_others(field, columns)} Name it with --field.")
        values = pyarrow.parquet.read_table(path, columns=[field]).column(field).to_pylist()
    except pyarrow.ArrowInvalid as error:
        raise DataError(f"{path} is no parquet file or is damaged. Copy it again.") from error
    if not all(value is None or isinstance(value, str) for value in values):
        raise DataError(f"{path}: column {field!r} holds no strings. Name another with --field.")
    return [value for value in values if value]
