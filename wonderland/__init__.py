"""Differentiable programming for NumPy: write NumPy, get exact derivatives, compile to one native call.

The public names are listed in `public.py`, with the modules they come from, which are loaded on first use.
"""

from typing import TYPE_CHECKING

import wonderland.numpy  # noqa: F401  (fills the tables through which NumPy's functions reach us)
from wonderland.core import later as _later

__version__ = "0.1.0"

if TYPE_CHECKING:
    from wonderland.public import *  # noqa: F403
else:
    __all__, __getattr__, __dir__ = _later.names(__name__, "wonderland.public")

# What an earlier layer asks for -> the module of a later one that registers it when it is imported.
_later.PROVIDERS.update({
    "loop": "wonderland.control.scan",  # the primitive that loops, for transform/chunks.py
    "compiler": "wonderland.compile.jit",  # `jit`, for random/large.py
    "compressed": "wonderland.sparse.compression",  # a sparse Jacobian's blocks, for transform/jacobian.py
    "to_dot": "wonderland.studio.dot",  # the graph of a Program, for its method
    # Our functions for those of NumPy's and SciPy's modules, for the tables of core/tracer.py.
    "numpy.linalg": "wonderland.numpy.linear_algebra",
    "numpy.fft": "wonderland.numpy.fourier",
    "scipy.special": "wonderland.scipy.special_functions",
    "scipy.linalg": "wonderland.scipy.linear_algebra",
    "scipy.signal": "wonderland.scipy.signals",
})  # fmt: skip

