"""Files: what is saved comes back, all or nothing; damaged and hostile ones are refused; what doesn't fit is said."""

import json
import os
import pickle
import struct
import threading

import numpy as np
import pytest

import wonderland as wl
from wonderland import nn, train
from wonderland.nn import safetensors
from wonderland.nn.safetensors import SafetensorsError


class Dense(nn.Module):
    def __init__(self, n, m, seed=0):
        rng = np.random.default_rng(seed)
        self.weight = rng.normal(size=(m, n)).astype(np.float32)
        self.bias = rng.normal(size=m).astype(np.float32)

    def __call__(self, x):
        return x @ self.weight.T + self.bias


class Network(nn.Module):
    def __init__(self, seed=0):
        self.layers = [Dense(3, 4, seed), Dense(4, 2, seed + 1)]
        self.calls = nn.Buffer(np.array(seed, np.int64))

    def __call__(self, x):
        self.calls = self.calls + 1
        return self.layers[1](np.tanh(self.layers[0](x)))


def equal(a, b):
    assert a.keys() == b.keys()
    for name in a:
        assert a[name].dtype == b[name].dtype
        np.testing.assert_array_equal(a[name], b[name], err_msg=name)


ARRAYS = {
    "bool": np.array([True, False, True]),
    **{f"i{n}": np.arange(-3, 3).astype(f"i{n}").reshape(2, 3) for n in (1, 2, 4, 8)},
    **{f"u{n}": np.arange(5).astype(f"u{n}") for n in (1, 2, 4, 8)},
    **{f"f{n}": np.array([[0.1, -np.inf, np.nan], [-0.0, 1e-5, 7]]).astype(f"f{n}") for n in (2, 4, 8)},
    "c8": np.array([1 + 2j, np.nan - 3j], np.complex64),
    "c16": np.array([[1 + 2j, 0.1 - 3j]], np.complex128),
    "scalar": np.array(3.5),
    "empty": np.zeros((3, 0, 2), np.float32),
    "ünïcode \" \\ \n": np.ones(1),
}  # fmt: skip


@pytest.mark.parametrize("mapped", [True, False])
def test_every_dtype(tmp_path, mapped):
    path = tmp_path / "a.safetensors"
    safetensors.write(path, ARRAYS, {"who": "us"})
    arrays, metadata = safetensors.read(path, mapped)
    assert metadata == {"who": "us"}
    equal(ARRAYS, {name: arrays[name] for name in ARRAYS})
    assert all(array.flags.aligned for array in arrays.values())
    (length,) = struct.unpack("<Q", path.read_bytes()[:8])
    assert length % 8 == 0


def test_other_layouts_of_memory(tmp_path):
    base = np.arange(24.0).reshape(2, 3, 4)
    arrays = {"t": base.T, "step": base[::-1, ::2], "big": base.astype(">f8"), "f": np.asfortranarray(base[0])}
    wl.save(arrays, tmp_path / "a")
    back = wl.load(tmp_path / "a")
    for name, array in arrays.items():
        np.testing.assert_array_equal(back[name], array)
        assert back[name].dtype.isnative


def test_what_is_refused_when_written(tmp_path):
    path = tmp_path / "a"
    for bad in (np.array(["a"]), np.array([object()]), np.array([1], np.longdouble), np.array(["2020"], "M8[D]")):
        with pytest.raises((SafetensorsError, wl.ArgumentError), match="'x' has dtype"):
            wl.save({"x": bad}, path)
    with pytest.raises(wl.ArgumentError, match="x is a str"):
        wl.save({"x": "text"}, path)
    with pytest.raises(wl.ArgumentError, match="no arrays"):
        wl.save({}, path)
    with pytest.raises(wl.ArgumentError, match="a single array"):
        wl.save(np.ones(3), path)
    with pytest.raises(wl.ArgumentError, match=r"the name 'a\.b'"):
        wl.save({"a.b": np.ones(1), "a": {"b": np.ones(1)}}, path)
    with pytest.raises(SafetensorsError, match="metadata"):
        wl.save({"a": np.ones(1)}, path, metadata={"a": 1})
    assert not os.listdir(tmp_path)


