"""LLVM behind one door: textual IR comes in, addresses of machine code go out.

Nothing else in the project talks to llvmlite. All of LLVM sits behind one lock (llvmlite has a global one as well, so
parallel compilation would gain nothing), and a fork takes that lock first: a child never inherits a half-held one.
One `LLJIT` per library, so that dropping a `Library` gives its memory back.
"""

from __future__ import annotations

import itertools
import os
import threading
from functools import cache
from typing import Any

import llvmlite.binding as llvm

lock = threading.RLock()
AS_WRITTEN = "; as written\n"  # at the head of a text whose loops need no vectorising, unrolling or inlining


def _before_fork() -> None:
    # Objects of llvmlite die under its own lock alone, whenever Python collects them: the child needs that one too.
    lock.acquire()
    llvm.ffi.lib._lock._lock.acquire()


def _after_fork() -> None:
    llvm.ffi.lib._lock._lock.release()
    lock.release()


os.register_at_fork(before=_before_fork, after_in_parent=_after_fork, after_in_child=_after_fork)
_names = itertools.count()


class Library:
    """Loaded machine code; its addresses are valid for as long as this object lives."""

    def __init__(self, jit: Any, tracker: Any):
        self._jit = jit
        self._tracker = tracker

    def address(self, symbol: str) -> int:
        return self._tracker[symbol]


@cache
def cpu() -> tuple[str, str]:
    """LLVM's name for the CPU and its feature string; `WONDERLAND_CPU` overrides the name (and so the features)."""
    name = os.environ.get("WONDERLAND_CPU", "")
    if name:
        return name, ""
    return llvm.get_host_cpu_name(), llvm.get_host_cpu_features().flatten()


@cache
def vector_bytes() -> int:
    """Width of a vector register: 64 with AVX-512, 32 with AVX2, otherwise 16."""
    name, features = cpu()
    if features:
        flags = set(features.split(","))
        if "+avx512f" in flags and "+prefer-256-bit" not in flags:
            return 64
        return 32 if "+avx2" in flags else 16
    if name in ("x86-64-v4", "skylake-avx512", "icelake-server", "sapphirerapids", "znver4", "znver5"):
        return 64
    return 32 if name in ("x86-64-v3", "haswell", "broadwell", "skylake", "znver1", "znver2", "znver3") else 16


def target_machine(opt: int = 3) -> Any:
    """A fresh TargetMachine (a JIT takes ownership of the one it is given)."""
    llvm.initialize_native_target()
    llvm.initialize_native_asmprinter()
    name, features = cpu()
    target = llvm.Target.from_default_triple()
    options = {"reloc": "pic", "codemodel": "default", "jit": True}
    return target.create_target_machine(cpu=name, features=features, opt=opt, **options)


@cache
def _shared_machine() -> Any:
    return target_machine()


def optimize(ir: str, quick: bool = False) -> Any:
    """Parse, verify and optimise textual IR; returns the llvmlite module.

    `quick` leaves out what takes long and gains little on loop nests: vectorisation of straight-line code, and the
    heaviest unrolling. It takes a third of the time.
    """
    with lock:
        machine = _shared_machine()
        module = llvm.parse_assembly(ir)
        module.verify()
        module.triple = machine.triple
        module.data_layout = str(machine.target_data)
        if ir.startswith(AS_WRITTEN):
            return _tidy(module, machine)
        tuning = llvm.create_pipeline_tuning_options(speed_level=2 if quick else 3)
        tuning.loop_vectorization = True
        tuning.slp_vectorization = not quick
        tuning.loop_interleaving = True
        tuning.loop_unrolling = True
        builder = llvm.create_pass_builder(machine, tuning)
        builder.getModulePassManager().run(module, builder)
        return module


def _tidy(module: Any, machine: Any) -> Any:
    """Variables into registers, and what is the same computed once: a quarter of the time that all passes take."""
    passes = llvm.create_new_module_pass_manager()
    passes.add_sroa_pass()
    passes.add_instruction_combine_pass()
    passes.add_simplify_cfg_pass()
    passes.add_loop_rotate_pass()
    passes.add_new_gvn_pass()
    passes.add_instruction_combine_pass()
    passes.add_simplify_cfg_pass()
    passes.run(module, llvm.create_pass_builder(machine, llvm.create_pipeline_tuning_options(speed_level=2)))
    return module


def compile_object(ir: str, quick: bool = False) -> bytes:
    """Object code of textual IR."""
    with lock:
        return _shared_machine().emit_object(optimize(ir, quick))


def assembly(ir: str, quick: bool = False) -> str:
    """What `compile_object` would emit, for a person to read."""
    with lock:
        return _shared_machine().emit_assembly(optimize(ir, quick))


def load_object(code: bytes, exports: list[str], imports: dict[str, int]) -> Library:
    """Link object code into this process. libc and libm resolve by themselves; `imports` gives our own addresses."""
    with lock:
        jit = llvm.create_lljit_compiler(target_machine())
        builder = llvm.JITLibraryBuilder().add_object_img(code).add_current_process()
        for name, address in imports.items():
            builder.import_symbol(name, address)
        for name in exports:
            builder.export_symbol(name)
        tracker = builder.link(jit, f"wonderland{next(_names)}")
        return Library(jit, tracker)


def compile_library(
    ir: str, exports: list[str], imports: dict[str, int] | None = None, quick: bool = False
) -> Library:
    """Textual IR to loaded machine code."""
    return load_object(compile_object(ir, quick), exports, imports or {})
