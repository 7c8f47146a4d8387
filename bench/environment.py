"""The machine: what it is, and how a process is kept to two of its cores and two threads."""

from __future__ import annotations

import datetime
import os
import platform
import subprocess
from importlib import metadata
from pathlib import Path
from typing import Any

THREADS = 2
ROOT = Path(__file__).resolve().parent.parent


def variables() -> dict[str, str]:
    """The environment of a process whose libraries all use `THREADS` threads."""
    count = str(THREADS)
    return {
        **os.environ,
        "OMP_NUM_THREADS": count,
        "OPENBLAS_NUM_THREADS": count,
        "MKL_NUM_THREADS": count,
        "VECLIB_MAXIMUM_THREADS": count,
        "WONDERLAND_THREADS": count,
        "NPROC": count,  # the size of XLA's CPU pool
        "JAX_PLATFORMS": "cpu",
        "TORCHINDUCTOR_COMPILE_THREADS": "1",  # no pool of compilers beside what is measured
    }


def pin() -> list[int]:
    """Keep this process to `THREADS` CPUs, on different cores where there are; the CPUs it may use."""
    if not hasattr(os, "sched_setaffinity"):
        return []
    allowed = sorted(os.sched_getaffinity(0))
    cores: dict[str, int] = {}
    for cpu in allowed:
        cores.setdefault(siblings(cpu), cpu)
    chosen = [*cores.values(), *(cpu for cpu in allowed if cpu not in cores.values())][:THREADS]
    os.sched_setaffinity(0, chosen)
    return sorted(chosen)


def siblings(cpu: int) -> str:
    """The CPUs that share a core with `cpu`, as the kernel names them."""
    try:
        return Path(f"/sys/devices/system/cpu/cpu{cpu}/topology/thread_siblings_list").read_text()
    except OSError:
        return str(cpu)


def cpu_name() -> str:
    try:
        for line in Path("/proc/cpuinfo").read_text().splitlines():
            if line.startswith("model name"):
                return line.split(":", 1)[1].strip()
    except OSError:
        pass
    if platform.system() == "Darwin":
        return output("sysctl", "-n", "machdep.cpu.brand_string")
    return platform.processor() or platform.machine()


def output(*command: str) -> str:
    """What a command prints, or "" where it is missing or fails."""
    try:
        return subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True).stdout.strip()
    except (OSError, subprocess.CalledProcessError):
        return ""


def version(name: str) -> str | None:
    try:
        return metadata.version(name)
    except metadata.PackageNotFoundError:
        return None


def describe() -> dict[str, Any]:
    """What a reader of the figures needs to know about where they come from."""
    names = ["wonderland", "numpy", "scipy", "llvmlite", "jax", "jaxlib", "torch", "autograd"]
    return {
        "date": datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds"),
        "commit": output("git", "rev-parse", "--short", "HEAD"),
        "cpu": cpu_name(),
        "cpus": os.cpu_count(),
        "threads": THREADS,
        "load": list(os.getloadavg()) if hasattr(os, "getloadavg") else None,
        "system": platform.platform(),
        "python": platform.python_version(),
        "versions": {name: found for name in names if (found := version(name))},
    }
