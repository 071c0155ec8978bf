"""Which children of a test are forks of the zygote; the whole room tests that these do what new processes do."""

import subprocess

import pytest

from dpbench.engine import launch
from dpbench.engine.process_tree import nothing_left_behind
from dpbench.engine.start import child_command
from tests.zygote import ZygoteChild, new_children


@pytest.mark.parametrize(
    ("command", "request_text", "is_fork"),
    [
        (child_command("dpbench.jobs.count_child"), "{}", True),
        (["env", "PYTHONHASHSEED=0", *child_command("dpbench.jobs.count_child")], "{}", True),
        (["env", "TORCHINDUCTOR_CACHE_DIR=/tmp", *child_command("dpbench.jobs.count_child")], "{}", True),
        (["env", "PYTHONHASHSEED=1", *child_command("dpbench.jobs.count_child")], "{}", False),
        (child_command("dpbench.jobs.count_child"), '{"workload":"asv speed.time_work"}', False),
        (child_command("dpbench.jobs.lockstep_child"), '{"start_ups":[{}]}', False),
        (child_command("dpbench.jobs.listing_child"), "{}", False),
        (["true"], "{}", False),
    ],
)
def test_only_children_that_import_torch_and_count_no_import_are_forks(
    zygote, tmp_path, command, request_text, is_fork
):
    if zygote is None:
        pytest.skip("all children start anew: make test-all, or a machine with a GPU")
    (tmp_path / "request").write_text(request_text)
    assert isinstance(_started(command, tmp_path / "request"), ZygoteChild) is is_fork
    with new_children():
        assert isinstance(_started(command, tmp_path / "request"), subprocess.Popen)


def _started(command, request):
    with nothing_left_behind(), request.open("rb") as stdin:
        child = launch.subprocess.Popen(
            command,
            stdin=stdin,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            pass_fds=[],
            start_new_session=True,
        )
        child.kill()
        child.wait(30)
    return child
