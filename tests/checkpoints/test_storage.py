"""Folders in any store: how a user's path becomes a place tensorstore reads."""

import functools
import http.server
import threading

import numpy as np
import pytest

from spec_jax.checkpoints import CheckpointError, load_params
from spec_jax.checkpoints.storage import Folder
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
