"""The public names of `wonderland.models`, each imported from where it is; read, and never imported."""

# ruff: noqa: F401

from wonderland.models.beams import Beam, beam_search
from wonderland.models.convnext import ConvNeXt, ConvNeXtBlock
from wonderland.models.ctc_decoding import ctc_beam_search, ctc_greedy
from wonderland.models.encoder import Encoder, mask_tokens
from wonderland.models.frames import FrameAverage, image_symmetries, principal_frames
from wonderland.models.gpt import GPT, gpt2, llama
from wonderland.models.huggingface import load_huggingface
from wonderland.models.lenet import LeNet
from wonderland.models.mlp_language import MLPLanguageModel
from wonderland.models.mobilenet import MobileNet, separable
from wonderland.models.ngrams import Bigram, NGram
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
from wonderland.models.text_cnn import TextCNN
from wonderland.models.vgg import VGG, vgg_block
from wonderland.models.vit import ViT
from wonderland.models.wav2vec import Wav2Vec
from wonderland.models.whisper import Whisper
