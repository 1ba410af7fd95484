"""MaxText's settings and ours."""

import pytest

from xdpx.commands.from_maxtext import main
from xdpx.config.faults import ConfigError
from xdpx.experiments.fields import values_of
from xdpx.experiments.maxtext import from_fields, to_fields
from xdpx.experiments.registry import resolve

DOCUMENT = {
    "scale": 3, "base_num_decoder_layers": 16, "base_emb_dim": 2048, "base_mlp_dim": 8192, "base_num_heads": 8,
    "head_dim": 256, "per_device_batch_size": 16, "max_target_length": 1024, "vocab_size": 32768, "dtype": "bfloat16",
    "ici_fsdp_parallelism": 64, "dcn_data_parallelism": 2,
}  # fmt: skip


def test_the_documents_table_gives_the_fields_of_the_22b_experiment() -> None:
    one = resolve("C4Spmd22BAdam2xv4_128")()
    ours = values_of(one) | {"HIDDEN_DIMS": one.hidden_dims, "ICI_MESH_SHAPE": [1, 64, 1], "DCN_MESH_SHAPE": [2, 1, 1]}
    fields = to_fields(DOCUMENT)
    assert fields == {name: ours[name] for name in fields}


def test_there_and_back_is_the_same_table() -> None:
    assert from_fields(to_fields(DOCUMENT), scale=3) == DOCUMENT


def test_the_names_of_today_are_read_too() -> None:
    assert to_fields({"base_num_query_heads": 8, "scan_layers": True, "log_period": 10}) == {
        "NUM_HEADS": 8, "USE_REPEATED_LAYER": True, "SUMMARY_INTERVAL_STEPS": 10,
    }  # fmt: skip


def test_one_minus_one_of_each_group_is_filled_up() -> None:
    given = {"ici_fsdp_parallelism": -1, "ici_tensor_parallelism": 4, "dcn_data_parallelism": -1}
    fields = to_fields(given, num_slices=2, devices_per_slice=64)
    assert (fields["ICI_MESH_SHAPE"], fields["DCN_MESH_SHAPE"]) == ([1, 16, 4], [2, 1, 1])


def test_two_in_one_group_are_refused() -> None:
    with pytest.raises(ConfigError, match=r"ici_data_parallelism, ici_fsdp_parallelism: are -1"):
        to_fields({"ici_fsdp_parallelism": -1, "ici_data_parallelism": -1})


def test_a_pipeline_gets_a_stage_axis_and_its_stages() -> None:
    fields = to_fields({"ici_pipeline_parallelism": 4, "ici_fsdp_parallelism": 2})
    assert fields == {
        "ICI_MESH_SHAPE": [4, 1, 2, 1], "DCN_MESH_SHAPE": [1, 1, 1, 1], "NUM_STAGES": 4, "NUM_MICROBATCHES": 4,
        "MICROBATCH_SIZE": None,
    }  # fmt: skip


@pytest.mark.parametrize(
    ("told", "cut"),
    [
        ({}, (4, 3)),  # one layer of a stage at a time: 12 layers take three rounds
        ({"num_layers_per_pipeline_stage": 3}, (4, 1)),
        ({"num_pipeline_repeats": 3, "num_pipeline_microbatches": 8}, (8, 3)),
    ],
)
def test_a_pipeline_that_was_taken_over_can_be_run(told: dict[str, int], cut: tuple[int, int], capsys) -> None:
    words = {"ici_pipeline_parallelism": 4, "base_num_decoder_layers": 12, "per_device_batch_size": 2, **told}
    assert main([*(f"{name}={value}" for name, value in words.items()), "base=LmCloudSpmdPipeline9B"]) == 0
    namespace: dict[str, object] = {"__name__": "of_a_pipeline"}
    exec(compile(capsys.readouterr().out, "mine.py", "exec"), namespace)
    mine = namespace["FromMaxText"]()  # type: ignore[operator]
    mine.validate()
    assert (mine.num_microbatches(), mine.CIRCULAR_REPEAT) == cut
    settings = from_fields(values_of(mine))
    assert settings.items() >= {"num_pipeline_microbatches": cut[0], "num_pipeline_repeats": cut[1]}.items()


def test_layers_that_the_stages_do_not_divide_are_refused() -> None:
    with pytest.raises(ConfigError, match=r"gives 13 layers\. Use a multiple of 4"):
        to_fields({"ici_pipeline_parallelism": 4, "base_num_decoder_layers": 13})


def test_an_axis_that_cannot_be_filled_is_told() -> None:
    with pytest.raises(ConfigError, match=r"ici_\*_parallelism: is \[1, -1, 3\], and 3 does not divide 8 devices"):
        to_fields({"ici_fsdp_parallelism": -1, "ici_tensor_parallelism": 3}, devices_per_slice=8)


@pytest.mark.parametrize(
    ("settings", "words"),
    [
        ({"base_emb_dims": 2}, "Did you mean 'base_emb_dim'"),
        ({"ici_expert_parallelism": 2}, "only 1 can be converted"),
        ({"enable_checkpointing": True}, "It has no counterpart"),
    ],
)
def test_what_cannot_be_taken_over_is_named(settings: dict[str, object], words: str) -> None:
    with pytest.raises(ConfigError, match=words):
        to_fields(settings)


def test_a_scale_that_does_not_divide_is_refused() -> None:
    with pytest.raises(ConfigError, match="NUM_LAYERS: is 13, which 3 does not divide"):
        from_fields({"NUM_LAYERS": 13}, scale=3)


def test_the_script_writes_a_class_that_has_these_fields(tmp_path, capsys) -> None:
    (tmp_path / "2xv4-128.sh").write_text(
        "#!/bin/bash\nexport LIBTPU=1\npython3 MaxText/train.py config.yml "
        + " ".join(f"{name}={value}" for name, value in DOCUMENT.items()) + "\n"
    )  # fmt: skip
    assert main([str(tmp_path / "2xv4-128.sh"), "class=Mine", "steps=5"]) == 0
    source = capsys.readouterr().out
    namespace = {"__name__": "of_a_script"}
    exec(compile(source, "mine.py", "exec"), namespace)
    mine = namespace["Mine"]()
    assert (mine.MODEL_DIMS, mine.ICI_MESH_SHAPE, mine.MAX_STEPS) == (6144, (1, 64, 1), 5)


def test_the_script_goes_back(capsys) -> None:
    assert main(["C4Spmd22BAdam2xv4_128", "--back", "scale=3"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert {"scale: 3", "base_emb_dim: 2048", "ici_fsdp_parallelism: 64", "dcn_data_parallelism: 2"} <= set(lines)


def test_the_scale_on_the_command_line_is_applied(capsys) -> None:
    main(["scale=3", "base_emb_dim=2048", "base_num_decoder_layers=16"])
    assert "MODEL_DIMS = 6144" in capsys.readouterr().out
