import re
from html.parser import HTMLParser

from xdpx.reports.evaluation_page import in_words, joined, sections
from xdpx.reports.page import render
from xdpx.reports.pictures import confusion_picture

NASTY = "<script>alert(1)</script> & \"quoted\" '文本' <img src=x onerror=alert(2)>"


class Elements(HTMLParser):
    """Every element with its attributes, and the text between them."""

    def __init__(self, page: str) -> None:
        super().__init__()
        self.found: list[tuple[str, dict[str, str | None]]] = []
        self.text = ""
        self.feed(page)

    def handle_starttag(self, tag, attrs):
        self.found.append((tag, dict(attrs)))

    def handle_data(self, data):
        self.text += data


def report(**changes):
    """What x-eval tells of a split of two classes, one of them called by a nasty name."""
    row = {"rows": 2, "predicted": 2, "precision": 0.5, "precision_interval": [0.1, 0.9], "recall": 0.5}
    worst = {"place": "dev.tsv:7", "texts": [NASTY], "true": NASTY, "predicted": "好", "probability": float("nan")}
    return {
        "name": NASTY, "path": "dev.tsv", "kind": "class", "rows": 4,
        "scores": {"acc": 0.5, "loss": float("nan"), "auc": float("inf")}, "intervals": {"acc": [0.15, 0.85]},
        "classes": [{**row, "name": name, "recall_interval": None, "f1": 0.5} for name in (NASTY, "好")],
        "confusion": {"labels": [NASTY, "好"], "counts": [[1, 1], [1, 1]]}, "most_confused": [],
        "by_length": [{"from": n, "to": n, "rows": 2, "score": 0.5, "interval": [0.1, 0.9]} for n in (1, 2)],
        "error_quantiles": [], "errors": {"count": 2, "worst": [{**worst, "probability_of_true": 0.25}]}, **changes,
    }  # fmt: skip


def page_of(*reports):
    return render(f"Scores of {NASTY}", {"checkpoint": NASTY}, sections(reports))


def test_a_text_with_a_script_in_it_stays_a_text():
    elements = Elements(page_of(report()))
    assert not {"script", "img", "iframe", "object"} & {tag for tag, _ in elements.found}
    assert not any(name.startswith("on") for _, attributes in elements.found for name in attributes)
    assert elements.text.count(NASTY) >= 5


def test_a_page_asks_for_nothing_from_elsewhere():
    page = page_of(report(), report(name="test"))
    for _, attributes in Elements(page).found:
        assert not {"src", "srcset", "data", "action"} & set(attributes)
        assert (attributes.get("href") or "#").startswith("#")
    assert not re.search(r"url\(|@import|https?://", page)
    assert "default-src 'none'" in page


def test_numbers_that_are_none_are_named_and_break_nothing():
    elements = Elements(page_of(report()))
    assert "NaN" in elements.text
    assert "∞" in elements.text
    assert "nan%" not in page_of(report(scores={"acc": float("nan")}, intervals={"acc": [float("nan")] * 2}))


def test_every_section_stands_in_the_page_and_empty_ones_do_not():
    text = Elements(page_of(report())).text
    for title in ("Classes", "Confusion matrix", "By length of text", "The worst 1 of 2 errors"):
        assert title in text
    bare = Elements(
        page_of(report(kind=None, classes=[], confusion=None, by_length=[], errors={"count": 0, "worst": []}))
    )
    assert "Which class" not in bare.text
    assert [tag for tag, _ in bare.found].count("h3") == 0


def test_a_regression_is_drawn_as_dots_between_what_was_wanted_and_predicted():
    dots = [[1.0, 1.5], [2.0, float("nan")], [3.0, 2.0]]
    quantiles = [{"share": 0.5, "error": 0.25}]
    page = page_of(report(kind="number", dots=dots, error_quantiles=quantiles, confusion=None, classes=[],
                          errors={"count": 3, "worst": [{"place": "a:1", "texts": ["x"], "true": 1.0,
                                                         "predicted": 1.5, "error": 0.5}]}))  # fmt: skip
    assert page.count("<circle") == 2
    assert "The 1 largest errors" in page


def test_tags_are_told_as_the_stretches_of_text_that_are_wrong():
    missed = [{"kind": "PER", "start": 1, "stop": 3}]
    worst = {"place": "a.txt:3", "texts": ["by Ada Lovelace ."], "missed": missed, "false": []}
    told = report(kind="tags", confusion=None, errors={"count": 1, "worst": [worst]})
    assert "PER “Ada Lovelace”" in Elements(page_of(told)).text
    assert "missed PER “Ada Lovelace”, found wrongly nothing" in in_words(told)


def test_words_are_joined_with_blanks_but_for_characters_that_need_none():
    assert joined(["我", "爱", "New", "York", "，", "你", "呢"]) == "我爱 New York ，你呢"


def test_confusions_are_a_picture_of_few_and_of_many_classes_with_any_name():
    for labels in (["好", NASTY], [f"class {number}" for number in range(70)]):
        counts = [[1] * len(labels) for _ in labels]
        assert confusion_picture(labels, counts, NASTY, "png").startswith(b"\x89PNG")
