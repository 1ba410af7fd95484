"""Peaks of devices, and MFU."""

import pytest

from xdpx.config.faults import ConfigError
from xdpx.engines.spmd.peaks import Efficiency, device_named, device_of_kind


@pytest.mark.parametrize(
    ("kind", "name"),
    [
        ("TPU v4", "v4"), ("TPU v5 lite", "v5e"), ("TPU v5p", "v5p"), ("TPU v5", "v5p"), ("TPU v6 lite", "v6e"),
        ("NVIDIA A100-SXM4-40GB", "a100-40"), ("NVIDIA A100-SXM4-80GB", "a100"), ("NVIDIA H100 80GB HBM3", "h100"),
        ("NVIDIA H200", "h200"), ("cpu", "unknown"),
    ],
)  # fmt: skip
def test_what_jax_calls_a_device_tells_its_peak(kind: str, name: str) -> None:
    assert device_of_kind(kind).name == name


def test_a_users_own_device_has_the_figures_it_says() -> None:
    own = device_named("cpu:100G:16GiB")
    assert (own.peak_flops, own.memory) == (100e9, 16 * 2**30)


@pytest.mark.parametrize(("text", "words"), [("h10", "Did you mean 'h100'"), ("cpu:fast:1", "name:FLOPs:memory")])
def test_an_unknown_device_is_refused_with_what_to_write(text: str, words: str) -> None:
    with pytest.raises(ConfigError, match=words):
        device_named(text)


def test_mfu_is_model_flops_over_what_all_devices_could_do() -> None:
    one = Efficiency(flops_per_step=4e12, tokens_per_step=1000, num_devices=4, peak_flops=1e12)
    assert one.mfu(2.0) == pytest.approx(0.5)
    facts = one.facts(2.0)
    assert facts == pytest.approx({"mfu": 0.5, "tokens_per_second_per_device": 125.0, "model_tflops_per_device": 0.5})


def test_without_a_peak_there_is_no_mfu_but_there_are_rates() -> None:
    assert set(Efficiency(1e12, 10, 1).facts(1.0)) == {"tokens_per_second_per_device", "model_tflops_per_device"}
    assert Efficiency(1e12, 10, 1, 1e12).facts(0.0) == {}
