"""Folders of images, decoded by Pillow when they are asked for."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Literal

import numpy as np

from wonderland.core.errors import ArgumentError
from wonderland.data.collation import stack
from wonderland.data.datasets import Dataset
from wonderland.data.faults import DataError, count_of, package_missing

SUFFIXES = (".png", ".jpg", ".jpeg", ".bmp", ".gif", ".tif", ".tiff", ".webp", ".ppm", ".pgm")
CHANNELS = {"L": 1, "RGB": 3, "RGBA": 4}


class Images(Dataset):
    """The images of a folder: sample i is (image, label), with one folder for each class.

    cats-and-dogs/cat/1.png, cats-and-dogs/dog/7.jpg    ->  wl.data.Images("cats-and-dogs", size=(64, 64)).classes
                                                            is ["cat", "dog"]; label 0 is "cat"

    An image is an array (channels, height, width) of float32 from 0 to 1, or of the bytes 0 to 255 with
    dtype=np.uint8. It is turned as its camera says. Files and classes are in alphabetical order.

    size: (height, width) or one number for both, to which images are scaled; without it they have to be of one size to
    make a batch. mode: "RGB", "L" (grey) or "RGBA", to which images are converted. labels: "folders", or None for
    samples (image,) of whatever is in the folder and below, or a dict from a file's name (below the folder, with /) to
    its label. classes: the classes in order, if they shouldn't be those that occur: take those of the training part
    for a folder that may lack one. suffixes: which files are images; hidden ones aren't looked at.

    Of an animation the first image is taken.
    """

    def __init__(
        self,
        folder: str | os.PathLike[str],
        size: int | tuple[int, int] | None = None,
        mode: Literal["RGB", "L", "RGBA"] = "RGB",
        labels: Literal["folders"] | Mapping[str, Any] | None = "folders",
        dtype: Any = np.float32,
        suffixes: Sequence[str] = SUFFIXES,
        classes: Sequence[str] | None = None,
    ):
        self.folder: Path = Path(folder)
        pair = (size, size) if np.ndim(size) == 0 else (*size,)  # type: ignore[misc]
        if len(pair) != 2:
            raise ArgumentError(f"size is a number of pixels or (height, width), not {size!r}")
        self.size: tuple[int, int] | None = None
        if size is not None:
            self.size = count_of(pair[0], "size"), count_of(pair[1], "size")
        if mode not in CHANNELS:
            raise ArgumentError(f"mode is one of {[*CHANNELS]}, not {mode!r}")
        self.mode: str = mode
        self.dtype: np.dtype[Any] = np.dtype(dtype)
        if self.dtype.kind != "f" and self.dtype != np.uint8:
            raise ArgumentError(f"dtype is a floating-point one, or np.uint8, not {self.dtype}")
        self.labels: np.ndarray | None = None
        if isinstance(suffixes, str):
            suffixes = [suffixes]
        self.files: list[Path] = self._found(tuple(f".{suffix.lower().lstrip('.')}" for suffix in suffixes))
        if classes is not None and labels is None:
            raise ArgumentError("classes are those of labels, and labels=None has none")
        if isinstance(labels, Mapping):
            self._label_by(labels, classes)
        elif labels == "folders":
            self._label_by_folders(classes)
        elif labels is not None:
            raise ArgumentError(f"labels is 'folders', None, or a dict of labels by file name, not {labels!r}")

    def _found(self, suffixes: tuple[str, ...]) -> list[Path]:
        if not self.folder.is_dir():
            what = "is a file, not a folder" if self.folder.exists() else "isn't there"
            raise DataError(f"{self.folder} {what}: Images takes a folder of images")
        hidden = lambda path: any(part.startswith(".") for part in path.relative_to(self.folder).parts)
        files = sorted(
            path
            for path in self.folder.rglob("*")
            if path.suffix.lower() in suffixes and not hidden(path) and path.is_file()
        )
        if not files:
            raise DataError(f"{self.folder} has no images in it or below (files that end with {', '.join(suffixes)})")
        return files

    def _label_by_folders(self, classes: Sequence[str] | None) -> None:
        inside = [path.relative_to(self.folder).parts for path in self.files]
        for parts in inside:
            if len(parts) == 1:
                raise DataError(
                    f"{self.folder / parts[0]} is in no class's folder, so it has no label: move it into one "
                    f"({self.folder}/<class>/{parts[0]}), or say labels=None, or give a dict of labels"
                )
        folders = sorted(path.name for path in self.folder.iterdir() if path.is_dir() and path.name[0] != ".")
        empty = [name for name in folders if name not in {parts[0] for parts in inside}]
        if empty and classes is None:
            raise DataError(
                f"{self.folder / empty[0]} has no images, so there would be no class {empty[0]!r}, and others would "
                f"have its number: say which classes there are, classes={folders}, or remove the folder"
            )
        self._number([parts[0] for parts in inside], classes)

    def _number(self, names: list[str], classes: Sequence[str] | None) -> None:
        """Labels by the names of classes."""
        self.classes = sorted({*names}) if classes is None else [*classes]
        number = {name: place for place, name in enumerate(self.classes)}
        if len(number) < len(self.classes):
            raise ArgumentError(f"classes has a name twice: {self.classes}")
        for file, name in zip(self.files, names):
            if name not in number:
                raise DataError(f"{file} is of class {name!r}, which isn't one of {self.classes}")
        self.labels = np.array([number[name] for name in names])

    def _label_by(self, labels: Mapping[str, Any], classes: Sequence[str] | None) -> None:
        names = [path.relative_to(self.folder).as_posix() for path in self.files]
        missing = [name for name in names if name not in labels]
        if missing:
            raise DataError(
                f"{self.folder / missing[0]} has no label ({len(missing)} of {len(names)} images have none)"
            )
        (values,) = stack([(labels[name],) for name in names], self.name)
        if values.dtype.kind == "f" and np.isnan(values).any():
            raise DataError(f"{self.name(int(np.argwhere(np.isnan(values))[0][0]))} has the label NaN")
        if values.dtype.kind == "U":
            self._number(values.tolist(), classes)
        elif classes is not None:
            raise ArgumentError(f"classes are for labels that are names, not {values.dtype}")
        else:
            self.labels = values

    def __len__(self) -> int:
        return len(self.files)

    def name(self, index: int) -> str:
        """Its file."""
        return str(self.files[index])

    def sample(self, index: int) -> tuple[Any, ...]:
        """The image of file `index`, and its label."""
        image = self._read(self.files[index])
        return (image,) if self.labels is None else (image, self.labels[index])

    def batch(self, indices: Any) -> Any:
        """Some images, of one size."""
        samples = self.samples(indices)
        for place, (image, *_) in enumerate(samples):
            if image.shape != samples[0][0].shape:
                sizes = [
                    f"{self.name(indices[p])} is {' x '.join(map(str, samples[p][0].shape[1:]))}" for p in (0, place)
                ]
                raise DataError(
                    f"images of a batch have one size, but {sizes[0]} and {sizes[1]} (height x width): scale them, "
                    "wl.data.Images(..., size=(height, width))"
                )
        return tuple(np.stack(values) for values in zip(*samples))

    def _read(self, path: Path) -> np.ndarray:
        try:
            from PIL import Image, ImageOps
        except ImportError as error:
            package_missing("pillow", "wl.data.Images", error)
        try:
            with Image.open(path) as opened:
                image = ImageOps.exif_transpose(opened)
                if image.mode.startswith("I;16") or image.mode in ("I", "F"):
                    raise DataError(
                        f"{path} has pixels of mode {image.mode}, which Pillow can't convert without loss: save it "
                        "with 8 bits a channel"
                    )
                image = image.convert(self.mode)
                if self.size is not None and image.size != self.size[::-1]:
                    image = image.resize((self.size[1], self.size[0]), Image.Resampling.BILINEAR)
                pixels = np.asarray(image)
        except DataError:
            raise
        except Exception as error:  # Pillow raises nearly anything for a damaged file
            empty = path.is_file() and path.stat().st_size == 0
            why = "the file is empty" if empty else f"{type(error).__name__}: {error}"
            raise DataError(f"{path} can't be read as an image ({why}): remove it or replace it") from error
        pixels = np.ascontiguousarray(pixels.reshape(*pixels.shape[:2], CHANNELS[self.mode]).transpose(2, 0, 1))
        return pixels if self.dtype == np.uint8 else np.divide(pixels, 255, dtype=self.dtype)

    def __repr__(self) -> str:
        classes = "" if self.classes is None else f" of {len(self.classes)} classes"
        return f"Images({str(self.folder)!r}: {len(self)}{classes})"
