from __future__ import annotations

from typing import Any


def test_each_text_of_a_pair_is_padded_by_itself(make: Any, sampled: Any) -> None:
    processor = make("pair")
    batch = processor.collate(sampled(processor, [[[5, 6, 8], [9]], [[9], [5, 6]]], targets=[1, 0]))
    net_input = batch["net_input"]
    assert net_input["tokens1"].tolist() == [[5, 6, 8], [9, 0, 0]]
    assert net_input["tokens2"].tolist() == [[9, 0], [5, 6]]
    assert net_input["mask1"].sum(1).tolist() == [3, 1]
    assert net_input["mask2"].sum(1).tolist() == [1, 2]
    assert batch["ntokens"] == 7


def test_each_text_of_a_pair_may_be_as_long_as_max_len(make: Any) -> None:
    processor = make("pair", max_len=2)
    sample = processor.numerize({"tokens1": [5, 6, 8], "tokens2": []}, 1)
    assert sample == {"tokens1": [5, 6], "tokens2": [1], "length": 3, "target": 1}
    assert processor.full_length({"tokens1": [5, 6, 8], "tokens2": []}) == 3


def test_the_worked_example_of_the_documentation_holds(make: Any) -> None:
    # spec, appendix C: "how are you<TAB>hi<TAB>1"
    sample = make("pair").numerize({"tokens1": [4, 5, 6], "tokens2": [7]}, 1)
    assert (sample["tokens1"], sample["tokens2"], sample["target"]) == ([4, 5, 6], [7], 1)


def test_a_pair_reads_as_two_texts(make: Any) -> None:
    assert make("pair").decode({"tokens1": [5], "tokens2": [6]}) == "w5 | w6"
