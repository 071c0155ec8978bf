"""Run torch's own tests of CUDA graphs and of their memory pools on the stand-in, by name.

    .venv-cuda/2.14.1/bin/python tests/cuda_stand_in/torch_graph_tests.py VENV FOLDER

FOLDER is the folder `test` of torch's sources; README.md says where it comes from. The names of a class that are to
pass share a process. Each other name has its own, and must not pass.
Exit codes: 0 all outcomes are those of `TESTS`, 1 some are not, 2 wrong input.
"""

import contextlib
import hashlib
import os
import signal
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path
from xml.etree import ElementTree as ET

FILE = "test_cuda.py"
SHA256 = "d243b1608c1cbc61271b3b55fa69eea99ec84a723c01833400724c279b3087fb"
"""torch 2.6.0's, the newest that could be had. It runs with torch 2.14.1."""
LIMIT_S = 150
PASSES = None
LAZY = "torch 2.14 keeps a seed and an offset for each capture that draws; 2.6 kept them for each generator"
POOLS = "torch 2.14 lacks a function of memory pools that the test uses"
TESTS: dict[str, dict[str, tuple[str, str] | None]] = {
    "TestCuda": {
        "test_cuda_graph_allocator_propagates_stream": PASSES,
        "test_cuda_graph_error_options": PASSES,
        "test_graph_capture_oom": PASSES,
        "test_graph_capture_reset_recapture": PASSES,
        "test_graph_capture_simple": PASSES,
        "test_graph_concurrent_replay": ("write-write race", "two graphs share memory on purpose, which is a race"),
        "test_graph_cudnn_dropout": PASSES,
        "test_graph_debugdump": ("cuda-bindings", "torch's debug_dump needs the package cuda-bindings"),
        "test_graph_error": PASSES,
        "test_graph_is_current_stream_capturing": PASSES,
        "test_graph_make_graphed_callables": PASSES,
        "test_graph_make_graphed_callables_parameterless_nograd_module": PASSES,
        "test_graph_make_graphed_callables_same_pool": PASSES,
        "test_graph_memory_stats_and_use_result_after_destroy_graph": ("small_pool.current = 1, expected = 3", LAZY),
        "test_graph_optims_with_explicitly_capturable_param_groups": PASSES,
        "test_graph_record_stream": PASSES,
        "test_graph_rng_distributions": PASSES,
        "test_graph_rng_functional": PASSES,
        "test_graph_three_successive": PASSES,
        "test_graph_two_successive": PASSES,
        "test_graph_warn_if_has_zero_nodes": PASSES,
        "test_graphsafe_set_get_rng_state": PASSES,
        "test_memory_stats_of_multiple_generators_and_graphs": ("Expected 4 but got 6", LAZY),
        "test_repeat_graph_capture_cublas_workspace_memory": PASSES,
    },
    "TestCudaOptimsCUDA": {
        "test_graph_grad_scaling": PASSES,
        "test_graph_optims": PASSES,
        "test_graph_scaling_fused_optimizers": PASSES,
    },
    "TestBlockStateAbsorption": {
        "test_additional_free_following_checkpoint": PASSES,
        "test_allocate_in_thread_to_pool": ("Expected 0 but got 4", POOLS),
        "test_allocated_in_middle_of_segment": PASSES,
        "test_assigning_back_deleter_fns_to_tensor": PASSES,
        "test_check_pool_live_allocations": PASSES,
        "test_middle_allocations_contiguous": PASSES,
        "test_multiple_middle_allocations": PASSES,
        "test_resnet": ("no torchvision", "it needs the package torchvision"),
        "test_simple": PASSES,
        "test_tensor_dies_after_checkpoint": PASSES,
    },
    "TestMemPool": {
        "test_mempool_context": ("no attribute 'MemPoolContext'", POOLS),
        "test_mempool_id": PASSES,
        "test_mempool_multithread": ("Expected 4 but got 0", POOLS),
        "test_mempool_with_allocator": ("no attribute 'allocator'", POOLS),
    },
}
"""For each class, the names that its tests begin with. A name that is not to pass has a part of its error, and why."""


