from pathlib import Path

import numpy as np
import pytest

from xdpx.reports.curves import calm, epoch_borders, group_names, step_axis, thin, walltime_axis, y_limits
from xdpx.reports.run_logs import LogTable, read_run


def test_one_place_on_the_step_axis_is_one_number_of_samples(make_run):
    own, reference = read_run(make_run("own", batch_size=2048)), read_run(make_run("reference", batch_size=1024))
    assert step_axis(reference, own).place(np.array([20000.0])).tolist() == [10000]
    accumulated = read_run(make_run("accumulated", batch_size=1024, update_freq=4))
    assert step_axis(accumulated, own).place(np.array([100.0])).tolist() == [200]


def test_a_run_that_was_resumed_with_another_batch_size_keeps_the_places_of_its_steps_before(make_run, tmp_path):
    own, resumed = read_run(make_run("own", batch_size=10)), make_run("resumed", batch_size=20)
    (tmp_path / "resumed/args.resume-100.py").write_text(repr({"batch_size": 20, "update_freq": 3}))
    reference = read_run(resumed)
    steps = np.array([0.0, 50.0, 100.0, 150.0, 200.0])
    assert step_axis(reference, own).place(steps).tolist() == [0, 100, 200, 500, 800]
    assert step_axis(own, reference).place(np.array([0.0, 100.0, 200.0, 500.0, 800.0])).tolist() == steps.tolist()
    assert (step_axis(own, reference).label, step_axis(reference, own).label) == ("steps", "steps (of 10 samples)")


def test_steps_stay_as_they_are_where_the_batch_size_is_not_known(make_run, tmp_path):
    own = read_run(make_run())
    (tmp_path / "bare").mkdir()
    assert step_axis(read_run(str(tmp_path / "bare")), own).place(np.array([7.0])).tolist() == [7]


def test_the_wall_time_axis_goes_on_at_the_same_speed_after_the_last_evaluation(make_run):
    axis = walltime_axis(read_run(make_run()))
    assert axis.place(np.array([0.0, 25.0, 400.0, 500.0])).tolist() == [0, 2.5, 40, 50]


def test_before_the_first_evaluation_the_wall_time_is_that_of_the_logged_speed(make_run):
    folder = make_run()
    Path(folder, "valid.log.tsv").unlink()
    axis = walltime_axis(read_run(folder))
    assert axis.place(np.array([0.0, 25.0, 400.0, 500.0])) == pytest.approx([0, 2.5, 40, 50])


def test_epochs_of_one_length_begin_at_even_distances(make_run):
    assert epoch_borders(read_run(make_run()).train).tolist() == [100, 200, 300]
    steps = np.arange(20.0, 440.0, 20.0)
    uneven_rows = LogTable({"step": steps, "epoch": np.ceil(steps / 75)})
    assert epoch_borders(uneven_rows).tolist() == [75, 150, 225, 300, 375]


def test_epochs_that_no_row_stands_for_share_the_steps_between_the_rows():
    def rows(**columns):
        return LogTable({name: np.array(values, dtype=float) for name, values in columns.items()})

    train, valid = rows(step=[20, 40], epoch=[2, 5]), rows(step=[10, 40], epoch=[1, 5])
    assert epoch_borders(train, valid).tolist() == [15, 20 + 20 / 6, 30, 20 + 100 / 6]
    assert epoch_borders(rows(step=[3], epoch=[1]), LogTable()).tolist() == []


def test_an_epoch_of_another_length_begins_between_the_rows_that_lie_on_both_sides():
    resumed = LogTable({"step": np.array([10.0, 20.0, 25.0, 30.0]), "epoch": np.array([1.0, 2.0, 3.0, 4.0])})
    assert epoch_borders(resumed).tolist() == [15, 22.5, 27.5]


def test_thinning_keeps_every_spike():
    values = np.zeros(10_000)
    values[[3_333, 7_777]] = [5, -5]
    x, y = thin(np.arange(10_000.0), values, 100)
    assert len(x) == len(y) == 100
    assert (y.max(), y.min()) == (5, -5)


def test_one_spike_does_not_move_the_course():
    values = np.ones(400)
    values[100] = 1e9
    assert calm(np.arange(400.0), values)[1].max() == 1


def test_limits_show_the_body_and_leave_far_outliers_out():
    body = np.linspace(1, 2, 200)
    low, high = y_limits([np.append(body, [1e6, np.nan, np.inf])])
    assert 0.8 < low < 1
    assert 2 < high < 2.2


def test_limits_of_a_few_points_show_all_of_them_and_a_flat_line_has_room():
    low, high = y_limits([np.array([0.0, 100.0])])
    assert low < 0
    assert high > 100
    low, high = y_limits([np.full(50, 3.0)])
    assert low < 3 < high
    assert y_limits([np.array([np.nan])]) is None


@pytest.mark.parametrize(
    ("names", "groups"),
    [
        (["acc", "f1_0", "f1_1"], {"acc": ["acc"], "f1": ["f1_0", "f1_1"]}),
        (["f1", "f1_0", "f1_1"], {"f1": ["f1"], "f1_each": ["f1_0", "f1_1"]}),
        (["f1"], {"f1": ["f1"]}),
        (["f1", "f2"], {"f": ["f1", "f2"]}),
        (["top5", "loss"], {"top5": ["top5"], "loss": ["loss"]}),
        (["7"], {"7": ["7"]}),
    ],
)
def test_names_that_differ_in_their_last_digits_share_a_figure(names, groups):
    assert group_names(names) == groups
