import pytest

from xdpx.checkpoints.folders import FolderCommit
from xdpx.commands.script import main
from xdpx.utils import commit


@pytest.fixture
def folder(tmp_path):
    for name in ("checkpoint-1", "checkpoint-2"):
        with commit.Commit(tmp_path / "deep", name) as opened, opened.open(f"{name}.pt") as target:
            target.write(b"weights")
    return tmp_path


def test_whole_files_are_exit_code_0(folder, capsys):
    assert main(["verify", str(folder)]) == 0
    assert capsys.readouterr().out == "2 checked, 0 broken\n"


def test_a_flipped_byte_is_found_by_its_hash_and_named(folder, capsys):
    (folder / "deep" / "checkpoint-2.pt").write_bytes(b"weighty")
    assert main(["verify", str(folder), "--quick"]) == 0
    assert main(["verify", str(folder)]) == 1
    assert "checkpoint-2.pt" in capsys.readouterr().out


def test_a_missing_file_is_found_without_hashes(folder, capsys):
    (folder / "deep" / "checkpoint-1.pt").unlink()
    assert main(["verify", str(folder), "--quick"]) == 1
    assert "1 broken" in capsys.readouterr().out


def test_a_folder_with_nothing_committed_is_exit_code_1_and_no_folder_an_error(tmp_path):
    assert main(["verify", str(tmp_path)]) == 1
    with pytest.raises(FileNotFoundError, match="no such folder"):
        main(["verify", str(tmp_path / "nowhere")])


def test_a_checkpoint_folder_is_checked_like_all_that_is_committed(tmp_path, capsys):
    with FolderCommit(tmp_path / "run", "checkpoint-5") as staging, staging.open("model.safetensors") as file:
        file.write(b"weights")
    assert main(["verify", str(tmp_path)]) == 0
    (tmp_path / "run/checkpoint-5/model.safetensors").write_bytes(b"weightz")
    assert main(["verify", str(tmp_path)]) == 1
    assert "model.safetensors: its content is not what was written" in capsys.readouterr().out
