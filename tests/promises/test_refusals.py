"""Whatever is asked for in the wrong way is refused in one clear message, and nothing that was there is touched."""

from __future__ import annotations

import ctypes
import hashlib
import importlib.util
import json
import os
import re
import shlex
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.processes import fork
from xdpx.run import main
from xdpx.utils.commit import Lease

_spec = importlib.util.spec_from_file_location("refusal_table", Path(__file__).with_name("refusal_table.py"))
assert _spec
assert _spec.loader
table: Any = importlib.util.module_from_spec(_spec)
_spec.loader.exec_module(table)

Capture = pytest.CaptureFixture[str]
MOST_LINES = 12
PAGE = (Path(__file__).parents[2] / "docs/mistakes.md").read_text(encoding="utf-8")
MISTAKES = {cells[1].strip(): cells[3].strip() for line in PAGE.splitlines() if len(cells := line.split("|")) == 6}
"""{what is wrong: what the page says is printed}"""


# ---- the desk: raw text, and what x-prepro and x-train made of it


@pytest.fixture(scope="session")
def pattern(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A desk on which x-prepro and x-train have finished."""
    desk = tmp_path_factory.mktemp("pattern")
    put(desk, table.DESK)
    before = Path.cwd()
    os.chdir(desk)
    try:
        assert main(["x-prepro", "prepro"]) == 0
        assert main(["x-train", "train"]) == 0
    finally:
        os.chdir(before)
    (desk / "run/snapshot.zip").unlink()
    return desk


@pytest.fixture
def desk(pattern: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A copy of that desk, as working directory."""
    copy = tmp_path / "desk"
    shutil.copytree(pattern, copy)
    monkeypatch.chdir(copy)
    return copy


def put(desk: Path, files: dict[str, Any]) -> None:
    """Write, cut, flip or remove files of a desk."""
    for name, content in files.items():
        path = desk / name
        path.parent.mkdir(parents=True, exist_ok=True)
        if content == table.GONE:
            path.unlink()
        elif content in {table.CUT, table.FLIP}:
            path.write_bytes(damaged(path.read_bytes(), content))
        else:
            path.write_bytes(content.encode() if isinstance(content, str) else content)


def damaged(data: bytes, how: str) -> bytes:
    middle = len(data) // 2
    return data[:middle] if how == table.CUT else data[:middle] + bytes([data[middle] ^ 1]) + data[middle + 1 :]


def tree(root: Path) -> dict[str, str]:
    """Return {path: hash of its content} for everything below `root`; '' for a folder."""
    return {
        str(path.relative_to(root)): hashlib.sha256(path.read_bytes()).hexdigest() if path.is_file() else ""
        for path in sorted(root.rglob("*"))
    }


def check(text: str, says: list[str], *, faults: int = 1) -> None:
    """Hold a message to what it must say, to its length, and to the number of faults."""
    assert "Traceback" not in text
    assert len(text.splitlines()) <= MOST_LINES, text
    assert [wanted for wanted in says if not re.search(wanted, text)] == [], text
    told = re.search(r": (\d+) faults?$", text, re.MULTILINE)
    assert told is None or int(told[1]) == faults, text


# ---- the table


@pytest.mark.parametrize("row", table.TABLE, ids=[row.what for row in table.TABLE])
def test_it_is_refused_in_one_message_and_nothing_is_touched(row: Any, desk: Path, capfd: Capture) -> None:
    put(desk, row.files)
    before = tree(desk)
    capfd.readouterr()
    code = main(shlex.split(row.command))
    out, err = capfd.readouterr()
    check(out + err, row.says, faults=row.faults)
    assert code == row.code
    assert out == "" or row.command.startswith(("x-script", "x-run"))
    assert tree(desk) == before
    shown = table.cell(table.answer(out, err, str(desk)))
    assert f"{MISTAKES[row.what]}|".startswith(shown[:100].removesuffix(" …")), "run: python docs/build_mistakes.py"


def test_the_table_is_large_and_names_every_row_once() -> None:
    assert len(table.TABLE) >= 60
    assert len({row.what for row in table.TABLE}) == len(table.TABLE)


def test_a_run_that_exists_can_be_looked_at_with_dry(desk: Path, capfd: Capture) -> None:
    before = tree(desk)
    assert main(["x-train", "train", "max_update=9", "--dry"]) == 0
    out, err = capfd.readouterr()
    assert "max_update*: 9" in out
    assert out.endswith("9 updates of 8 samples; train has 48: 1.5 passes over it\n")
    assert err.startswith("to start it: save_dir (train.hjson:4): 'run' already contains a run.")
    assert tree(desk) == before


def test_the_args_py_of_a_run_trains_the_same_weights_again(desk: Path) -> None:
    assert main(["x-train", "run/args.py", "save_dir=again"]) == 0
    assert (desk / "again/checkpoint-4.pt").read_bytes() == (desk / "run/checkpoint-4.pt").read_bytes()


def test_a_finished_run_goes_on_with_more_updates_as_if_it_had_had_them_from_the_start(desk: Path) -> None:
    assert main(["x-train", "train", "max_update=8", "save_dir=whole"]) == 0
    assert main(["x-train", "train", "max_update=8", "resume=auto"]) == 0
    assert (desk / "run/checkpoint-8.pt").read_bytes() == (desk / "whole/checkpoint-8.pt").read_bytes()


@pytest.mark.parametrize(
    "command",
    ["x-prepro prepro data_dir=new", "x-train train save_dir=new", "x-eval eval", "x-pred pred", "x-viz viz",
     "x-io size raw/dev.txt", "x-script diff_data raw/dev.txt raw/dev.txt", "x-init --list"],
)  # fmt: skip
def test_json_is_one_object_and_all_that_is_printed(desk: Path, capfd: Capture, command: str) -> None:
    assert main([*shlex.split(command), "--json"]) == 0
    told = json.loads(capfd.readouterr().out)
    assert (told["exit_code"], told["faults"], told["error"]) == (0, [], None)
    assert [job["command"] for job in told["jobs"]] == [command.split()[0]]
    assert bool(told["jobs"][0]["runs"]) == command.startswith(("x-prepro", "x-train", "x-eval", "x-pred", "x-viz"))


@pytest.mark.parametrize(
    "command",
    ["x-train train lr=1", "x-train train lr=1 --dry", "x-io size nowhere", "x-script diff_data raw", "x-run raw/x.csv",
     "x-serve nowhere", "x-board nowhere", "x-submit x-train train", "x-exp Nope --plan"],
)  # fmt: skip
def test_json_tells_a_refusal_too(desk: Path, capfd: Capture, command: str) -> None:
    code = main([*shlex.split(command), "--json"])
    out, err = capfd.readouterr()
    told = json.loads(out)
    assert code == told["exit_code"] != 0
    assert told["error"] in err
    assert bool(told["faults"]) == (code == table.USER)


def test_a_byte_order_mark_and_carriage_returns_are_no_fault(desk: Path) -> None:
    (desk / "c.hjson").write_bytes(b"\xef\xbb\xbf" + table.TRAIN.replace("\n", "\r\n").encode())
    assert main(["x-train", "c", "save_dir=new", "--dry"]) == 0


def test_many_faults_are_told_together_and_cut_at_a_screen(desk: Path, capfd: Capture) -> None:
    put(desk, table.train(*[f"zork_{number}: 1" for number in range(40)]))
    assert main(["x-train", "c"]) == table.USER
    check(capfd.readouterr().err, ["zork_0 ", "zork_9 ", "and more: 30 further faults"], faults=40)


# ---- exit codes as a shell sees them


@pytest.mark.parametrize(
    ("command", "code"), [("x-train trian", table.USER), ("x-io size nowhere", table.WORLD), ("--help", 0)]
)
def test_the_shell_gets_the_code_and_an_empty_output(desk: Path, command: str, code: int) -> None:
    done = run(desk, command)
    assert done.returncode == code
    assert (done.stdout == "") == (code != 0)


def run(desk: Path, command: str) -> subprocess.CompletedProcess[str]:
    """Run a command line in a process of its own."""
    program = f"import sys; sys.path.insert(0, {str(Path(__file__).parents[2])!r}); from xdpx.run import main; "
    return subprocess.run(
        [sys.executable, "-c", program + f"sys.exit(main({shlex.split(command)!r}))"],
        cwd=desk,
        env={**os.environ, "OMP_NUM_THREADS": "1"},
        capture_output=True,
        text=True,
        check=False,
    )


# ---- another run is at work


@pytest.mark.parametrize(
    ("folder", "command"), [("run", "x-train train resume=true max_update=6"), ("data", "x-prepro prepro")]
)
def test_a_folder_that_a_living_run_uses_is_left_to_it(desk: Path, capfd: Capture, folder: str, command: str) -> None:
    with Lease(folder):
        before = tree(desk)
        assert main(shlex.split(command)) == table.WORLD
        assert tree(desk) == before
    check(capfd.readouterr().err, [f"{folder}: another run", f"process {os.getpid()} on", "Wait for it, stop it"])


# ---- what may not be written or read


NOT_HELD_BACK = 77


def obey_modes() -> bool:
    """Give up root's privilege to read and write whatever the modes of files say; False if that is impossible."""
    if os.getuid() != 0:
        return True
    system, third_version, override_modes, override_reading = ctypes.CDLL(None), 0x20080522, 1, 2
    header, sets = (ctypes.c_uint32 * 2)(third_version, 0), (ctypes.c_uint32 * 6)()
    if system.capget(header, sets) != 0:
        return False
    sets[0] &= ~(1 << override_modes | 1 << override_reading)  # what holds now; the others are what may be taken
    return bool(system.capset(header, sets) == 0)


def run_obeying_modes(desk: Path, command: str) -> tuple[int, str]:
    """Run a command line in a fork of this process, and return its exit code and what it says."""
    said = desk.parent / "said.txt"
    child = fork(lambda: main(shlex.split(command)) if obey_modes() else NOT_HELD_BACK, said)
    code = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
    if code == NOT_HELD_BACK:
        pytest.skip("modes do not hold this user back")
    return code, said.read_text(encoding="utf-8")


@pytest.fixture
def read_only(desk: Path) -> Iterator[Path]:
    """The desk, on which nothing may be written except in `open/`."""
    (desk / "open").mkdir()
    folders = [desk, *(path for path in desk.rglob("*") if path.is_dir() and path.name != "open")]
    for folder in folders:
        folder.chmod(0o555)
    yield desk
    for folder in folders:
        folder.chmod(0o755)


@pytest.mark.parametrize(
    ("command", "says"),
    [
        ("x-prepro prepro data_dir=new", "data_dir .*'new' cannot be written to. Choose a writable folder"),
        ("x-prepro prepro", "data_dir .*'data' cannot be written to. Choose a writable folder"),
        ("x-train train save_dir=new", "save_dir .*'new' cannot be written to. Choose a writable folder"),
        ("x-train train resume=true max_update=6", "save_dir .*'run' cannot be written to. Choose a writable folder"),
        ("x-eval eval save_to_file=new.tsv", "save_to_file.*'new.tsv' cannot be written. Choose another place"),
        ("x-viz viz", "save_dir .*'run/plots', where its figures go, cannot be written to. Copy the run"),
        ("x-pred pred", "predict_file_map.*'out.tsv' cannot be written. Choose another file"),
    ],
)
def test_a_read_only_folder_is_told_before_any_work(read_only: Path, command: str, says: str) -> None:
    before = tree(read_only)
    code, said = run_obeying_modes(read_only, command)
    check(said, [says])
    assert code == table.USER
    assert tree(read_only) == before


@pytest.mark.parametrize(
    ("hidden", "command"),
    [("raw/dev.txt", "x-prepro prepro data_dir=open/new"), ("train.hjson", "x-train train save_dir=open/new")],
)
def test_a_file_that_may_not_be_read_is_named(read_only: Path, hidden: str, command: str) -> None:
    before = tree(read_only)
    (read_only / hidden).chmod(0)
    code, said = run_obeying_modes(read_only, command)
    check(said, [hidden, "[Pp]ermission denied"])
    assert code == table.WORLD
    assert tree(read_only) == before


# ---- a disk that is full


@pytest.fixture
def small_disk(desk: Path) -> Iterator[Path]:
    """A disk of 4 MB, mounted below the desk: the code that a run keeps takes half."""
    disk = desk / "disk"
    disk.mkdir()
    mount = ["mount", "-t", "tmpfs", "-o", "size=4m", "tmpfs", str(disk)]
    if os.getuid() != 0 or subprocess.run(mount, capture_output=True, check=False).returncode != 0:
        pytest.skip("a small disk cannot be mounted here")
    yield disk
    subprocess.run(["umount", "-l", str(disk)], check=True)


def fill(disk: Path, *, leave: int) -> None:
    """Leave so many bytes free."""
    free = shutil.disk_usage(disk).free
    (disk / "ballast").write_bytes(bytes(free - leave))


def test_preprocessing_onto_a_full_disk_says_so_and_goes_on_when_there_is_room(
    desk: Path, small_disk: Path, capfd: Capture
) -> None:
    (desk / "raw/train.txt").write_text(table.DESK["raw/train.txt"] * 100)
    fill(small_disk, leave=40_000)
    before = tree(desk)
    assert main(["x-prepro", "prepro", "data_dir=disk/new"]) == table.WORLD
    text = capfd.readouterr().err
    check(text, ["[Nn]o space left", "disk/new"])
    after = tree(desk)
    assert {name: after.get(name) for name in before} == before
    assert not [name for name in after if ".tmp-" in name or ".parts" in name or name == "disk/new/train.pt"]
    (small_disk / "ballast").unlink()
    assert main(["x-prepro", "prepro", "data_dir=disk/new"]) == 0


def test_saving_onto_a_full_disk_says_so_and_keeps_what_was_saved(desk: Path, small_disk: Path, capfd: Capture) -> None:
    shutil.copytree("run", "disk/run")
    command = ["x-train", "train", "save_dir=disk/run", "resume=true", "max_update=8"]
    fill(small_disk, leave=28_000)
    saved = {name: content for name, content in tree(desk).items() if "disk/run/checkpoint" in name}
    assert main(command) == table.WORLD
    text = capfd.readouterr().err
    check(text, ["[Nn]o space left", "disk/run"])
    after = tree(desk)
    assert {name: after.get(name) for name in saved} == saved
    assert not [name for name in after if ".tmp-" in name]
    (small_disk / "ballast").unlink()
    assert main(command) == 0


@pytest.mark.parametrize(("target", "file"), [("save_to_file", "eval"), ("predict_file_map", "pred")])
def test_results_onto_a_full_disk_name_the_file(
    desk: Path, small_disk: Path, capfd: Capture, target: str, file: str
) -> None:
    (desk / "raw/dev.txt").write_text(table.DESK["raw/dev.txt"] * 200)
    value = {"eval": "disk/new.tsv", "pred": "{raw/dev.txt: disk/new.tsv}"}[file]
    (small_disk / "new.tsv").write_text("split\tacc\n" * 2000)  # which is replaced, so that as much again is needed
    fill(small_disk, leave=4096)
    before = tree(desk)
    assert main([f"x-{file}", "--quiet", file, f"{target}={value}"]) == table.WORLD
    check(capfd.readouterr().err, ["[Nn]o space left", "disk/new"])
    assert tree(desk) == before


# ---- files that carry code


class Evil:
    """What runs a command when it is unpickled."""

    def __reduce__(self) -> tuple[Any, ...]:
        return os.system, ("touch hacked",)


@pytest.mark.parametrize(
    ("file", "command"),
    [
        ("run/checkpoint-9.pt", "x-eval eval checkpoint=run/checkpoint-9.pt"),
        ("foreign.pt", "x-train train save_dir=new pretrained_model=foreign.pt"),
        ("data/more.pt", "x-eval eval valid_subset=data/more.pt"),
        ("data/train.pt", "x-train train save_dir=new"),
    ],
)
def test_code_in_a_file_of_tensors_is_not_run(desk: Path, capfd: Capture, file: str, command: str) -> None:
    import torch

    torch.save({"weight": torch.zeros(2), "more": Evil()}, desk / file)
    before = tree(desk)
    assert main(shlex.split(command)) == table.WORLD
    text = capfd.readouterr().err
    check(text, [re.escape(file)])
    assert "weights_only" not in text  # torch advises to switch the safety off
    assert tree(desk) == before
