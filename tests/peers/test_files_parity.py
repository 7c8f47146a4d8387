"""Our safetensors files against the safetensors package: each reads what the other wrote, and refuses alike."""

import json
import struct

import numpy as np
import pytest

import wonderland as wl
from wonderland import nn
from wonderland.nn import safetensors as ours

theirs = pytest.importorskip("safetensors.numpy")
import safetensors  # noqa: E402

pytestmark = pytest.mark.peers

ARRAYS = {
    "bool": np.array([True, False, True]),
    **{f"i{n}": np.arange(-3, 3).astype(f"i{n}").reshape(2, 3) for n in (1, 2, 4, 8)},
    **{f"u{n}": np.arange(5).astype(f"u{n}") for n in (1, 2, 4, 8)},
    **{f"f{n}": np.array([[0.1, -np.inf, 3], [-0.0, 1e-5, 7]]).astype(f"f{n}") for n in (2, 4, 8)},
    "c8": np.array([1 + 2j, 0.5 - 3j], np.complex64),
    "scalar": np.array(3.5),
    "empty": np.zeros((3, 0, 2), np.float32),
    "ünïcode": np.ones(1),
}


def equal(a, b):
    assert a.keys() == b.keys()
    for name in a:
        assert a[name].dtype == b[name].dtype and a[name].shape == b[name].shape
        np.testing.assert_array_equal(a[name], b[name], err_msg=name)


def test_they_read_what_we_wrote(tmp_path):
    ours.write(tmp_path / "a", ARRAYS, {"who": "us"})
    equal(ARRAYS, theirs.load_file(tmp_path / "a"))
    with safetensors.safe_open(tmp_path / "a", "np") as file:
        assert file.metadata() == {"who": "us"}


def test_we_read_what_they_wrote(tmp_path):
    theirs.save_file(ARRAYS, tmp_path / "a", {"who": "them"})
    for mapped in (True, False):
        arrays, metadata = ours.read(tmp_path / "a", mapped)
        equal(ARRAYS, arrays)
        assert metadata == {"who": "them"}


def test_the_same_bytes(tmp_path):
    """Sorted by alignment and name, as theirs are; the header's order of keys aside."""
    arrays = {name: array for name, array in ARRAYS.items() if array.size}
    ours.write(tmp_path / "a", arrays)
    theirs.save_file(arrays, tmp_path / "b")
    first, second = (path.read_bytes() for path in (tmp_path / "a", tmp_path / "b"))
    sizes = [struct.unpack("<Q", data[:8])[0] for data in (first, second)]
    assert len(first) - sizes[0] == len(second) - sizes[1]


def entry(begin, end, shape=None, dtype="F32"):
    return {"dtype": dtype, "shape": [(end - begin) // 4] if shape is None else shape, "data_offsets": [begin, end]}


HEADERS = [
    ({"a": entry(0, 8)}, 4), ({"a": entry(0, 8), "b": entry(4, 8)}, 8), ({"a": entry(0, 4), "b": entry(8, 12)}, 16),
    ({"a": entry(0, 4)}, 8), ({"a": entry(0, 8, [3])}, 8), ({"a": entry(0, 8, [2**40, 2**40])}, 8),
    ({"a": entry(0, 8, [-2])}, 8), ({"a": entry(8, 0, [2])}, 8), ({"a": entry(0, 8, [8], "Q8")}, 8), ({"a": 1}, 0),
    ({"__metadata__": {"a": 1}}, 0), ([1], 0),
]  # fmt: skip


@pytest.mark.parametrize(("header", "size"), HEADERS, ids=str)
def test_both_refuse(header, size, tmp_path):
    text = json.dumps(header).encode()
    path = tmp_path / "a"
    path.write_bytes(struct.pack("<Q", len(text)) + text + b"\0" * size)
    with pytest.raises(safetensors.SafetensorError):
        theirs.load_file(path)
    with pytest.raises(ours.SafetensorsError):
        ours.read(path)


class Dense(nn.Module):
    def __init__(self, n, m):
        self.weight, self.bias = np.zeros((m, n), np.float32), np.zeros(m, np.float32)


class Pair(nn.Module):
    def __init__(self):
        self.first, self.second = Dense(3, 4), Dense(4, 2)


def test_a_model_of_pytorch(tmp_path):
    torch = pytest.importorskip("torch")
    from safetensors.torch import load_model, save_file, save_model

    class Theirs(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.first, self.second = torch.nn.Linear(3, 4), torch.nn.Linear(4, 2)

    source, model = Theirs(), Pair()
    save_file({f"module.{n}": w for n, w in source.state_dict().items()}, tmp_path / "a")
    assert wl.load(model, tmp_path / "a").complete
    for name, w in source.state_dict().items():
        np.testing.assert_array_equal(model.state()[name], w.numpy())
    back = Theirs()
    wl.save(model, tmp_path / "b")
    load_model(back, tmp_path / "b")
    assert all(torch.equal(back.state_dict()[n], w) for n, w in source.state_dict().items())
    half = {n: w.to(torch.bfloat16) for n, w in source.state_dict().items()}
    save_file(half, tmp_path / "c")
    wl.load(model, tmp_path / "c")
    for name, w in half.items():
        np.testing.assert_array_equal(model.state()[name], w.float().numpy())
    source.second.weight = torch.nn.Parameter(torch.zeros(2, 4))
    source.extra = source.first  # shared: save_model keeps one, and says so in the metadata
    save_model(source, str(tmp_path / "d"))
    found = wl.load(tmp_path / "d")
    np.testing.assert_array_equal(found["extra.weight"], found["first.weight"])
