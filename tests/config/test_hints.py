"""Guesses why a value is wrong."""

from __future__ import annotations

import pytest

from xdpx.config.hints import listed


@pytest.mark.parametrize(
    ("text", "told"), [("train, dev", "Write a list: [train, dev]."), ("train,other", ""), ("train", "")]
)
def test_known_names_with_commas_between_them_are_a_list(text: str, told: str) -> None:
    assert listed(text, ["train", "dev", "test"]) == told
