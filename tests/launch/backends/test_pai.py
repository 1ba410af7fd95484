"""The lines for odpscmd, word for word; and the package that goes with them."""

from __future__ import annotations

import subprocess
import sys
import tarfile
from pathlib import Path
from typing import Any

import pytest

from tests.launch.jobs import NAME, job_of
from xdpx.config.faults import ConfigError
from xdpx.launch.backends import pai_package
from xdpx.launch.backends.pai import Pai, command, quoted, without_repetitions

PACKAGE = f"/data/work/submissions/{NAME}/package.tar.gz"
WORDS = "x-train train.hjson"


def line_of(*steps: tuple[str, ...], **asked: Any) -> str:
    return command(job_of(*steps, **asked), PACKAGE)


def written(version: str, cluster: str, workers: int, *more: str, words: str = f"'{WORDS}'") -> str:
    """Write out what is expected, so that the table below shows only what differs."""
    lines = [
        f"pai -name pytorch{version}", f"-Dscript=file://{PACKAGE}", "-DentryFile=pai_entry.py",
        f"-DuserDefinedParameters={words}", "-Dpython=3.6", f"-Dcluster='{{\"worker\":{cluster}}}'",
        f"-DworkerCount={workers}", *more,
    ]  # fmt: skip
    return "\n    ".join(lines) + ";"


FUSED = "-DenableDockerFusion=true"
TABLE: list[tuple[dict[str, Any], str]] = [
    ({"gpus": 1}, written("180", '{"cpu":400,"memory":10000,"gpu":100}', 1)),
    ({"gpus": 8, "cpus": 64, "memory": 128}, written("180", '{"cpu":6400,"memory":128000,"gpu":800}', 1)),
    ({"pytorch": "131", "nodes": 1, "gpus": 2, "cpus": 4, "memory": 10},
     written("131", '{"cpu":400,"memory":10000,"gpu":200}', 1)),
    ({"nodes": 2, "gpus": 1}, written("180", '{"cpu":400,"memory":10000,"gpu":100}', 2, FUSED)),
    ({"nodes": 2, "gpus": 4}, written("180", '{"cpu":400,"memory":10000,"gpu":400}', 2)),
    ({"nodes": 2, "gpus": 4, "pytorch": "131"}, written("131", '{"cpu":400,"memory":10000,"gpu":100}', 8, FUSED)),
    ({"gpus": 1, "memory": 2.5}, written("180", '{"cpu":400,"memory":2500,"gpu":100}', 1)),
    ({"gpus": 1, "tables": "odps://p/tables/t"},
     written("180", '{"cpu":400,"memory":10000,"gpu":100}', 1, "-Dtables=odps://p/tables/t")),
    ({"gpus": 1, "tables": "odps://p/tables/a,odps://p/tables/b/dt=1"},
     written("180", '{"cpu":400,"memory":10000,"gpu":100}', 1, "-Dtables='odps://p/tables/a,odps://p/tables/b/dt=1'")),
    ({"gpus": 1, "v100": False}, written("180", '{"cpu":400,"memory":10000,"gpu":100}', 1)),
    ({"gpus": 1, "v100": "y", "pytorch": 100}, "set odps.algo.hybrid.deploy.info=LABEL:V100:OPER_EQUAL;\n"
     + written("100", '{"cpu":400,"memory":10000,"gpu":100}', 1)),
]  # fmt: skip


@pytest.mark.parametrize(("asked", "expected"), TABLE)
def test_the_line_is_word_for_word(asked: dict[str, Any], expected: str) -> None:
    assert list(Pai().faults(job_of(**asked))) == []
    assert line_of(**asked) == expected


def test_odd_names_stay_one_word() -> None:
    words = r"""'x-train \'it\'"\'"\'s a;b.hjson\' \'c:\\d\''"""
    expected = written("180", '{"cpu":400,"memory":10000,"gpu":100}', 1, words=words)
    assert line_of(("x-train", "it's a;b.hjson", "c:\\d"), gpus=1) == expected
    assert [quoted(text) for text in ("a/b-1.txt", "", "a b", "a'b")] == ["a/b-1.txt", "''", "'a b'", r"'a\'b'"]