def main(arguments: list[str]) -> int:
    if len(arguments) != 2:
        return _refuse("two arguments are needed: VENV FOLDER")
    python, file = Path(arguments[0]).resolve() / "bin/python", Path(arguments[1]).resolve() / FILE
    for needed in (python, file):
        if not needed.is_file():
            return _refuse(f"no file {needed}; README.md says where it comes from")
    sha256 = hashlib.sha256(file.read_bytes()).hexdigest()
    if sha256 != SHA256:
        return _refuse(f"{file} has the sha256 {sha256}; allowed: {SHA256}, the file of torch 2.6.0")
    if subprocess.run([python, "-c", "import expecttest"], capture_output=True, check=False).returncode:
        return _refuse(f"{python} has no package expecttest, which torch's tests import")
    differ = 0
    for owner, tests in TESTS.items():
        passing = [name for name, error in tests.items() if error is PASSES]
        for names in (passing, *([name] for name in tests if name not in passing)):
            outcomes = run(python, file, owner, names)
            for name in names:
                is_expected = is_as_listed(outcomes[name], tests[name])
                differ += not is_expected
                print(line(f"{owner}.{name}", tests[name], outcomes[name], is_expected), flush=True)  # noqa: T201
    listed = [error for tests in TESTS.values() for error in tests.values()]
    print(f"{listed.count(PASSES)} of {len(listed)} names are to pass; {differ} outcomes differ from the list")  # noqa: T201
    return 1 if differ else 0


def run(python: Path, file: Path, owner: str, names: Sequence[str]) -> dict[str, list[str]]:
    """Return the outcomes of each name's tests: passed, another one with its text, or how their process ended."""
    with tempfile.TemporaryDirectory() as folder:
        report = Path(folder) / "report.xml"
        command = [python, "-m", "pytest", "-q", "-p", "no:cacheprovider", f"--junitxml={report}", str(file)]
        command += ["-k", f"{owner} and ({' or '.join(names)})"]
        environment = {**os.environ, "DPBENCH_CUDA_DEVICES": "1", "OMP_NUM_THREADS": "1"}
        environment["PYTHONDONTWRITEBYTECODE"] = "1"
        process = subprocess.Popen(
            command,
            cwd=folder,
            env=environment,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )
        try:
            code = process.wait(LIMIT_S)
        except subprocess.TimeoutExpired:
            return {name: ["timed out"] for name in names}
        finally:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)  # a test's compiler or script too
            process.wait()
        if not report.exists():
            return {name: [f"process ended with {code}"] for name in names}
        return outcomes_of(report, names)


def outcomes_of(report: Path, names: Sequence[str]) -> dict[str, list[str]]:
    """Return the outcomes in pytest's XML report, of each test under the longest name that it begins with.

    An expected failure counts as passed.
    """
    outcomes: dict[str, list[str]] = {name: [] for name in names}
    for case in ET.parse(report).iter("testcase"):
        fitting = [name for name in names if case.attrib["name"].startswith(name)]
        if not fitting:
            continue
        outcome = "passed"
        for kind in ("skipped", "error", "failure"):
            child = case.find(kind)
            if child is not None and child.get("type") != "pytest.xfail":
                outcome = f"{kind}: {child.get('message')}"
        outcomes[max(fitting, key=len)].append(outcome)
    return outcomes


def is_as_listed(outcomes: list[str], error: tuple[str, str] | None) -> bool:
    """Return whether all tests passed, or, if an error is listed, whether each ended with it."""
    if error is PASSES:
        return set(outcomes) == {"passed"}
    return bool(outcomes) and all(error[0] in outcome for outcome in outcomes)


def line(name: str, error: tuple[str, str] | None, outcomes: list[str], is_expected: bool) -> str:
    kinds = [outcome.partition(":")[0] for outcome in outcomes]
    shown = ", ".join(f"{kinds.count(kind)} {kind}" for kind in dict.fromkeys(kinds)) or "no such test"
    if is_expected:
        return f"{name}: {shown}" + (f" ({error[1]})" if error else "")
    texts = {" ".join(outcome.split())[:200] for outcome in outcomes}
    return f"{name}: {shown} <- differs from the list: {'; '.join(sorted(texts))}"


def _refuse(text: str) -> int:
    print(f"torch_graph_tests: {text}", file=sys.stderr)  # noqa: T201
    return 2


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
