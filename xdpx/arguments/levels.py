"""How much this process says."""

from __future__ import annotations

from typing import TYPE_CHECKING

from xdpx.logger import log

if TYPE_CHECKING:
    from xdpx.arguments.training import TrainingArguments as Arguments


def apply_log_level(args: Arguments) -> int:
    """Let xdpx and transformers say what `args` asks of this process, and give that level.

    The level is `log_level` where the logging is done, and `log_level_replica` elsewhere. "passive" changes nothing.
    """
    level = args.get_process_log_level()
    if (args.log_level if args.should_log else args.log_level_replica) != "passive":
        from transformers.utils import logging

        log.speak_from(level)
        logging.set_verbosity(level)
    return level
