"""Build the stand-in into a virtual environment: its libraries, its operators, and the hook that loads them with torch.

Run ``python tests/cuda_stand_in/build.py VENV``. The virtual environment has the CUDA build of torch without the NVIDIA
libraries. Raise SystemExit with one line, and exit code 2, if something needed is missing.
"""

import shutil
import subprocess
import sys
from collections.abc import Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

HERE = Path(__file__).parent
sys.path.insert(0, str(HERE))

import stubs  # noqa: E402

TORCHES = ("2.11.0", "2.13.0", "2.14.1")
"""The versions whose libraries the stand-in knows."""
FLAGS = ["-std=c++20", "-O1", "-fPIC", f"-I{HERE / 'include'}"]
WARNINGS = ["-Wall", "-Werror"]  # not for files with torch's headers, which have warnings of their own
RUNTIME = [
    "counters",
    "clocks",
    "shadow",
    "streams",
    "issue",
    "graphs",
    "devices",
    "memory",
    "copies",
    "events",
    "launches",
    "controls",
]
SOURCES = {"libcudart.so.13": RUNTIME, "libcuda.so.1": ["driver"], "libnccl.so.2": ["nccl", "collectives"]}
"""The files of runtime/ that a library consists of; all its other functions are stubs."""
ANSWERS = ["answers"]
"""Files whose functions belong to several libraries, each only where torch looks for it."""


def main(venv: Path) -> None:
    torch = _torch(venv)
    compiler = shutil.which("g++")
    if compiler is None:
        raise _failure("no C++ compiler: g++ is not on PATH; on Debian, `apt-get install g++`")
    build = venv / "stand_in"
    build.mkdir(exist_ok=True)
    libraries = torch.parent / "nvidia/cu13/lib"
    libraries.mkdir(parents=True, exist_ok=True)
    Builder(compiler, torch, build, libraries).run()
    shutil.copy(HERE / "start.py", torch.parent / "dpbench_cuda_start.py")
    # The first line puts the repository on the path: the fake NVML lies in its tests.
    (torch.parent / "dpbench_cuda_start.pth").write_text(f"{HERE.parents[1]}\nimport dpbench_cuda_start\n")


def _failure(text: str) -> SystemExit:
    print(f"cuda-tests: {text}", file=sys.stderr)  # noqa: T201
    return SystemExit(2)


def _torch(venv: Path) -> Path:
    """Return the folder of the environment's torch."""
    version_files = list(venv.glob("lib/python3.*/site-packages/torch/version.py"))
    if not version_files:
        raise _failure(f"{venv} has no torch; `make cuda-tests` makes it")
    if not any(f"'{version}+cu" in version_files[0].read_text() for version in TORCHES):
        raise _failure(f"{venv} has another torch than the CUDA builds of {', '.join(TORCHES)}")
    return version_files[0].parent


