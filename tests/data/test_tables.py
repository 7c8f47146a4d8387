"""Tables: pandas is the oracle of what is in a CSV file, and errors name the line."""

import importlib.util
import pickle
import re

import hypothesis.strategies as st
import numpy as np
import pandas as pd
import pytest
from hypothesis import given, settings

from wonderland import data
from wonderland.core.errors import ArgumentError
from wonderland.data import csv_files

READERS = {"pandas": csv_files._read_by_pandas, "csv": csv_files._read_by_csv}
IRIS = """length,width,species,plant
5.1,3.5,setosa,a
7.0,3.2,versicolor,a
6.3,3.3,virginica,b
4.9,3.0,setosa,c
"""


@pytest.fixture(params=["pandas", "csv"])
def reader(request, monkeypatch):
    """With pandas, and as if it weren't there."""
    if request.param == "csv":
        find = importlib.util.find_spec
        monkeypatch.setattr(importlib.util, "find_spec", lambda name, *rest: None if name == "pandas" else find(name))
    return request.param


def write(tmp_path, text, name="t.csv"):
    path = tmp_path / name
    path.write_text(text, encoding="utf-8")
    return path


def bad(message):
    return pytest.raises((data.DataError, ArgumentError), match=re.escape(message))


def test_a_table(tmp_path, reader):
    t = data.Table(write(tmp_path, IRIS), features=["length", "width"], target="species", groups="plant")
    x, y = t.arrays
    assert x.tolist() == [[5.1, 3.5], [7.0, 3.2], [6.3, 3.3], [4.9, 3.0]] and y.tolist() == [0, 1, 2, 0]
    assert t.names == ["length", "width"] and t.classes == ["setosa", "versicolor", "virginica"]
    assert t.groups.tolist() == ["a", "a", "b", "c"] and t.labels.tolist() == [0, 1, 2, 0]
    assert t.name(2) == f"{tmp_path / 't.csv'}, row 2 (line 4)"
    part = t.part([3, 0])
    assert (
        isinstance(part, data.Table) and part.name(0).endswith("row 3 (line 5)") and part.groups.tolist() == ["c", "a"]
    )
    train, test = data.split(t, [0.5, 0.5], groups=True)
    assert not {*train.groups} & {*test.groups}
    same = data.Table(write(tmp_path, IRIS), target="species", groups="plant", dtype=np.float32)
    assert same[:][0].dtype == np.float32 and same.names == ["length", "width"]
    assert len(data.Table(write(tmp_path, IRIS), features=["width"])[:]) == 1
    many = data.Table(write(tmp_path, IRIS), features=["width"], target=["length", "width"][:1])
    assert many[:][1].tolist() == [5.1, 7.0, 6.3, 4.9]


def test_kinds_become_columns(tmp_path, reader):
    t = data.Table(write(tmp_path, IRIS), features=["plant", "width"], one_hot=["plant"], target="species")
    assert t.names == ["plant=a", "plant=b", "plant=c", "width"]
    assert t[:][0][:, :3].tolist() == [[1, 0, 0], [1, 0, 0], [0, 1, 0], [0, 0, 1]]
    again = data.Table({"plant": ["c"], "width": [1.0]}, one_hot=["plant"], categories=t.categories)
    assert again[:][0].tolist() == [[0, 0, 1, 1]]
    with bad("the table, row 0, column 'plant', is 'd', which isn't one of its kinds ['a', 'b', 'c']"):
        data.Table({"plant": ["d"], "width": [1.0]}, one_hot=["plant"], categories=t.categories)


GAPS = "a,b,y\n1,2,0\n3,,1\n\n5,NaN,1\n7,8,\n9,10,1\n"


def test_missing_cells(tmp_path, reader):
    path = write(tmp_path, GAPS)
    with bad(f"{path}, row 1 (line 3), column 'b', is missing, as is 1 more of this column"):
        data.Table(path, features=["a", "b"])
    with bad(f"{path}, row 3 (line 6), column 'y', (the target) is missing: a label can't"):
        data.Table(path, features=["a"], target="y")
    t = data.Table(path, target="y", missing="drop")
    assert t[:][0].tolist() == [[1, 2], [9, 10]] and t[:][1].tolist() == [0, 1] and t[:][1].dtype == np.int64
    assert t.name(1).endswith("row 4 (line 7)")
    kept = data.Table(path, features=["a", "b"], missing="keep")
    np.testing.assert_array_equal(kept[:][0][:, 1], [2, np.nan, np.nan, 8, 10])
    assert data.Table(path, features=["a", "b"], missing=-1)[:][0][:, 1].tolist() == [2, -1, -1, 8, 10]
    with bad("(the target) is missing"):
        data.Table(path, features=["a", "b"], target="y", missing=0)
    with bad("one_hot columns can't be filled"):
        data.Table(path, features=["b"], one_hot=["b"], missing=0)
    with bad("each of its 1 rows has something missing"):
        data.Table(write(tmp_path, "a,b\n1,\n"), missing="drop")
    with bad("missing is 'raise', 'drop', 'keep' or a number"):
        data.Table(path, missing="mean")


