"""What optimisers share: a model's parameters and their gradients by name come in, new values go into the same arrays.

An optimiser is a Module whose state are buffers by the names of parameters, and which knows names and shapes, never
the model. A method is a rule for one parameter (`Optimizer.rule`), or for all at once (`Optimizer.rules`); names,
groups, schedules, dtypes and the writing are here. Nothing is written before everything is computed.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterable
from typing import Any

import numpy as np

from wonderland.core.errors import ArgumentError, NoValueError, TracingError
from wonderland.core.tracer import Tracer
from wonderland.nn.module import Buffer, Module
from wonderland.nn.names import matches
from wonderland.transform.derivatives import trace

Arrays = dict[str, Any]
Number = float | Callable[[Any], Any]  # a number, or a function of the step

DYNAMIC = ("rate", "weight_decay", "momentum")  # numbers that are buffers: to change one doesn't recompile


class ArraysByName(Module):
    """Arrays by the names of parameters: buffers, one for each. A parameter may have any name, so it has no methods."""


def put(held: ArraysByName, name: str, value: Any) -> None:
    """A new array, or a new value for the array of this name."""
    setattr(held, name, value if name in vars(held) else Buffer(value))


def get(held: ArraysByName, name: str) -> Any:
    """The array of this name."""
    return vars(held)[name]


def keep(held: ArraysByName, names: Iterable[str]) -> None:
    """Forget the arrays of other names."""
    for name in {*vars(held)} - {*names, "_wl", "training"}:
        delattr(held, name)


class Settings(Module):
    """The numbers of an optimiser, or those that a group of parameters has for itself."""

    def __init__(self, values: dict[str, Any], where: str = ""):
        for name, value in values.items():
            self.change(name, value, where)

    def change(self, name: str, value: Any, where: str = "") -> None:
        """Set a number, or a function of the step, which is tried."""
        if callable(value):
            try_schedule(name, value, where)
        elif name in DYNAMIC:
            value = checked_number(name, value, where)
            if isinstance(vars(self).get(name), (np.ndarray, Tracer)):
                setattr(self, name, value)
                return
            if name == "rate" or isinstance(value, Tracer) or value != 0:  # without decay there is nothing to compute
                value = Buffer(np.array(value, np.float64))
        setattr(self, name, value)

    def has(self, name: str) -> bool:
        """Is it set here?"""
        return name in vars(self)


CALLED = {  # PyTorch's names of settings, and ours
    "lr": "rate", "learning_rate": "rate", "eps": "epsilon", "lr_decay": "rate_decay", "history_size": "history",
    "initial_accumulator_value": "initial_sum", "decoupled_weight_decay": "decoupled",
}  # fmt: skip


def _called(cls: type, name: str, value: Any) -> ArgumentError:
    return ArgumentError(f"{cls.__name__} has no {name!r}: it is called {CALLED[name]}, {CALLED[name]}={value!r}")


class Optimizer(Module):
    """The base of all: `optimizer.update(model, grads)`, inside `wl.jit` or outside.

    `groups` gives parameters settings of their own by globs over their names, `{"*.bias": {"weight_decay": 0}}`; of
    several that match, the last one that has a setting counts. `rate_scale` of every group that matches multiplies the
    rate, whatever that is. `skip_nonfinite`: a step with a gradient that isn't finite changes nothing, and is counted
    in `skipped`.
    """

    slots: tuple[str, ...] = ()  # the names of the arrays that are kept for each parameter
    globals: tuple[str, ...] = ()  # the names of buffers for all of them that `rules` changes

    def __new__(cls, *args: Any, **kwargs: Any) -> Any:
        for name in CALLED.keys() & kwargs.keys():
            if name not in inspect.signature(cls).parameters:
                raise _called(cls, name, kwargs[name])
        return super().__new__(cls, *args, **kwargs)

    def __init__(
        self,
        model: Module,
        settings: dict[str, Any],
        groups: dict[str, dict[str, Any]] | None = None,
        skip_nonfinite: bool = False,
    ):
        self.updates: Any = Buffer(np.array(0, np.int64))
        self.skipped: Any = Buffer(np.array(0, np.int64))
        self.skip_nonfinite: bool = bool(skip_nonfinite)
        self.defaults: Any = Settings(settings)
        fine = isinstance(groups, dict) and all(isinstance(own, dict) for own in groups.values())
        if not (groups is None or fine):
            raise ArgumentError(
                f"groups are settings by patterns of names, {{'*.bias': {{'weight_decay': 0}}}}, not {groups!r}"
            )
        self.patterns: tuple[str, ...] = tuple(groups or {})
        for pattern, own in (groups or {}).items():
            unknown = sorted({*own} - {*settings, "rate_scale"})
            if unknown:
                raise ArgumentError(
                    f"groups[{pattern!r}]: {type(self).__name__} has no setting {', '.join(map(repr, unknown))}; it "
                    f"has {', '.join([*settings, 'rate_scale'])}"
                )
        self.groups: list[Any] = [Settings(own, f"groups[{pattern!r}]: ") for pattern, own in (groups or {}).items()]
        self.shapes: tuple[tuple[str, tuple[int, ...], str], ...] = ()
        self.born: Any = Buffer(
            np.zeros(0, np.int64)
        )  # at which update each parameter came: corrections count from there
        self.kept: dict[str, Any] = {slot: ArraysByName() for slot in self.slots}
        self.track(model)

    # Numbers ---------------------------------------------------------------------------------------------------------

    def __setattr__(self, name: str, value: Any) -> None:
        defaults = vars(self).get("defaults")
        if CALLED.get(name) == "rate":
            raise _called(type(self), name, value)
        if defaults is None or not defaults.has(name):
            super().__setattr__(name, value)
        elif name == "momentum" and self.slots and not self.uses(name, ""):
            raise ArgumentError(f"this {type(self).__name__} was made without momentum, and keeps no velocities for it")
        else:
            defaults.change(name, value)

    def __getattr__(self, name: str) -> Any:
        defaults = vars(self).get("defaults")
        if defaults is not None and defaults.has(name):
            return vars(defaults)[name]
        raise AttributeError(f"{type(self).__name__} has no attribute {name!r}")

    def uses(self, setting: str, name: str) -> bool:
        """Has this parameter the setting, other than as the number 0 from the beginning?"""
        held = next((vars(own)[setting] for own in reversed(self._settings_of(name)) if own.has(setting)), 0)
        return not (type(held) in (int, float) and held == 0)

    def _settings_of(self, name: str) -> list[Any]:
        groups = zip(self.patterns, self.groups, strict=True)
        return [self.defaults, *(group for pattern, group in groups if matches(name, pattern))]

    # What is tracked -------------------------------------------------------------------------------------------------

    def track(self, model: Module) -> None:
        """Follow the trainable parameters that `model` has now; the state of those that stayed is kept.

        Called when the optimiser is made, and again, outside of `jit`, after freezing, unfreezing or new layers.
        """
        parameters = trainable(model)
        if any(isinstance(w, Tracer) for w in parameters.values()) or isinstance(self.updates, Tracer):
            raise TracingError(
                f"train.{type(self).__name__}(model) and optimizer.track(model) make new arrays, so they are called "
                "outside of transformations: make the optimiser before, and give it to the function as an argument. "
                "For an ensemble, write nn.stack([make(model) for model in models])."
            )
        if not parameters:
            raise ArgumentError(
                f"{type(model).__name__} has no trainable parameters. Are all of them frozen, or sizes None, which "
                "nn.build(model, x) fills?"
            )
        known = [name for name, _ in model.named_parameters()]  # a group may be frozen for a while
        for pattern in self.patterns:
            if not any(matches(name, pattern) for name in known):
                raise ArgumentError(f"groups: {pattern!r} matches none of {_listed(known)}")
        before = {entry[0]: (entry, int(born)) for entry, born in zip(self.shapes, self.born, strict=True)}
        now = int(self.updates)
        shapes = tuple((name, tuple(w.shape), str(w.dtype)) for name, w in parameters.items())
        stayed = {entry[0]: before[entry[0]][1] for entry in shapes if before.get(entry[0], ((), 0))[0] == entry}
        for name, w in parameters.items():
            wanted = self.slots_of(name, w)
            for slot, held in self.kept.items():
                if name not in stayed:
                    keep(held, {*vars(held)} - {name})
                    if slot in wanted:
                        put(held, name, self.initial(slot, name, _parts(w)))
        for slot, held in self.kept.items():
            keep(held, (name for name, w in parameters.items() if slot in self.slots_of(name, w)))
        self.shapes = shapes
        self.born = Buffer(np.array([stayed.get(name, now) for name in parameters], np.int64))

    def slots_of(self, name: str, w: Any) -> tuple[str, ...]:
        """The slots that this parameter has."""
        return self.slots

    def initial(self, slot: str, name: str, w: Any) -> Any:
        """What a slot holds before the first update."""
        return np.zeros(w.shape, w.dtype)

    def _matched(self, model: Module, grads: Any) -> tuple[Arrays, Arrays]:
        """Parameters and gradients by name, if they are those that are tracked."""
        parameters, tracked = trainable(model), {entry[0]: entry[1:] for entry in self.shapes}
        found = {name: (tuple(w.shape), str(w.dtype)) for name, w in parameters.items()}
        if found != tracked:
            new, gone = [n for n in found if n not in tracked], [n for n in tracked if n not in found]
            other = [f"{n} (was {tracked[n]}, is {found[n]})" for n in found if n in tracked and found[n] != tracked[n]]
            parts = [("new", new), ("gone", gone), ("different", other)]
            what = "; ".join(f"{kind}: {_listed(names)}" for kind, names in parts if names)
            what = what or "they are the same, in another order"
            raise ArgumentError(
                f"the trainable parameters of {type(model).__name__} aren't those that this {type(self).__name__} was "
                f"made for ({what}). Call optimizer.track(model), outside of jit: it keeps the state of what stayed."
            )
        gradients = by_name(grads)
        missing = [name for name in parameters if name not in gradients]
        if missing:
            raise ArgumentError(
                f"no gradient for {_listed(missing)}: grads is what wl.grad(loss)(model) returns, a "
                f"{type(model).__name__} with a gradient for each trainable parameter, or a dict by name"
            )
        for name, w in parameters.items():
            if gradients[name].shape != w.shape:
                raise ArgumentError(
                    f"the gradient of {name!r} has shape {gradients[name].shape}, the parameter {w.shape}"
                )
        return parameters, {name: gradients[name] for name in parameters}

    # A step ----------------------------------------------------------------------------------------------------------

    def update(self, model: Module, grads: Any) -> None:
        """One step: the model's arrays and this object's state are updated in place."""
        parameters, gradients = self._matched(model, grads)
        self.write(parameters, self.next(parameters, gradients))

    def next(self, parameters: Arrays, gradients: Arrays) -> tuple[Arrays, dict[str, Arrays], Arrays]:
        """New values of the parameters, of the slots by name, and of other buffers; nothing is written."""
        fine = all_finite(gradients.values()) if self.skip_nonfinite else None
        if fine is not None:  # nobody needs to see what they would have done
            gradients = {name: np.where(fine, g, np.zeros((), g.dtype)) for name, g in gradients.items()}
        new, kept, others = self.rules(parameters, gradients)
        others = {"updates": self.updates + 1, **others}
        if fine is None:
            return new, kept, others
        choose = lambda changed, old: np.where(fine, changed, old)
        new = {name: choose(value, parameters[name]) for name, value in new.items()}
        kept = {
            slot: {name: choose(value, get(self.kept[slot], name)) for name, value in values.items()}
            for slot, values in kept.items()
        }
        others = {name: choose(value, vars(self)[name]) for name, value in others.items()}
        return new, kept, {**others, "skipped": self.skipped + np.where(fine, 0, 1)}

    def written_by_next(self) -> tuple[str, ...]:
        """The buffers of its own, slots aside, for which `next` returns values."""
        return ("updates", *self.globals, *(("skipped",) if self.skip_nonfinite else ()))

    def write(self, parameters: Arrays, new: tuple[Arrays, dict[str, Arrays], Arrays]) -> None:
        """Put what `next` returned into the arrays."""
        for name, w in parameters.items():
            if isinstance(w, np.ndarray) and not w.flags.writeable:
                raise ArgumentError(
                    f"the parameter {name!r} is a read-only array: model.freeze({name!r}) and optimizer.track(model), "
                    "to leave it as it is, or make it writable"
                )
        for name, value in new[0].items():
            parameters[name][...] = value
        for slot, values in new[1].items():
            for name, value in values.items():
                put(self.kept[slot], name, value)
        for name, value in new[2].items():
            setattr(self, name, value)

    def rules(self, parameters: Arrays, gradients: Arrays) -> tuple[Arrays, dict[str, Arrays], Arrays]:
        """`rule` for each parameter; complex ones as pairs of real arrays."""
        new: Arrays = {}
        kept: dict[str, Arrays] = {slot: {} for slot in self.kept}
        values: dict[Any, Any] = {}
        for number, (name, w) in enumerate(parameters.items()):
            now = Now(self, name, w.dtype, number, values)
            state = {slot: get(held, name) for slot, held in self.kept.items() if name in vars(held)}
            changed, state = self.rule(_parts(w), _parts(_cast(gradients[name], w.dtype)), state, now)
            new[name] = changed[0] + 1j * changed[1] if w.dtype.kind == "c" else changed
            for slot, value in state.items():
                kept[slot][name] = value
        return new, kept, {}

    def rule(self, w: Any, g: Any, state: Arrays, now: Now) -> tuple[Any, Arrays]:
        """The new value of a parameter and of its slots."""
        raise NotImplementedError(f"{type(self).__name__} has no rule")


class Now:
    """The settings of one parameter at this step: `now.rate`, in float64, and `now.cast(x)` for its dtype."""

    def __init__(self, optimizer: Optimizer, name: str, dtype: np.dtype, number: int, values: dict[Any, Any]):
        self._optimizer, self._settings, self._values = optimizer, optimizer._settings_of(name), values
        self.dtype: Any = working(dtype)
        self.name: str
        self.number: int
        self.name, self.number = name, number

    @property
    def counts(self) -> Any:
        """Which update of each parameter this is: 1, 2, ..."""
        if "counts" not in self._values:
            self._values["counts"] = (self._optimizer.updates + 1 - self._optimizer.born).astype(np.float64)
        return self._values["counts"]

    @property
    def count(self) -> Any:
        """Which update of this parameter this is."""
        return self.counts[self.number]

    def across(self, label: str, formula: Callable[[], Any]) -> Any:
        """A number of this parameter, in its dtype, of a formula for all of them at once: one vector, computed once."""
        key = (label, self.dtype, *map(id, self._settings))
        if key not in self._values:
            self._values[key] = _cast(formula(), self.dtype)
        return self._values[key][self.number]

    def missing(self, name: str) -> Any:
        """1 - beta^t, for the setting beta of this name and all parameters: what averages that began at 0 lack."""
        return 1.0 - getattr(self, name) ** self.counts

    def cast(self, value: Any) -> Any:
        """A number in the parameter's dtype; Python's numbers adapt by themselves."""
        return (
            value if isinstance(value, (int, float)) and not isinstance(value, np.generic) else _cast(value, self.dtype)
        )

    def has(self, name: str) -> bool:
        """Is there such a setting, and does it do something? Only the number 0, given as such, doesn't."""
        return self._optimizer.uses(name, self.name)

    def _holder(self, name: str) -> Any:
        holder = next((held for held in reversed(self._settings) if held.has(name)), None)
        if holder is None:
            raise AttributeError(name)
        return holder

    def __getattr__(self, name: str) -> Any:
        if name[0] == "_":
            raise AttributeError(name)
        holder = self._holder(name)
        key = (id(holder), name)
        if key not in self._values:
            value = vars(holder)[name]
            self._values[key] = value(self._optimizer.updates) if callable(value) else value
        value = self._values[key]
        if name == "rate":
            for held in self._settings:
                value = value * vars(held)["rate_scale"] if held.has("rate_scale") else value
        return value