class Builder:
    """Compiles what is older than its sources."""

    def __init__(self, compiler: str, torch: Path, build: Path, libraries: Path) -> None:
        self._compiler, self._torch, self._build, self._libraries = compiler, torch, build, libraries

    def run(self) -> None:
        imported = stubs.imported_symbols(self._torch)
        self._compile_headers()
        self._compile(self._missing_objects())
        first = sorted(imported, key=lambda library: library != "libcudart.so.13")  # the others link with it
        for library in first:
            self._link_library(library, imported[library])
        self._link_operators()

    def _compile_headers(self) -> None:
        """Compile torch's headers once: each file of operators/ would take half a minute for them."""
        source, target = HERE / "operators/torch_headers.h", self._build / "torch_headers.h.gch"
        if not _is_newer(target, [source, *HERE.glob("include/*.h")]):
            _run([self._compiler, *FLAGS, *self._torch_flags(), "-x", "c++-header", str(source), "-o", str(target)])

    def _torch_flags(self) -> list[str]:
        folders = [self._torch / "include", self._torch / "include/torch/csrc/api/include", _python_headers()]
        return [f"-I{folder}" for folder in folders]

    def _missing_objects(self) -> list[list[str]]:
        commands = []
        with_torch = [*self._torch_flags(), f"-I{self._build}", "-include", "torch_headers.h", "-Winvalid-pch"]
        for source in sorted(HERE.glob("*/*.cpp")):
            target = self._object(source)
            uses_torch = source.parent.name == "operators"
            headers = HERE.glob("*/*.h" if uses_torch else "[ir]*/*.h")  # include/ and runtime/
            if _is_newer(target, [source, *headers]):
                continue
            further = with_torch if uses_torch else WARNINGS
            commands.append([self._compiler, *FLAGS, *further, "-c", str(source), "-o", str(target)])
        return commands

    def _compile(self, commands: Sequence[Sequence[str]]) -> None:
        with ThreadPoolExecutor(2) as pool:
            list(pool.map(_run, commands))

    def _link_library(self, library: str, symbols: dict[str, str]) -> None:
        objects = [self._object(HERE / "runtime" / f"{name}.cpp") for name in SOURCES.get(library, [])]
        answers = [self._object(HERE / "runtime" / f"{name}.cpp") for name in ANSWERS]
        ours = _defined(objects)
        answered = _defined(answers) & set(symbols)
        stub = self._build / f"{library}.c"
        script = self._build / f"{library}.map"
        _write(stub, stubs.source(library, set(symbols) - ours - answered))
        _write(script, stubs.version_script(symbols))
        if _is_newer(self._libraries / library, [stub, script, *objects, *(answers if answered else [])]):
            return
        command = [self._compiler, "-shared", "-o", str(self._libraries / library), f"-Wl,-soname,{library}"]
        command += ["-x", "c", "-w", "-fPIC", str(stub), "-x", "none", *map(str, objects)]
        command += map(str, answers) if answered else []
        command += [f"-Wl,--version-script={script}"] if script.read_text() else []
        command += ["-Wl,-z,nodelete", "-pthread", "-ldl"]
        if library in SOURCES and library != "libcudart.so.13":
            command += [f"-L{self._libraries}", "-l:libcudart.so.13", "-Wl,-rpath,$ORIGIN"]
        _run(command)

    def _link_operators(self) -> None:
        objects = [self._object(source) for source in sorted((HERE / "operators").glob("*.cpp"))]
        target = self._libraries / "libstand_in_operators.so"
        if _is_newer(target, objects):
            return
        command = [self._compiler, "-shared", "-o", str(target), *map(str, objects)]
        command += [
            f"-L{self._torch / 'lib'}",
            "-ltorch_python",
            "-ltorch",
            "-ltorch_cuda",
            "-ltorch_cpu",
            "-lc10",
            "-lc10_cuda",
        ]
        command += [f"-L{self._libraries}", "-l:libcudart.so.13", f"-Wl,-rpath,$ORIGIN:{self._torch / 'lib'}"]
        _run([*command, "-Wl,--unresolved-symbols=ignore-all"])

    def _object(self, source: Path) -> Path:
        return self._build / f"{source.parent.name}_{source.stem}.o"


def _python_headers() -> str:
    import sysconfig

    return sysconfig.get_path("include")


def _is_newer(target: Path, sources: Iterable[Path]) -> bool:
    return target.exists() and all(target.stat().st_mtime > source.stat().st_mtime for source in sources)


def _write(file: Path, text: str) -> None:
    if not file.exists() or file.read_text() != text:
        file.write_text(text)


def _defined(objects: Sequence[Path]) -> set[str]:
    """Return the functions that the object files define."""
    if not objects:
        return set()
    text = subprocess.run(["nm", "--defined-only", *objects], capture_output=True, text=True, check=True).stdout
    return {row[2] for row in map(str.split, text.splitlines()) if len(row) == 3 and row[1] == "T"}


def _run(command: Sequence[str]) -> None:
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode != 0:
        raise _failure(f"{' '.join(command)}\n{done.stdout}{done.stderr}")


if __name__ == "__main__":
    main(Path(sys.argv[1]).resolve())
