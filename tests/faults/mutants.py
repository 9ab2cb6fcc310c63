"""A seeded generator of specs and overrides that somebody might have mistyped, or made up to do harm."""

import copy
import datetime
import random
import string

import tomli_w

from . import specs

HUGE = int("9" * 4000)
VALUES = (
    *(0, 1, -1, 2, 3, 7, 2**24, 2**31 - 1, 2**31, 2**32, 2**63, 10**30, HUGE),
    *(0.0, -0.0, 0.5, 1.0, -2.5, 1e-45, 1e-40, 1e-20, 1e-9, 1e15, 1e30, 3e38, 1e300),
    *(float("nan"), float("inf"), float("-inf"), True, False),
    *(
        "",
        " ",
        "x",
        "nan",
        "1",
        "true",
        "[/red]x",
        ":smile:",
        "a\nb",
        "a\tb\r",
        "\x1b[31m",
        "ünïcode ✗",
        "x" * 5000,
    ),
    *(
        "../..",
        "/",
        "/dev/zero",
        "/dev/stdin",
        "~",
        "http://localhost:1/x.csv",
        "s3://a/b",
        "a::b",
        "none.npy",
    ),
    *([], [[]], [1, "a"], [1, 1], [0.1, 0.2], [2, 3], ["pause"], list(range(50)), [[1, 2], [3]]),
    *({}, {"uniform": [0.1, 0.2]}, {"uniform": [2, 1]}, {"log_uniform": [0, 1]}, {"int_uniform": [1, 3]}),
    *(
        {"uniform": 3},
        {"uniform": ["a", "b"]},
        {"normal": [0, 1]},
        {"uniform": [0, 1], "x": 2},
        {"a": {"b": {"c": 1}}},
    ),
    *(datetime.date(2024, 1, 1), datetime.time(1, 2), datetime.datetime(2024, 1, 1)),
)
WORDS = (
    *(
        "seeds",
        "rounds",
        "mode",
        "name",
        "eval_every",
        "stop_at_latency",
        "selection_gap",
        "keep_models",
        "client_metrics",
        "held_out_share",
        "quantities",
        "zip",
    ),
    *(
        "K",
        "m",
        "alpha",
        "α",
        "γ",
        "eta",
        "eps_bar",
        "kappa",
        "tau_min",
        "learning_rate",
        "learning_rat",
        "momentum",
    ),
    *(
        "min_latency",
        "fast_latency",
        "slow_latency",
        "latency_deviation",
        "latency",
        "trace_file",
        "availability",
    ),
    *(
        "failure_probability",
        "concentration",
        "partition",
        "dataset",
        "data_file",
        "model",
        "optimizer",
        "task",
    ),
    *("annealing_steps", "budget", "uplink", "fit_fraction", "pool_seed", "exploration_rate"),
    *("num_clients"),
    *(
        "clients_per_round",
        "private",
        "clip",
        "proximal_weight",
        "sampling",
        "n",
        "method",
        "policy",
        "label",
        "use",
    ),
)
SECTIONS = (
    "network",
    "data",
    "training",
    "privacy",
    "reward",
    "selection",
    "pool",
    "weights",
    "sampling",
    "other",
)


def mutant(seed):
    """The text of a spec, `--set` arguments for it, and how many mistakes were made at most."""
    rng = random.Random(seed)
    document = copy.deepcopy(rng.choice(list(specs.ALL.values())))
    overrides = []
    count = rng.choice((1, 1, 1, 2, 3))
    for _ in range(count):
        rng.choice((_replace, _replace, _replace, _set, _set, _insert, _remove, _misspell, _move, _policy))(
            rng, document, overrides
        )
    try:
        text = tomli_w.dumps(document)
    except (TypeError, ValueError):  # no TOML has that
        text = tomli_w.dumps(specs.BANDIT)
    if rng.random() < 0.1:
        text, count = _damaged(rng, text), None
    return text, overrides, count


def _tables(document):
    """Every table, with the keys that may be touched."""
    found = [document]
    found += [table for table in document.values() if isinstance(table, dict)]
    policies = document.get("policy")
    found += [table for table in policies if isinstance(table, dict)] if isinstance(policies, list) else []
    return [table for table in found if table] or [document]


def _value(rng):
    return copy.deepcopy(rng.choice(VALUES))


def _replace(rng, document, overrides):
    table = rng.choice(_tables(document))
    if table:
        table[rng.choice(list(table))] = _value(rng)


def _insert(rng, document, overrides):
    rng.choice(_tables(document))[rng.choice(WORDS)] = _value(rng)


def _remove(rng, document, overrides):
    table = rng.choice(_tables(document))
    if table:
        del table[rng.choice(list(table))]


def _misspell(rng, document, overrides):
    table = rng.choice(_tables(document))
    if not table:
        return
    key = rng.choice(list(table))
    place = rng.randrange(len(key) + 1)
    letter = rng.choice((*string.ascii_letters, " ", ".", "é", "[", ""))
    table[key[:place] + letter + key[place + rng.randrange(2) :]] = table.pop(key)


def _move(rng, document, overrides):
    one, other = rng.choice(_tables(document)), rng.choice(_tables(document))
    if one:
        key = rng.choice(list(one))
        other[key] = one.pop(key)


def _policy(rng, document, overrides):
    policies = document.get("policy")
    if isinstance(policies, list):
        document["policy"] = [*policies, *policies[: rng.randrange(3)]][rng.randrange(2) :]


def _set(rng, document, overrides):
    key = rng.choice(WORDS)
    if rng.random() < 0.5:
        key = f"{rng.choice(SECTIONS)}.{key}"
    value = _value(rng)
    shown = {True: "true", False: "false"}.get(value, value) if isinstance(value, bool) else value
    text = f"{value}" if rng.random() < 0.5 else repr(shown).replace("'", '"')
    if abs(value) > 10**100 if isinstance(value, int) else False:
        text = "9" * 5000
    overrides.append(rng.choice((f"{key}={text}",) * 8 + (key, f"{key}=", f"={text}", f"a.b.{key}={text}")))


def _damaged(rng, text):
    content = bytearray(text.encode())
    for _ in range(rng.choice((1, 1, 2, 8))):
        place = rng.randrange(len(content) or 1)
        kind = rng.randrange(4)
        if kind == 0 and content:
            content[place] ^= 1 << rng.randrange(8)
        elif kind == 1:
            del content[place:]
        elif kind == 2:
            content[place:place] = rng.choice(
                (b"[", b"]" * 9, b"[" * 2000, b'"', b"\x00", b"\xff", b"=", b"[[policy]]\n")
            )
        else:
            content[place:place] = content[place : place + 40]
    return bytes(content)
