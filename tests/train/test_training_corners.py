"""The training loop at its corners: functions that change, data that is used twice, callbacks that fail."""

from types import SimpleNamespace

import numpy as np
from small_training import data, loss, plain

from wonderland import train

FACTOR = 1.0


def test_a_second_fit_sees_changed_globals_closures_and_attributes_of_the_loss():
    global FACTOR
    attribute, cell = SimpleNamespace(factor=1.0), {"factor": 1.0}

    def scaled(model, x, y):
        return FACTOR * cell["factor"] * attribute.factor * loss(model, x, y)

    model = plain()
    optimizer = train.SGD(model, 0.0)
    fitted = lambda: train.fit(model, scaled, optimizer, data(), validation=data(), progress=False).last
    first = fitted()
    for count in (1, 2, 3):
        if count == 1:
            FACTOR = 10.0
        elif count == 2:
            cell["factor"] = 10.0
        else:
            attribute.factor = 10.0
        later = fitted()
        np.testing.assert_allclose(later["loss"], first["loss"] * 10.0**count, rtol=1e-5)
        np.testing.assert_allclose(later["validation_loss"], first["validation_loss"] * 10.0**count, rtol=1e-5)
    FACTOR = 1.0
