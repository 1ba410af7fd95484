import itertools
import random

import pytest

from xdpx import metrics
from xdpx.metrics.spans import Entity, marking_letters

LETTERS = ["O", "B-PER", "I-PER", "B-LOC", "I-LOC", "E-LOC", "S-PER", "E-PER"]


def random_tags(seed: int) -> list[list[str]]:
    draw = random.Random(seed)
    return [[draw.choice(LETTERS) for _ in range(draw.randint(1, 12))] for _ in range(200)]


def test_entities_of_random_tags_are_those_of_seqeval():
    peer = pytest.importorskip("seqeval.metrics.sequence_labeling")
    for tags in random_tags(0):
        expected = [Entity(kind, start, stop + 1) for kind, start, stop in peer.get_entities(tags)]
        assert sorted(metrics.entities(tags)) == sorted(expected), tags


def test_precision_recall_and_f1_of_random_tags_are_those_of_seqeval():
    peer = pytest.importorskip("seqeval.metrics")
    targets = random_tags(1)
    preds = [[tag if random.Random(i * j).random() < 0.7 else "O" for j, tag in enumerate(tags)] for i, tags in
             enumerate(targets)]  # fmt: skip
    found = metrics.entity_precision_recall_f1(targets, preds)
    expected = [score(targets, preds) for score in (peer.precision_score, peer.recall_score, peer.f1_score)]
    assert found == pytest.approx(expected)


def test_an_entity_counts_only_whole_and_by_type():
    counts = metrics.entity_counts([["B-PER", "I-PER", "O", "B-LOC"]], [["B-PER", "O", "O", "B-LOC"]])
    assert counts == {"LOC": (1, 1, 1), "PER": (0, 1, 1)}


def test_an_entity_that_begins_inside_is_one_and_another_type_ends_it():
    assert metrics.entities(["I-PER", "I-LOC", "I-LOC", "O"]) == [Entity("PER", 0, 1), Entity("LOC", 1, 3)]


@pytest.mark.parametrize(
    ("tags", "expected"),
    [
        ("PER PER O LOC", [("PER", 0, 2), ("LOC", 3, 4)]),
        ("PER LOC LOC", [("PER", 0, 1), ("LOC", 1, 3)]),
        ("DET NOUN VERB", [("DET", 0, 1), ("NOUN", 1, 2), ("VERB", 2, 3)]),
        ("ORG OTHER ORG", [("ORG", 0, 1), ("ORG", 2, 3)]),
        ("U-PER U-PER B-LOC L-LOC U-LOC", [("PER", 0, 1), ("PER", 1, 2), ("LOC", 2, 4), ("LOC", 4, 5)]),
        ("B-PER M-PER E-PER S-PER", [("PER", 0, 3), ("PER", 3, 4)]),
        ("B M E S", [("", 0, 3), ("", 3, 4)]),
        ("B_PER I_PER O b-loc i-loc", [("PER", 0, 2), ("loc", 3, 5)]),
        ("B-first-name I-first-name", [("first-name", 0, 2)]),
    ],
)
def test_tags_of_other_schemes_keep_their_types_and_borders(tags: str, expected: list[tuple[str, int, int]]):
    assert metrics.entities(tags.split()) == [Entity(*each) for each in expected]


def test_wrong_parts_of_speech_are_not_right():
    right, wrong = ["DET", "NOUN", "VERB"], ["NOUN", "VERB", "DET"]
    assert metrics.entity_precision_recall_f1([right], [wrong])[2] == 0.0
    assert metrics.entity_precision_recall_f1([right], [right])[2] == 1.0


def test_entities_of_one_token_in_a_row_are_several_in_bilou_and_bmew_too():
    tags = ["U-PER", "U-PER", "B-PER", "L-PER", "W-PER", "B_LOC", "M_LOC", "E_LOC", "B_ORG"]
    assert metrics.entities(tags) == [
        Entity("PER", 0, 1), Entity("PER", 1, 2), Entity("PER", 2, 4), Entity("PER", 4, 5), Entity("LOC", 5, 8),
        Entity("ORG", 8, 9),
    ]  # fmt: skip


def test_of_tags_without_a_letter_each_run_is_an_entity_of_that_type():
    assert metrics.entities(["PER", "PER", "ORG", "O", "ORG"]) == [
        Entity("PER", 0, 2), Entity("ORG", 2, 3), Entity("ORG", 4, 5),
    ]  # fmt: skip
    assert metrics.unmarked(["O", "B-PER", "U_LOC", "E", "PER-B", "NN"]) == ["E", "PER-B", "NN"]
    assert metrics.unmarked(["O", "B-PER", "U_LOC", "E"]) == []


