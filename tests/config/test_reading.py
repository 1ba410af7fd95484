"""From a path to raw runs: files of every kind, overrides, special keys, meta data, and refusals on one screen."""

from __future__ import annotations

import json
import pickle
import random
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from xdpx.config.faults import ConfigError
from xdpx.config.reading import read_runs

Write = Callable[..., Path]


def test_a_macro_set_on_the_command_line_that_nothing_uses_is_a_fault(write: Write) -> None:
    write("a.hjson", "__parent__: ./${kind}\n__def__: {fold: 1, kind: b}\ndata: out/${fold}", "b.hjson", "x: 1")
    write("c.hjson", '__parent__: [[{data: 1}, {data: "${fold}"}]]')
    for path, words in (("a", ["__def__.fold=2", "__def__.kind=b"]), ("c", ["__def__.fold=2"])):
        assert not any(run.faults for run in read_runs(path, words))
    ((fault,),) = (run.faults for run in read_runs("a", ["__def__.flod=2"]))
    assert str(fault) == "__def__.flod (command line): changes nothing: there is no ${flod}. Did you mean 'fold'?"


def test_a_key_is_not_set_apart_from_the_macro_that_is_used_for_it_elsewhere(write: Write) -> None:
    text = "__def__: {seed: 1}\nseed: ${seed}\n"
    write("a.hjson", text + "save_dir: out/${seed}", "b.hjson", text, "c.hjson", "seed: 1\nsave_dir: out/${seed}")
    (run,) = read_runs("a", ["seed=5"])
    assert "Set __def__.seed=... instead, or both." in str(run.faults)
    for path, words in (
        ("a", ["seed=5", "__def__.seed=5"]),
        ("a", ["__def__.seed=5"]),
        ("b", ["seed=5"]),
        ("c", ["seed=5"]),
    ):
        assert not read_runs(path, words)[0].faults


def refusal(path: str, *overrides: str) -> str:
    with pytest.raises(ConfigError) as error:
        read_runs(path, overrides)
    return str(error.value)


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("a.hjson", "lr: 1e-4\ntags: [\n  x\n  y\n]"),
        ("a.json", '{"lr": 1e-4, "tags": ["x", "y"]}'),
        ("a.yaml", "lr: 1e-4\ntags: [x, y]"),
        ("a.yml", "lr: 1e-4\ntags:\n  - x\n  - y"),
        ("a", "{lr: 1e-4, tags: ['x', 'y']}"),
    ],
)
@pytest.mark.parametrize("asked", ["a", None])
def test_a_config_is_found_with_and_without_its_suffix(write: Write, name: str, text: str, asked: str | None) -> None:
    write(name, text)
    (run,) = read_runs(asked or name)
    assert (run.values, run.source, run.faults) == ({"lr": 0.0001, "tags": ["x", "y"]}, name, ())


def test_hjson_comes_before_json_and_yaml(write: Write) -> None:
    write("a.yaml", "x: yaml", "a.json", '{"x": "json"}', "a.hjson", "x: hjson")
    assert read_runs("a")[0].values == {"x": "hjson"}


@pytest.mark.parametrize("folder", ["two words", "100%", "a#b", "a=b", "quote's", "中文", "🙂", "-rf", "x" * 200])
def test_any_legal_path_can_hold_a_config(write: Write, folder: str) -> None:
    write(f"{folder}/a.hjson", "__parent__: ./b\nx: 1", f"{folder}/b.hjson", "y: 2")
    (run,) = read_runs(f"{folder}/a")
    assert run.values == {"x": 1, "y": 2}
    assert str(run.origins["y"]) == f"{folder}/b.hjson:1"


def test_origins_reach_into_dicts_and_lists(write: Write) -> None:
    write("a.hjson", "\nd: {\n  x: [\n    1\n    2\n  ]\n}")
    (run,) = read_runs("a")
    assert {key: origin.line for key, origin in run.origins.items()} == {"d": 2, "d.x": 3, "d.x[0]": 4, "d.x[1]": 5}