# Damaged and hostile files -------------------------------------------------------------------------------------------


def file_of(header, data=b"", length=None):
    text = header if isinstance(header, bytes) else json.dumps(header).encode()
    return struct.pack("<Q", len(text) if length is None else length) + text + data


def entry(begin, end, shape=None, dtype="F32"):
    return {"dtype": dtype, "shape": [(end - begin) // 4] if shape is None else shape, "data_offsets": [begin, end]}


EIGHT = b"12345678"
HOSTILE = {
    "nothing": (b"", "0 bytes"),
    "seven bytes": (b"1234567", "7 bytes"),
    "a header longer than the file": (file_of({}, length=100), "truncated: its header has 100 bytes"),
    "a huge header": (file_of({}, length=2**63), "9223372036854775808 bytes is announced"),
    "just above the limit": (file_of({}, length=100_000_001), "at most 100000000"),
    "no JSON": (file_of(b"{'a': 1}"), "no JSON"),
    "no UTF-8": (file_of(b'{"\xff": 1}'), "no JSON"),
    "a list": (file_of([1]), "no JSON object"),
    "deep": (file_of(b"[" * 100_000), "no JSON"),
    "an entry that is a number": (file_of({"a": 1}), "the entry of 'a' lacks"),
    "no shape": (file_of({"a": {"dtype": "F32", "data_offsets": [0, 4]}}, b"1234"), "lacks dtype, shape"),
    "truncated data": (file_of({"a": entry(0, 8)}, b"1234"), "truncated: 'a' ends at byte 8"),
    "overlap": (file_of({"a": entry(0, 8), "b": entry(4, 8)}, EIGHT), "'b' overlaps"),
    "the same bytes twice": (file_of({"a": entry(0, 8), "b": entry(0, 8)}, EIGHT), "overlaps"),
    "a gap": (file_of({"a": entry(0, 4), "b": entry(8, 12)}, EIGHT + EIGHT), "leaves 4 bytes"),
    "bytes at the end": (file_of({"a": entry(0, 4)}, EIGHT), "4 bytes at its end"),
    "another size": (file_of({"a": entry(0, 8, [3])}, EIGHT), "12 bytes, but has those from 0 to 8"),
    "an overflowing shape": (file_of({"a": entry(0, 8, [2**40, 2**40])}, EIGHT), "bytes, but has those"),
    "a negative shape": (file_of({"a": entry(0, 8, [-1, -2])}, EIGHT), "not whole numbers"),
    "a fractional shape": (file_of({"a": entry(0, 8, [2.0])}, EIGHT), "not whole numbers"),
    "a bool as a shape": (file_of({"a": entry(0, 4, [True])}, b"1234"), "not whole numbers"),
    "offsets backwards": (file_of({"a": entry(8, 0, [2])}, EIGHT), "but has those from 8 to 0"),
    "an unknown dtype": (file_of({"a": entry(0, 8, [8], "F8_E4M3")}, EIGHT), "'F8_E4M3'; NumPy can hold"),
    "a dtype that is a list": (file_of({"a": {"dtype": "X", "shape": [], "data_offsets": [0, 0]}}), "dtype"),
    "a name twice": (file_of(b'{"a":{"dtype":"F32","shape":[1],"data_offsets":[0,4]},'
                             b'"a":{"dtype":"F32","shape":[1],"data_offsets":[4,8]}}', EIGHT), "'a' is in the header"),
    "metadata of numbers": (file_of({"__metadata__": {"a": 1}}), "no dict of strings"),
    "complex that isn't": (file_of({"__metadata__": {"wonderland.complex128": '["a"]'}, "a": entry(0, 8)}, EIGHT),
                           "said to be complex"),
    "complex nonsense": (file_of({"__metadata__": {"wonderland.complex128": "["}}), "no list of names"),
    "a pickle": (pickle.dumps({"a": np.ones(3)}), "torch.save or pickle"),
    "a zip": (b"PK\x03\x04\x14\x00\x08\x08" + b"\0" * 50, "torch.save or pickle"),
}  # fmt: skip


@pytest.mark.parametrize("mapped", [True, False])
@pytest.mark.parametrize("case", HOSTILE)
def test_hostile_files(case, mapped, tmp_path):
    data, message = HOSTILE[case]
    path = tmp_path / "hostile"
    path.write_bytes(data)
    with pytest.raises(SafetensorsError, match=message) as error:
        safetensors.read(path, mapped)
    assert "hostile" in str(error.value)


def test_every_truncation_is_noticed(tmp_path):
    path = tmp_path / "a"
    wl.save({"a": np.arange(5.0), "b": np.ones(3, np.float32)}, path)
    whole = path.read_bytes()
    for length in range(len(whole)):
        path.write_bytes(whole[:length])
        with pytest.raises(SafetensorsError):
            wl.load(path)


def test_bfloat16_is_read_as_float32(tmp_path):
    values = np.array([1.0, -2.5, 3.140625, np.inf, -0.0], np.float32)
    data = (values.view(np.uint32) >> 16).astype("<u2").tobytes()
    path = tmp_path / "a"
    path.write_bytes(file_of({"a": entry(0, 10, [5], "BF16")}, data))
    found = wl.load(path)["a"]
    assert found.dtype == np.float32
    np.testing.assert_array_equal(found, values)
    target = {"a": np.zeros(5, np.float16)}
    wl.load(target, path)
    np.testing.assert_array_equal(target["a"], values.astype(np.float16))


def test_unaligned_data_is_read(tmp_path):
    path = tmp_path / "a"
    header = json.dumps({"a": entry(0, 3, [3], "U8"), "b": entry(3, 11, [1], "F64")}).encode()
    path.write_bytes(file_of(header, b"abc" + struct.pack("<d", 2.5)))
    found = wl.load(path)
    assert found["b"][0] == 2.5 and found["b"].flags.aligned
    assert wl.jit(np.sum)(found["b"]) == 2.5


# All or nothing ------------------------------------------------------------------------------------------------------


def test_a_failed_write_leaves_the_old_file(tmp_path, monkeypatch):
    path = tmp_path / "a"
    wl.save({"x": np.ones(3)}, path)

    def fail(*args):
        raise OSError("no space left")

    for name in ("fsync", "replace"):
        with monkeypatch.context() as patch:
            patch.setattr(os, name, fail)
            with pytest.raises(OSError, match="no space"):
                wl.save({"x": np.zeros(3)}, path)
        assert os.listdir(tmp_path) == ["a"]
        np.testing.assert_array_equal(wl.load(path)["x"], 1)


def test_a_reader_sees_the_old_file_or_the_new_one(tmp_path):
    path = tmp_path / "a"
    wl.save({"x": np.zeros(20_000)}, path)
    stop = threading.Event()

    def write():
        i = 0
        while not stop.is_set():
            i += 1
            wl.save({"x": np.full(20_000, float(i))}, path)

    writer = threading.Thread(target=write)
    writer.start()
    try:
        for _ in range(50):
            x = wl.load(path)["x"]
            assert np.all(x == x[0])
    finally:
        stop.set()
        writer.join()


def test_links_and_permissions_stay(tmp_path):
    path, link = tmp_path / "a", tmp_path / "link"
    wl.save({"x": np.ones(3)}, path)
    os.chmod(path, 0o640)
    link.symlink_to(path)
    wl.save({"x": np.zeros(3)}, link)
    assert link.is_symlink() and os.stat(path).st_mode & 0o777 == 0o640
    np.testing.assert_array_equal(wl.load(path)["x"], 0)


def test_mapped_arrays(tmp_path):
    path = tmp_path / "a"
    wl.save({"x": np.arange(10.0)}, path)
    x = wl.load(path)["x"]
    assert not x.flags.writeable and not x.flags.owndata
    wl.save({"x": np.zeros(10)}, path)  # another file takes the name: what was mapped stays
    np.testing.assert_array_equal(x, np.arange(10.0))
    np.testing.assert_allclose(wl.grad(lambda x: np.sum(x**2))(x), 2 * np.arange(10.0))


# Modules and trees ---------------------------------------------------------------------------------------------------


def test_a_model_comes_back_into_the_same_arrays(tmp_path):
    path = tmp_path / "model.safetensors"
    model, other = Network(0), Network(5)
    wl.save(model, path)
    held = {name: id(array) for name, array in other.state().items()}
    report = wl.load(other, path)
    assert report.complete and sorted(report.loaded) == sorted(held)
    equal(model.state(), other.state())
    assert held == {name: id(array) for name, array in other.state().items()}
    assert {*wl.load(path)} == {f"layers.{i}.{n}" for i in (0, 1) for n in ("weight", "bias")} | {"calls"}


def test_strict_and_partial(tmp_path):
    path = tmp_path / "a"
    model = Network(0)
    state = {**model.state(), "head.weight": np.ones(3)}
    del state["layers.0.bias"]
    state["layers.1.weight"] = np.ones((2, 5), np.float32)
    state["layers.1.bias"] = np.ones(2, np.complex64)
    wl.save(state, path)
    other = Network(5)
    before = {name: array.copy() for name, array in other.state().items()}
    with pytest.raises(wl.ArgumentError) as error:
        wl.load(other, path)
    parts = "nothing is loaded", "lacks layers.0.bias", "head.weight", "(2, 4), the file (2, 5)", "the file complex64"
    for part in parts:
        assert part in str(error.value)
    equal(before, other.state())
    report = wl.load(other, path, strict=False)
    assert report.missing == ["layers.0.bias"] and report.unexpected == ["head.weight"]
    assert report.mismatched.keys() == {"layers.1.weight", "layers.1.bias"} and not report.complete
    assert sorted(report.loaded) == ["calls", "layers.0.weight"]
    np.testing.assert_array_equal(other.layers[0].weight, model.layers[0].weight)
    np.testing.assert_array_equal(other.layers[0].bias, before["layers.0.bias"])


@pytest.mark.parametrize("prefix", ["module.", "_orig_mod.", "module._orig_mod."])
def test_pytorchs_prefixes(tmp_path, prefix):
    path = tmp_path / "a"
    model, other = Network(0), Network(5)
    wl.save({prefix + name: array for name, array in model.state().items()}, path)
    assert wl.load(other, path).complete
    equal(model.state(), other.state())


def test_names_that_are_changed(tmp_path):
    path = tmp_path / "a"
    model, other = Network(0), Network(5)
    wl.save({name.replace("layers.", "net."): array for name, array in model.state().items()}, path)
    assert wl.load(other, path, rename=lambda name: name.replace("net.", "layers.")).complete
    equal(model.state(), other.state())
    with pytest.raises(wl.ArgumentError, match="the same name"):
        wl.load(other, path, rename=lambda name: "x")


def test_counters_of_pytorchs_batch_norm_are_known(tmp_path):
    path = tmp_path / "a"
    model, other = Network(0), Network(5)
    wl.save({**model.state(), "layers.0.num_batches_tracked": np.array(7)}, path)
    assert wl.load(other, path).complete


def test_dtypes_are_cast(tmp_path):
    path = tmp_path / "a"
    wl.save(
        {name: array.astype(np.float64) if array.ndim else array for name, array in Network(0).state().items()}, path
    )
    other = Network(5)
    wl.load(other, path)
    assert other.layers[0].weight.dtype == np.float32
    np.testing.assert_array_equal(other.layers[0].weight, Network(0).layers[0].weight)


def test_trees_with_models_and_optimisers(tmp_path):
    path = tmp_path / "a"

    def make(seed):
        model = Network(seed)
        state = {"model": model, "optimizer": train.Adam(model, 0.01 * (seed + 1)), "epoch": np.array(seed)}
        return {**state, "more": [np.ones(2) * seed, (np.zeros(1),)]}

    first, second = make(1), make(2)
    grads = {name: np.ones_like(w) for name, w in first["model"].named_parameters()}
    for _ in range(3):
        first["optimizer"].update(first["model"], grads)
    wl.save(first, path)
    assert wl.load(second, path).complete
    assert second["epoch"] == 1 and second["more"][0][0] == 1 and second["optimizer"].updates == 3
    for tree in (first, second):
        tree["optimizer"].update(tree["model"], grads)
    equal(first["model"].state(), second["model"].state())
    equal(first["optimizer"].state(), second["optimizer"].state())


def test_an_array_in_two_places_is_written_once(tmp_path):
    path = tmp_path / "a"
    shared = np.arange(1000.0)
    wl.save({"first": shared, "second": [shared], "other": np.zeros(1)}, path)
    assert os.path.getsize(path) < 9000
    found = wl.load(path)
    np.testing.assert_array_equal(found["second.0"], shared)
    target = {"first": np.zeros(1000), "second": [np.zeros(1000)], "other": np.ones(1)}
    assert wl.load(target, path).complete
    np.testing.assert_array_equal(target["second"][0], shared)
    one = np.zeros(1000)
    target = {"first": one, "second": [one], "other": np.ones(1)}
    assert wl.load(target, path).complete


def test_bad_targets(tmp_path):
    path = tmp_path / "a"
    wl.save({"a": np.ones(1), "b": 2.5}, path)
    assert wl.load(path)["b"] == 2.5
    with pytest.raises(wl.ArgumentError, match="b is a float: load copies into writable arrays"):
        wl.load({"a": np.ones(1), "b": 2.5}, path)
    with pytest.raises(wl.ArgumentError, match="no path, but Network"):
        wl.load(Network())
    with pytest.raises(FileNotFoundError, match=r"no directory to write into.*nowhere'$"):
        wl.save(Network(0), tmp_path / "nowhere" / "file.safetensors")
    with pytest.raises(FileNotFoundError):
        wl.load(Network(), tmp_path / "nowhere")
    with pytest.raises(wl.ArgumentError, match="traced"):
        wl.jit(lambda x: wl.save({"x": x}, path))(np.ones(3))


class Tied(nn.Module):
    def __init__(self, seed=0):
        self.embedding = Dense(3, 4, seed)
        self.head = {"weight": self.embedding.weight, "bias": np.zeros(4, np.float32)}


def test_shared_parameters_are_one_tensor(tmp_path):
    path = tmp_path / "a"
    model, other = Tied(0), Tied(5)
    wl.save({"net": model}, path)
    arrays, metadata = safetensors.read(path)
    assert "net.head.weight" not in arrays and metadata == {"net.head.weight": "net.embedding.weight"}
    np.testing.assert_array_equal(wl.load(path)["net.head.weight"], model.embedding.weight)
    assert wl.load({"net": other}, path).complete
    assert other.head["weight"] is other.embedding.weight
    np.testing.assert_array_equal(other.head["weight"], model.embedding.weight)


def test_both_names_of_a_shared_parameter_load_if_they_agree(tmp_path):
    path = tmp_path / "a"
    model, other = Tied(0), Tied(5)
    state = {**model.state(), "head.weight": model.embedding.weight.copy()}  # as PyTorch's state dicts have it
    wl.save(state, path)
    assert wl.load(other, path).complete
    np.testing.assert_array_equal(other.embedding.weight, model.embedding.weight)
    state["head.weight"] = state["head.weight"] + 1
    wl.save(state, path)
    before = {name: array.copy() for name, array in other.state().items()}
    with pytest.raises(wl.ArgumentError, match=r"head\.weight: is one array with embedding\.weight"):
        wl.load(other, path)
    equal(before, other.state())
    del state["embedding.weight"]  # the second name alone
    wl.save(state, path)
    assert wl.load(other, path).complete
    np.testing.assert_array_equal(other.embedding.weight, model.embedding.weight + 1)


@wl.register_mutable
class Plain:
    def __init__(self, seed):
        self.w, self.name, self.more = np.full(3, float(seed)), "plain", {"b": np.ones(2) * seed}


def test_registered_objects(tmp_path):
    wl.save([Plain(1), Plain(2)], tmp_path / "a")
    target = [Plain(8), Plain(9)]
    assert wl.load(target, tmp_path / "a").complete
    assert target[1].w[0] == 2 and target[0].more["b"][0] == 1
