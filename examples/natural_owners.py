"""Makes an .npz data set whose samples have natural owners: ten people with different handwriting.

    python examples/natural_owners.py people.npz

A study uses it with `dataset = "npz"`, `data_file = "people.npz"`, `partition = "natural"` and
`num_clients = 10`.
"""

import sys

import numpy as np
from sklearn.datasets import load_digits
from sklearn.model_selection import train_test_split

PEOPLE = 10


def make(path: str) -> None:
    """Writes scikit-learn's digits to a file.

    Each person has another pressure and another number of digits.
    """
    digits = load_digits()
    random = np.random.default_rng(0)
    x_train, x_test, y_train, y_test = train_test_split(
        digits.images[..., None], digits.target, test_size=360, stratify=digits.target, random_state=0
    )
    owner = random.choice(PEOPLE, len(y_train), p=np.arange(1, PEOPLE + 1) / np.arange(1, PEOPLE + 1).sum())
    pressure = random.uniform(0.6, 1.0, PEOPLE)[owner]
    x_train = np.round(x_train * pressure[:, None, None, None] * 255 / 16).astype(np.uint8)
    x_test = np.round(x_test * 0.8 * 255 / 16).astype(np.uint8)
    np.savez(path, x_train=x_train, y_train=y_train, x_test=x_test, y_test=y_test, owner_train=owner)


if __name__ == "__main__":
    make(sys.argv[1])
