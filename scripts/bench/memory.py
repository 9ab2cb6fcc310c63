"""Measures the resident memory of a process after calls of `simulate`.

    python scripts/bench/memory.py [--calls 200] [--mode bandit] [--policy random] [--same]

Every call has another number of clients, so it has new programs. With --same all calls have the same number.
The script runs only on Linux.
"""

import argparse
import gc
import os
from pathlib import Path

import pausejax


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--calls", type=int, default=200)
    parser.add_argument("--mode", default="bandit")
    parser.add_argument("--policy", default="random")
    parser.add_argument("--same", action="store_true", help="simulate the same study in every call")
    options = parser.parse_args()
    print("calls  resident, MB  mappings  objects")
    for call in range(1, options.calls + 1):
        network = {"num_clients": 8 if options.same else 7 + call, "clients_per_round": 3}
        pausejax.simulate(options.policy, mode=options.mode, rounds=20, **network)
        if call % 5 == 0 or call == 1:
            figures = f"{resident() / 1e6:12.0f}  {mappings():8}  {len(gc.get_objects()):7}"
            print(f"{call:5}  {figures}", flush=True)


def resident() -> int:
    """Returns the resident bytes of this process."""
    return int(Path("/proc/self/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")


def mappings() -> int:
    """Returns the number of memory mappings of this process; every kernel of XLA adds some."""
    return Path("/proc/self/maps").read_text().count("\n")


if __name__ == "__main__":
    main()
