"""What stands on the page is what the records say, and the page is sound by itself."""

import re
from collections import Counter

import html5lib
import pytest

from sere.report import render
from tests.report.conftest import RESULTS

NAMESPACE = "{http://www.w3.org/1999/xhtml}"
SVG = "{http://www.w3.org/2000/svg}"


@pytest.fixture(scope="module")
def tree(page):
    return html5lib.HTMLParser(strict=True).parse(page)


def words(element):
    return " ".join("".join(element.itertext()).split())


def test_the_markup_is_valid_and_no_id_is_used_twice(tree):
    ids = Counter(element.get("id") for element in tree.iter() if element.get("id"))
    assert [name for name, count in ids.items() if count > 1] == []
    targets = {a.get("href")[1:] for a in tree.iter(f"{NAMESPACE}a") if a.get("href", "").startswith("#")}
    assert targets <= set(ids)


def test_nothing_is_fetched(page):
    body = re.sub(r'xmlns(:\w+)?="[^"]*"', "", page)
    assert re.findall(r'(?:src|href)="(?!#|data:)[^"]*"', body) == []
    assert "@import" not in body
    assert re.findall(r"url\((?!#|data:)", body) == []
    assert "<script" not in body
    assert len(page.encode()) < 2_000_000


def test_every_picture_has_words_and_every_table_has_headers(tree):
    pictures = list(tree.iter(f"{SVG}svg"))
    assert len(pictures) > 10
    for picture in pictures:
        assert picture.get("role") == "img"
        assert len(picture.get("aria-label")) > 20
    for table in tree.iter(f"{NAMESPACE}table"):
        assert words(table.find(f"{NAMESPACE}caption"))
        heads = list(table.iter(f"{NAMESPACE}th"))
        assert {cell.get("scope") for cell in heads} == {"col", "row"}
        wide = len(table.find(f"{NAMESPACE}thead/{NAMESPACE}tr"))
        assert all(len(row) == wide for row in table.find(f"{NAMESPACE}tbody"))
    for box in tree.iter(f"{NAMESPACE}div"):
        if box.get("class") == "scroll":
            assert box.get("tabindex") == "0"
            assert box.get("aria-label")


def test_pictures_take_the_pages_colours(page):
    assert "var(--hue-0)" in page
    assert "var(--ink)" in page
    assert "#0102" not in page
    assert "#0201" not in page


def test_the_table_holds_the_records_figures(tree, demo):
    table = next(t for t in tree.iter(f"{NAMESPACE}table") if words(t[0]) == "16 live sequences")
    rows = {words(row[0]): [words(cell) for cell in row] for row in table.find(f"{NAMESPACE}tbody")}
    for result in demo["comparison"]["results"]:
        row, near = rows[result["policy"]], result["fidelity"]
        assert row[2].startswith(f"{result['experts']['after']:.1f} (")
        assert row[3].startswith(f"{near['kl']:.3f}")
        assert f"{near['kl_interval'][1]:.3f}" in row[3] or near["kl"] == 0
        assert row[6].startswith(f"{result['tasks']['exact_match']:.1%}")


def test_the_opening_names_the_cheapest_policy_that_keeps_enough():
    demo = RESULTS / "demo.json"
    strict, lenient = render([demo], keep=0.95), render([demo], keep=0.94)
    assert "None of the 5 settings at batch 16 keeps 95%" in strict
    assert "With sere:top_s=2,threshold=0.29, sere-demo-moe reads 21.5" in strict
    assert (
        "With sere:top_s=2, sere-demo-moe reads 17.5 distinct experts per layer and step instead of 41.4"
        in lenient
    )
    assert "among the 2 of 5 at batch 16" in lenient


def test_where_it_does_not_pay_comes_from_the_figures(page):
    assert "top_k:k=2 at batch 16 (demo.json) is beaten: sere:top_s=2 reads no more" in page
    assert "sere:top_s=2 at batch 1 (compare_demo.json) still reads 8.0 of 8.0 experts" in page
    assert "the control none, which changes nothing, ran at" in page


def test_distinct_experts_by_layer_and_maps_are_drawn(page):
    assert "Distinct experts by layer at batch 16" in page
    assert page.count("Similarity of the 64 experts of layer") == 4


def test_provenance_is_complete_or_said_to_be_missing(tree):
    tables = [t for t in tree.iter(f"{NAMESPACE}table") if ".json: " in words(t[0])]
    assert len(tables) == 4
    for table in tables:
        rows = {words(row[0]): words(row[1]) for row in table.find(f"{NAMESPACE}tbody")}
        wanted = {
            "SHA-256",
            "command",
            "made",
            "versions",
            "hardware",
            "git revision",
            "model",
            "artifact",
            "seeds",
        }
        assert wanted <= set(rows)
        assert all(rows.values())


def test_hostile_text_stays_text(changed):
    def hostile(record):
        record["model"]["id"] = "<script>alert(1)</script>"
        record["results"][3]["policy"] = 'sere:"><img src=x onerror=alert(1)>'

    text = render([changed(hostile)])
    assert "<script" not in text
    assert "<img" not in text
    html5lib.HTMLParser(strict=True).parse(text)
