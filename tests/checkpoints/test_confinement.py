"""Planted attacks: no checkpoint reads outside its folder or runs anything."""

import json
import os
import pathlib
import pickle
import shutil

import msgpack
import numpy as np
import pytest
import tensorstore as ts

from spec_jax.checkpoints import (
    CheckpointError,
    load_huggingface,
    load_params,
    save_weights,
)
from spec_jax.checkpoints.storage import Folder, confined
from tests.golden import golden_path

NAME = "target.decoder.decoder_norm.scale"


def index(**changes):
    """An index of one parameter as t5x writes it, then changed."""
    leaf = {
        "driver": "zarr",
        "dtype": "float32",
        "kvstore": {"driver": "file", "path": f"{NAME}/"},
        "metadata": {"chunks": [4], "compressor": None, "shape": [4]},
    } | changes
    return msgpack.packb({"optimizer": {"target": {"scale": leaf}}})


def write_array(folder, value=0.0):
    spec = {"driver": "zarr", "kvstore": {"driver": "file", "path": f"{folder}/"}}
    array = ts.open(spec, create=True, dtype="float32", shape=[4]).result()
    array.write(np.full(4, value, np.float32)).result()


@pytest.fixture
def checkpoint(tmp_path):
    """A checkpoint that loads, beside a secret array of another folder."""
    write_array(tmp_path / "secret", 42.0)
    folder = tmp_path / "checkpoint_1"
    write_array(folder / NAME, 1.0)
    (folder / "checkpoint").write_bytes(index())
    np.testing.assert_array_equal(load_params(folder)["scale"], np.ones(4))
    return folder


@pytest.mark.parametrize(
    "path",
    [
        "../secret/",
        "../secret",
        f"{NAME}/../../secret/",
        "/etc/",
        "//etc/",
        "./../secret",
        "",
        "/",
        ".",
        "..",
        "..\\secret",
        f"{NAME}\0/",
    ],
)
@pytest.mark.parametrize("place", ["kvstore", "beside"])
def test_paths_that_lead_out(checkpoint, path, place):
    store = {"driver": "file"}
    changed = (
        index(kvstore=store | {"path": path})
        if place == "kvstore"
        else index(kvstore=store, path=path)
    )
    (checkpoint / "checkpoint").write_bytes(changed)
    with pytest.raises(CheckpointError, match=r"scale in .*checkpoint"):
        load_params(checkpoint)


def test_the_absolute_path_of_the_secret(checkpoint):
    secret = str(checkpoint.parent / "secret") + "/"
    store = {"driver": "file", "path": secret}
    (checkpoint / "checkpoint").write_bytes(index(kvstore=store))
    with pytest.raises(CheckpointError, match="only read its own folder"):
        load_params(checkpoint)


@pytest.mark.parametrize(
    "store",
    [
        {"driver": "http", "base_url": "http://127.0.0.1:1/", "path": NAME},
        {"driver": "s3", "bucket": "b", "path": NAME},
        {"driver": "memory", "path": NAME},
        {"driver": "ocdbt", "base": "file:///etc/", "path": NAME},
        {"driver": "kvstack", "layers": [{"base": "file:///etc/"}], "path": NAME},
        {"driver": "file", "path": NAME, "base": "file:///etc/"},
        {"path": NAME},
        "file:///etc/",
    ],
)
def test_stores_that_t5x_never_writes(checkpoint, store):
    (checkpoint / "checkpoint").write_bytes(index(kvstore=store))
    with pytest.raises(CheckpointError, match=r"scale in .*checkpoint"):
        load_params(checkpoint)


@pytest.mark.parametrize(
    "change",
    [
        {"driver": "json"},
        {"driver": "cast", "base": {"driver": "zarr"}},
        {"transform": {"input_shape": [4]}},
        {"path": "another"},
        {"path": 5},
        {"metadata": [1]},
        {"metadata": {"shape": 5}},
    ],
)
def test_specifications_that_t5x_never_writes(checkpoint, change):
    (checkpoint / "checkpoint").write_bytes(index(**change))
    with pytest.raises(CheckpointError, match=r"scale in .*checkpoint"):
        load_params(checkpoint)


def test_a_bucket_in_the_index_is_not_where_arrays_are_read(checkpoint):
    store = {"driver": "gcs", "bucket": "another-bucket", "path": f"{NAME}/"}
    (checkpoint / "checkpoint").write_bytes(index(kvstore=store))
    np.testing.assert_array_equal(load_params(checkpoint)["scale"], np.ones(4))


@pytest.mark.parametrize("what", ["array", "chunk", "metadata", "index"])
def test_links_that_lead_out(checkpoint, what):
    secret = checkpoint.parent / "secret"
    if what == "array":
        shutil.rmtree(checkpoint / NAME)
        (checkpoint / NAME).symlink_to(secret)
    elif what == "index":
        shutil.move(checkpoint / "checkpoint", secret / "checkpoint")
        (checkpoint / "checkpoint").symlink_to(secret / "checkpoint")
    else:
        file = "0" if what == "chunk" else ".zarray"
        (checkpoint / NAME / file).unlink()
        (checkpoint / NAME / file).symlink_to(secret / file)
    with pytest.raises(CheckpointError, match="link that leads out"):
        load_params(checkpoint)