def test_runs_travel_between_processes(write: Write) -> None:
    write("a.hjson", "[{x: 1}, {x: '${y}'}]")
    found = read_runs("a")
    assert pickle.loads(pickle.dumps(found)) == found  # noqa: S301 - our own bytes


# ---------------------------------------------------------------- refusals

REFUSED = [
    ("a.hjson", "", "is empty", "a.hjson"),
    ("a.hjson", "// nothing", "holds only comments", "a.hjson:1:11"),
    ("a.hjson", "[]", "an empty list", "a.hjson:1"),
    ("a.hjson", "[{a: 1}, 5]", "holds a number", "a.hjson:1"),
    ("a.hjson", "[[{a: 1}]]", "holds a list", "a.hjson:1"),
    ("a.hjson", "3", "no ':' after '3'", "a.hjson:1:1"),
    ("a.json", '{"a": 1', "never closed", "a.json:1:1"),
    ("a.json", '"text"', "no ':' after 'text'", "a.json:1:1"),
    ("a.yaml", "just text", "holds a text", "a.yaml:1"),
    ("a.yaml", "- 1\n- 2", "holds a number", "a.yaml:1"),
    ("a.yaml", "a: 1\n b: 2", "mapping values", "a.yaml:2:3"),
    ("a.hjson", "a: caf\udce9", "byte 6 (0xe9) is not UTF-8", "a.hjson:1"),
    ("a.hjson", "a: b\n" * 300_000, "larger than 1 MB", "a.hjson"),
    ("a.hjson", "a: " + "[" * 10_000, "deeper than 64", "a.hjson:1:68"),
]


@pytest.mark.parametrize(("name", "text", "problem", "place"), REFUSED)
def test_what_cannot_be_read_is_refused_with_its_place(
    write: Write, name: str, text: str, problem: str, place: str
) -> None:
    write(name, text)
    message = refusal("a")
    assert problem in message
    assert f"({place})" in message


def test_a_missing_config_names_the_nearest(write: Write) -> None:
    write("configs/train.hjson", "a: 1")
    message = refusal("configs/trian")
    assert "there is no 'configs/trian' (nor with .hjson, .json, .yaml, .yml)" in message
    assert "'train.hjson'" in message


def test_a_folder_is_no_config(write: Write) -> None:
    write("configs/train.hjson", "a: 1")
    assert "is a folder, not a config" in refusal("configs")
    assert "write save_dir=configs" in refusal("configs")


def test_faults_that_leave_a_run_readable_are_gathered_in_it(write: Write) -> None:
    write(
        "a.hjson", "__parent__: b\nx: ${nope}\n__parents__: c\ny: 1\ny: 2", "b.hjson", "name: bert, tiny: 1\nbig: 1e999"
    )
    (run,) = read_runs("a")
    assert sorted(fault.key for fault in run.faults) == ["__parents__", "big", "name", "x", "y"]
    assert run.values["name"] == "bert"


def test_a_refusal_is_at_most_12_lines_long(write: Write) -> None:
    write("a.hjson", "\n".join(f"k{index}: “a" for index in range(500)) + "\n}")
    message = refusal("a")
    assert message.count("\n") < 12
    assert "491 further faults" in message


# ---------------------------------------------------------------- overrides


def test_overrides_beat_every_file_and_references_see_them(write: Write) -> None:
    write("a.hjson", "__parent__: [[{lr: 1}, {lr: 2}]]\nsave_dir: out/lr${lr}\nd: {x: 1, y: 2}")
    found = read_runs("a", ["lr=3e-4", "d.x=[a, b]", "new=null"])
    assert [run.values["save_dir"] for run in found] == ["out/lr0.0003"] * 2
    assert found[0].values["d"] == {"x": ["a", "b"], "y": 2}
    assert found[0].values["new"] is None
    assert str(found[0].origins["lr"]) == "command line"


