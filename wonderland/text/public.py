"""The public names of `wonderland.text`, each imported from where it is; read, and never imported."""

# ruff: noqa: F401

from wonderland.text.bpe import BPE
from wonderland.text.characters import Characters
from wonderland.text.display import TokenView
from wonderland.text.faults import TokenizerError
from wonderland.text.files import load
from wonderland.text.language_model import LanguageModel
from wonderland.text.patterns import PATTERNS
from wonderland.text.streaming import StreamingDecoder
from wonderland.text.tokenizer import Tokenizer
from wonderland.text.words import Words
