"""`Module`: an object whose arrays are parameters and buffers, and whose methods are the model.

A subclass is a mutable node of trees by being one. What is assigned to an attribute decides what it is: a writable
array of floating-point or complex numbers is a parameter; what was assigned as `nn.Buffer(x)`, integers, bools and
read-only arrays are buffers; Modules, and lists, tuples and dicts with such in them, are children; everything else is
static.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from types import MethodType
from typing import Any

import numpy as np

from wonderland.core import tree
from wonderland.core.errors import ArgumentError, MutationError
from wonderland.core.kinds import kind_of
from wonderland.core.level import Traced, running
from wonderland.core.statics import typed
from wonderland.core.tracebacks import user_line
from wonderland.core.tracer import Tracer
from wonderland.nn import names as naming
from wonderland.nn.captured import hooked
from wonderland.nn.layout import ARRAY, BOOK, Book, OwnMethod, book_of, is_child, layout_of, register, role_of
from wonderland.nn.names import LoadReport
from wonderland.nn.static import check_attribute

NUMBERS = (np.generic, int, float, complex)
PLAIN = (int, float, complex, str, tuple, list, dict, set)
BASES = (list, tuple, dict, set, frozenset)


class Marked:
    """What is assigned with its role."""

    role = "parameter"

    def __init__(self, value: Any):
        if isinstance(value, Marked):
            value = value.value
        if isinstance(value, NUMBERS):
            value = np.array(value)
        kind = kind_of(value)
        if isinstance(value, ARRAY):
            if self.role == "parameter" and value.dtype.kind not in "fc":
                raise ArgumentError(
                    f"nn.Parameter got an array of dtype {value.dtype}: parameters are floating-point or complex "
                    "numbers, which have derivatives. Use .astype(np.float32), or nn.Buffer for integers."
                )
        elif kind is None or kind.mutable or not is_child(value):
            name = type(self).__name__
            raise ArgumentError(
                f"nn.{name} takes an array, a number, or a container of arrays, got {type(value).__name__}"
                + (": to keep a Module's parameters as they are, use freeze" if kind is not None else "")
            )
        self.value: Any = value


class Buffer(Marked):
    """Marks what is assigned to an attribute of a Module as no parameter: `self.mean = nn.Buffer(np.zeros(3))`.

    The attribute holds the plain array, and stays a buffer: later assignments write into that array.
    """

    role = "buffer"


class Parameter(Marked):
    """Marks what is assigned to an attribute of a Module as a parameter, also where there was a buffer."""


class Module:
    """A model, or a part of one: subclass it, assign arrays and other Modules to attributes, write `__call__`.

        class Linear(nn.Module):
            def __init__(self, inputs, outputs):
                self.weight = np.random.randn(outputs, inputs)
                self.bias = np.zeros(outputs)

            def __call__(self, x):
                return x @ self.weight.T + self.bias

    Derivatives with respect to a Module are with respect to its trainable parameters, and have its shape.
    Transformations write back what the function changes. The same array, or the same Module, in two places is one
    parameter.
    """

    training: bool
    _unprefixed: tuple[str, ...] = ()  # attributes whose name isn't part of dotted names: the layers of a Sequential

    def __new__(cls, *args: Any, **kwargs: Any) -> Any:
        if "__dataclass_params__" in cls.__dict__:
            _tame(cls)
        self = object.__new__(cls)
        vars(self)[BOOK] = Book()
        vars(self)["training"] = True
        return self

    def __init_subclass__(cls, **kwargs: Any) -> None:
        super().__init_subclass__(**kwargs)
        if cls.__dict__.get("__slots__"):
            raise TypeError(f"{cls.__name__} has __slots__: a Module's attributes are in its __dict__. Leave them out.")
        wrong = [base.__name__ for base in BASES if issubclass(cls, base)]
        if wrong:
            raise TypeError(
                f"{cls.__name__} is a Module and a {wrong[0]}: hold the {wrong[0]} in an attribute, self.items = [...]."
            )
        if hasattr(cls, "forward") and cls.__call__ is Module.__call__:
            raise TypeError(
                f"{cls.__name__} has forward and no __call__: call it __call__, or write __call__ = forward."
            )
        register(cls)

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        raise TypeError(f"{type(self).__name__} has no __call__: write one, def __call__(self, x): ...")

    def __eq__(self, other: object) -> bool:
        return self is other

    def __hash__(self) -> int:
        return id(self) >> 4

    def __setattr__(self, name: str, value: Any) -> None:
        if (name[:2] == "__" and name[-2:] == "__") or hasattr(getattr(type(self), name, None), "__set__"):
            object.__setattr__(self, name, value)  # __class__, or a property
            return
        book, own = book_of(self), vars(self)
        if running():
            _check_level(self, book, name, value)
        if isinstance(value, Marked):
            _assign_marked(own, book, name, value)
            return
        old = own.get(name)
        if isinstance(old, ARRAY) and book.roles.get(name) == "buffer" and isinstance(value, (*ARRAY, *NUMBERS)):
            if value is not old:
                _write(self, name, old, value)
            return
        if isinstance(value, PLAIN) and type(value) is type(old) and not is_child(value) and typed(value) == typed(old):
            own[name] = value  # the same static value: the layout stays, which calls are recognised by
            return
        inside = book.known is not None and running()  # a clone: what an attribute is stays as it is
        if isinstance(value, ARRAY):
            if value.dtype.kind not in "biufc":
                raise ArgumentError(
                    f"{type(self).__name__}.{name} would be an array of dtype {value.dtype}: a Module holds arrays of "
                    "numbers. Keep strings and objects in a tuple or a list (they are static), Modules in a list."
                )
            if not (inside and name in book.roles):
                role = role_of(value)
                if book.roles.get(name) != role or not isinstance(old, ARRAY):
                    book.set_role(name, role)
        elif not (inside and name in book.roles and isinstance(value, NUMBERS)):
            if isinstance(old, ARRAY) and book.roles.get(name) == "parameter" and isinstance(value, NUMBERS):
                value = np.array(value, old.dtype) if not old.shape else value
            if not isinstance(value, np.ndarray):
                check_attribute(self, name, value)
                book.set_role(name, None, marked=name in book.marked and is_child(value))
            book.layout = None
        own[name] = value

    def __delattr__(self, name: str) -> None:
        object.__delattr__(self, name)
        book_of(self).set_role(name, None)

    def __getstate__(self) -> dict[str, Any]:
        layout, book = layout_of(self), book_of(self)
        own = {name: OwnMethod.of(value, self) for name, value in vars(self).items()}
        return {**own, BOOK: (book.roles, sorted(book.frozen), sorted(book.marked), sorted(layout.fixed))}

    def __setstate__(self, state: dict[str, Any]) -> None:
        vars(self).update({**state, BOOK: Book(*state.get(BOOK, ()))})
        for name, value in state.items():
            if type(value) is OwnMethod:
                vars(self)[name] = MethodType(value.function, self)

    def __repr__(self) -> str:
        return naming.shown(self)

    def train(self, mode: bool = True) -> Any:
        """Set `training` of this Module and of all in it; returns the Module."""
        for _, module in self.named_modules():
            if module.training is not bool(mode):  # an assignment would be a change, whatever the value
                module.training = bool(mode)
        return self

    def eval(self) -> Any:
        """`train(False)`: dropout and batch statistics as they are used after training."""
        return self.train(False)

    def named_modules(self) -> Iterator[tuple[str, Any]]:
        """This Module, named "", and those in it, each once, with its dotted name."""
        return naming.named_modules(self)

    def named_parameters(self, trainable: bool = False) -> Iterator[tuple[str, Any]]:
        """The parameters, each once, with their dotted names; only those that aren't frozen, if `trainable`."""
        roles = ("parameter",) if trainable else ("parameter", "frozen")
        return iter([(name, array) for name, array, role in naming.arrays(self) if role in roles])

    def parameters(self, trainable: bool = False) -> list[Any]:
        """The parameters, each once."""
        return [array for _, array in self.named_parameters(trainable)]

    def named_buffers(self) -> Iterator[tuple[str, Any]]:
        """The buffers, each once, with their dotted names."""
        return iter([(name, array) for name, array, role in naming.arrays(self) if role == "buffer"])

    def state(self) -> dict[str, Any]:
        """Parameters and buffers by dotted name, the arrays themselves: PyTorch's `state_dict`, with its names.

        Without those of cached properties, which a model that is loaded computes by itself.
        """
        cached = naming.cached(self)
        return {name: array for name, array, _ in naming.arrays(self) if not cached(name)}

    def load_state(self, state: dict[str, Any], strict: bool = True) -> LoadReport:
        """Copy arrays into those of the same dotted names; returns what was missing or unexpected.

        With `strict`, missing and unexpected names are an error, and nothing is loaded.
        """
        return naming.load_state(self, state, strict)

    def freeze(self, *patterns: str) -> Any:
        """Hold parameters constant whose dotted names match: `freeze("encoder.*", "*.bias")`; returns the Module.

        They have no derivative, and optimisers leave them. `*` crosses dots, and `*.bias` matches `bias`.
        """
        naming.set_frozen(self, patterns or ("*",), True)
        return self

    def unfreeze(self, *patterns: str) -> Any:
        """Take parameters that match back into training; returns the Module."""
        naming.set_frozen(self, patterns or ("*",), False)
        return self


