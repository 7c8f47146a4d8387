"""From samples to a batch: a list of samples comes in, a tuple or dict of arrays goes out."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from wonderland.core.errors import ArgumentError
from wonderland.data.faults import DataError, count_of

Field = int | str


def as_sample(sample: Any) -> Any:
    """A sample as a tuple or a dict: one array or number is a tuple of one."""
    if isinstance(sample, dict):
        return sample
    return tuple(sample) if isinstance(sample, (tuple, list)) else (sample,)


def fields_of(samples: Sequence[Any], name: Callable[[int], str]) -> dict[Field, list[Any]]:
    """The samples field by field."""
    first = samples[0]
    keys = [*first] if isinstance(first, dict) else [*range(len(first))]
    for place, sample in enumerate(samples):
        here = [*sample] if isinstance(sample, dict) else [*range(len(sample))]
        if type(sample) is not type(first) or (here != keys and {*here} != {*keys}):
            raise DataError(
                f"{name(place)} has other fields than {name(0)}: {_fields(sample)}, not {_fields(first)}; the samples "
                "of a dataset have the same ones"
            )
    return {key: [sample[key] for sample in samples] for key in keys}


def _fields(sample: Any) -> str:
    return f"the keys {[*sample]}" if isinstance(sample, dict) else f"{len(sample)} of them"


def stack(samples: Sequence[Any], name: Callable[[int], str] = "sample {}".format) -> Any:
    """A batch of samples of the same shapes: each field gets a first axis that counts samples."""
    samples = [as_sample(sample) for sample in samples]
    if not samples:
        raise DataError("a batch of no samples can't be made: their shapes aren't known")
    columns = {
        key: _stacked([np.asarray(value) for value in values], key, name)
        for key, values in fields_of(samples, name).items()
    }
    return columns if isinstance(samples[0], dict) else tuple(columns.values())


def _stacked(values: list[np.ndarray], key: Field, name: Callable[[int], str]) -> np.ndarray:
    for place, value in enumerate(values):
        if value.shape != values[0].shape:
            raise DataError(
                f"field {key!r} of {name(place)} has shape {value.shape}, of {name(0)} {values[0].shape}: a batch "
                "has samples of one shape; for sequences of different lengths use collate=wl.data.pad"
            )
    return np.stack(values)


def pad(
    samples: Sequence[Any],
    length: int | None = None,
    value: Any = 0,
    *,
    fields: Sequence[Field] | None = None,
    multiple: int = 1,
    shared: bool = True,
) -> Any:
    """A batch of sequences of different lengths: filled up with `value` to the longest, with a mask of what is real.

    Each sample is a sequence, or a tuple or dict with sequences in it: arrays of shape (length, ...). A field becomes
    (batch, longest, ...), the mask (batch, longest) is True where the sample has something. The mask comes last in the
    tuple, under "mask" in a dict. Fields that are numbers are stacked as they are.

    length: fill up to this length instead; a longer sample is an error. multiple: round the longest up to a multiple
    of this, so that compiled code sees few shapes. value: the filling, or a dict of it by field. fields: which fields
    are sequences (indices or keys), others are stacked; all arrays with an axis if not given. shared: the sequences of
    a sample have one length and one mask; if False each field gets its own length and its own mask, in order at the
    end of the tuple, under "<key>_mask" in a dict.

    tokens, labels, mask = wl.data.pad([(np.array([5, 7, 2]), 0), (np.array([4]), 1)])
    loader = wl.data.Loader(texts, collate=functools.partial(wl.data.pad, value=-1, multiple=16))
    """
    samples = [as_sample(sample) for sample in samples]
    if not samples:
        raise DataError("pad: there are no samples")
    multiple = count_of(multiple, "multiple")
    columns = {key: [*map(np.asarray, v)] for key, v in fields_of(samples, "sample {} of the batch".format).items()}
    chosen = [key for key, values in columns.items() if values[0].ndim] if fields is None else [*fields]
    for key in chosen:
        if key not in columns:
            raise ArgumentError(f"pad: fields has {key!r}, but the samples have the fields {[*columns]}")
    if not chosen:
        raise DataError("pad: no field of the samples is a sequence (an array with at least one axis)")
    masks: dict[Field, np.ndarray] = {}
    batch: dict[Field, np.ndarray] = {}
    for key, values in columns.items():
        if key in chosen:
            filling = value.get(key, 0) if isinstance(value, Mapping) else value
            batch[key], masks[key] = _padded(values, key, length, filling, multiple)
        else:
            batch[key] = _stacked(values, key, "sample {} of the batch".format)
    if shared:
        masks = {"": _shared_mask(masks)}
    if not isinstance(samples[0], dict):
        return (*batch.values(), *masks.values())
    return {**batch, **{f"{key}_mask".lstrip("_"): mask for key, mask in masks.items()}}


def _padded(
    values: list[np.ndarray], key: Field, length: int | None, filling: Any, multiple: int
) -> tuple[np.ndarray, np.ndarray]:
    """One field of a batch, and its mask."""
    first = values[0]
    for place, value in enumerate(values):
        if value.ndim == 0 or value.shape[1:] != first.shape[1:]:
            raise DataError(
                f"pad: field {key!r} has shape {first.shape} in sample 0 of the batch and {value.shape} in sample "
                f"{place}: sequences differ in their first axis only"
            )
    lengths = np.array([len(value) for value in values])
    longest = int(lengths.max())
    if length is not None:
        if longest > length:
            raise DataError(
                f"pad: field {key!r} of sample {int(lengths.argmax())} of the batch has {longest} elements, more than "
                f"length={length}: cut it before, or give a greater length"
            )
        longest = length
    longest = -(-longest // multiple) * multiple
    dtype = np.result_type(*{value.dtype for value in values})
    given = np.asarray(filling)
    if not np.can_cast(given.dtype, dtype, "same_kind") or (given.astype(dtype) != given and given == given):
        raise ArgumentError(f"pad: value {filling!r} isn't one of {dtype} (field {key!r}): give a value of that dtype")
    out = np.full((len(values), longest, *first.shape[1:]), filling, dtype)
    for row, value in zip(out, values):
        row[: len(value)] = value
    return out, np.arange(longest) < lengths[:, None]


def _shared_mask(masks: dict[Field, np.ndarray]) -> np.ndarray:
    """The one mask of fields whose sequences have the same lengths."""
    (first, mask), *rest = masks.items()
    for key, other in rest:
        if other.shape != mask.shape or (other != mask).any():
            raise DataError(
                f"pad: fields {first!r} and {key!r} of a sample have different lengths: with shared=False each has "
                "its own mask; with fields= say which are sequences"
            )
    return mask
