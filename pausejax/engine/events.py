"""What the engine says while it plays, through Python's logging: a sentence, and the same as fields.

Nobody hears it who has not asked: the logger "pausejax", level INFO.
"""

import logging

LOGGER = logging.getLogger("pausejax")


def say(event: str, sentence: str, **fields: str | float | None) -> None:
    """Tells whoever listens; a record's `event` and `fields` are for machines."""
    LOGGER.info("%s", sentence, extra={"event": event, "fields": fields})


def finished(policy: str, runs: int) -> None:
    """Tells that some runs are in the folder."""
    say("chunk", f"finished {runs:,} run{'' if runs == 1 else 's'} of {policy}", policy=policy, runs=runs)