register(Module)


hooked(Module, layout_of)


def _tame(cls: Any) -> None:
    """A dataclass compares and prints as Modules do: they are equal if they are the same object."""
    params = cls.__dataclass_params__
    if params.frozen:
        raise TypeError(
            f"{cls.__name__} is a frozen dataclass: a Module's arrays are replaced. Use @dataclass without frozen."
        )
    if params.eq and cls.__eq__ is not Module.__eq__:
        cls.__eq__, cls.__hash__ = Module.__eq__, Module.__hash__
    if params.repr and cls.__repr__ is not Module.__repr__:
        cls.__repr__ = Module.__repr__


def _assign_marked(own: dict[str, Any], book: Book, name: str, marked: Marked) -> None:
    array = isinstance(marked.value, ARRAY)
    book.frozen -= {name}
    book.set_role(name, marked.role if array else None, marked=marked.role == "buffer" and not array)
    own[name] = marked.value


def _write(module: Module, name: str, old: Any, value: Any) -> None:
    """Assignment to a buffer: into its array, whose shape and dtype stay."""
    given = value if isinstance(value, ARRAY) else np.asarray(value)
    what = f"{type(module).__name__}.{name}, a buffer of shape {old.shape} and dtype {old.dtype},"
    if given.shape != old.shape:
        raise MutationError(
            f"{what} was assigned a value of shape {given.shape}{user_line()}. A buffer is written in place, so its "
            f"shape stays: for another array, assign nn.Buffer(value) outside of transformations."
        )
    weak = isinstance(value, (int, float, complex)) and not isinstance(value, np.generic)
    if not (weak and np.can_cast(np.result_type(value), old.dtype, "same_kind")):
        if not np.can_cast(given.dtype, old.dtype, "same_kind"):
            raise MutationError(
                f"{what} was assigned a value of dtype {given.dtype}{user_line()}, which doesn't fit without loss. "
                f"Convert it, .astype(np.{old.dtype}), or assign nn.Buffer(value) outside of transformations."
            )
    if isinstance(old, Tracer):
        old[...] = given.astype(old.dtype) if given.dtype != old.dtype else given
        return
    if isinstance(given, Tracer):  # in a Module that the function made: until then a plain array
        vars(module)[name] = given.astype(old.dtype)
        return
    if not old.flags.writeable:
        raise MutationError(f"{what} is read-only{user_line()}. To replace it, assign nn.Buffer(np.array(value)).")
    np.copyto(old, given, casting="same_kind")


