"""CSV and TensorBoard logs: what is in the files, also after a training was killed and resumed.

The files of events are read by a small reader of this test, which knows TensorFlow's .proto files and not our code;
checksums are held against published ones.
"""

import csv
import io
import math
import struct
from types import SimpleNamespace

import numpy as np
import pytest
from PIL import Image

import wonderland as wl
from wonderland import train
from wonderland.train import events


def crc32c_by_bits(data):
    """The definition: division by the polynomial 0x1EDC6F41, reflected."""
    crc = 0xFFFFFFFF
    for byte in data:
        crc ^= byte
        for _ in range(8):
            crc = (crc >> 1) ^ (0x82F63B78 if crc & 1 else 0)
    return crc ^ 0xFFFFFFFF


@pytest.mark.parametrize(
    ("data", "crc"),
    [  # RFC 3720, B.4; and the check value of the catalogue of CRCs
        (bytes(32), 0x8A9136AA), (b"\xff" * 32, 0x62A8AB43), (bytes(range(32)), 0x46DD794E),
        (bytes(range(31, -1, -1)), 0x113FDB5C), (b"123456789", 0xE3069283), (b"", 0),
    ],
)  # fmt: skip
def test_checksums_are_the_published_ones(data, crc):
    assert events.crc32c(data) == crc == crc32c_by_bits(data)


def fields(data):
    """(number, value) of each field of a protobuf message."""
    at = 0

    def varint():
        nonlocal at
        value = shift = 0
        while True:
            byte = data[at]
            at += 1
            value |= (byte & 127) << shift
            shift += 7
            if byte < 128:
                return value

    while at < len(data):
        key = varint()
        kind = key & 7
        if kind == 0:
            yield key >> 3, varint()
        else:
            size = {1: 8, 5: 4}.get(kind) or varint()
            part, at = data[at : at + size], at + size
            yield key >> 3, struct.unpack({1: "<d", 5: "<f"}[kind], part)[0] if kind != 2 else part


def unmask(masked):
    rotated = (masked - 0xA282EAD8) & 0xFFFFFFFF
    return (rotated >> 17 | rotated << 15) & 0xFFFFFFFF


def read(path):
    """The events of a file: (step, {field: value})."""
    data, at, found = path.read_bytes(), 0, []
    while at < len(data):
        (length,) = struct.unpack("<Q", data[at : at + 8])
        assert unmask(*struct.unpack("<I", data[at + 8 : at + 12])) == crc32c_by_bits(data[at : at + 8])
        body = data[at + 12 : at + 12 + length]
        assert unmask(*struct.unpack("<I", data[at + 12 + length : at + 16 + length])) == crc32c_by_bits(body)
        at += 16 + length
        event = dict(fields(body))
        found.append((event.get(2, 0), event))
    return found


def summaries(path):
    """(step, tag, {field: value}) of each value of each summary."""
    for step, event in read(path):
        for number, value in fields(event.get(5, b"")):
            assert number == 1
            value = dict(fields(value))
            yield step, value[1].decode(), value


class Run(SimpleNamespace):
    def __init__(self, log, history=None, step=0):
        super().__init__(log=log, history=history or train.History(), step=step, model=None)

    def go(self, epochs, steps=3):
        self.log.begin(self)
        for epoch in epochs:
            for _ in range(steps):
                self.step += 1
                self.history.add_step(epoch, self.step, {"loss": 1 / self.step})
                self.log.after_step(self)
            self.history.add_epoch(epoch, {"loss": 1 / epoch, "validation_loss": 2 / epoch, "seconds": 0.5})
            self.log.after_epoch(self)
        return self


def rows(path):
    with open(path, newline="", encoding="utf-8") as file:
        return [*csv.DictReader(file)]


def test_csv(tmp_path):
    path = tmp_path / "new" / "log.csv"
    run = Run(train.CSVLog(path)).go([1, 2])
    assert [row["epoch"] for row in rows(path)] == ["1", "2"]
    run.history.add_epoch(3, {"loss": math.pi, "a, b": 1e-300})  # a column more
    run.log.after_epoch(run)
    run.log.end(run)
    found = rows(path)
    assert float(found[2]["loss"]) == math.pi and float(found[2]["a, b"]) == 1e-300
    assert math.isnan(float(found[0]["a, b"])) and [*found[0]] == [*run.history]


def test_csv_of_a_resumed_training_has_each_epoch_once(tmp_path):
    path = tmp_path / "log.csv"
    run = Run(train.CSVLog(path)).go([1, 2, 3])
    kept = run.history.to_json()
    run.go([4, 5])  # and killed: the checkpoint is that of epoch 3
    with open(path, "a", encoding="utf-8") as file:
        file.write("6,0.12")  # in the middle of a row
    again = Run(train.CSVLog(path), train.History.from_json(kept), step=9).go([4, 5, 6])
    assert [row["epoch"] for row in rows(path)] == ["1", "2", "3", "4", "5", "6"]
    assert [float(row["loss"]) for row in rows(path)] == again.history["loss"].tolist()
    assert train.CSVLog(path).state() == {}


