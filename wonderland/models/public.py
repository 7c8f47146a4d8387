"""The public names of `wonderland.models`, each imported from where it is; read, and never imported."""

# ruff: noqa: F401

from wonderland.models.beams import Beam, beam_search
from wonderland.models.bimodal import Bimodal
from wonderland.models.convnext import ConvNeXt, ConvNeXtBlock
from wonderland.models.cost import TransformerCost, transformer_cost
from wonderland.models.ctc_decoding import ctc_beam_search, ctc_greedy
from wonderland.models.deep_sets import DeepSets, SetLinear
from wonderland.models.encoder import Encoder, mask_tokens
from wonderland.models.frames import FrameAverage, image_symmetries, principal_frames
from wonderland.models.gated import GAU, GMLP, GMLPBlock, SpatialGating
from wonderland.models.gpt import GPT, gpt2, llama
from wonderland.models.huggingface import load_huggingface
from wonderland.models.lenet import LeNet
from wonderland.models.metaformer import MetaFormer, MetaFormerBlock
from wonderland.models.mixer import S2MLP, Mixer
from wonderland.models.mlp_language import MLPLanguageModel
from wonderland.models.mobilenet import MobileNet, separable
from wonderland.models.monet import MONet, MuLayer, PolyBlock
from wonderland.models.multiview import MultiView
from wonderland.models.ngrams import Bigram, NGram
from wonderland.models.patches import PatchEmbedding, PatchNetwork
from wonderland.models.perceiver import CrossAttend, Perceiver, fourier_features
from wonderland.models.receptive import ReceptiveField, receptive_field
from wonderland.models.resnet import (
    BasicBlock,
    Bottleneck,
    PreActivation,
    ResNet,
    resnet18,
    resnet34,
    resnet50,
    resnext50,
)
from wonderland.models.seq2seq import EncoderDecoder
from wonderland.models.speculation import Speculated, speculative
from wonderland.models.text_cnn import TextCNN
from wonderland.models.token_mixers import (
    ConvolutionMixer,
    FourierMixer,
    PoolMixer,
    ShiftMixer,
    TokenMLP,
    spatial_shift,
)
from wonderland.models.vgg import VGG, vgg_block
from wonderland.models.vit import ViT
from wonderland.models.wav2vec import Wav2Vec
from wonderland.models.whisper import Whisper
