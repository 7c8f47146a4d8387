"""LLVM behind one door: textual IR comes in, addresses of machine code go out.

Nothing else in the project talks to llvmlite. All of LLVM sits behind one lock, and a fork takes that lock first: a
child never inherits a half-held one. Who holds it may have several texts compiled at the same time, by threads that
are gone when it lets go (`helpers`); large ones are cut into parts for that (`parts`). One `LLJIT` per library, so that
dropping a `Library` gives its memory back.

Object code is kept on disk (`cache`) by the text it was made from, the CPU, and the version and options of LLVM. The
text holds no address: what it calls is found by name when it is loaded.
"""

from __future__ import annotations

import ctypes
import difflib
import itertools
import os
import pkgutil
import tempfile
import threading
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cache
from typing import Any

import llvmlite
import llvmlite.binding as llvm

from wonderland.compile import cache as disk
from wonderland.compile import helpers
from wonderland.compile.parts import cut
from wonderland.core import forks
from wonderland.core.forks import loading

lock: Any = threading.RLock()
ALL_HAVE = ("64bit", "cmov", "cx8", "sse2")  # every x86-64; without cx8 LLVM calls functions for atomic operations
AS_WRITTEN = "; as written\n"  # at the head of a text whose loops need no vectorising, unrolling or inlining

# Objects of llvmlite die under its own lock alone, whenever Python collects them: the child needs that one too.
forks.LOCKS.extend((lock, llvm.ffi.lib._lock._lock))
forks.LENT.append(llvm.ffi.lib._lock._lock)  # helpers wait for it
_names = itertools.count()
_at_hand: dict[str, list[bytes]] = {}
_contexts: list[Any] = []  # that nobody uses


@dataclass(eq=False)
class Library:
    """Loaded machine code; its addresses are valid for as long as this object lives."""

    _jit: Any
    _tracker: Any

    def address(self, symbol: str) -> int:
        return self._tracker[symbol]


@cache
def cpu() -> tuple[str, str]:
    """LLVM's name for the CPU and its feature string; `WONDERLAND_CPU` names another one to compile for."""
    name = _asked_cpu()
    if not name:
        return llvm.get_host_cpu_name(), llvm.get_host_cpu_features().flatten()
    known = _known_cpus()
    if name not in known:
        similar = difflib.get_close_matches(name, known, 5, 0.5)
        hint = f" Did you mean {' or '.join(similar)}?" if similar else f" It knows native, {', '.join(known)}."
        raise ValueError(f"WONDERLAND_CPU={name!r} is no CPU that LLVM knows for this machine.{hint}")
    if not llvm.get_default_triple().startswith("x86_64"):
        return name, ""
    # Names of 32-bit processors are known as well: what every 64-bit one has they have here too. And what this machine
    # lacks stays out of the code; wider registers apart, which are refused when code is loaded.
    lacking = [f for f, there in llvm.get_host_cpu_features().items() if not there and not f.startswith("avx512")]
    features = [f"+{f}" for f in ALL_HAVE] + [f"-{f}" for f in lacking if f not in (*ALL_HAVE, "evex512")]
    return name, ",".join(features)


def _asked_cpu() -> str:
    """The CPU that `WONDERLAND_CPU` names; "" for this machine's."""
    name = os.environ.get("WONDERLAND_CPU", "").strip()
    return "" if name == "native" else name


@cache
def _known_cpus() -> list[str]:
    """The names that LLVM knows. It tells them to nobody but the standard error stream."""
    llvm.initialize_native_target()
    target = llvm.Target.from_default_triple()
    with lock, tempfile.TemporaryFile() as file:
        kept = os.dup(2)
        try:
            os.dup2(file.fileno(), 2)
            target.create_target_machine(cpu="help")
        finally:
            os.dup2(kept, 2)
            os.close(kept)
        file.seek(0)
        lines = file.read().decode().partition("Available features")[0].splitlines()
    return [line.split()[0] for line in lines if " - " in line]


