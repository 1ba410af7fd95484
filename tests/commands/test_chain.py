from __future__ import annotations

from pathlib import Path

import pytest

from xdpx.commands.chain import check_line
from xdpx.commands.command_line import Job
from xdpx.config.faults import ConfigError
from xdpx.config.user_modules import load_user_modules

AFTER = "{\n  __parent__: out/one/meta\n  save_dir: out/two\n  batch_size: 32\n  source: out/one/picture.txt\n}\n"


@pytest.fixture(autouse=True)
def ready(desk: Path) -> None:
    load_user_modules()


def test_a_config_that_needs_what_an_earlier_command_makes_waits(desk: Path) -> None:
    (desk / "after.hjson").write_text(AFTER)
    first, second = check_line([Job("x-draw", "draw"), Job("x-draw", "after")])
    assert first is not None
    assert second is None


def test_alone_the_same_config_is_refused(desk: Path) -> None:
    (desk / "after.hjson").write_text(AFTER)
    with pytest.raises(ConfigError, match="there is no 'out/one/meta'"):
        check_line([Job("x-draw", "after")])


def test_a_missing_path_waits_but_a_typo_beside_it_does_not(desk: Path) -> None:
    text = AFTER.replace("__parent__: out/one/meta", "shape: square\n  side: 3\n  sdie: 3")
    (desk / "after.hjson").write_text(text)
    with pytest.raises(ConfigError) as refused:
        check_line([Job("x-draw", "draw"), Job("x-draw", "after")])
    assert [fault.key for fault in refused.value.faults] == ["sdie"]


def test_faults_of_all_configs_on_the_line_are_told_together() -> None:
    jobs = [Job("x-draw", "draw", ["side=x"]), Job("x-draw", "loop", ["dropot=1"])]
    with pytest.raises(ConfigError) as refused:
        check_line(jobs)
    text = str(refused.value)
    assert "draw.hjson: side (command line): is 'x'." in text
    assert "loop.hjson: dropot (command line): no such key" in text


def test_a_folder_with_a_similar_name_explains_nothing(desk: Path) -> None:
    (desk / "after.hjson").write_text(AFTER.replace("out/one/", "out/one_more/"))
    with pytest.raises(ConfigError, match="one_more"):
        check_line([Job("x-draw", "draw"), Job("x-draw", "after")])
