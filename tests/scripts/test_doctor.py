"""What is said of a machine is what is there, and what is wrong with it is marked and counted."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from xdpx.commands import doctor, doctor_probe
from xdpx.commands.script import main


def test_a_place_that_cannot_be_written_is_marked_and_is_exit_code_1(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "file").write_text("no folder")
    assert main(["doctor", str(tmp_path), str(tmp_path / "file" / "below"), "nowhere://bucket", "--fast"]) == 1
    lines = capsys.readouterr().out.splitlines()
    assert any(f"   {tmp_path}: written" in line for line in lines)
    assert any(f"!! {tmp_path / 'file' / 'below'}: there is no such folder" in line for line in lines)
    assert any("!! nowhere://bucket: nothing can be written" in line for line in lines)
    assert [path.name for path in tmp_path.iterdir()] == ["file"]


def test_a_package_that_does_not_fit_is_named_with_the_line_that_mends_it(monkeypatch: pytest.MonkeyPatch) -> None:
    versions = {"numpy": "1.26.0", "pyyaml": ""}
    monkeypatch.setattr(doctor, "_version", lambda name: versions.get(name, "99"))
    wrong = [found for found in doctor._packages() if found.remedy]
    assert any("numpy 1.26.0, where >=2.3 is needed" in found.text for found in wrong)
    assert any(found.text == "pyyaml is not installed" for found in wrong)


def test_what_a_launcher_left_behind_and_secrets_of_a_proxy(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("RANK", "0")
    monkeypatch.setenv("HTTPS_PROXY", "http://me:secret@proxy:1")
    found = list(doctor._environment())
    assert any(line.text.startswith("RANK are set") or line.text.startswith("RANK") and line.remedy for line in found)
    assert not any("secret" in line.text for line in found)


def test_a_busy_machine_is_no_fault_but_has_a_setting_that_helps(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv(doctor.SPINNING, raising=False)
    (found,) = doctor._other_work(7.25, 2)
    assert "load 7.2" in found.text
    assert "OMP_WAIT_POLICY=PASSIVE" in found.text
    assert not found.remedy
    assert not list(doctor._other_work(1.9, 2))


def test_pytorch_multiplies_on_every_device() -> None:
    probe = doctor_probe.probe_torch()
    assert probe["devices"][0] == {"name": "cpu", "memory_bytes": 0, "trouble": ""}


def test_a_driver_that_fails_without_a_word_is_told_by_the_class_of_its_error() -> None:
    def fails(name: str) -> float:
        raise RuntimeError

    (found,) = doctor_probe._tried(["cuda:0"], lambda name: (name, 0), fails)
    assert found["trouble"] == "RuntimeError"


def test_a_library_that_does_not_start_is_told_with_its_last_words(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    (tmp_path / "torch.py").write_text("raise ImportError('libcudart.so.13: cannot open shared object file')")
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    monkeypatch.setattr(sys, "path", [str(tmp_path), *sys.path])
    probe, trouble = doctor._probe("torch")
    assert probe is None
    assert trouble == "ImportError: libcudart.so.13: cannot open shared object file"