def test_csv_of_another_training_is_replaced_when_there_is_something(tmp_path):
    path = tmp_path / "log.csv"
    Run(train.CSVLog(path)).go([1, 2, 3])
    other = Run(train.CSVLog(path))
    other.log.begin(other)
    assert len(rows(path)) == 3
    other.go([1])
    assert len(rows(path)) == 1
    path.unlink()
    other.go([2])
    assert len(rows(path)) == 2


def test_scalars(tmp_path):
    run = Run(train.TensorBoardLog(tmp_path / "a", every=2)).go([1, 2])
    run.log.end(run)
    (path,) = (tmp_path / "a").iterdir()
    assert path.name.startswith("events.out.tfevents.")
    assert read(path)[0][1][3] == b"brain.Event:2"
    found = {}
    for step, tag, value in summaries(path):
        found.setdefault(tag, []).append((step, value[2]))
    close = {tag: [(step, pytest.approx(value)) for step, value in values] for tag, values in found.items()}
    assert close["loss/step"] == [(2, 1 / 2), (4, 1 / 4), (6, 1 / 6)]
    assert close["loss/training"] == [(3, 1), (6, 1 / 2)] and close["loss/validation"] == [(3, 2), (6, 1)]
    assert {*found} == {"loss/step", "loss/training", "loss/validation", "seconds/training"}


def test_a_resumed_training_has_a_later_file_that_says_so(tmp_path):
    run = Run(train.TensorBoardLog(tmp_path, every=None)).go([1, 2])
    Run(train.TensorBoardLog(tmp_path, every=None), run.history, step=3).go([3])
    first, second = sorted(tmp_path.iterdir())
    assert [tag for _, tag, _ in summaries(first)].count("loss/training") == 2  # flushed, though never ended
    step, event = read(second)[1]
    assert step == 4 and dict(fields(event[7])) == {1: 1}  # SessionLog.START


def test_histograms_and_images(tmp_path):
    model = wl.nn.Linear(3, 4, key=wl.random.key(0))
    gray, color = np.arange(12, dtype=np.uint8).reshape(3, 4) * 20, np.full((2, 5, 3), 0.5)
    shown = {"gray": gray, "color": color, "figure": train.pictures.confusion([[3]])}
    run = Run(train.TensorBoardLog(tmp_path, histograms=True, images=lambda run: shown))
    run.model = model
    run.go([1])
    found = {tag: value for _, tag, value in summaries(next(tmp_path.iterdir()))}
    histogram = dict(fields(found["weight"][5]))
    weight = np.asarray(model.weight, float)
    assert [histogram[i] for i in (1, 2, 3)] == [weight.min(), weight.max(), 12]
    assert histogram[4] == pytest.approx(weight.sum()) and histogram[5] == pytest.approx((weight**2).sum())
    limits, counts = np.frombuffer(histogram[6]), np.frombuffer(histogram[7])
    np.testing.assert_array_equal(counts, np.histogram(weight, np.append(weight.min(), limits))[0])
    for tag, size in (("gray", (3, 4, 1)), ("color", (2, 5, 3))):
        image = dict(fields(found[tag][4]))
        assert (image[1], image[2], image[3]) == size
        wanted = gray if tag == "gray" else np.full((2, 5, 3), 128)
        np.testing.assert_array_equal(np.asarray(Image.open(io.BytesIO(image[4]))), wanted)
    image = dict(fields(found["figure"][4]))
    assert Image.open(io.BytesIO(image[4])).size == (image[2], image[1])


def test_strange_values(tmp_path):
    file = events.EventFile(tmp_path)
    file.scalars(2**40, {"ü": np.nan, "large": 1e300, "small": -np.inf})
    file.add(1, [events.histogram("none", [np.nan]), events.histogram("same", [2.0, 2.0])])
    file.add(1, [])
    file.close()
    found = {tag: (step, value) for step, tag, value in summaries(file.path)}
    assert found["ü"][0] == 2**40 and math.isnan(found["ü"][1][2])
    assert found["large"][1][2] == math.inf and found["small"][1][2] == -math.inf
    assert dict(fields(found["none"][1][5]))[3] == 0 and dict(fields(found["same"][1][5]))[3] == 2
    with pytest.raises(ValueError, match=r"image 'x': .* got shape \(2, 2, 4\)"):
        events.image("x", np.zeros((2, 2, 4)))
    with pytest.raises(ValueError, match="got dtype int64"):
        events.image("x", np.zeros((2, 2), np.int64))
    with pytest.raises(TypeError, match="every is a positive number"):
        train.TensorBoardLog(tmp_path, every=0)
