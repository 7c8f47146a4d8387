"""Names of PyTorch's that are others here, and what to write instead: for the error that a wrong name raises."""

_LOSSES = {
    "MSELoss": "mse_loss",
    "L1Loss": "l1_loss",
    "SmoothL1Loss": "smooth_l1_loss",
    "HuberLoss": "huber_loss",
    "CrossEntropyLoss": "cross_entropy",
    "NLLLoss": "nll_loss",
    "BCELoss": "binary_cross_entropy",
    "BCEWithLogitsLoss": "binary_cross_entropy_with_logits",
    "PoissonNLLLoss": "poisson_nll_loss",
    "GaussianNLLLoss": "gaussian_nll_loss",
    "CosineEmbeddingLoss": "cosine_embedding_loss",
    "TripletMarginLoss": "triplet_margin_loss",
    "CTCLoss": "ctc_loss",
}
_DIVERGENCE = "nn.kl_divergence(p, q) takes the true probabilities first, and probabilities unless log=True"
_INPUT = "sizes that are None are filled by nn.build(model, x)"

NAMES = {
    "functional": "its functions are in nn itself, nn.relu, nn.cross_entropy",
    "ModuleList": "a list is one, self.layers = [nn.Linear(3, 3), ...]",
    "ModuleDict": "a dict with strings as keys is one, self.heads = {'left': nn.Linear(3, 3)}",
    "ParameterList": "a list of arrays is one, self.weights = [np.zeros(3), ...]",
    "ParameterDict": "a dict with strings as keys is one, self.weights = {'left': np.zeros(3)}",
    "LazyLinear": f"nn.Linear(None, outputs), {_INPUT}",
    "LazyConv2d": f"nn.Conv2d(None, channels, size), {_INPUT}",
    "SyncBatchNorm": "train.fit does it where there are ranks; otherwise, with nn.synchronize(model, reduce):",
    "DropPath": "nn.StochasticDepth",
    "KLDivLoss": _DIVERGENCE,
    "kl_div": _DIVERGENCE,
    **{name: f"losses are functions, nn.{function}(...)" for name, function in _LOSSES.items()},
}
