"""The public names of `wonderland.data`, each imported from where it is; read, and never imported."""

# ruff: noqa: F401

from wonderland.data.arrays import Arrays
from wonderland.data.collation import pad
from wonderland.data.composition import compose
from wonderland.data.datasets import Dataset, Generated, Samples, Subset
from wonderland.data.faults import DataError
from wonderland.data.images import Images
from wonderland.data.loaders import Loader
from wonderland.data.scalers import MinMax, Scaler, Standardize
from wonderland.data.splits import kfold, split
from wonderland.data.streams import Batches, as_loader
from wonderland.data.tables import Table
from wonderland.data.texts import Text