# Names ---------------------------------------------------------------------------------------------------------------


def trainable(model: Any) -> Arrays:
    """The trainable parameters of a Module by name, each once."""
    if not isinstance(model, Module):
        raise ArgumentError(
            f"an optimiser updates an nn.Module, whose arrays can be written, not {type(model).__name__}: make it the "
            "attributes of one"
        )
    return dict(model.named_parameters(trainable=True))


def by_name(grads: Any) -> Arrays:
    """Gradients by name: of a Module that wl.grad returned, or of a dict."""
    if isinstance(grads, Module):
        return {**dict(grads.named_buffers()), **dict(grads.named_parameters())}
    if isinstance(grads, dict):
        return grads
    raise ArgumentError(f"gradients are a Module, as wl.grad(loss)(model) returns, not {type(grads).__name__}")


# Numbers -------------------------------------------------------------------------------------------------------------


def checked_number(name: str, value: Any, where: str = "") -> Any:
    """A number that is no less than 0, or a traced one."""
    if isinstance(value, Tracer):
        return value
    if isinstance(value, (bool, str)) or value is None or np.ndim(value) != 0:
        raise ArgumentError(f"{where}{name} is a number or a function of the step, not {value!r}")
    number = float(value)
    if not number >= 0:
        raise ArgumentError(f"{where}{name} is not negative, unlike {number}")
    return number


