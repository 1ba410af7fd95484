"""Every config of the examples finds what it inherits, from the folder that a user starts it in."""

from pathlib import Path

import pytest

from xdpx.config.faults import ConfigError, Fault
from xdpx.config.reading import read_runs

REPOSITORY = Path(__file__).parents[2]
CONFIGS = sorted(str(path.relative_to(REPOSITORY)) for path in (REPOSITORY / "examples").rglob("*.hjson"))
LATER = ("data_dir", "/meta", "out/", "demo/")
"""What a family leaves to whoever inherits it, and what x-prepro and x-train write."""


def faults_of(config: str) -> tuple[Fault, ...]:
    try:
        read_runs(config, [])
    except ConfigError as error:
        return error.faults
    return ()


@pytest.mark.parametrize("config", CONFIGS)
def test_an_example_finds_its_parents(config: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(REPOSITORY)
    parents = [fault for fault in faults_of(config) if fault.key == "__parent__"]
    assert not [str(fault) for fault in parents if not any(word in fault.problem for word in LATER)]