def _check_level(module: Module, book: Book, name: str, value: Any) -> None:
    """Refuse to change a Module from inside a level that runs once for many, or to store a value from there."""
    for level in running()[book.born :]:
        if level.once:
            raise MutationError(
                f"{type(module).__name__}.{name} is assigned{user_line()} inside {level.name}, which doesn't get the "
                "Module as an argument: that would happen once, while the function is recorded, and not in every run. "
                "Pass the Module to the function (carry it through a loop, give it to vmap with in_axes, use "
                "wl.jit(model) or wl.jit(model.method))."
            )
    handle = value.value if isinstance(value, Marked) else value
    for leaf in [handle] if isinstance(handle, Tracer) else tree.leaves(handle) if is_child(handle) else ():
        inner = leaf._get() if isinstance(leaf, Tracer) else None
        if isinstance(inner, Traced) and inner.level.depth > book.born:
            raise _captured(module, name)


def _captured(module: Module, name: str) -> MutationError:
    return MutationError(
        f"{type(module).__name__}.{name} is assigned a traced value{user_line()}, but the Module isn't an argument of "
        "the function that is transformed, so the value would be lost. Pass the Module as an argument, or transform "
        "the Module or its method itself: wl.grad(model.loss), wl.jit(model)."
    )


@contextmanager
def evaluating(model: Module) -> Iterator[Any]:
    """`with nn.evaluating(model):` runs it in evaluation mode, and then restores what was."""
    with all_evaluating([module for _, module in model.named_modules()]):
        yield model


@contextmanager
def all_evaluating(modules: list[Any]) -> Iterator[None]:
    """`evaluating`, of Modules that were found before: finding those of a large model takes a millisecond."""
    before = [module.training for module in modules]
    _set_modes(modules, [False] * len(modules))
    try:
        yield
    finally:
        _set_modes(modules, before)


def _set_modes(modules: list[Any], modes: list[bool]) -> None:
    for module, mode in zip(modules, modes, strict=True):
        if module.training != mode:  # an assignment costs a look at the whole layout
            module.training = mode
