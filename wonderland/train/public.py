"""The public names of `wonderland.train`, each imported from where it is; read, and never imported."""

# ruff: noqa: F401

from wonderland.train import metrics, pictures
from wonderland.train.checkpoints import Checkpoint, CheckpointWarning
from wonderland.train.evaluation import evaluate, predict
from wonderland.train.finder import OneBatch, RateCurve, find_rate, overfit_one_batch
from wonderland.train.gradients import Accumulate, Average, clip_by_norm, clip_by_value, global_norm
from wonderland.train.history import History
from wonderland.train.logs import CSVLog, TensorBoardLog
from wonderland.train.loop import TrainingStep, fit, steps
from wonderland.train.nonfinite import NonFiniteError
from wonderland.train.optimizers import SGD, Adadelta, Adagrad, Adam, AdamW, Lion, NAdam, RMSProp
from wonderland.train.optimizers_base import Optimizer
from wonderland.train.optimizers_curvature import LBFGS, GaussNewton, NewtonCG
from wonderland.train.optimizers_matrix import Muon, newton_schulz
from wonderland.train.parallel import Ranks, ranks
from wonderland.train.progress import Progress
from wonderland.train.records import CheckpointError
from wonderland.train.reports import report
from wonderland.train.running import Callback, Run
from wonderland.train.schedules import (
    RateSchedule,
    constant,
    cosine,
    cosine_restarts,
    cyclic,
    exponential,
    inverse_sigmoid,
    inverse_sqrt,
    linear,
    multi_step,
    one_cycle,
    piecewise,
    polynomial,
    running_mean,
    step,
    warmup,
)
from wonderland.train.sequences import free_running, scheduled_sampling, teacher_forcing
from wonderland.train.stopping import EarlyStopping
