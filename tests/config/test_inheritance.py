"""`__parent__`: priority, relative paths, prefixes, ignored keys, and the order of loops."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from xdpx.config.faults import ConfigError
from xdpx.config.reading import RawRun, read_runs

Write = Callable[..., Path]


def values(path: str = "a", *overrides: str) -> dict[str, Any]:
    (run,) = runs(path, *overrides)
    return run.values


def runs(path: str = "a", *overrides: str) -> list[RawRun]:
    found = read_runs(path, overrides)
    assert [run.faults for run in found] == [()] * len(found)
    assert [run.index for run in found] == list(range(len(found)))
    return found


def refusal(path: str = "a", *overrides: str) -> str:
    with pytest.raises(ConfigError) as error:
        read_runs(path, overrides)
    return str(error.value)


# ---------------------------------------------------------------- priority


def test_the_child_beats_its_parent_and_origins_follow(write: Write) -> None:
    write("a.hjson", "__parent__: b\nx: 1", "b.hjson", "x: 2\ny: 3")
    (run,) = runs()
    assert run.values == {"x": 1, "y": 3}
    assert {key: str(origin) for key, origin in run.origins.items()} == {"x": "a.hjson:2", "y": "b.hjson:2"}


def test_a_later_parent_and_all_its_ancestors_beat_an_earlier_parent(write: Write) -> None:
    write("a.hjson", "__parent__: ['b', 'c']", "b.hjson", "x: b\ny: b\nz: b")
    write("c.hjson", "__parent__: d\nx: c", "d.hjson", "x: d\ny: d")
    assert values() == {"x": "c", "y": "d", "z": "b"}


def test_dicts_merge_one_level_deep_and_lists_are_replaced(write: Write) -> None:
    write("a.hjson", "{__parent__: 'b', d: {x: {p: 1}}, l: [1]}", "b.hjson", "{d: {x: {q: 2}, y: 3}, l: [2, 3]}")
    assert values() == {"d": {"x": {"p": 1}, "y": 3}, "l": [1]}


@pytest.mark.parametrize("parent", ["{x: 1}", "[{x: 1}]", "'b'", "['b']", "[['b']]", "null", "[]"])
def test_a_parent_is_a_path_a_dict_or_a_list_of_them(write: Write, parent: str) -> None:
    write("a.hjson", f"{{__parent__: {parent}, y: 2}}", "b.json", '{"x": 1}')
    assert {"x": 1, **values()} == {"x": 1, "y": 2}


def test_macros_merge_per_name_and_the_child_wins(write: Write) -> None:
    write("a.hjson", "__parent__: b\n__def__: {m: 1}", "b.hjson", "{__def__: {m: 2, n: 3}, x: '${m}', y: '${n}'}")
    assert values() == {"x": 1, "y": 3}


# ---------------------------------------------------------------- paths


def test_a_dot_path_starts_at_the_file_that_holds_it_and_others_at_the_working_directory(write: Write) -> None:
    write("x/a.hjson", "__parent__: ['./b', 'c', '../y/d']", "x/b.hjson", "b: 1", "c.hjson", "c: 2")
    write("y/d.yaml", "d: 3\n__parent__: ./e", "y/e.json", '{"e": 4}')
    assert values("x/a") == {"b": 1, "c": 2, "d": 3, "e": 4}


def test_parents_may_be_absolute_or_remote(write: Write) -> None:
    from xdpx.utils import io

    with io.open("memory://configs/one/b.hjson", "w") as file:
        file.write("__parent__: ../two/c\nb: 1")
    with io.open("memory://configs/two/c.hjson", "w") as file:
        file.write("c: 2")
    folder = write("d.hjson", "d: 3")
    write("a.hjson", f"__parent__: ['memory://configs/one/b', '{folder}/d']")
    assert values() == {"b": 1, "c": 2, "d": 3}


def test_a_path_refers_to_the_child_to_later_and_even_to_earlier_parents(write: Write) -> None:
    write("data/meta.hjson", "vocab_size: 5")
    write("a.hjson", "__parent__: ${data_dir}/meta\ndata_dir: data/")
    assert values() == {"data_dir": "data/", "vocab_size": 5}
    write("a.hjson", "__parent__: ['${dir}/meta', {dir: 'data'}]")
    assert values() == {"dir": "data", "vocab_size": 5}
    write("a.hjson", "__parent__: [{dir: 'data', vocab_size: 1}, '${dir}/meta']")
    assert values() == {"dir": "data", "vocab_size": 5}


def test_a_path_of_a_parent_file_sees_what_the_child_and_the_command_line_set(write: Write) -> None:
    write("a.hjson", "__parent__: b\ndata_dir: one", "b.hjson", "__parent__: ${data_dir}/meta\ndata_dir: zero")
    write("one/meta.hjson", "n: 1", "two/meta.hjson", "n: 2")
    assert values() == {"data_dir": "one", "n": 1}
    assert values("a", "data_dir=two") == {"data_dir": "two", "n": 2}


def test_a_path_may_hold_a_macro_or_a_built_in(write: Write) -> None:
    write("a.hjson", "__parent__: ./${m}${__workers__}\n__def__: {m: 'b'}", "b1.hjson", "x: 1")
    assert values() == {"x": 1}


MISSING = [
    ("__parent__: bse", "a.hjson:1", "there is no 'bse'", "nearest file there is 'base.hjson'"),
    ("__parent__: x/base", "a.hjson:1", "there is no 'x/base'", "folder 'x' does not exist"),
    ("\n__parent__: [\n 'base'\n 'bse.json'\n]", "a.hjson:4", "there is no 'bse.json'.", "'base.hjson'"),
    ("__parent__: out/meta", "a.hjson:1", "there is no 'out/meta'", "run x-prepro first"),
    ("__parent__: ${data_dri}/meta\ndata_dir: x", "a.hjson:1", "${data_dri}", "Did you mean '${data_dir}'"),
    ("__parent__: ${d}\nd: [1]", "a.hjson:1", "becomes a list", "must be a text"),
    ("__parent__: ''", "a.hjson:1", "there is no ''", ""),
    ("__parent__: sub", "a.hjson:1", "is a folder, not a config", ""),
    ('__parent__: "a\\u0000b"', "a.hjson:1", "cannot be a path: embedded null byte", ""),
    (f"__parent__: {'x' * 5000}", "a.hjson:1", "cannot be a path: File name too long", ""),
    ("__parent__: 5", "a.hjson:1", "holds a number", "paths, dicts, and lists"),
    ("__parent__: [true]", "a.hjson:1", "holds true or false", "paths, dicts, and lists"),
    ("__parent__: [[[{}]]]", "a.hjson:1", "holds a list", "paths, dicts, and lists"),
    ("__parent__: [[]]", "a.hjson:1", "empty loop", "Remove it or fill it"),
    ("__ignore__: [{a: 1}]", "a.hjson:1", "holds a dict", "a key, or a list of keys"),
    ("__parent__: base >> 1x", "a.hjson:1", "'1x' cannot be put before a key", "path >> name_"),
    ("__parent__: a", "a.hjson:1", "its own ancestor: a.hjson -> a.hjson", "Break the cycle"),
    ("__parent__: sub/c", "sub/c.hjson:1", "a.hjson -> sub/c.hjson -> a.hjson", "Break the cycle"),
]


@pytest.mark.parametrize(("text", "place", "problem", "remedy"), MISSING)
def test_a_parent_that_cannot_be_used_is_a_fault_with_its_line(
    write: Write, text: str, place: str, problem: str, remedy: str
) -> None:
    write("a.hjson", text, "base.hjson", "x: 1", "sub/c.hjson", "__parent__: a")
    message = refusal()
    assert f"({place})" in message
    assert problem in message
    assert remedy in message


def test_all_missing_parents_are_reported_together(write: Write) -> None:
    write("a.hjson", "__parent__: ['b', 'c', 'd']", "c.hjson", "__parent__: e")
    message = refusal()
    assert "3 faults" in message
    assert all(f"there is no '{name}'" in message for name in "bde")


def test_a_missing_dot_is_suggested(write: Write) -> None:
    write("x/a.hjson", "__parent__: b", "x/b.hjson", "")
    assert "write './b' for the file beside this one" in refusal("x/a")


def test_a_line_of_100_generations_is_refused(write: Write) -> None:
    for index in range(100):
        write(f"g{index}.hjson", f"__parent__: g{index + 1}")
    write("g100.hjson", "x: 1")
    assert "64 generations" in refusal("g0")


# ---------------------------------------------------------------- prefix and ignore


def test_a_prefix_goes_before_every_key_of_a_parent_and_of_its_parents(write: Write) -> None:
    write("a.hjson", "__parent__: b >> teacher_\nx: 0", "b.hjson", "__parent__: c\nx: 1", "c.hjson", "y: 2")
    assert values() == {"x": 0, "teacher_x": 1, "teacher_y": 2}


def test_references_inside_a_prefixed_parent_keep_their_meaning(write: Write) -> None:
    write("a.hjson", "__parent__: b >> teacher_\nroot: r\nname: mine")
    write("b.hjson", "{name: 'big', dir: '${root}/${name}/${m}', __def__: {m: 3}, n: '@{name:1}/2', e: '$${name}'}")
    assert values() == {
        "root": "r",
        "name": "mine",
        "teacher_name": "big",
        "teacher_dir": "r/big/3",
        "teacher_n": "@{teacher_name:1}/2",
        "teacher_e": "${name}",
    }


def test_the_child_overrides_a_prefixed_key_even_in_the_path_of_a_grandparent(write: Write) -> None:
    write("a.hjson", "__parent__: b >> teacher_\nteacher_dir: two", "b.hjson", "__parent__: ${dir}/meta\ndir: one")
    write("two/meta.hjson", "n: 2")
    assert values() == {"teacher_dir": "two", "teacher_n": 2}


def test_every_run_of_a_loop_gets_the_prefix(write: Write) -> None:
    write("a.hjson", "__parent__: [[{l: 1}, {l: 2}], 'b >> t_']", "b.hjson", "[{x: 1}, {x: 2}]")
    assert [run.values for run in runs()] == [
        {"l": 1, "t_x": 1},
        {"l": 2, "t_x": 1},
        {"l": 1, "t_x": 2},
        {"l": 2, "t_x": 2},
    ]


def test_ignored_keys_are_dropped_from_parents_and_never_from_the_child(write: Write) -> None:
    write("a.hjson", "{__parent__: 'b', __ignore__: ['x', 'y'], x: 1}", "b.hjson", "{x: 2, y: 3, z: 4}")
    assert values() == {"x": 1, "z": 4}


def test_a_single_ignored_key_may_be_a_text(write: Write) -> None:
    write("a.hjson", "{__parent__: 'b', __ignore__: 'xy'}", "b.hjson", "{x: 1, y: 2, xy: 3}")
    assert values() == {"x": 1, "y": 2}


def test_what_a_parent_ignores_its_child_may_have(write: Write) -> None:
    write("a.hjson", "{__parent__: ['c', 'b'], x: 1}", "b.hjson", "{__ignore__: ['x', 'y']}", "c.hjson", "y: 2")
    assert values() == {"x": 1, "y": 2}


def test_an_ignored_name_that_no_parent_has_and_that_is_no_key_is_a_fault(write: Write) -> None:
    names = "hidden_sze, lr, dropout, teacher_dropout, x"
    write("a.hjson", f"__parent__: [b, [{{y: 1}}, {{y: 2}}]]\n__ignore__: [{names}]")
    write("b.hjson", "x: 1\nhidden_size: 2\nlearning_rate: 3")
    first, *_ = read_runs("a")
    assert sorted((fault.key, fault.problem, fault.remedy, str(fault.origin)) for fault in first.faults) == [
        ("__ignore__", "'hidden_sze' is neither inherited nor a key.", "Did you mean 'hidden_size'?", "a.hjson:2"),
        ("__ignore__", "'lr' is neither inherited nor a key.", "It is called 'learning_rate' here.", "a.hjson:2"),
    ]


# ---------------------------------------------------------------- loops


def grid(path: str = "a") -> list[str]:
    return ["".join(str(value) for _, value in sorted(run.values.items())) for run in runs(path)]


def test_the_first_listed_loop_varies_fastest(write: Write) -> None:
    write("a.hjson", "__parent__: [[{x: 1}, {x: 2}], [{y: 'a'}, {y: 'b'}], [{z: 7}, {z: 8}]]")
    assert grid() == ["1a7", "2a7", "1b7", "2b7", "1a8", "2a8", "1b8", "2b8"]


def test_a_loop_inside_an_item_makes_a_grid_that_is_not_rectangular(write: Write) -> None:
    inner = "{x: 2, __parent__: [[{y: 5}, {y: 6}]]}"
    write("a.hjson", f"__parent__: [[{{x: 1, y: 0}}, {inner}], [{{z: 8}}, {{z: 9}}]]")
    assert grid() == ["108", "258", "268", "109", "259", "269"]


def test_a_file_whose_top_level_is_a_list_is_a_loop(write: Write) -> None:
    write("a.hjson", "__parent__: ['b', [{y: 1}, {y: 2}]]", "b.yaml", "- x: 1\n- x: 2\n")
    assert grid() == ["11", "21", "12", "22"]
    assert grid("b") == ["1", "2"]


def test_a_loop_may_hold_paths(write: Write) -> None:
    write("a.hjson", "__parent__: [['b', {x: 2}, 'c']]", "b.hjson", "x: 1", "c.hjson", "x: 3")
    assert grid() == ["1", "2", "3"]


@pytest.mark.parametrize(
    "tables",
    ["{x: 1}, {x: 2}", "{x: 1}, {x: 2, y: 3}", "{__def__: {f: 0}}, {__def__: {f: 1}}", "{x: 1}, {x: 1}, {y: 2}"],
)
def test_a_loop_without_its_brackets_is_a_fault(write: Write, tables: str) -> None:
    write("a.hjson", f"__parent__: [{tables}]")
    (run,) = read_runs("a")
    assert [fault.remedy for fault in run.faults] == ["For a run of each, put them into [ ]: a loop."]


def test_tables_that_add_to_each_other_are_no_loop(write: Write) -> None:
    write("p.hjson", "__parent__: [{__parent__: 'q'}, {__parent__: 'r'}]", "q.hjson", "x: 1", "r.hjson", "y: 2")
    assert values("p") == {"x": 1, "y": 2}
    write("a.hjson", "__parent__: [{x: 1, e: {a: 1}}, {e: {b: 2}, x: 3}, {}, {y: 1}]")
    assert values() == {"x": 3, "e": {"a": 1, "b": 2}, "y": 1}


def test_a_path_may_depend_on_a_loop(write: Write) -> None:
    write("a.hjson", "__parent__: [[{d: 1}, {d: 2}], 'data${d}']", "data1.hjson", "x: a", "data2.hjson", "x: b")
    assert grid() == ["1a", "2b"]


def test_cross_validation_loops_over_a_macro(write: Write) -> None:
    write("a.hjson", "__parent__: [[{__def__: {k: 0}}, {__def__: {k: 1}}]]\nvalid: split${k}\nsave_dir: out/fold${k}")
    assert [run.values["valid"] for run in runs()] == ["split0", "split1"]
    assert [run.values["save_dir"] for run in runs()] == ["out/fold0", "out/fold1"]


def test_loops_without_bound_are_refused_at_once(write: Write) -> None:
    loops = "\n".join(f"[{{a{index}: 1}}, {{a{index}: 2}}]" for index in range(60))
    write("a.hjson", f"__parent__: [{loops}]")
    assert "more than 10,000 runs" in refusal()