def test_an_override_may_set_a_macro(write: Write) -> None:
    write("a.hjson", "__def__: {fold: 0}\nvalid: split${fold}")
    assert read_runs("a", ["__def__.fold=3"])[0].values == {"valid": "split3"}


def test_wrong_overrides_are_all_reported_with_the_faults_of_the_file(write: Write) -> None:
    write("a.hjson", "x: 1")
    message = refusal("a", "lr", "=3", "l=[1", "__parent__=b")
    assert "4 faults" in message
    assert message.count("(command line)") == 4


# ---------------------------------------------------------------- special keys


def test_wishes_for_the_cluster_are_kept_apart(write: Write) -> None:
    write("a.hjson", "__gpu__: 2\n__v100__: true\n__memory__: 10\nx: 1")
    (run,) = read_runs("a")
    assert (run.values, run.platform) == ({"x": 1}, {"gpu": 2, "v100": True, "memory": 10})
    assert run.faults == ()


def test_an_unknown_special_key_is_a_fault_with_the_nearest(write: Write) -> None:
    write("a.hjson", "__parents__: b\n__ingore__: x")
    (run,) = read_runs("a")
    assert [fault.remedy for fault in run.faults] == ["Did you mean '__parent__'?", "Did you mean '__ignore__'?"]


@pytest.mark.parametrize("text", ["__def__: 5", "__def__: [1]", "__def__: null"])
def test_macros_must_be_a_dict(write: Write, text: str) -> None:
    write("a.hjson", text)
    assert [fault.key for fault in read_runs("a")[0].faults] == ["__def__"]


def test_keys_that_prepro_wrote_are_marked_until_somebody_overrides_them(write: Write) -> None:
    write("d/meta.hjson", '{"__version__": "1.2", "vocab_size": 5, "max_len": 8, "pad": 0, "sizes": {"a": 1}}')
    write("a.hjson", "__parent__: d/meta\nmax_len: 4\nlr: 1")
    (run,) = read_runs("a", ["pad=1", "sizes.b=2"])
    assert run.meta_keys == {"vocab_size"}
    assert run.version == "1.2"
    assert run.values == {"max_len": 4, "lr": 1, "vocab_size": 5, "pad": 1, "sizes": {"a": 1, "b": 2}}


def test_meta_data_stays_meta_data_behind_a_prefix(write: Write) -> None:
    write("d/meta.hjson", "__version__: 1.2\nvocab_size: 5", "a.hjson", "__parent__: d/meta >> teacher_")
    (run,) = read_runs("a")
    assert (run.meta_keys, run.version) == ({"teacher_vocab_size"}, None)


# ---------------------------------------------------------------- promises

PLAIN = st.characters(exclude_categories=["Cs"], exclude_characters="$")
TREES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(PLAIN),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(PLAIN), inner, max_size=4),
    max_leaves=10,
)
FIXTURE = [HealthCheck.function_scoped_fixture]


@given(st.dictionaries(st.text(PLAIN).filter(lambda key: not key.startswith("__")), TREES, max_size=6))
@settings(max_examples=50, deadline=None, suppress_health_check=FIXTURE)
def test_plain_json_comes_back_as_it_is(write: Write, tree: dict[str, Any]) -> None:
    write("a.json", json.dumps(tree))
    (run,) = read_runs("a")
    assert (run.values, run.faults) == (tree, ())


