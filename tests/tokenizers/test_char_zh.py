"""Chinese characters one by one, other words whole."""

from __future__ import annotations

import pytest

from xdpx.tokenizers.char_zh import ChineseCharacterTokenizer


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("我有iPhone 12", ["我", "有", "iphone", "12"]),
        ("好吃！！！真的。。。", ["好", "吃", "！", "真", "的", "。"]),
        ("电话13800138000", ["电", "话", "NUM11"]),
        ("2024年", ["2024", "年"]),
        ("3.14 和 12345.6", ["3.14", "和", "NUM6"]),
        ("a_b :) ", ["a", "_", "b", ":", ")"]),
        ("", []),
    ],
)
def test_tokens(text: str, expected: list[str]) -> None:
    assert ChineseCharacterTokenizer(ChineseCharacterTokenizer.Parameters()).tokenize(text) == expected