@pytest.mark.parametrize(
    ("text", "options", "message"),
    [
        ("", {}, "is empty: its first line has to have the names"),
        ("a,b\n", {}, "has no rows, only the columns ['a', 'b']"),
        ("a,b\n1,2\n", {"target": "c"}, "has no column 'c': its columns are ['a', 'b']"),
        ("length,b\n1,2\n", {"target": "lenght"}, "(did you mean 'length'?)"),
        ("a,b\n1,2\n", {"features": ["a", "b"], "target": "b"}, "column 'b' is among the features and the targets"),
        ("a,b\n1,2\n", {"features": []}, "has no column for the features"),
        ("a,b\n1,2\n", {"target": "b", "one_hot": ["b"]}, "one_hot has 'b', which isn't one of the features ['a']"),
        ("a,b\n1,2\n3,red\n", {}, "row 1 (line 3), column 'b', is 'red', not a number"),
        ('a,b\n"x\ny",2\nz,3\nz,red\n', {"features": ["b"]}, "row 2 (line 5), column 'b', is 'red', not a number"),
        ("a,b\n1,2\n1,2,3\n", {}, "line 3 has 3 cells, but line 1 names 2 columns"),
        ("a,a\n1,2\n", {}, "line 1: the column 'a' is there twice"),
        ('a,b\n1,"2\n', {}, "unexpected end of data"),
        (
            "a,b\n1,x\n2,y\n",
            {"target": "b", "classes": ["x"]},
            "row 1 (line 3), column 'b', is 'y', which isn't one of ['x']",
        ),
        ("a,b,c\n1,x,2\n", {"target": ["b", "c"]}, "so 'b' has to be of numbers, not"),
        ("a,g\n1,x\n2,\n", {"groups": "g"}, "row 1 (line 3), column 'g', (the group) is missing"),
    ],
)
def test_unusable_tables(text, options, message, tmp_path, reader):
    with bad(message):
        data.Table(write(tmp_path, text), **options)


def test_unusable_sources(tmp_path):
    with bad("no.csv isn't there"):
        data.Table(tmp_path / "no.csv")
    with bad("is a folder, not a file"):
        data.Table(str(tmp_path))
    (tmp_path / "b.csv").write_bytes(b"a,b\n\xff\xfe,1\n")
    with bad("b.csv isn't UTF-8 text (byte 4)"):
        data.Table(tmp_path / "b.csv")
    with bad("not ndarray; an array goes into wl.data.Arrays"):
        data.Table(np.ones((2, 2)))
    with bad("have different lengths: {'a': 1, 'b': 2}"):
        data.Table({"a": [1], "b": [1, 2]})
    with bad("the table has no columns"):
        data.Table({})
    with bad("a column of a table has one axis"):
        data.Table({"a": [[1, 2]]})
    with bad("has a column twice"):
        data.Table(pd.DataFrame([[1, 2]], columns=["a", "a"]))
    with bad("goes into wl.data.Table(frame, target=...)"):
        data.Loader(pd.DataFrame({"a": [1]}))
    with bad("the DataFrame, row 1, column 'a', is missing"):
        data.Table(pd.DataFrame({"a": [1.0, np.nan]}))


def test_frames():
    frame = pd.DataFrame(
        {
            "i": [1, 2, 3],
            "n": pd.array([1, None, 3], "Int64"),
            "f": [0.5, np.nan, 2.5],
            "b": [True, False, True],
            "c": pd.Categorical(["u", "v", "u"]),
            "s": ["x", None, "y"],
            "d": pd.to_datetime(["2020-01-01"] * 3),
        }
    )
    t = data.Table(frame, features=["i", "n", "f", "b"], target="c", missing="keep")
    expected = frame[["i", "n", "f", "b"]].astype(float).to_numpy(na_value=np.nan)
    np.testing.assert_array_equal(t[:][0], expected)
    assert t.classes == ["u", "v"] and t[:][1].tolist() == [0, 1, 0]
    assert data.Table(frame, features=["n", "s"], one_hot=["s"], missing="drop").names == ["n", "s=x", "s=y"]
    with bad("column 'd', is 2020-01-01T00:00:00"):
        data.Table(frame, features=["d"])
    with bad("row 1, column 's', (the target) is missing"):
        data.Table(frame, features=["i"], target="s")
    with bad("row 0, column 's', is 'x', not a number"):
        data.Table(frame, features=["s"], missing="keep")


def test_parquet(tmp_path, monkeypatch):
    """By whichever reader is there; here one that stands for it, as neither has to be."""
    path = tmp_path / "t.parquet"
    path.write_bytes(b"PAR1")
    monkeypatch.setitem(__import__("sys").modules, "pyarrow", None)
    monkeypatch.setattr(pd, "read_parquet", lambda p: pd.DataFrame({"a": [1.0, 2.0], "y": [0, 1]}))
    assert data.Table(path, target="y")[:][0].tolist() == [[1], [2]]

    def missing(path):
        raise ImportError("no engine")

    monkeypatch.setattr(pd, "read_parquet", missing)
    with pytest.raises(ImportError, match="reading Parquet needs pyarrow, which isn't there: pip install pyarrow"):
        data.Table(path)

    def damaged(path):
        raise OSError("no footer")

    monkeypatch.setattr(pd, "read_parquet", damaged)
    with bad("can't be read as a Parquet file: no footer"):
        data.Table(path)


