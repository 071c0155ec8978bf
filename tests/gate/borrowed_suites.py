"""A project `toy` with an asv suite and tests of pytest-benchmark, as files of a folder."""

from pathlib import Path

TOY = "def work(n):\n    return sum(i * i for i in list(range(n)))\n"
ASV = """
import asyncio, gc, os, subprocess, toy

class Cached:
    params = ([100, 200], ["a", "b"])

    def setup_cache(self):
        open("made.txt", "w").write("made")
        return 3

    def setup(self, cache, n, kind):
        assert (cache, open("made.txt").read()) == (3, "made")
        self.n = n

    def time_work(self, cache, n, kind):
        toy.work(self.n)

    def track_size(self, cache, n, kind):
        return n / 2

class Skipped:
    def setup(self):
        raise NotImplementedError

    def time_skipped(self):
        pass

class Helped:
    def setup(self):
        self.helper = subprocess.Popen(["sleep", "60"])

    def time_helped(self):
        pass

    def teardown(self):
        self.helper.kill()

def time_work():
    toy.work(20_000)

def time_garbage():
    assert gc.isenabled()

def time_starts():
    subprocess.run(["true"])

def time_swallows():
    try:
        os.fork()
    except Exception:
        pass

def time_fails():
    raise ValueError("not today")

async def time_async():
    pass

def timeraw_work():
    return "pass"
"""
TESTS = """
import subprocess
import pytest, toy

def test_work(benchmark, size):
    assert benchmark(toy.work, n=size) > 0

@pytest.mark.parametrize("iterations", [1, 3])
def test_pedantic(benchmark, iterations):
    setup = (lambda: ((20,), {})) if iterations == 1 else None
    benchmark.pedantic(toy.work, args=() if setup else (20,), setup=setup, iterations=iterations, rounds=9)

def test_of_nothing(benchmark):
    pass

def test_without():
    pass

def test_skipped(benchmark):
    pytest.skip("not here")

def test_fails(benchmark):
    benchmark(lambda: 1 / 0)

def test_starts(benchmark):
    benchmark(subprocess.run, ["true"])

def test_async(benchmark):
    async def work():
        pass
    benchmark(work)
"""
CONFTEST = "import pytest\n\n@pytest.fixture\ndef size():\n    return 20_000\n"


def make_project(folder: Path) -> Path:
    """Write the project. pytest puts its root on `sys.path`, where a `toy` lies that is not the installed one."""
    files = {
        "asv.conf.json": '{"version": 1, "repo": ".", // asv allows comments\n "benchmark_dir": "suite"}',
        "suite/__init__.py": "",
        "suite/speed.py": ASV,
        "suite/broken.py": "import no_such_module",
        "source/toy.py": TOY,
        "toy.py": "raise AssertionError('the archive was imported')",
        "pytest.ini": "[pytest]\naddopts = --failed-first -n 2 --benchmark-disable\n",
        "tests/__init__.py": "",
        "tests/conftest.py": CONFTEST,
        "tests/test_speed.py": TESTS,
        "gate.toml": 'alarm_rate = 0.2\nbuild = "cp source/toy.py {folder}"\n',
    }
    for name, text in files.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(text)
    return folder
