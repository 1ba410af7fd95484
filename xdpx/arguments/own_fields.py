"""Arguments that the original does not have. They stand behind all of its own."""

from __future__ import annotations

from dataclasses import dataclass

from xdpx.arguments.declaring import option

SAVED_OR_GIVEN = ("saved", "given")
NONFINITE = ("keep", "skip", "raise")


@dataclass
class OwnFields:
    """What users asked the original for, and did not get."""

    resume_hyperparameters: str = option(
        "saved",
        "Whose learning rate, weight decay and other settings of optimizer and schedule hold when resuming: those "
        "saved in the checkpoint, or those given now.",
        choices=SAVED_OR_GIVEN,
    )
    nonfinite_steps: str = option(
        "keep",
        "What becomes of an update whose loss or gradient is NaN or infinite: keep takes and counts it, skip leaves it "
        "out, raise ends the training before it. The last two wait for the device at every update.",
        choices=NONFINITE,
    )