@cache
def vector_bytes() -> int:
    """Width of a vector register: 64 with AVX-512, 32 with AVX2, otherwise 16."""
    if not _asked_cpu():
        return _host_vector_bytes()
    # What a name stands for is LLVM's knowledge: see which registers it takes for a wide addition.
    with loading():
        from wonderland.compile import ir
    wide = ir.vector(ir.INT, 16)
    f = ir.Function("f", [("x", wide), ("y", wide)], wide, exported=True)
    f.ret(f.parameters[0] + f.parameters[1])
    with lock:
        code = target_machine().emit_assembly(llvm.parse_assembly("\n".join(f.lines())))
    return 64 if "%zmm" in code else 32 if "%ymm" in code else 16


@cache
def _host_vector_bytes() -> int:
    flags = set(llvm.get_host_cpu_features().flatten().split(","))
    widest = "+avx512f" in flags and "+prefer-256-bit" not in flags
    return 64 if widest else 32 if "+avx2" in flags else 16


def target_machine(opt: int = 2) -> Any:
    """A fresh TargetMachine (a JIT takes ownership of the one it is given)."""
    llvm.initialize_native_target()
    llvm.initialize_native_asmprinter()
    name, features = cpu()
    target = llvm.Target.from_default_triple()
    options = {"reloc": "pic", "codemodel": "default", "jit": True}
    return target.create_target_machine(cpu=name, features=features, opt=opt, **options)


def _machine(ir: str) -> Any:
    return target_machine(0 if _is_cheap(ir) else 2)


def _is_cheap(ir: str) -> bool:
    """Is code wanted soon rather than fast, as in tests of what it means? A sixth of the time, or less."""
    return not ir.startswith(AS_WRITTEN) and os.environ.get("WONDERLAND_CHEAP", "0") not in ("", "0")


def optimize(ir: str, context: Any = None) -> Any:
    """Parse, verify and optimise textual IR; returns the llvmlite module.

    Without what takes long and gains little on loop nests: vectorisation of straight-line code, and the heaviest
    unrolling. That is a third of the time. `WONDERLAND_CHEAP=1` leaves out nearly all of what is left.
    """
    machine = target_machine()
    module = llvm.parse_assembly(ir, context)
    try:
        module.verify()
    except RuntimeError as error:
        if "dominate" in str(error):
            error.add_note("a value that is made in a loop or condition is used after it: keep it in a variable")
        raise
    module.triple = machine.triple
    module.data_layout = str(machine.target_data)
    tuning = llvm.create_pipeline_tuning_options(speed_level=2)
    tuning.loop_vectorization = tuning.loop_interleaving = tuning.loop_unrolling = True
    tuning.slp_vectorization = False
    builder = llvm.create_pass_builder(machine, tuning)
    passes = _tidying() if ir.startswith(AS_WRITTEN) or _is_cheap(ir) else builder.getModulePassManager()
    _without_lock("LLVMPY_RunNewModulePassManager")(passes, module, builder)
    # Of its two base classes llvmlite's asks the wrong one to free it: 100 KB would stay behind with every module.
    try:
        llvm.newpassmanagers.NewPassManager._dispose(passes)
    finally:
        passes.detach()
    return module


def _without_lock(name: str) -> Any:
    """A function of llvmlite's C library, without its lock around it if there is a way.

    llvmlite lets one thread at a time call LLVM, which needs that only for what is in the same context. What we call
    in this way is in one that no other thread uses.
    """
    function = getattr(llvm.ffi.lib, name)
    return getattr(function, "_cfn", function)


def _emit(machine: Any, module: Any, as_object: bool = True) -> bytes:
    """`machine.emit_object(module)`, or `emit_assembly`, without llvmlite's lock."""
    lib = llvm.ffi.lib
    with llvm.ffi.OutputString() as error:
        buffer = _without_lock("LLVMPY_TargetMachineEmitToMemory")(machine, module, int(as_object), error)
        if not buffer:
            raise RuntimeError(str(error))
    try:
        return ctypes.string_at(lib.LLVMPY_GetBufferStart(buffer), lib.LLVMPY_GetBufferSize(buffer))
    finally:
        lib.LLVMPY_DisposeMemoryBuffer(buffer)


