"""Folders of images, decoded by Pillow when they are asked for."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Literal

import numpy as np

from wonderland.core.errors import ArgumentError
from wonderland.data.datasets import Dataset
from wonderland.data.faults import DataError, package_missing

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
    its label. suffixes: which files are images.
    """

    def __init__(
        self,
        folder: str | os.PathLike[str],
        size: int | tuple[int, int] | None = None,
        mode: Literal["RGB", "L", "RGBA"] = "RGB",
        labels: Literal["folders"] | Mapping[str, Any] | None = "folders",
        dtype: Any = np.float32,
        suffixes: Sequence[str] = SUFFIXES,
    ):
        self.folder: Path = Path(folder)
        self.size: tuple[int, int] | None = (size, size) if isinstance(size, int) else size
        if self.size is not None and (len(self.size) != 2 or min(self.size) < 1):
            raise ArgumentError(f"size is (height, width) of at least one pixel, not {size!r}")
        if mode not in CHANNELS:
            raise ArgumentError(f"mode is one of {[*CHANNELS]}, not {mode!r}")
        self.mode: str = mode
        self.dtype: np.dtype[Any] = np.dtype(dtype)
        if self.dtype.kind != "f" and self.dtype != np.uint8:
            raise ArgumentError(f"dtype is a floating-point one, or np.uint8, not {self.dtype}")
        self.labels: np.ndarray | None = None
        self.files: list[Path] = self._found(tuple(suffix.lower() for suffix in suffixes))
        if isinstance(labels, Mapping):
            self._label_by(labels)
        elif labels == "folders":
            self._label_by_folders()
        elif labels is not None:
            raise ArgumentError(f"labels is 'folders', None, or a dict of labels by file name, not {labels!r}")

    def _found(self, suffixes: tuple[str, ...]) -> list[Path]:
        if not self.folder.is_dir():
            what = "is a file, not a folder" if self.folder.exists() else "isn't there"
            raise DataError(f"{self.folder} {what}: Images takes a folder of images")
        files = sorted(
            path
            for path in self.folder.rglob("*")
            if path.suffix.lower() in suffixes and not path.name.startswith(".") and path.is_file()
        )
        if not files:
            raise DataError(f"{self.folder} has no images in it or below (files that end with {', '.join(suffixes)})")
        return files

    def _label_by_folders(self) -> None:
        inside = [path.relative_to(self.folder).parts for path in self.files]
        for parts in inside:
            if len(parts) == 1:
                raise DataError(
                    f"{self.folder / parts[0]} is in no class's folder, so it has no label: move it into one "
                    f"({self.folder}/<class>/{parts[0]}), or say labels=None, or give a dict of labels"
                )
        classes = sorted({parts[0] for parts in inside})
        number = {name: place for place, name in enumerate(classes)}
        self.classes = classes
        self.labels = np.array([number[parts[0]] for parts in inside])

    def _label_by(self, labels: Mapping[str, Any]) -> None:
        names = [path.relative_to(self.folder).as_posix() for path in self.files]
        missing = [name for name in names if name not in labels]
        if missing:
            raise DataError(
                f"{self.folder / missing[0]} has no label ({len(missing)} of {len(names)} images have none)"
            )
        values = np.array([labels[name] for name in names])
        if values.dtype.kind == "U":
            self.classes, numbers = map(np.ndarray.tolist, np.unique(values, return_inverse=True))
            values = np.array(numbers)
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