def test_a_step_that_is_a_link_out(checkpoint):
    (checkpoint.parent / "run").mkdir()
    (checkpoint.parent / "run/checkpoint_7").symlink_to(checkpoint)
    with pytest.raises(CheckpointError, match="link that leads out"):
        load_params(checkpoint.parent / "run")


def test_our_weights_that_are_a_link_out(tmp_path):
    save_weights(tmp_path / "elsewhere", {"scale": np.ones(4)})
    (tmp_path / "model").mkdir()
    (tmp_path / "model/params.safetensors").symlink_to(tmp_path / "elsewhere")
    with pytest.raises(CheckpointError, match="link that leads out"):
        load_params(tmp_path / "model")


@pytest.mark.parametrize("what", ["path", "array"])
def test_links_in_a_circle(checkpoint, what):
    path = checkpoint / NAME / "0" if what == "array" else checkpoint.parent / "circle"
    path.unlink(missing_ok=True)
    path.symlink_to(path)
    with pytest.raises(CheckpointError, match=path.name):
        load_params(checkpoint if what == "array" else path)


@pytest.mark.parametrize(
    "file",
    [
        "params.safetensors",
        "model.safetensors",
        "model.safetensors.index.json",
        "shard.safetensors",
        f"{NAME}/0",
    ],
)
def test_a_pipe_is_not_waited_for(checkpoint, file):
    if "safetensors" in file:
        (checkpoint / "checkpoint").unlink()
    if "model" in file or "shard" in file:
        shutil.copy(golden_path("hf/t5_1_1_assistant/config.json"), checkpoint)
    if "shard" in file:
        index = json.dumps({"weight_map": {"shared.weight": file}})
        (checkpoint / "model.safetensors.index.json").write_text(index)
    (checkpoint / file).unlink(missing_ok=True)
    os.mkfifo(checkpoint / file)
    with pytest.raises(CheckpointError, match=r"no checkpoint|no file|neither"):
        load_params(checkpoint)


@pytest.mark.parametrize(
    "change", [{"chunks": [10**12]}, {"shape": [10**13]}], ids=["chunk", "array"]
)
def test_an_array_larger_than_the_memory(checkpoint, change):
    (checkpoint / "checkpoint").write_bytes(index(metadata={}))
    file = checkpoint / NAME / ".zarray"
    file.write_text(json.dumps(json.loads(file.read_text()) | change))
    with pytest.raises(CheckpointError, match="scale"):
        load_params(checkpoint)


def test_the_checkpoint_itself_may_be_reached_by_a_link(checkpoint):
    link = checkpoint.parent / "link"
    link.symlink_to(checkpoint)
    np.testing.assert_array_equal(load_params(link)["scale"], np.ones(4))


class Payload:
    def __reduce__(self):
        return os.mkdir, ("spec_jax_was_here",)


@pytest.mark.parametrize(
    "leaf",
    [
        pickle.dumps(Payload()),
        msgpack.ExtType(1, pickle.dumps(Payload())),
        msgpack.ExtType(5, pickle.dumps(Payload())),
        msgpack.ExtType(1, msgpack.packb(((1,), "object", b"\0" * 8))),
        msgpack.ExtType(1, msgpack.packb(((1,), "O", b"\0" * 8))),
        msgpack.ExtType(1, msgpack.packb(((1,), "<U4", b"\0" * 16))),
        msgpack.ExtType(1, msgpack.packb(((-1,), "float32", b"\0" * 4))),
        msgpack.ExtType(1, msgpack.packb(((2,), "float32", b"\0" * 4))),
        msgpack.ExtType(1, msgpack.packb(((1,), ["float32"], b"\0" * 4))),
        msgpack.ExtType(1, msgpack.packb((1, "float32", b"\0" * 4))),
        msgpack.ExtType(1, msgpack.packb(((1,), "float32"))),
        msgpack.ExtType(1, msgpack.packb(((1,), "float32", 4))),
        msgpack.ExtType(2, msgpack.packb((1.0, 2.0))),
        {"__msgpack_chunked_array__": True, "chunks": "no", "shape": 3},
    ],
)
def test_nothing_is_unpickled_and_only_arrays_are_taken(tmp_path, monkeypatch, leaf):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "checkpoint").write_bytes(msgpack.packb({"target": {"scale": leaf}}))
    with pytest.raises(CheckpointError, match="scale"):
        load_params(tmp_path)
    assert not (tmp_path / "spec_jax_was_here").exists()


