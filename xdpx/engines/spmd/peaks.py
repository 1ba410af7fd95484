"""Peak figures of accelerators: FLOP/s, memory, link bandwidth. Users add their own as `name:flops:memory`."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass

from xdpx.config.faults import ConfigError, Fault, did_you_mean

TERA, GIGA, GIB = 10**12, 10**9, 2**30


@dataclass(frozen=True)
class Device:
    """One kind of accelerator, as JAX counts devices.

    Attributes:
        name: what `--device` takes.
        peak_flops: FLOP/s of dense bfloat16 products; None if unknown.
        memory: bytes available to a program; None if unknown.
        link_bandwidth: bytes/s that one device can send to its neighbours (ICI, NVLink), all links together.
        kinds: beginnings of the `device_kind` that JAX reports, in lower case.
    """

    name: str
    peak_flops: float | None
    memory: int | None
    link_bandwidth: float | None = None
    kinds: tuple[str, ...] = ()

    @property
    def platform(self) -> str | None:
        """The platform of its programs, `cuda` or `tpu`; None for a device that the user described."""
        if not self.kinds:
            return None
        return "cuda" if self.kinds[0].startswith("nvidia") else "tpu"


DEVICES: dict[str, Device] = {
    device.name: device
    for device in (
        Device("v3", 61.5 * TERA, 16 * GIB, 41 * GIGA, ("tpu v3",)),
        Device("v4", 275 * TERA, 32 * GIB, 300 * GIGA, ("tpu v4",)),
        Device("v5e", 197 * TERA, 16 * GIB, 200 * GIGA, ("tpu v5 lite", "tpu v5e")),
        Device("v5p", 459 * TERA, 95 * GIB, 600 * GIGA, ("tpu v5p", "tpu v5")),
        Device("v6e", 918 * TERA, 32 * GIB, 448 * GIGA, ("tpu v6 lite", "tpu v6e")),
        Device("a100-40", 312 * TERA, 40 * GIB, 300 * GIGA, ("nvidia a100-sxm4-40gb", "nvidia a100-pcie-40gb")),
        Device("a100", 312 * TERA, 80 * GIB, 300 * GIGA, ("nvidia a100",)),
        Device("h100", 989 * TERA, 79 * GIB, 450 * GIGA, ("nvidia h100",)),
        Device("h200", 989 * TERA, 140 * GIB, 450 * GIGA, ("nvidia h200",)),
        Device("b200", 2250 * TERA, 180 * GIB, 900 * GIGA, ("nvidia b200",)),
        Device("l4", 121 * TERA, 24 * GIB, 32 * GIGA, ("nvidia l4",)),
    )
}
"""Makers' figures for dense bfloat16 without sparsity. Source: Google Cloud's TPU pages, NVIDIA's data sheets."""

UNKNOWN = Device("unknown", None, None)
_UNITS = {"": 1, "k": 10**3, "m": 10**6, "g": 10**9, "t": 10**12, "p": 10**15,
          "kib": 2**10, "mib": 2**20, "gib": 2**30, "tib": 2**40, "gb": 10**9, "mb": 10**6, "tb": 10**12}  # fmt: skip
_OWN_FORM = "Write name:FLOPs:memory, e.g. cpu:100G:16GiB."


def device_named(text: str) -> Device:
    """Return the device that `--device` names: one of the table, or the user's own as `name:peak_flops:memory`.

    Raises:
        ConfigError: no such name, or a figure that cannot be read.
    """
    name, *figures = text.split(":")
    if figures:
        return _own(text, name, figures)
    found = DEVICES.get(text.lower().removeprefix("tpu-").removeprefix("tpu"))
    if found is not None:
        return found
    guess = did_you_mean(text.lower(), DEVICES, f"There are {', '.join(DEVICES)}.")
    raise ConfigError("command line", [Fault("--device", f"no device '{text}' is known.", f"{guess} {_OWN_FORM}")])


def device_of_kind(kind: str) -> Device:
    """Return what is known of a device by the name that JAX, torch or its driver reports for it.

    A device that is not in the table is one without a peak.
    """
    by_length = sorted(((prefix, one) for one in DEVICES.values() for prefix in one.kinds), key=lambda x: -len(x[0]))
    return next((one for prefix, one in by_length if kind.lower().startswith(prefix)), UNKNOWN)


def _own(text: str, name: str, figures: list[str]) -> Device:
    try:
        peak, memory = (_number(figure) for figure in figures)
    except ValueError:
        fault = Fault("--device", f"'{text}' cannot be read.", _OWN_FORM)
        raise ConfigError("command line", [fault]) from None
    return Device(name or "own", peak, int(memory))


def _number(text: str) -> float:
    """Read `100G`, `2.5e14`, `16GiB`. Raises ValueError."""
    found = re.fullmatch(r"([\d.]+(?:e[+-]?\d+)?)\s*([a-z]*)", text.strip().lower())
    if found is None or found[2] not in _UNITS:
        raise ValueError(text)
    return float(found[1]) * _UNITS[found[2]]


@dataclass(frozen=True)
class Efficiency:
    """Turns the time of a step into MFU and rates; made once, used at each row of the log.

    Attributes:
        flops_per_step: model FLOPs of one update over all devices, remat not counted.
        tokens_per_step: over all devices.
        num_devices: how many work together.
        peak_flops: FLOP/s of one device; None leaves MFU out.
    """

    flops_per_step: float
    tokens_per_step: float
    num_devices: int
    peak_flops: float | None = None

    def mfu(self, seconds: float) -> float | None:
        """Return the model FLOPs utilisation for a step time, in [0, 1]; None without a peak.

        Source: Chowdhery et al., PaLM, arXiv 2204.02311, section 4.1.
        """
        if self.peak_flops is None or seconds <= 0:
            return None
        return self.flops_per_step / seconds / (self.peak_flops * self.num_devices)

    def facts(self, seconds: float) -> Mapping[str, float]:
        """Return the rates to log for steps that take `seconds` each."""
        if seconds <= 0:
            return {}
        share = 1 / (seconds * self.num_devices)
        rates = {
            "tokens_per_second_per_device": self.tokens_per_step * share,
            "model_tflops_per_device": self.flops_per_step * share / TERA,
        }
        mfu = self.mfu(seconds)
        return rates if mfu is None else {**rates, "mfu": mfu}
