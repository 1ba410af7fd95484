from __future__ import annotations

from transformers import TrainerControl as Theirs

from xdpx.trainer.files import state as trainer_state
from xdpx.trainer.hooks import state
from xdpx.trainer.hooks.state import TrainerControl


def test_the_control_has_the_flags_of_the_original_and_all_are_down():
    assert vars(TrainerControl()) == vars(Theirs())
    assert not any(vars(TrainerControl()).values())


def test_the_control_is_kept_in_a_checkpoint_as_the_original_keeps_it():
    flags = (True, False, True, False, True)
    assert TrainerControl(*flags).state() == Theirs(*flags).state()
    assert TrainerControl.from_state(Theirs(*flags).state()) == TrainerControl(*flags)


def test_what_a_checkpoint_keeps_is_offered_here_too():
    assert all(
        getattr(state, name) is getattr(trainer_state, name) for name in state.__all__ if name != "TrainerControl"
    )


def test_the_control_can_be_set_back_as_the_originals_can():
    for reset in ("_new_training", "_new_epoch", "_new_step"):
        controls = [kind(True, True, True, True, True) for kind in (TrainerControl, Theirs)]
        for control in controls:
            getattr(control, reset)()
        assert vars(controls[0]) == vars(controls[1])
