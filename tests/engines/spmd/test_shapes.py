"""To which sizes batches are filled up."""

from __future__ import annotations

from xdpx.engines.spmd.shapes import bucket, multiple


def test_there_are_two_sizes_for_each_doubling_and_little_filling() -> None:
    sizes = [bucket(size) for size in range(1, 513)]
    assert sorted(set(sizes)) == [8, 16, 24, 32, 48, 64, 96, 128, 192, 256, 384, 512]
    assert all(size <= room for size, room in enumerate(sizes, 1))
    assert max((room - size) / room for size, room in enumerate(sizes, 1) if size > 16) < 0.34


def test_no_size_goes_beyond_the_positions_of_a_model() -> None:
    assert bucket(70, 77) == 77
    assert bucket(10, 77) == 16
    assert bucket(3, 5) == 5


def test_rows_become_a_multiple_of_what_splits_them() -> None:
    assert [multiple(rows, 8) for rows in (1, 8, 9)] == [8, 8, 16]