@pytest.mark.parametrize(
    ("asked", "expected"),
    [
        ({}, "--gpus: is not given"),
        ({"gpus": 9}, "--gpus: is 9. Use 1 to 8 (pai.sh: -g; a config: __gpu__)"),
        ({"gpus": 1, "nodes": 9}, "--nodes: is 9. Use 1 to 8 (pai.sh: -w; a config: __worker__)"),
        ({"gpus": 1, "cpus": 65}, "--cpus: is 65. Use 1 to 64"),
        ({"gpus": 1, "memory": 1.5}, "--memory: is 1.5. Use 2 to 128"),
        ({"gpus": 1, "pytorch": "2.13"}, "--pytorch: is '2.13'. PAI has 100, 131, 151, 180"),
        ({"gpus": 1, "tables": "t"}, "--tables: is 't'. Write odps://"),
        ({"gpus": 1, "partition": "q"}, "--partition: is not supported by --on pai"),
    ],
)
def test_what_lies_outside_of_the_bounds_is_told(asked: dict[str, Any], expected: str) -> None:
    assert [str(fault) for fault in Pai().faults(job_of(**asked)) if str(fault).startswith(expected)]


@pytest.mark.parametrize(
    ("steps", "runs", "asked", "refused"),
    [
        (2, 1, {"nodes": 2, "gpus": 1}, True),
        (2, 1, {"nodes": 2, "gpus": 4, "pytorch": "131"}, True),
        (1, 3, {"nodes": 2, "gpus": 1}, True),
        (2, 1, {"nodes": 1, "gpus": 2}, False),
        (2, 1, {"nodes": 2, "gpus": 4}, False),
        (1, 1, {"nodes": 2, "gpus": 1}, False),
    ],
)
def test_trainings_one_after_another_are_refused_under_docker_fusion(
    steps: int, runs: int, asked: dict[str, Any], refused: bool
) -> None:
    words = [("x-train", f"{index}.hjson") for index in range(steps)]
    told = [str(fault) for fault in Pai().faults(job_of(*words, runs=runs, **asked))]
    assert any("docker fusion" in text for text in told) is refused


def test_the_same_state_again_is_told_once() -> None:
    stand = "pytorch180_1 2026-11-23 06:41:{} job:0/1[{}%]".format
    lines = ["ID = 1", stand("01", 0), stand("02", 0), stand("03,250", 0), stand("04", 50), "OK", "", "", "OK"]
    told = list(without_repetitions(f"{line}\n" for line in lines))
    assert told == ["ID = 1", stand("01", 0), stand("04", 50), "OK", "", "", "OK"]


def test_the_package_is_the_project_without_dot_files_and_runs_by_itself(tmp_path: Path) -> None:
    project, folder = tmp_path / "project", tmp_path / "folder"
    for name in ("a.txt", ".secret", ".git/config", "sub/ä b.txt", "__pycache__/x.pyc", "submissions/old/x.txt"):
        (project / name).parent.mkdir(parents=True, exist_ok=True)
        (project / name).write_text(name)
    (project / "broken").symlink_to(project / "none")
    folder.mkdir()
    for name, text in Pai().files(job_of(("x-io", "listdir", "sub"), gpus=1)).items():
        (folder / name).write_text(text)
    pai_package.write(str(folder / "package.tar.gz"), project=str(project), folder=str(folder))
    there = tmp_path / "there"
    with tarfile.open(folder / "package.tar.gz") as archive:
        archive.extractall(there, filter="data")
    names = {path.relative_to(there).as_posix() for path in there.rglob("*") if path.is_file()}
    assert {name for name in names if not name.startswith("xdpx/")} == {
        "a.txt",
        "sub/ä b.txt",
        "job.sh",
        "pai_entry.py",
    }
    words = [sys.executable, str(there / "pai_entry.py"), "x-io", "listdir", "sub"]
    ended = subprocess.run(words, cwd=tmp_path, capture_output=True, text=True, timeout=60, check=True)
    assert "ä b.txt" in ended.stdout


def test_a_project_that_is_too_large_is_refused_and_its_largest_files_are_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "model.pt").write_bytes(bytes(2000))
    monkeypatch.setattr(pai_package, "LARGEST", 1000)
    with pytest.raises(ConfigError, match=r"model\.pt"):
        pai_package.write(str(tmp_path / "p.tar.gz"), project=str(tmp_path), folder=str(tmp_path))
    assert not (tmp_path / "p.tar.gz").exists()


def test_on_a_python_that_is_too_old_the_entry_says_what_to_do(tmp_path: Path) -> None:
    old = pai_package.ENTRY_TEXT.replace("sys.version_info", "(3, 6)")
    (tmp_path / "entry.py").write_text(old)
    words = [sys.executable, str(tmp_path / "entry.py")]
    ended = subprocess.run(words, env={"PATH": "/nowhere"}, capture_output=True, text=True, timeout=60, check=False)
    assert ended.returncode == 1
    assert "needs Python 3.11 or newer" in ended.stderr
