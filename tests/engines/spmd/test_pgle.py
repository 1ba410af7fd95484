"""PGLE: what is asked for reaches JAX and XLA before they start; profiles are made, and found in logs."""

import os
import subprocess
import sys

import jax
import pytest

from xdpx.commands.pgle_profile import main as script
from xdpx.config.faults import ConfigError
from xdpx.engines.spmd import pgle
from xdpx.engines.spmd.pgle import Pgle, automatic, make_profile, newest_run, pgle_of, settings_of, use_in
from xdpx.utils import io

SCHEDULER = "--xla_gpu_enable_latency_hiding_scheduler=true"
USED = [
    "I external/xla/gpu_hlo_schedule.cc:478] Using PGLE profile from /tmp/p/profile.pb",
    "I external/xla/gpu_hlo_schedule.cc:573] Found profile, using profile guided latency estimator",
]


def trace(folder, name: str, text: str = "times") -> None:
    run = folder / "summaries/train/plugins/profile" / name
    run.mkdir(parents=True)
    (run / "host.xplane.pb").write_text(text)


def read(folder: str) -> bytes:
    with io.open(f"{folder}/host.xplane.pb", "rb") as file:
        return b"<" + file.read() + b">"


def test_automatic_is_the_documented_environment():
    assert settings_of(Pgle("auto", runs=5, percentile=85), {}) == {
        "XLA_FLAGS": SCHEDULER,
        "JAX_ENABLE_PGLE": "true",
        "JAX_PGLE_PROFILING_RUNS": "5",
        "JAX_PGLE_AGGREGATION_PERCENTILE": "85",
        "JAX_REMOVE_CUSTOM_PARTITIONING_PTR_FROM_CACHE_KEY": "true",
    }
    assert "JAX_PGLE_PROFILING_RUNS" not in settings_of(Pgle("auto"), {})
    assert settings_of(Pgle(), {"XLA_FLAGS": "--a=b"}) == {}


def test_a_profile_is_a_flag_beside_those_that_are_set():
    found = settings_of(Pgle("use", "x"), {"XLA_FLAGS": "--xla_a=1"}, profile="/p/profile.pb")
    flag = "--xla_gpu_pgle_profile_file_or_directory_path=/p/profile.pb"
    assert found == {"XLA_FLAGS": f"--xla_a=1 {SCHEDULER} {flag}", "TF_CPP_MIN_LOG_LEVEL": "0"}


def test_a_flag_of_the_user_s_wins_and_the_difference_is_told(caplog):
    mine = "--xla_gpu_enable_latency_hiding_scheduler=false"
    assert pgle.with_flags(mine, {pgle.SCHEDULER_FLAG: "true"}) == mine
    assert "Yours is kept" in caplog.text


@pytest.mark.parametrize(
    ("text", "knobs", "told"),
    [
        ("auto", {"runs": 0}, "Profile at least 1"),
        ("auto", {"percentile": 101}, "Use 0 to 100"),
        ("profile", {"runs": 2}, "needs --pgle=auto"),
        ("auot", {}, "where no profile.pb is. Did you mean 'auto'"),
        ("/no/where", {}, "Use auto, profile or off"),
    ],
)
def test_what_cannot_be_is_refused(text, knobs, told):
    with pytest.raises(ConfigError, match=told):
        pgle_of(text, **knobs)


def test_an_empty_file_is_no_profile(tmp_path):
    (tmp_path / "profile.pb").write_bytes(b"")
    with pytest.raises(ConfigError, match="an empty file"):
        pgle_of(str(tmp_path))
    (tmp_path / "profile.pb").write_bytes(b"x")
    assert pgle_of(str(tmp_path)) == Pgle("use", str(tmp_path))