def try_schedule(name: str, schedule: Callable, where: str = "") -> None:
    """Trace a function of the step: an `if` on the step, or a result that is no number, is found here."""
    called = getattr(schedule, "__name__", None) or repr(schedule)
    try:
        out = trace(schedule)(np.array(0, np.int64)).outputs
    except (NoValueError, TracingError) as error:
        raise ArgumentError(
            f"{where}{name}={called} can't be traced: {error}\nA schedule is computed inside the compiled step, where "
            "the step has no value: write np.where(step < 100, a, b) instead of an if."
        ) from error
    if len(out) != 1 or out[0].type.shape != () or out[0].type.dtype.kind not in "fiu":
        raise ArgumentError(f"{where}{name}={called} returns a number for a step, not {[str(o.type) for o in out]}")


def all_finite(arrays: Iterable[Any]) -> Any:
    """Are all numbers of all arrays finite?"""
    fine: Any = np.True_
    for g in arrays:
        fine = fine & np.all(np.isfinite(g))
    return fine


def _cast(value: Any, dtype: Any) -> Any:
    if not hasattr(value, "dtype"):
        return np.dtype(dtype).type(value)
    return value if value.dtype == dtype else value.astype(dtype)


def working(dtype: np.dtype) -> np.dtype:
    """The real dtype in which a parameter is updated: float16 in float32, where epsilon isn't 0."""
    return np.dtype(dtype.char.lower()) if dtype.kind == "c" else np.promote_types(dtype, np.float32)


def _parts(w: Any) -> Any:
    """A parameter as a rule sees it: a complex array as two real ones, and float16 as float32."""
    return np.stack([w.real, w.imag]) if w.dtype.kind == "c" else _cast(w, working(w.dtype))


def _listed(names: Iterable[str], most: int = 6) -> str:
    names = list(names)
    return ", ".join(names[:most]) + (f" and {len(names) - most} more" if len(names) > most else "")
