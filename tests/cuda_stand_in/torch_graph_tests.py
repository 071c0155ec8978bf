"""Run torch's own tests of CUDA graphs and of their memory pools on the stand-in, by name.

    .venv-cuda/bin/python tests/cuda_stand_in/torch_graph_tests.py VENV FOLDER

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
PASSED = ""
GONE = "torch 2.14 has no {}"
TESTS: dict[str, dict[str, str]] = {
    "TestCuda": {
        "test_cuda_graph_allocator_propagates_stream": PASSED,
        "test_cuda_graph_error_options": PASSED,
        "test_graph_capture_oom": PASSED,
        "test_graph_capture_reset_recapture": PASSED,
        "test_graph_capture_simple": PASSED,
        "test_graph_concurrent_replay": "two graphs race on purpose, and the stand-in raises the race",
        "test_graph_cudnn_dropout": PASSED,
        "test_graph_debugdump": "torch's debug_dump needs the package cuda-bindings",
        "test_graph_error": PASSED,
        "test_graph_is_current_stream_capturing": PASSED,
        "test_graph_make_graphed_callables": PASSED,
        "test_graph_make_graphed_callables_parameterless_nograd_module": PASSED,
        "test_graph_make_graphed_callables_same_pool": PASSED,
        "test_graph_memory_stats_and_use_result_after_destroy_graph": "torch 2.14 allocates no seed until a capture draws",
        "test_graph_optims_with_explicitly_capturable_param_groups": PASSED,
        "test_graph_record_stream": PASSED,
        "test_graph_rng_distributions": PASSED,
        "test_graph_rng_functional": PASSED,
        "test_graph_three_successive": PASSED,
        "test_graph_two_successive": PASSED,
        "test_graph_warn_if_has_zero_nodes": PASSED,
        "test_graphsafe_set_get_rng_state": PASSED,
        "test_memory_stats_of_multiple_generators_and_graphs": "torch 2.14 allocates a seed for each capture that draws",
        "test_repeat_graph_capture_cublas_workspace_memory": PASSED,
    },
    "TestCudaOptimsCUDA": {
        "test_graph_grad_scaling": PASSED,
        "test_graph_optims": PASSED,
        "test_graph_scaling_fused_optimizers": PASSED,
    },
    "TestBlockStateAbsorption": {
        "test_additional_free_following_checkpoint": PASSED,
        "test_allocate_in_thread_to_pool": GONE.format("_cuda_endAllocateCurrentStreamToPool"),
        "test_allocated_in_middle_of_segment": PASSED,
        "test_assigning_back_deleter_fns_to_tensor": PASSED,
        "test_check_pool_live_allocations": PASSED,
        "test_middle_allocations_contiguous": PASSED,
        "test_multiple_middle_allocations": PASSED,
        "test_resnet": "it needs torchvision",
        "test_simple": PASSED,
        "test_tensor_dies_after_checkpoint": PASSED,
    },
    "TestMemPool": {
        "test_mempool_context": GONE.format("MemPoolContext"),
        "test_mempool_id": PASSED,
        "test_mempool_multithread": GONE.format("MemPoolContext"),
        "test_mempool_with_allocator": "it compiles an allocator with CUDA's own toolkit",
    },
}
"""For each class, the names that its tests begin with, and why they do not pass."""


def main(arguments: list[str]) -> int:
    if len(arguments) != 2:
        return _refuse("two arguments are needed: VENV FOLDER")
    python, file = Path(arguments[0]).resolve() / "bin/python", Path(arguments[1]).resolve() / FILE
    for needed in (python, file):
        if not needed.is_file():
            return _refuse(f"no file {needed}; README.md says where it comes from")
    found = hashlib.sha256(file.read_bytes()).hexdigest()
    if found != SHA256:
        return _refuse(f"{file} has the sha256 {found}; allowed: {SHA256}, the file of torch 2.6.0")
    if subprocess.run([python, "-c", "import expecttest"], capture_output=True, check=False).returncode:
        return _refuse(f"{python} has no package expecttest, which torch's tests import")
    differ = 0
    for owner, tests in TESTS.items():
        passing = [name for name, reason in tests.items() if reason == PASSED]
        for names in (passing, *([name] for name in tests if name not in passing)):
            outcomes = run(python, file, owner, names)
            for name in names:
                is_expected = is_as_listed(outcomes[name], tests[name])
                differ += not is_expected
                print(line(owner, name, tests[name], outcomes[name], is_expected), flush=True)  # noqa: T201
    reasons = [reason for tests in TESTS.values() for reason in tests.values()]
    count = reasons.count(PASSED)
    print(f"{count} of {len(reasons)} names are to pass; {differ} outcomes differ from the list")  # noqa: T201
    return 1 if differ else 0


def run(python: Path, file: Path, owner: str, names: Sequence[str]) -> dict[str, list[str]]:
    """Return the outcomes of each name's tests: passed, skipped, failed, or how their process ended."""
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
        skipped = case.find("skipped")
        has_failed = case.find("failure") is not None or case.find("error") is not None
        is_skipped = skipped is not None and skipped.get("type") != "pytest.xfail"
        outcomes[max(fitting, key=len)].append("failed" if has_failed else "skipped" if is_skipped else "passed")
    return outcomes


def is_as_listed(outcomes: list[str], reason: str) -> bool:
    if reason == PASSED:
        return set(outcomes) == {"passed"}
    return bool(outcomes) and set(outcomes) != {"passed"}


def line(owner: str, name: str, reason: str, outcomes: list[str], is_expected: bool) -> str:
    shown = ", ".join(f"{outcomes.count(kind)} {kind}" for kind in sorted(set(outcomes))) or "no such test"
    mark = "" if is_expected else " <- differs from the list"
    return f"{owner}.{name}: {shown}{f' ({reason})' if reason else ''}{mark}"


def _refuse(text: str) -> int:
    print(f"torch_graph_tests: {text}", file=sys.stderr)  # noqa: T201
    return 2


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