def test_flags_after_jax_has_started_come_too_late(monkeypatch):
    jax.devices()
    environ = {"XLA_FLAGS": "--xla_a=1"}
    with pytest.raises(ConfigError, match="too late"):
        pgle.apply(Pgle("auto"), environ)
    assert environ == {"XLA_FLAGS": "--xla_a=1"}
    pgle.apply(Pgle("profile"), {"XLA_FLAGS": SCHEDULER})  # what it asks for was set in time


def test_before_jax_starts_it_is_set_in_jax_too_and_steps_run_traced_once():
    code = (
        "import jax, jax.numpy as jnp\n"
        "from xdpx.engines.spmd import pgle\n"
        "pgle.apply(pgle.pgle_of('auto', runs=1, percentile=85))\n"
        "traces = []\n"
        "step = jax.jit(lambda x: traces.append(1) or x + 1)\n"
        "for _ in range(4): value = step(jnp.ones(2))\n"
        "c = jax.config\n"
        "print(len(traces), c.jax_enable_pgle, c.jax_pgle_profiling_runs, c.jax_pgle_aggregation_percentile,\n"
        "      c.jax_remove_custom_partitioning_ptr_from_cache_key, pgle.is_automatic())\n"
    )
    line = [sys.executable, "-W", "ignore", "-c", code]
    done = subprocess.run(line, capture_output=True, text=True, check=True, env=os.environ | {"XLA_FLAGS": ""})
    assert done.stdout.split() == ["1", "True", "1", "85", "True", "True"]


@pytest.mark.filterwarnings("ignore:PGLE collected an empty trace")
def test_in_code_it_is_on_inside_only():
    step = jax.jit(lambda x: x * 2)
    with automatic(step, runs=1, percentile=85):
        assert pgle.is_automatic()
        assert [float(step(1.0)) for _ in range(3)] == [2.0] * 3
    assert not pgle.is_automatic()


def test_in_code_what_was_compiled_ahead_of_time_is_refused():
    compiled = jax.jit(lambda x: x * 2).lower(1.0).compile()
    with pytest.raises(TypeError, match="compiled ahead of time"), automatic(compiled):
        pass


def test_the_newest_trace_becomes_the_profile_wherever_it_lies(tmp_path, any_root):
    trace(tmp_path, "2026_01_02_00_00_00", "old")
    trace(tmp_path, "2026_01_10_00_00_00", "new")
    io.copytree(str(tmp_path / "summaries"), io.join(any_root, "summaries"))
    path = make_profile(any_root, read)
    assert path == io.join(newest_run(any_root), "profile.pb")
    assert path.endswith("2026_01_10_00_00_00/profile.pb")
    with io.open(path, "rb") as file:
        assert file.read() == b"<new>"


def test_a_trace_of_a_cpu_gives_no_profile_and_no_trace_neither(tmp_path):
    with pytest.raises(ConfigError, match="--pgle=profile"):
        script([str(tmp_path)])
    with jax.profiler.trace(str(tmp_path)):
        jax.jit(lambda x: x + 1)(1.0).block_until_ready()
    with pytest.raises(ConfigError, match="empty profile.*NVIDIA GPU"):
        script([str(tmp_path)])


def test_logs_tell_whether_a_profile_was_used(tmp_path, capsys):
    assert use_in(USED).used
    assert use_in(USED).text == "The profile was used: 1 programs were scheduled by /tmp/p/profile.pb."
    assert not use_in(USED[:1]).used
    assert "it was not used" in use_in(USED[:1]).text
    assert (
        "not fit it well (cost name x not in y)"
        in use_in(
            [*USED, "I a] PGLE profile may not applicable to the module, but will still be used : cost name x not in y"]
        ).text
    )
    (tmp_path / "log").write_text("\n".join(USED))
    (tmp_path / "other").write_text("nothing")
    assert script(["--used", str(tmp_path / "log")]) == 0
    assert script(["--used", str(tmp_path / "log"), str(tmp_path / "other")]) == 1
    assert "TF_CPP_MIN_LOG_LEVEL=0" in capsys.readouterr().out
