from __future__ import annotations

import pytest

from xdpx.config.faults import ConfigError
from xdpx.config.help import command_help, topic_help

pytestmark = pytest.mark.usefixtures("rooms")


def test_a_command_lists_its_keys_under_headings_with_type_default_and_meaning() -> None:
    text = command_help("x-draw")
    assert "\n(draw)\n" in text
    assert "\n(draw/log)\n" in text
    assert "batch_size" in text
    assert "int, required" in text
    assert "float = 0.001" in text
    assert "only when save is true" in text
    assert "shape: circle, square" in text
    assert max(len(line) for line in text.splitlines()) <= 110


def test_a_key_is_explained_with_its_owners() -> None:
    text = topic_help("dropout")
    assert text.startswith("dropout: float = 0.2\n  share left out; >= 0 and < 1.")
    assert "used by shape square" in text


def test_a_registered_name_lists_its_own_keys() -> None:
    assert "side" in topic_help("square", ["x-draw"])
    assert topic_help("x-draw") == command_help("x-draw")


def test_an_unknown_topic_offers_the_nearest() -> None:
    with pytest.raises(ConfigError, match="dropot: x-draw knows no such key or name. Did you mean 'dropout'?"):
        topic_help("dropot", ["x-draw"])


def test_every_shipped_command_can_be_explained() -> None:
    from xdpx.config import catalogue

    for name in catalogue.shipped()["command"]:
        assert name in command_help(name)
