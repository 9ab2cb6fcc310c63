"""Reports events of execution through Python's logging, each as a sentence and as fields.

The logger is "pausejax" at level INFO. Without a handler of that level, only the warning `NARROWED` is shown.
"""

import logging

LOGGER = logging.getLogger("pausejax")
NARROWED = "narrowed"
"""The one event of level WARNING. Python shows it even if no handler is set."""


def say(event: str, sentence: str, **fields: str | float | None) -> None:
    """Logs an event as a sentence. Programs read the log record's attributes `event` and `fields`."""
    level = logging.WARNING if event == NARROWED else logging.INFO
    LOGGER.log(level, "%s", sentence, extra={"event": event, "fields": fields})


def placed(policy: str, runs: int, width: int, devices: int, placement: str) -> None:
    """Logs how a group's runs are distributed over the devices."""
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
    """Logs that a group's program has been compiled."""
    say(
        "compiled",
        f"compiled the program of {policy} for {width} runs side by side in {seconds:.1f} s",
        policy=policy,
        width=width,
        took=round(seconds, 3),
    )


def narrowed(policy: str, before: int, width: int) -> None:
    """Logs that only `width` runs of a group fit in parallel, and no longer `before` runs.

    The last bits of sums of floats may then differ.
    """
    say(
        NARROWED,
        f"{policy}: only {width:,} runs fit side by side, not {before:,}. "
        "Floats of the remaining runs may differ in their last bits",
        policy=policy,
        before=before,
        width=width,
    )


def resumed(runs: int, last_round: int, rounds: int) -> None:
    """Logs that runs resume from their checkpoint.

    The rounds before the checkpoint do not count for the measured speed.
    """
    told = f"{runs:,} run{' resumes' if runs == 1 else 's resume'} after round {last_round:,} of {rounds:,}"
    say("resumed", told, runs=runs, round=last_round, rounds=rounds)


def ended_early(runs: int, last_round: int, rounds: int) -> None:
    """Logs that all runs of a batch have reached `stop_at_latency`. The speed is without later rounds."""
    told = f"{runs:,} run{' ends' if runs == 1 else 's end'} by round {last_round:,} of {rounds:,}"
    say("ended_early", told, runs=runs, round=last_round, rounds=rounds)


def found(skipped: int, left: int, programs: int) -> None:
    """Logs how many runs this process skips, how many it plays, and how many programs the latter need."""
    sentence = f"skips {skipped:,} of {skipped + left:,} runs, finished or played by other processes"
    say("found", sentence, runs=skipped, left=left, programs=programs)


def finished(policy: str, runs: int) -> None:
    """Logs that a batch's runs are finished and stored."""
    say("batch", f"finished {runs:,} run{'' if runs == 1 else 's'} of {policy}", policy=policy, runs=runs)