CELLS = st.sampled_from(
    ["", "NA", "nan", "null", "1", "-2", "007", "3.0", "0.1", "1e3", "-1e-300", "inf", "-inf", "True", "false", "TRUE",
     "red", "x y", " 5", "1_0", "12345678901234567890", "9007199254740993", "0.30000000000000004", "a\nb", 'q"q', "a,b"]
)  # fmt: skip
KINDS = [CELLS, st.integers(-5, 5).map(str), st.floats(allow_nan=False).map(repr), st.sampled_from(["", "1.5", "2"])]


@settings(max_examples=60)
@given(data_=st.data(), rows=st.integers(1, 4))
def test_both_readers_agree(data_, rows, tmp_path_factory):
    columns = {name: data_.draw(st.lists(kind, min_size=rows, max_size=rows)) for name, kind in zip("abcd", KINDS)}
    path = tmp_path_factory.mktemp("csv") / "t.csv"
    pd.DataFrame(columns).to_csv(path, index=False)
    expected, found = READERS["csv"](path), READERS["pandas"](path)
    assert found is not None and [*expected] == [*found] == [*"abcd"]
    for name in expected:
        a, b = expected[name], found[name]
        assert a.dtype.kind == b.dtype.kind, (columns[name], a, b)
        np.testing.assert_array_equal(a, b)
    frame = pd.read_csv(path, skipinitialspace=True)
    for name in expected:
        if pd.api.types.is_numeric_dtype(frame[name].dtype) and frame[name].dtype != bool:
            np.testing.assert_array_equal(np.asarray(expected[name], float), frame[name].to_numpy(float))


def csv_file(tmp_path, text):
    path = tmp_path / "odd.csv"
    path.write_text(text)
    return path


@pytest.mark.parametrize(("text", "message"), [
    ("a;b\n1;2\n", "has semicolons between its cells"),
    ("a\tb\n1\t2\n", "has tabs between its cells"),
    ("5.1,3.5,setosa\n4.9,3.0,setosa\n", "line 1 has numbers, 5.1 first"),
    ("1,0.5\n2,0.7\n", "line 1 has numbers, 1 first"),
    ("a,b\n1,2,3\n", "line 2 has 3 cells"),
])  # fmt: skip
def test_odd_files(tmp_path, text, message):
    with pytest.raises(data.DataError, match=re.escape(message)):
        data.Table(csv_file(tmp_path, text))


def test_names_with_digits(tmp_path):
    assert data.Table(csv_file(tmp_path, "2019,2020\n1,2\n")).names == ["2019", "2020"]
    assert data.Table(csv_file(tmp_path, "id,1.1,1.2\n1,2,3\n")).names == ["id", "1.1", "1.2"]


def test_both_readers_agree_on_odd_lines(tmp_path):
    path = csv_file(tmp_path, "a,b\n  \n1,2,\n\n3,4\n5,x\n")
    by_pandas, by_csv = csv_files._read_by_pandas(path), csv_files._read_by_csv(path)
    for name in "ab":
        np.testing.assert_array_equal(by_pandas[name], by_csv[name])
    with pytest.raises(data.DataError, match=r"row 2 \(line 6\)"):
        data.Table(path)


def test_tables_of_files_can_be_pickled(tmp_path):
    table = data.Table(csv_file(tmp_path, "a,b\n1,2\n3,4\n"), target="b")
    again = pickle.loads(pickle.dumps(table))
    assert again.name(1) == table.name(1) and "line 3" in again.name(1)


@pytest.mark.parametrize(("options", "message"), [
    ({"features": ["a", "a"]}, "'a' is there twice"),
    ({"target": "b", "classes": ["x", "y", "x"]}, "'x' is there twice"),
    ({"one_hot": "b", "categories": {"b": ["x", "x", "y"]}}, "'x' is there twice"),
    ({"features": ["a"], "missing": True}, "missing is 'raise'"),
    ({"features": ["a"], "missing": 1j}, "missing is 'raise'"),
    ({"features": ["a"], "dtype": int}, "dtype is a floating-point one"),
    ({"features": ["a"], "target": "c"}, "row 1, column 'c', is 'u', and row 0 has 1: the kinds"),
    ({"features": ["a"], "target": 1}, "has no column 1"),
])  # fmt: skip
def test_ambiguous_tables(options, message):
    table = {"a": [1.7, 2.0], "b": ["x", "y"], "c": np.array([1, "u"], object)}
    with pytest.raises((data.DataError, ArgumentError), match=re.escape(message)):
        data.Table(table, **options)


def test_columns_of_the_same_name_as_text():
    frame = pytest.importorskip("pandas").DataFrame([[1, 2]], columns=[1, "1"])
    with pytest.raises(data.DataError, match="a column twice"):
        data.Table(frame)
