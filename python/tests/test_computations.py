"""Random computations give what NumPy gives. ``CUZARR_TEST_COMPUTATIONS=10000`` runs as many; ``CUZARR_TEST_SEED`` says from which seed on."""

from __future__ import annotations

import os

import numpy as np
import pytest
from computations import check

import cuzarr

COUNT = int(os.environ.get("CUZARR_TEST_COMPUTATIONS", "1500"))
FIRST = int(os.environ.get("CUZARR_TEST_SEED", "0"))
PARTS = 10


@pytest.mark.parametrize("part", range(PARTS))
def test_random_computations_give_what_numpy_gives(part: int) -> None:
    wrong = [found for seed in range(FIRST + part, FIRST + COUNT, PARTS) if (found := check(seed)) is not None]
    assert not wrong, f"{len(wrong)} computations differ, such as\n" + "\n".join(wrong[:10])


def test_bools_have_no_sign() -> None:
    truths = cuzarr.create_array({}, data=np.array([True, False]))
    for call in (lambda: +truths, lambda: +(truths & True), lambda: cuzarr.xp.positive(truths)):
        with pytest.raises(TypeError, match="positive"):
            call()
