"""What the engine says while it plays, through Python's logging: a sentence, and the same as fields.

Nobody hears it who has not asked: the logger "pausejax", level INFO.
"""

import logging

LOGGER = logging.getLogger("pausejax")


def say(event: str, sentence: str, **fields: str | float | None) -> None:
    """Tells whoever listens; a record's `event` and `fields` are for machines."""
    LOGGER.info("%s", sentence, extra={"event": event, "fields": fields})


def placed(policy: str, runs: int, width: int, devices: int, placement: str, origin: str) -> None:
    """Tells how a group's runs lie on the devices, and where that comes from."""
    told = f"{policy}: {runs:,} runs, up to {width:,} side by side"
    told += f" over {devices} devices" if devices > 1 else " on one device"
    say(
        "group",
        (f"{told}, {placement}" if placement else told) + (f" ({origin})" if origin else ""),
        policy=policy,
        runs=runs,
        width=width,
        devices=devices,
        placement=placement or None,
        origin=origin or None,
    )


def finished(policy: str, runs: int) -> None:
    """Tells that some runs are in the folder."""
    say("chunk", f"finished {runs:,} run{'' if runs == 1 else 's'} of {policy}", policy=policy, runs=runs)
