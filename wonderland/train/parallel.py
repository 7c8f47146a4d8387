"""Data parallel training: processes that each have a part of every batch, and sum up their gradients.

    mpiexec -n 2 wonderland train digits-cnn
    mpiexec -n 2 python my_training.py                 # train.fit finds the ranks by itself

A step is that of one process with the whole batch, to rounding: gradients and losses are weighted by the samples of
each rank, summed in one flat buffer, and divided by all samples; batch norms have the statistics of all; dropout draws
by sample. All ranks begin every epoch with the numbers of rank 0, and make the same updates, but for the last bits: the
code of a part of a batch may round otherwise. MPI is `mpi4py`'s: pip install "wonderland[mpi]" brings one, and any
cluster's own works.
"""

from __future__ import annotations

import os
import sys
import time
import traceback
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import cache
from typing import Any

import numpy as np

from wonderland.control.effects import host_call
from wonderland.core import tree
from wonderland.core.errors import ArgumentError
from wonderland.transform.derivatives import value_and_grad

PASSED_ON = 0.2  # seconds in which mpiexec passes a message on, which it would drop with the processes
# By which variables the launchers of MPICH, Open MPI, Intel MPI and MVAPICH say how many processes there are.
SIZES = ("PMI_SIZE", "OMPI_COMM_WORLD_SIZE", "MV2_COMM_WORLD_SIZE", "MPI_LOCALNRANKS")


class Ranks:
    """The processes that train together: `rank` of `count`. A communicator of mpi4py, or None for one alone."""

    def __init__(self, communicator: Any = None):
        self.communicator: Any = communicator
        self.rank: int = 0 if communicator is None else communicator.Get_rank()
        self.count: int = 1 if communicator is None else communicator.Get_size()

    def __repr__(self) -> str:
        return f"rank {self.rank} of {self.count}"

    @property
    def is_first(self) -> bool:
        """Is it the one that writes files and shows progress?"""
        return self.rank == 0

    def sum(self, array: np.ndarray) -> np.ndarray:
        """The sum of the arrays that the ranks give, the same to the bit on all of them."""
        if self.count == 1:
            return array
        total = np.empty_like(array) if self.is_first else array
        self.communicator.Reduce(np.ascontiguousarray(array), total if self.is_first else None, root=0)
        self.communicator.Bcast(total, root=0)
        return total

    def mean(self, values: Any, rows: int) -> Any:
        """The mean over all samples, of a tree of sums over the `rows` samples of this rank; in compiled code, too."""
        leaves, structure = tree.flatten(values)
        out: list[Any] = list(leaves)
        types = sorted({str(leaf.dtype) for leaf in leaves if leaf.dtype.kind in "fc"})
        for kind in types:
            own = [i for i, leaf in enumerate(leaves) if str(leaf.dtype) == kind]
            flat = np.concatenate([*(np.ravel(leaves[i]) for i in own), np.full(1, rows, kind)])
            total = host_call(self.sum, flat, flat)
            start = 0
            for i in own:
                size = leaves[i].size
                out[i] = (total[start : start + size] / total[-1]).reshape(leaves[i].shape)
                start += size
        return structure.unflatten(out)

    def value_and_grad(self, told: Callable, model: Any, rows: int) -> tuple[Any, dict[str, Any], Any]:
        """Of `told(model)`, a loss and a dict of numbers: both and the gradient, over the samples of all ranks.

        What is differentiated is the sum over samples: layers that work on all ranks together add up its derivatives.
        """

        def summed(model: Any) -> tuple[Any, dict[str, Any]]:
            value, extra = told(model)
            return value * rows, {name: held * np.float64(rows) for name, held in extra.items()}

        (value, extra), grads = value_and_grad(summed, has_aux=True)(model)
        return self.mean((value, extra, grads), rows)

    def part(self, rows: int) -> slice:
        """Which of the rows of a batch are this rank's: parts as equal as can be, the larger ones first."""
        if rows < self.count:
            raise ArgumentError(f"a batch of {rows} samples can't be shared by {self.count} ranks: make batches larger")
        size, more = divmod(rows, self.count)
        start = self.rank * size + min(self.rank, more)
        return slice(start, start + size + (self.rank < more))

    def equalize(self, *trees: Any) -> None:
        """The arrays of models and optimisers take over the numbers of those of rank 0."""
        if self.count == 1:
            return
        arrays = [leaf for one in trees for leaf in tree.leaves(one)]
        shapes = [(array.shape, array.dtype.str) for array in arrays]
        if any(other != shapes for other in self.communicator.allgather(shapes)):
            raise ArgumentError("the ranks have models of different shapes: build the same model on each of them")
        for array in arrays:
            first = np.ascontiguousarray(array)
            self.communicator.Bcast(first.view(np.uint8) if first.size else first, root=0)
            if not self.is_first:
                array[...] = first

    def most(self, number: int) -> int:
        """The largest of the numbers that the ranks give."""
        return number if self.count == 1 else max(self.communicator.allgather(number))

    def wait(self) -> None:
        """Until all ranks are here."""
        if self.count > 1:
            self.communicator.Barrier()

    @contextmanager
    def first_before_others(self) -> Iterator[None]:
        """What rank 0 does inside is done before the others begin with it."""
        if not self.is_first:
            self.wait()
        yield
        if self.is_first:
            self.wait()

    @contextmanager
    def together(self) -> Iterator[Ranks]:
        """An exception on one rank ends the job on all of them, with its message: nobody waits for ever."""
        try:
            yield self
        except BaseException as error:
            left = isinstance(error, GeneratorExit) or (isinstance(error, SystemExit) and not error.code)
            if self.count == 1 or left:
                raise
            if not self.is_first:
                time.sleep(5 * PASSED_ON)  # what fails on all ranks alike, the first one says
            plain = getattr(error, "explains_itself", False)
            if not plain:
                traceback.print_exc()
            print(
                f"wonderland: rank {self.rank} of {self.count} failed ({'' if plain else f'{type(error).__name__}: '}"
                f"{error}); all ranks stop. Training goes on from the last checkpoint with --resume, or "
                "fit(resume=True).",
                file=sys.stderr, flush=True,
            )  # fmt: skip
            time.sleep(PASSED_ON)
            self.communicator.Abort(1)


def ranks() -> Ranks:
    """The processes that `mpiexec` started, if it did and there are several; otherwise this one alone.

    A launcher that doesn't say how many there are (Slurm's `srun` with PMIx) isn't noticed: `train.fit` then takes
    `ranks=train.Ranks(mpi4py.MPI.COMM_WORLD)`.
    """
    sizes = [int(value) for name in SIZES if (value := os.environ.get(name, "")).isdigit()]
    if not sizes or max(sizes) < 2:
        return Ranks()
    try:
        from mpi4py import MPI
    except ImportError:
        raise ImportError(
            f"this is one of {max(sizes)} processes of MPI, and training in parallel needs mpi4py, which isn't "
            'installed: pip install "wonderland[mpi]"'
        ) from None
    if MPI.COMM_WORLD.Get_size() < 2:
        raise RuntimeError(
            f"mpiexec started {max(sizes)} processes, but mpi4py's MPI sees only one: mpiexec and mpi4py belong to "
            "different MPI libraries. Use the mpiexec of the MPI that mpi4py was built with "
            f"({MPI.Get_library_version().splitlines()[0].strip()})"
        )
    return _of_world()


@cache
def _of_world() -> Ranks:
    """All processes; the same object each time, as what was compiled for it is used again."""
    from mpi4py import MPI

    return Ranks(MPI.COMM_WORLD)
