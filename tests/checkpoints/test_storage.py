"""Folders in any store: how a user's path becomes a place tensorstore reads."""

import functools
import http.server
import threading

import jax
import numpy as np
import pytest
from jax.sharding import NamedSharding, PartitionSpec

from spec_jax.checkpoints import CheckpointError, load_params, orbax, save_weights
from spec_jax.checkpoints.loading import open_checkpoint
from spec_jax.checkpoints.storage import Folder, StoredArray, read_onto
from tests.golden import golden_path


@pytest.mark.parametrize(
    ("url", "path"),
    [
        ("gs://bucket/models/t5", "models/t5/"),
        ("gs://bucket/models/t5/", "models/t5/"),
        ("gs://bucket", ""),
    ],
)
def test_buckets(url, path):
    folder = Folder.at(url)
    assert folder.local is None
    assert folder.spec["driver"] == "gcs" and folder.spec["bucket"] == "bucket"
    assert folder.spec.get("path", "") == path
    below = folder.child("checkpoint_1").store("target.a")
    assert below["path"] == f"{path}checkpoint_1/target.a/"
    with pytest.raises(CheckpointError, match="only read its own folder"):
        folder.store("../other")


class Quiet(http.server.SimpleHTTPRequestHandler):
    def log_message(self, *args):
        pass


@pytest.fixture
def server():
    folder = golden_path("t5x_draft/legacy_float32")
    handler = functools.partial(Quiet, directory=str(folder))
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), handler) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield f"http://127.0.0.1:{server.server_port}"
        server.shutdown()


def test_a_checkpoint_on_a_web_server(server):
    got = load_params(f"{server}/checkpoint_1000")
    want = load_params(golden_path("t5x_draft/legacy_float32"))
    np.testing.assert_array_equal(
        got["decoder"]["logits_dense"]["kernel"],
        want["decoder"]["logits_dense"]["kernel"],
    )
    with pytest.raises(CheckpointError, match=r"no checkpoint at .*checkpoint_7"):
        load_params(f"{server}/checkpoint_7")
    # Such a server lists nothing, so the latest step cannot be found.
    with pytest.raises(CheckpointError, match="no checkpoint at"):
        load_params(server)


def test_a_device_is_given_its_part_and_nothing_is_read_whole():
    values, asked = np.arange(16.0, dtype=np.float32).reshape(8, 2), []

    def whole(dtype):
        raise AssertionError("read whole")

    def part(dtype, index):
        asked.append(index[0])
        return lambda: values[index].astype(dtype)

    mesh = jax.make_mesh((2, 4), ("data", "model"))
    sharding = NamedSharding(mesh, PartitionSpec("model"))
    array = StoredArray("x", values.shape, values.dtype, whole, part)
    got = read_onto({"a": array}, {"a": sharding})["a"]
    np.testing.assert_array_equal(got, values)
    assert got.sharding == sharding
    # Once for the two devices that hold the same.
    assert sorted(index.start or 0 for index in asked) == [0, 2, 4, 6]


@pytest.mark.parametrize(
    "kind", ["safetensors", "orbax", "hf/t5_1_1_gated_gelu", "t5x_draft/legacy_float32"]
)
def test_parts_of_every_format_are_parts_of_the_whole(kind, tmp_path):
    path = tmp_path / "params"
    params = {"a": {"b": np.arange(24.0, dtype=np.float32).reshape(4, 6)}}
    if kind == "safetensors":
        path = path.with_suffix(".safetensors")
        save_weights(path, params)
    elif kind == "orbax":
        orbax.save(path, params)
    else:
        path = golden_path(kind)
    arrays, _ = open_checkpoint(path)
    wide = {name: array for name, array in arrays.items() if len(array.shape) == 2}
    assert wide
    for name, array in wide.items():
        assert array.start_part is not None, name
        index = (slice(1, 2), slice(2, None))
        part, whole = array.start_part(array.dtype, index)(), array.start(array.dtype)()
        np.testing.assert_array_equal(part, whole[index], err_msg=name)