SEEDS = {
    "a.hjson": "{\n  __parent__: [\n    './b'\n    [{lr: 1}, {lr: 2}]\n    'b >> t_'\n  ]\n  __ignore__: x\n"
    "  __def__: {m: 'v'}\n  # why\n  s: out/${lr}.${m}/\n  r: @{bs:64}/50\n  l: [1, 'two', {\n three: 3.5\n}]\n}\n",
    "a.yaml": "__parent__: ./b\nlr: 1e-4\nd: &x\n  - 1\n  - [a, 'b']\n  - {c: no}\ne: *x\ns: ${lr}/x\nt: |\n  text\n",
    "a.json": '{"__parent__": ["./b", {"y": [1, 2.5e3, null]}], "s": "\\u4e2d${x}", "o": {"p": {"q": true}}}',
}
SCRAPS = [
    "{",
    "}",
    "[",
    "]",
    ":",
    ",",
    '"',
    "'",
    "'''",
    "\n",
    "\t",
    " ",
    "#",
    "${",
    "}",
    "__parent__",
    ">>",
    "&x",
    "*x",
    "|",
    "- ",
]
SCRAPS += [
    "1e400",
    "\x00",
    "\ufeff",
    "\\u",
    "é",
    "!!python/name:os.system",
    "<<: ",
    "---\n",
    "@{",
    "../",
    "$${",
    "/*",
    "%",
]


@pytest.mark.parametrize("name", sorted(SEEDS))
def test_every_kind_of_file_can_use_the_whole_language(write: Write, name: str) -> None:
    write(name, SEEDS[name], "b.hjson", "x: 1\ny: 2\nbs: 4")
    for run in read_runs(name):
        assert run.faults == ()
        assert "${" not in str(run.values)


def mutated(text: str, seed: int) -> bytes:
    chance = random.Random(seed)
    data = text.encode()
    for _ in range(chance.randint(1, 4)):
        start = chance.randrange(len(data) + 1)
        scrap = chance.choice(SCRAPS).encode() if chance.random() < 0.9 else bytes([chance.randrange(256)])
        data = data[:start] + scrap + data[start + chance.choice([0, 0, 1, 3, 10]) :]
    return data


@given(st.sampled_from(sorted(SEEDS)), st.integers(0, 2**32))
@settings(max_examples=400, deadline=None, suppress_health_check=FIXTURE)
def test_no_mutation_of_a_config_raises_anything_but_a_config_error(write: Write, name: str, seed: int) -> None:
    folder = write("b.hjson", "x: 1\ny: 2\nbs: 4")
    (folder / name).write_bytes(mutated(SEEDS[name], seed))
    try:
        read_runs(name)
    except ConfigError as error:
        if str(error).count("\n") >= 12:
            raise


def test_reading_imports_nothing_heavy() -> None:
    heavy = "torch numpy pydantic transformers yaml fsspec pandas"
    code = f"import sys, xdpx.config.reading; sys.exit(any(name in sys.modules for name in {heavy.split()}))"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


def test_a_config_runs_no_code(write: Write) -> None:
    events: list[str] = []
    watched = {"os.system", "subprocess.Popen", "exec", "import", "socket.connect", "os.exec"}
    texts = [
        "a: !!python/object/apply:os.system ['touch x']",
        "a: ${HOME}\nb: ${env:HOME}\nc: ${__import__('os')}",
        "_target_: os.system\nclass_path: os:system\nauto_map: {x: y}\nj: '{{ 7*7 }}'",
    ]
    read_runs_quietly("warm.yaml")
    active = True
    sys.addaudithook(lambda event, _: events.append(event) if active and event in watched else None)
    for text in texts:
        write("a.yaml", text)
        read_runs_quietly("a.yaml")
    active = False
    assert events == []


def read_runs_quietly(path: str) -> None:
    import xdpx.config.yaml_reader  # noqa: F401 - imported before anybody watches

    try:
        read_runs(path)
    except ConfigError:
        return


def test_without_a_file_the_overrides_are_the_run() -> None:
    (run,) = read_runs("", ["save_dir=out/${name}", "__def__.name=b", "lr=1e-4"])
    assert (run.source, run.values) == ("command line", {"save_dir": "out/b", "lr": 1e-4})


def test_a_run_with_a_key_of_networks_but_not_its_value_stays_a_run(write: Write) -> None:
    write("a.json", json.dumps({"architectures": [], "transformers_version": None, "lr": 1}))
    (run,) = read_runs("a")
    assert run.values == {"architectures": [], "transformers_version": None, "lr": 1}
