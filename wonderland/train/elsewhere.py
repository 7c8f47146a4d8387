"""Names of PyTorch's that are others here, and what to write instead: for the error that a wrong name raises."""

_SCHEDULES = {
    "ConstantLR": "constant",
    "LinearLR": "linear",
    "StepLR": "step",
    "MultiStepLR": "multi_step",
    "ExponentialLR": "exponential",
    "PolynomialLR": "polynomial",
    "CosineAnnealingLR": "cosine",
    "CosineAnnealingWarmRestarts": "cosine_restarts",
    "OneCycleLR": "one_cycle",
    "CyclicLR": "cyclic",
}

NAMES = {
    "RMSprop": "train.RMSProp",
    "lr_scheduler": "a schedule is the rate itself, train.SGD(model, train.cosine(0.1, steps))",
    "LambdaLR": "a schedule is the rate itself: any function of the step, train.SGD(model, lambda t: 0.1 / (t + 1))",
    "clip_grad_norm_": "gradients are returned, grads = train.clip_by_norm(grads, 1.0)",
    "clip_grad_value_": "gradients are returned, grads = train.clip_by_value(grads, 1.0)",
    "AveragedModel": "train.Average(model, 0.999)",
    **{name: f"a schedule is the rate itself, rate=train.{function}(...)" for name, function in _SCHEDULES.items()},
}