PARTS_OF_SPEECH = [*"abcdefghijklmnopqrstuvwyz", "nr", "ns", "nt", "vn"]
"""Tags of the People's Daily corpus (PKU, ICTCLAS); nine of the letters are marks, too."""


def plain_runs(tags: list[str]) -> set[tuple[str, int, int]]:
    edges = [place for place in range(len(tags) + 1) if place in (0, len(tags)) or tags[place] != tags[place - 1]]
    return {(tags[start], start, stop) for start, stop in itertools.pairwise(edges)}


def test_each_run_of_parts_of_speech_of_one_letter_counts_as_one_entity():
    draw = random.Random(0)
    targets = [draw.choices(PARTS_OF_SPEECH, k=draw.randint(1, 12)) for _ in range(200)]
    preds = [[tag if draw.random() < 0.7 else draw.choice(PARTS_OF_SPEECH) for tag in tags] for tags in targets]
    pairs = [(plain_runs(target), plain_runs(pred)) for target, pred in zip(targets, preds, strict=True)]
    hits, predicted, wanted = (sum(map(len, sets)) for sets in zip(*((a & b, b, a) for a, b in pairs), strict=True))
    expected = hits / predicted, hits / wanted, 2 * hits / (predicted + wanted)
    assert metrics.entity_precision_recall_f1(targets, preds) == pytest.approx(expected)
    assert metrics.unmarked(PARTS_OF_SPEECH) == PARTS_OF_SPEECH


def test_whether_letters_are_marks_is_decided_by_all_tags_of_the_run():
    target, pred = [["u", "b", "s"]], [["w", "b", "e"]]
    assert metrics.entity_precision_recall_f1(target, pred, PARTS_OF_SPEECH) == pytest.approx((1 / 3,) * 3)
    assert metrics.entity_precision_recall_f1([["B", "E"], ["S"]], [["B", "E"], ["S"]], ["B", "M", "E", "S"])[2] == 1.0


@pytest.mark.parametrize(
    ("known", "expected"),
    [
        ("B M E S", "B M E S"),
        ("B I O", "B I O"),
        ("B-PER I-PER O", "O"),
        ("b-per i-per o", "o"),
        ("nr ns nt o", "O o"),  # o of MSRA
        ("n v u o", "O"),
        ("PER S O", "O"),
    ],
)
def test_o_stays_outside_beside_types_and_other_letters_become_types(known: str, expected: str):
    assert marking_letters(known.split()) == set(expected.split())


def test_without_entities_there_is_no_score():
    assert metrics.entity_precision_recall_f1([["O"]], [["O"]]) == (0.0, 0.0, 0.0)


def test_answers_agree_without_case_articles_and_punctuation():
    assert metrics.exact_match("The Eiffel tower!", ["eiffel Tower", "Paris"]) == 1.0
    assert metrics.exact_match("the tower", ["eiffel tower"]) == 0.0


def test_answer_f1_takes_the_best_answer_and_counts_repeated_words_once_each():
    assert metrics.answer_f1("in the city of Paris", ["Paris", "the city of Paris"]) == pytest.approx(2 * 3 / (4 + 3))
    assert metrics.answer_f1("Paris Paris", ["Paris"]) == pytest.approx(2 / 3)


def test_chinese_answers_are_compared_by_character():
    assert metrics.answer_f1("北京市。", ["北京"]) == pytest.approx(2 * 2 / 5)
    # The script of CMRC counts the longest run that both have, 市大学北, not all five characters.
    assert metrics.answer_f1("市大学北京", ["京市大学北"]) == pytest.approx(2 * 4 / 10)
    assert metrics.answer_f1("1999年 in Paris", ["Paris 1999年"]) == pytest.approx(2 * 2 / (4 + 3))
    assert metrics.exact_match("“北京”", ["北京"]) == 1.0
    assert metrics.exact_match("“Paris”", ["Paris"]) == 0.0  # the script of SQuAD knows only the punctuation of ASCII


def test_to_a_question_without_answer_only_silence_is_right():
    assert metrics.exact_match("", []) == metrics.answer_f1("", []) == 1.0
    assert metrics.answer_f1("Paris", []) == 0.0
