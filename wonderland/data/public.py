"""The public names of `wonderland.data`, each imported from where it is; read, and never imported."""

# ruff: noqa: F401

from wonderland.data.arrays import Arrays
from wonderland.data.audio import (
    dct_matrix,
    hz_to_mel,
    istft,
    mel_filterbank,
    mel_spectrogram,
    mel_to_hz,
    mfcc,
    power_to_db,
    spectrogram,
    stft,
)
from wonderland.data.collation import pad
from wonderland.data.composition import compose
from wonderland.data.datasets import Dataset, Generated, Samples, Subset
from wonderland.data.faults import DataError
from wonderland.data.images import Images
from wonderland.data.loaders import Loader
from wonderland.data.scalers import MinMax, Scaler, Standardize
from wonderland.data.sets import (
    breast_cancer,
    diabetes,
    digits,
    moons,
    parity,
    sinusoids,
    spirals,
    swissroll,
    wine,
    xor,
)
from wonderland.data.sets_files import mnist, python_docs, read_idx
from wonderland.data.sets_mnist1d import mnist1d
from wonderland.data.sets_sudoku import sudoku
from wonderland.data.splits import kfold, split
from wonderland.data.streams import Batches, as_loader
from wonderland.data.tables import Table
from wonderland.data.texts import Text
from wonderland.data.time_windows import SeriesWindows, windows
from wonderland.data.token_windows import token_windows
from wonderland.data.transforms import (
    BatchTransform,
    contrast,
    crop,
    cutout,
    flip,
    gaussian_noise,
    jitter,
    normalize,
    resized_crop,
    roll,
    rotate,
    zoom,
)
from wonderland.data.transforms_mix import cutmix, mixup
from wonderland.data.transforms_policy import rand_augment
