"""What the engine says while it plays, through Python's logging: a sentence, and the same as fields.

Only who listens hears it: the logger "pausejax", level INFO.
"""

import logging

LOGGER = logging.getLogger("pausejax")
NARROWED = "narrowed"
"""The event that is a warning: Python shows it even if nobody listens."""


def say(event: str, sentence: str, **fields: str | float | None) -> None:
    """Tells whoever listens; a record's `event` and `fields` are for machines."""
    level = logging.WARNING if event == NARROWED else logging.INFO
    LOGGER.log(level, "%s", sentence, extra={"event": event, "fields": fields})


def placed(policy: str, runs: int, width: int, devices: int, placement: str) -> None:
    """Tells how a group's runs lie on the devices."""
    told = f"{policy}: {runs:,} runs, up to {width:,} side by side"
    told += f" over {devices} devices" if devices > 1 else " on one device"
    say(
        "group",
        f"{told}, {placement}" if placement else told,
        policy=policy,
        runs=runs,
        width=width,
        devices=devices,
        placement=placement or None,
    )


def compiled(policy: str, width: int, seconds: float) -> None:
    """Tells that a group's program is compiled."""
    say(
        "compiled",
        f"compiled {policy} for {width} runs side by side in {seconds:.1f} s",
        policy=policy,
        width=width,
        took=round(seconds, 3),
    )


def narrowed(policy: str, before: int, width: int) -> None:
    """Tells that fewer runs fit side by side than before: sums of floats may be rounded otherwise."""
    say(
        NARROWED,
        f"{policy}: {width:,} runs fit side by side, where {before:,} did before; "
        "floats of the runs that are left may differ in their last bits",
        policy=policy,
        before=before,
        width=width,
    )


def resumed(runs: int, last_round: int, rounds: int) -> None:
    """Tells that some runs go on from their checkpoint, whose rounds count as no speed."""
    told = f"{runs:,} run{' goes' if runs == 1 else 's go'} on from round {last_round:,} of {rounds:,}"
    say("resumed", told, runs=runs, round=last_round, rounds=rounds)


def found(skipped: int, left: int, programs: int) -> None:
    """Tells how many runs this process skips, how many it plays, and in how many programs."""
    sentence = f"{skipped:,} of {skipped + left:,} runs are there already, or other processes' work"
    say("found", sentence, runs=skipped, left=left, programs=programs)


def finished(policy: str, runs: int) -> None:
    """Tells that some runs are in the folder."""
    say("batch", f"finished {runs:,} run{'' if runs == 1 else 's'} of {policy}", policy=policy, runs=runs)
