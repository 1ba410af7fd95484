import threading
from collections.abc import Iterator
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest

from xdpx.config.faults import ConfigError
from xdpx.datasets.data_files import splits


@pytest.fixture
def served(tmp_path: Path) -> Iterator[str]:
    """The address of a web server that lists a folder with train.txt and dev.txt."""
    for name in ("train.txt", "dev.txt"):
        (tmp_path / name).write_text("a film\t1\n")
    server = ThreadingHTTPServer(("127.0.0.1", 0), partial(SimpleHTTPRequestHandler, directory=str(tmp_path)))
    threading.Thread(target=server.serve_forever, daemon=True).start()
    yield f"http://127.0.0.1:{server.server_port}"
    server.shutdown()
    server.server_close()


def test_a_pattern_finds_the_files_that_a_web_server_lists(served: str) -> None:
    assert splits(served, "*.txt") == {"dev": f"{served}/dev.txt", "train": f"{served}/train.txt"}


def test_a_mapping_turned_round_is_told_from_a_missing_file(tmp_path: Path) -> None:
    (tmp_path / "first.txt").write_text("a film\t1\n")
    assert splits(str(tmp_path), {"first.txt": "train"}) == {"train": str(tmp_path / "first.txt")}
    with pytest.raises(ConfigError, match=r"maps the split 'train' to the file.*comes first: {first.txt: train}"):
        splits(str(tmp_path), {"train": "first.txt"})
    with pytest.raises(ConfigError, match="'second.txt' matches no file"):
        splits(str(tmp_path), {"second.txt": "train"})


def test_files_that_would_become_one_split_are_named_with_their_folder(tmp_path: Path) -> None:
    (tmp_path / "raw/parts").mkdir(parents=True)
    for name in ("a.tsv", "b.tsv"):
        (tmp_path / "raw/parts" / name).touch()
    with pytest.raises(ConfigError, match=r"matches 2 files, but names one split\. Name one file, or join") as error:
        splits(f"{tmp_path}/raw", {"parts/*.tsv": "train"})
    assert len(error.value.faults) == 1
    with pytest.raises(ConfigError, match=r"Name the splits: data_files: \{parts/b\.tsv: \.\.\.\}"):
        splits(f"{tmp_path}/raw", {"parts/a.tsv": "train", "parts/b.tsv": "train"})


def test_a_link_to_a_file_that_is_not_there_is_not_passed_over(tmp_path: Path) -> None:
    (tmp_path / "train0.tsv").write_text("a\t0\n")
    (tmp_path / "train1.tsv").symlink_to(tmp_path / "unmounted/train1.tsv")
    with pytest.raises(ConfigError, match=r"'train1.tsv' is a link to a file that does not exist"):
        splits(str(tmp_path), "train*.tsv")
    assert list(splits(str(tmp_path), "train0.tsv")) == ["train0"]
