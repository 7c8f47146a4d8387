"""Building: a module and its table come in; machine code, kept by its text, and the native entry go out."""

from __future__ import annotations

from collections import OrderedDict
from typing import Any

import numpy as np

from wonderland.compile import cache as disk
from wonderland.compile import entry, ir, llvm
from wonderland.compile.emit import Emission
from wonderland.compile.signature import Signature

MOST_LIBRARIES = 512
LONG_RUN = 20_000  # nanoseconds from which a run lets other Python threads work meanwhile

_libraries: OrderedDict[str, llvm.Library] = OrderedDict()


def build(done: Any, signature: Signature, emission: Emission) -> None:
    """Machine code and entry of a `Compiled`."""
    plan, callbacks, watch = emission.plan, emission.callbacks, emission.watch
    if watch is not None:
        watch.finish()
    done.arena_bytes, done.result_bytes = plan.place_buffers(), signature.result_bytes
    done.fallbacks, done.reasons = tuple(callbacks.names), callbacks.reasons
    done.ir = emission.module.text()
    known, misses = done.ir in _libraries, disk.misses
    library = _library(done.ir, emission.module)
    done.code_from = "this process" if known else "LLVM" if disk.misses > misses else "the disk"
    arrays = [value for _, value in done.source.constants if isinstance(value, np.ndarray)]
    done.entry = entry.Entry(
        library.address("run"), signature.inputs, signature.outputs, done.arena_bytes, emission.numbers(),
        plan.sites.fail, plan.work > LONG_RUN or bool(callbacks.alive), (library, callbacks, plan.constants, watch),
        arrays,
    )  # fmt: skip


def _library(text: str, module: ir.Module) -> llvm.Library:
    """Machine code, found by its text; what else a first call needs is compiled with it."""
    if text not in _libraries:
        with ir.together(module, entry.CODE):
            _libraries[text] = module.load()
            entry.CODE.load()
        while len(_libraries) > MOST_LIBRARIES:
            _libraries.popitem(last=False)
    _libraries.move_to_end(text)
    return _libraries[text]
