from pathlib import Path

import pytest

from xdpx.utils import io
from xdpx.utils.aside import is_unreadable, original_name, set_aside, text_of


def test_what_is_set_aside_is_kept_under_the_first_free_number(tmp_path: Path, capsys: pytest.CaptureFixture) -> None:
    path = tmp_path / "status.json"
    for number in (1, 2):
        path.write_text(str(number))
        assert set_aside(str(path), "is damaged", then="all is well") == f"{path}.damaged-{number}"
    assert not path.exists()
    assert (tmp_path / "status.json.damaged-2").read_text() == "2"
    assert f"{path} is damaged. It is kept as status.json.damaged-2; all is well." in capsys.readouterr().err


def test_a_folder_and_a_file_on_a_store_are_set_aside_too(tmp_path: Path) -> None:
    (tmp_path / "log.txt").mkdir()
    assert is_unreadable(str(tmp_path / "log.txt")) == "is a folder"
    assert Path(set_aside(str(tmp_path / "log.txt"), "is a folder", then="")).is_dir()
    with io.open("memory://aside/a.json", "w") as file:
        file.write("x")
    assert set_aside("memory://aside/a.json", "is damaged", then="") == "memory://aside/a.json.damaged-1"
    assert not io.exists("memory://aside/a.json")


def test_what_cannot_be_renamed_says_what_to_do(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: object) -> None:
        raise PermissionError(13, "Permission denied")

    (tmp_path / "a").write_text("x")
    monkeypatch.setattr(io, "move", refuse)
    with pytest.raises(
        OSError, match=r"a is damaged, and could not be set aside \(Permission denied\). Move or remove"
    ):
        set_aside(str(tmp_path / "a"), "is damaged", then="")


def test_a_network_that_failed_says_nothing_of_the_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*_: object, **__: object) -> None:
        raise TimeoutError(110, "Connection timed out")

    (tmp_path / "a").write_text("x")
    monkeypatch.setattr(io.local_files, "open", fail, raising=False)
    with pytest.raises(TimeoutError):
        is_unreadable(str(tmp_path / "a"))
    with pytest.raises(TimeoutError):
        text_of(str(tmp_path / "a"))


@pytest.mark.parametrize(("data", "trouble"), [(b"ab", ""), (b"a\xff", "bytes that are not text"), (b"\0", "not text")])
def test_text_is_told_from_bytes_that_are_none(tmp_path: Path, data: bytes, trouble: str) -> None:
    (tmp_path / "a").write_bytes(data)
    text, found = text_of(str(tmp_path / "a"))
    assert trouble in found
    assert bool(found) == bool(trouble)
    assert text == ("" if trouble else "ab")


def test_the_name_before_is_found_again() -> None:
    assert [original_name(name) for name in ("a.json.damaged-12", "a.json", "a.damaged-x")] == [
        "a.json", "a.json", "a.damaged-x",
    ]  # fmt: skip
