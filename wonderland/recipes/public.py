"""The public names of `wonderland.recipes`, each imported from where it is; read, and never imported."""

# ruff: noqa: F401

from wonderland.recipes.catalog import RecipeError, TrainingRecipe, find, names
from wonderland.recipes.outcomes import Outcome, classification, regression