def _tidying() -> Any:
    """Variables into registers, and what is the same computed once: a quarter of the time that all passes take."""
    passes = llvm.create_new_module_pass_manager()
    tidy = ("instruction_combine", "simplify_cfg")
    for name in ("sroa", *tidy, "loop_rotate", "new_gvn", *tidy):
        getattr(passes, f"add_{name}_pass")()
    return passes


def compile_objects(texts: Iterable[str]) -> dict[str, list[bytes]]:
    """Object code of each text, a piece for each of its parts: from the disk, or made and put there."""
    with lock:
        parts = {text: cut(text) for text in texts if text not in _at_hand}
        keys = {part: _key(part) for several in parts.values() for part in several}
        codes: dict[str, Any] = {part: disk.load(key) for part, key in keys.items()}

        def make(part: str) -> None:
            codes[part] = _object_code(part)
            disk.store(keys[part], codes[part])

        missing = [part for part, code in codes.items() if code is None]
        longest_first = sorted(missing, key=lambda part: (not part.startswith(AS_WRITTEN), len(part)), reverse=True)
        helpers.share(make, longest_first)
        return _at_hand | {text: [codes[part] for part in several] for text, several in parts.items()}


def _object_code(ir: str) -> bytes:
    """What LLVM makes of it, in a context that no other thread uses meanwhile."""
    try:
        context = _contexts.pop()
    except IndexError:
        context = llvm.create_context()
        context._owned = True  # it is never freed: a module in it may be later, if an exception has kept it
    with optimize(ir, context) as module:
        code = _emit(_machine(ir), module)
    _contexts.append(context)  # not after an exception: others could work in it while what is left there is freed
    return code


@contextmanager
def at_hand(texts: Iterable[str]) -> Iterator[None]:
    """Compile texts at the same time; while this lasts, `compile_library` finds their object code."""
    with lock:
        before = dict(_at_hand)
        _at_hand.update(compile_objects(texts))
        try:
            yield
        finally:
            _at_hand.clear()
            _at_hand.update(before)


def _key(ir: str) -> str:
    return disk.key_of(*_surroundings(), "cheap" if _is_cheap(ir) else "", ir)


@cache
def _surroundings() -> tuple[str | bytes, ...]:
    """All that decides on the object code beside the text: the CPU, LLVM, and how this file uses it."""
    source = pkgutil.get_data("wonderland.compile", "llvm.py") or b""
    versions = f"llvmlite {llvmlite.__version__} LLVM {llvm.llvm_version_info}"
    return versions, llvm.get_default_triple(), *cpu(), source


def assembly(ir: str) -> str:
    """What `compile_objects` would emit, for a person to read."""
    with lock:
        return "\n".join(_emit(_machine(ir), optimize(part), as_object=False).decode() for part in cut(ir))


def compile_library(ir: str, exports: list[str], imports: dict[str, int] | None = None) -> Library:
    """Textual IR to loaded machine code. libc and libm resolve by themselves; `imports` gives our own addresses."""
    codes = compile_objects([ir])[ir]
    if vector_bytes() > _host_vector_bytes():
        raise RuntimeError(
            f"WONDERLAND_CPU={cpu()[0]} has vector registers of {vector_bytes()} bytes, this machine's have "
            f"{_host_vector_bytes()}: its code can be looked at, not run."
        )
    with lock:
        # JITLink lays object code out in one piece. The older linker places code and constants apart, and ends the
        # process if what lies between them (of other libraries, or large arrays) is more than 2 GB.
        jit = llvm.create_lljit_compiler(target_machine(), use_jit_link=True)
        builder = llvm.JITLibraryBuilder()
        for code in codes:
            builder.add_object_img(code)
        builder.add_current_process()
        for name, address in (imports or {}).items():
            builder.import_symbol(name, address)
        for name in exports:
            builder.export_symbol(name)
        return Library(jit, builder.link(jit, f"wonderland{next(_names)}"))