@pytest.mark.parametrize("name", ["checkpoint", "model.safetensors"])
def test_a_pickle_in_place_of_a_file(tmp_path, monkeypatch, name):
    monkeypatch.chdir(tmp_path)
    shutil.copy(golden_path("hf/t5_1_1_assistant/config.json"), tmp_path)
    if name == "checkpoint":
        (tmp_path / "config.json").unlink()
    (tmp_path / name).write_bytes(pickle.dumps(Payload()))
    with pytest.raises(CheckpointError, match=name):
        load_params(tmp_path)
    assert not (tmp_path / "spec_jax_was_here").exists()


@pytest.mark.parametrize("depth", [1010, 100_000])
def test_an_index_nested_too_deep(tmp_path, depth):
    nested = b"\x81\xa6target" + b"\x81\xa1a" * depth + b"\x01"
    (tmp_path / "checkpoint").write_bytes(nested)
    with pytest.raises(CheckpointError, match=tmp_path.name):
        load_params(tmp_path)


def test_an_array_of_objects_in_zarr(checkpoint):
    file = checkpoint / NAME / ".zarray"
    content = json.loads(file.read_text())
    file.write_text(
        json.dumps(content | {"dtype": "|O", "filters": [{"id": "pickle"}]})
    )
    with pytest.raises(CheckpointError, match="scale"):
        load_params(checkpoint)


def crc32c(data):
    crc = 0xFFFFFFFF
    for byte in data:
        crc ^= byte
        for _ in range(8):
            crc = (crc >> 1) ^ (0x82F63B78 if crc & 1 else 0)
    return crc ^ 0xFFFFFFFF


def test_an_orbax_database_whose_data_lies_outside(tmp_path):
    """Its index is rewritten to name `../x/`; the checksum is made right again."""
    state = tmp_path / "checkpoint_1" / "state"
    spec = {
        "driver": "zarr",
        "kvstore": {
            "driver": "ocdbt",
            "base": f"file://{state}/",
            "path": "target.scale/",
            "config": {"compression": None, "max_inline_value_bytes": 0},
            "value_data_prefix": "QQ/x/",
        },
    }
    array = ts.open(spec, create=True, dtype="float32", shape=[4]).result()
    array.write(np.ones(4, np.float32)).result()
    np.testing.assert_array_equal(load_params(tmp_path)["scale"], np.ones(4))
    (tmp_path / "checkpoint_1" / "x").mkdir()
    for file in (state / "QQ/x").iterdir():
        shutil.copy(file, tmp_path / "checkpoint_1" / "x")
    changed = 0
    for file in state.rglob("*"):
        data = file.read_bytes() if file.is_file() else b""
        if b"QQ/x/" in data:
            body = data.replace(b"QQ/x/", b"../x/")[:-4]
            file.write_bytes(body + crc32c(body).to_bytes(4, "little"))
            changed += 1
    assert changed
    with pytest.raises(CheckpointError, match=r"scale .*Invalid key"):
        load_params(tmp_path)


def test_an_orbax_database_with_a_link_out(tmp_path):
    source = golden_path("t5x_draft/orbax/checkpoint_1000")
    folder = pathlib.Path(shutil.copytree(source, tmp_path / "checkpoint_1"))
    data = folder / "state/ocdbt.process_0/d"
    shutil.move(data, tmp_path / "elsewhere")
    data.symlink_to(tmp_path / "elsewhere")
    with pytest.raises(CheckpointError, match="link that leads out"):
        load_params(folder)


@pytest.mark.parametrize(
    "file",
    ["../secret.safetensors", "/etc/secret.safetensors", "x/../../s.safetensors"],
)
def test_shards_that_lead_out(tmp_path, file):
    source = golden_path("hf/t5_1_1_assistant")
    folder = pathlib.Path(shutil.copytree(source, tmp_path / "model"))
    shutil.move(folder / "model.safetensors", tmp_path / "secret.safetensors")
    (folder / "model.safetensors.index.json").write_text(
        json.dumps({"weight_map": {"shared.weight": file}})
    )
    with pytest.raises(CheckpointError, match="only read its own folder"):
        load_huggingface(folder)


@pytest.mark.parametrize("file", ["model.safetensors", "config.json"])
def test_huggingface_links_that_lead_out(tmp_path, file):
    source = golden_path("hf/t5_1_1_assistant")
    folder = pathlib.Path(shutil.copytree(source, tmp_path / "model"))
    shutil.move(folder / file, tmp_path / "elsewhere")
    (folder / file).symlink_to(tmp_path / "elsewhere")
    with pytest.raises(CheckpointError, match="link that leads out"):
        load_params(folder)


@pytest.mark.parametrize(
    "name", ["a", "a/", "a.b/c", "a..b", "...", "with space", "state/d"]
)
def test_names_inside_the_folder(name, tmp_path):
    assert confined(name, "index") == name.removesuffix("/")
    assert Folder.at(tmp_path).store(name)["path"] == f"{tmp_path}/{name.strip('/')}/"
