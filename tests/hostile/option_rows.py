"""Wrong options and arguments as a table: the words of a command, and what its one line says."""

import os
from collections.abc import Iterator
from pathlib import Path
from re import escape

from dpbench.cases.names import MAX_LANES
from tests.hostile.attack import Files, Row
from tests.hostile.files import gate_files, record_line

_NO_DURATION = "is no duration above 0 and at most 168h; .* such as 90s, 2m, 1.5h"
_NO_DEVICES = "is not a device list|devices are joined by|allowed|names a cpu"
_STEPS = "--steps-per-sample: '?{}'? is not allowed; allowed: a whole number from 1 to 100000"
_NO_BATCH = "--batch: '?{}'? is not allowed; allowed: a list of whole numbers from 1"
_NO_EVENTS = r"events: '{}' cannot be written: .*; allowed: a file"
_WHOLE_MIB = "allowed: a number of MiB above 0, at most 1048576"
_NO_PLANS = ("", "kill", "kill@1", "kill@x:0", "burn@1:0", "kill@1:0,", "kill@-1:0", "join@1:0", "stop@3:0")
_ONE = ("--variants=naive", "--devices=sim*2", "--workloads=mlp/tiny")
_SMALL = ("--workload=mlp/tiny", "--batch=8", "--steps=9", "--checkpoint-every=5")
_ELASTIC = (
    *((("--plan=" + text,), "plan: '.*' is no fault; allowed: ") for text in _NO_PLANS),
    (("--plan=kill@99:0",), "plan: kill@99:0 has no step 99; allowed: steps 0 to 8"),
    *(
        (("--max-restarts=3", f"--nproc-per-node={ranks}", f"--plan={plan}"), f"plan: {line}.*; allowed: ")
        for ranks, plan, line in (
            (2, "kill@1:2", "kill@1:2 has no rank 2"),
            (1, "hang@1:0", "hang@1:0 would never be noticed"),
            (2, "leave@1:0,kill@2:1", "kill@2:1 has no rank 1"),
            (8, "join@1", "join@1 makes 9 ranks, which share a batch of 8"),
            (2, "kill@1:0,oom@1:1", "two faults at step 1"),
        )
    ),
    (("--max-restarts=1", "--plan=kill@1:0,kill@2:0"), "max-restarts: 1 is less than the 2 faults"),
    (("--faults=kill,burn",), "faults: 'burn' is no kind of fault; allowed: kill, oom, hang, leave, join$"),
    (("--faults=kill,kill", "--steps=2"), "faults: 2 faults do not fit into 2 steps"),
    (("--checkpoint-format=pickle",), "checkpoint-format: 'pickle' is not allowed; allowed: torch.save, dcp"),
    (("--nproc-per-node=0",), "nproc-per-node: 0 is not allowed; allowed: 1 to 64"),
    (("--workload=mlp/huge",), "workload: "),
    (("--plan=leave@3:1,leave@4:0",), "plan: leave@4:0 would leave no rank; allowed: "),
    (("--hang-timeout=soon",), "hang-timeout: 'soon' is no duration"),
    (("--checkpoints=/proc/none",), "checkpoints: '/proc/none' cannot be written: "),
)
_TRACE = (
    (("mlp/smal",), "workloads: 'mlp/smal'"),
    (("mlp/small,convnet/base",), "workload: 2 of them; allowed: one"),
    (("mlp/small", "--batch=64,128"), "batch: 2 of them; allowed: one"),
    (("mlp/small", "--devices=cpu*2,sim*2"), "devices: 2 of them; allowed: one"),
    (("mlp/small", "--devices=sim*80"), "more than the simulator can do"),
    (("mlp/small", "--devices=sim*4", "--batch=2"), "less than one item for each of the 4 lanes"),
    (("mlp/small", "--variants=best"), "variants: 'best'"),
)
_USAGE = r"[.?] Allowed: what `dpbench gate --help` lists\.\n$"
_GATE = (
    ((), "--base.* is missing.*main"),
    (("--base=x",), "is in no git repository"),
    (("--base=x", "--no\x1b[31m"), "31m"),
    *(
        (words, f"{words[-1].removesuffix('=y')}.*{_USAGE}")
        for words in (("base",), ("--base=x", "--had=y"), ("--base=x", "--budget"), ("--base=x", "--head"))
    ),
    (("--base=x", "--tiers=0,4"), "--tiers.*0,4.*0, 1, 2"),
    (("--base=x", "--tiers=0,0"), "--tiers.*0,0.*once"),
    (("--base=x", "--tiers="), "--tiers.*''"),
    (("--base=x", "--budget=soon"), "--budget.*soon.*5m"),
    (("--base=x", "--comment=/no/such/x"), "/no/such/x.*cannot be written"),
    (("--base=HEAD", f"--comment={'x' * 300}"), "File name too long"),
    (("--base=x", "--junit=a", "--comment=./a"), "is the file of --"),
    (("--base=x", "--comment=0/"), "--comment.*'0/' cannot be written"),
    (("--base=x", "--junit=a\0b"), r"\S"),
    (("--base=x", "--worktree", "--head=y"), "--head.*'y'.*--worktree"),
)
_IN_A_REPOSITORY = (
    (("--base=HEAD~1", "--junit=results/gate/history.jsonl", "--results=results"), "it is an input of this command"),
    (("--base=HEAD~1", "--comment=./g.toml", "--settings=g.toml"), "it is an input of this command"),
    (("--base=HEAD~1", "--pytest=dpbench/parallel/__init__.py::x", "--junit=dpbench/parallel/__init__.py"), "an input"),
    (("--base=nowhere",), "--base.*nowhere.*git rev-parse"),
    (("--base=HEAD~1", "--head=nowhere"), "--head.*nowhere.*git rev-parse"),
    (("--base=HEAD~1", "--head=main~1"), "--head.*main~1.*same commit.*--worktree"),
    (("--base=main", "--head=HEAD~1"), "--head.*'main'.*already.*--base-exact"),
    (("--base=HEAD~1", "--head=HEAD", "--settings=none.toml"), "none.toml.*cannot be read"),
    (("--base=HEAD~1", "--settings=fifo"), "fifo: cannot be read: not a regular file"),
    (("--base=HEAD~1", "--junit=dpbench"), "dpbench.*cannot be written"),
    (("--base=HEAD~1", "--tiers=0", "--comment=fifo"), "fifo' cannot be written: not a regular file; allowed: a file"),
    (
        ("--base=main", "--head=without", "--tiers=0"),
        "without.*has no dpbench/parallel; allowed: a commit that has one",
    ),
    (("--base=without~1", "--head=without", "--tiers=0"), "has no dpbench/parallel; allowed: a commit that has one"),
    (("--base=HEAD~1", "--tiers=2"), "--tiers.*history"),
)
_OF_A_SCRIPT = (
    (("--script=none.py",), "script: 'none.py' is no file; allowed: a script of Python"),
    (("--script=train.py", "--nproc-per-node=9"), "--nproc-per-node: 9 is not allowed; allowed: 2 to 8"),
    (("--script=train.py", "--steps=2"), "--steps: 2 is not allowed; allowed: 3 to 1000"),
    (("--script=train.py", "--batch=8"), "--batch: '8' does not fit a script"),
    (("--script=train.py", "--check"), "--check: True does not fit a script"),
    (("--nproc-per-node=2",), "--nproc-per-node: 2 is of a script; allowed: with --script"),
    (("--", "--tiny"), r"arguments: \['--tiny'\] is of a script"),
)
_EXPORT = (
    (("--output=r.jsonl",), "--output: 'r.jsonl' cannot be written: it is an input of this command"),
    (("--to=action", "--rows=samples"), "--rows: 'samples' is not for --to action; allowed: cases"),
    (("--to=parquet",), "--output: is missing, and parquet is binary; allowed: a file"),
    (("--output=no/such",), "--output: 'no/such' cannot be written: No such file or directory; allowed: a file"),
    (("--to=cvs",), "'cvs' is not one of 'csv', 'parquet', 'action'"),
)
_REPORT = (
    (("--output=./r.jsonl",), "--output: 'r.jsonl' cannot be written: it is an input of this command"),
    (("--output=.",), "--output: '.' cannot be written: Is a directory"),
    (("--output=none/page.html",), "none/page.html' cannot be written: No such file or directory"),
    (("--output=folder/",), "'folder/' cannot be written, because it ends like a folder"),
    (("--reference=fast",), "reference: 'fast' is no variant"),
    (("--commits", "xy", "cd"), "--commits: 'xy' is no clean commit of the records; allowed: "),
    (("--commits", "a", "b", "--history"), "--history: cannot be combined with --commits"),
)
_VARIANTS = {
    "tund": "'tund' is no variant, did you mean 'tuned'?",
    "": "'' is no variant",
    "a:b:c": "'a:b:c' is no variant; allowed: single, ",
    "a:b[c]": "'c' in 'a:b[c]' is no argument; allowed: key=value",
    "a:b[c=1,c=1]": "'c' in 'a:b[c=1,c=1]' is given twice; allowed: key=value",
    "tuned[dispach=auto]": "'dispach' in 'tuned[dispach=auto]' is no parameter of tuned, did you mean 'dispatch'?",
    "naive[dispatch=auto]": "is no parameter of naive; allowed: compile",
    "tuned[dispatch=auto,dispatch=auto]": "'dispatch' in 'tuned[dispatch=auto,dispatch=auto]' is given twice",
    "tuned[dispatch]": "'dispatch' in 'tuned[dispatch]' has no value; allowed: threads, sequence, auto",
    "tuned[coalesce=True]": "coalesce='True' in 'tuned[coalesce=True]' is not allowed; allowed: true, false",
    "tuned[bucket_bytes=1MB]": "allowed: a whole number of bytes from 1",
    "ddp[accumulate=1025]": "allowed: a whole number from 1 to 1024",
    "ddp[accumulate=2.0]": "allowed: a whole number from 1 to 1024",
    "ddp[hook=int8]": "allowed: none, fp16, bf16",
    "ddp[find_unused_parameters=true]": "is no parameter of ddp",
    "ddp[bucket_cap_mb=nan]": _WHOLE_MIB,
    "ddp[bucket_cap_mb=wide]": "bucket_cap_mb='wide' in 'ddp[bucket_cap_mb=wide]' is not allowed",
    "tuned[route=ring]": "route='ring' in 'tuned[route=ring]' is not allowed; allowed: auto, star, chain, nccl",
    "tuned[dispatch=auto": "'tuned[dispatch=auto' has wrong brackets; allowed: one pair after the name, as in",
    "tuned]": "'tuned]' has wrong brackets",
    "tuned[dispatch=auto][coalesce=true]": "has wrong brackets",
}
_WORKLOADS = {
    "mlpp/small": "'mlpp/small' is no workload, did you mean 'mlp'?; allowed: family/size",
    "mlp/smal": "'mlp/smal' has no known size, did you mean 'small'?; allowed: family/size",
    "mlp": "'mlp' has no known size; allowed: family/size",
    "": "'' is no workload; allowed: family/size",
    "a:": "'a:' is no workload",
    "a:b:c": "'a:b:c' is no workload",
    "a:f()": "'a:f()' is no workload",
}

_COMPARE = {
    "--budget": dict.fromkeys(
        (
            *("", "0", "0s", "-1", "-1s", "2 m", "2d", "soon", "1e3", "1e9", "nan", "inf", "٤s", "168.1h", "600h"),
            *("999999999h", "9" * 400),
        ),
        _NO_DURATION,
    ),
    "--timeout": {"9" * 400: r"--timeout: '?9999.*\.\.\..*9999'? is no duration above 0 and at most 168h"},
    "--batch": {
        "9" * 30: "--batch",
        "8" * 5000: "--batch",
        "64,64": "twice",
        "": "--batch",
        **{text: _NO_BATCH.format(escape(text.removeprefix("64,"))) for text in ("0", "many", "64,x", "1.5", "-4")},
    },
    "--rounds": {"0": "--rounds.*0.*1 to 1000", "9" * 5000: "--rounds: .{1,180}\n$"},
    "--seed": {"-1": "--seed"},
    "--steps-per-sample": {"0": _STEPS.format("0")},
    "--threads": {"9" * 19: "threads", "4096": "threads.*4096.*1 to"},
    "--devices": {
        **{
            text: f"--devices: {escape(ascii(text))}.*({_NO_DEVICES})"
            for text in ("", "+", "cpu+", "cpu*0", "cpu:1", "cuda:-1", "CPU", "cpu**2", f"cpu*{MAX_LANES + 1}")
        },
        "cpu*٤": "--devices: 'cpu\\*٤'",
        "cpu*99999999999999999999": "--devices",
        "cpu*" + "9" * 5000: "--devices",
        "cuda:" + "9" * 5000: "devices",
        "cpu+" * 5000: "--devices",
        "gpu:0": "devices.*gpu:0.*did you mean 'cuda:0'.*allowed: cpu",
        "cuda:0*2": "devices.*cuda:0.*allowed: cpu",
        "cpu*": r"--devices.*cpu\*.*cpu\*4",
    },
    "--variants": {
        "tuned[" * 5000: "--variants",
        "tuned[bucket_bytes=٤]": "--variants",
        "tuned,tunde": "--variants.*tunde.*tuned",
        "tuned,,naive": r"--variants: '' is no variant; allowed: a list of single, .*such as tuned\[dispatch",
        "tuned[bucket_bytes=1KiB],tuned[bucket_bytes=1024]": r"tuned\[bucket_bytes=1024\] is there twice",
    },
    "--workloads": {
        "../../etc/passwd:x": "--workloads",
    },
    "--results": {
        "\0": "results",
        "~nobody-of-this-name/x/\0": "results",
        "a" * 5000: "results",
        "/proc/self/nothing": "results",
    },
    "--dtypes": {"float": "--dtypes.*float.*float32"},
    "--data": {"mnist": "--data.*mnist.*digits"},
    "--modes": {"trian": "--modes.*trian.*train"},
    "--varants": {"tuned": "--varants"},
    "--markdown": {"x": "--markdown"},
}
_COMMANDS = (
    (("compare", "--batch=3", "--devices=cpu*4"), "batch.*3.*4 and above"),
    (("compare", "--markdown", "--json"), "--markdown: cannot be combined with --json"),
    (("no\x1b[31m",), "31m"),
    (("sweep",), "(?i)spec"),
    (("sweep", ""), "cannot be read"),
    (("sweep", "/"), "cannot be read"),
    *((("sweep", place), f"{place}.*cannot be read: not a regular file") for place in ("fifo", "/dev/zero")),
    (("sweep", "large.toml"), "cannot be read: larger than 64 MiB"),
    (("sweep", "absent.toml"), "absent.toml: cannot be read"),
    (("sweep", "a\0b"), r"\S"),
    (("sweep", "\x1b]0;title\x07"), "cannot be read"),
    (("sweep", "a\udc80"), "cannot be read"),
    (("sweep", "~nobody-of-this-name/x.toml"), "cannot be read"),
    (("sweep", "--retry=all", "x.toml"), "retry.*all.*failed"),
    (("list", "x"), "x"),
    (("list", "\x1b[31m"), "31m"),
    (("counts", "--check", "--update"), "--check"),
    (("counts", "--check", "--batch=4"), "--batch"),
    (("counts", "--update", "--events=x"), "--update: counts a set of its own; allowed: without --events"),
    (("counts", "--devices=sim*65"), "devices: 'sim:64' is more than the simulator can do; allowed: sim:0 to"),
    (("counts", "--batch=3"), "batch: 3 is less than one item for each of the 4 lanes"),
    (("counts", "--events=e"), "events: 3 cases on simulated devices; allowed: one variant"),
    (("counts", "--devices=sim*0"), "--devices"),
    (("counts", "--devices=cuda:0"), "devices"),
    *((("counts", *_ONE, f"--events={place}"), _NO_EVENTS.format(place)) for place in ("fifo", ".")),
    (("counts", "--events=e", "--batch=4,8"), "batch"),
    (("counts", "--events=e/", "--variants=naive"), "--events.*'e/' cannot be written"),
    (("asv-machine", "--machine="), "--machine"),
    (("asv-machine", "--machine=../x"), "--machine"),
    (("asv-machine", "--machine-file=/"), "machine-file: '/' cannot be written: Is a directory"),
    (("asv-machine", "--machine-file=m/"), "--machine-file.*'m/' cannot be written"),
    (("asv-machine", "--machine-file=fifo"), "fifo.*cannot be written: not a regular file"),
    (("asv-machine", "--machine-file=~nobody-of-this-name/x"), "--machine-file: '~nobody-of-this-name/x'.*allowed"),
    (("export", "fifo"), "fifo.*cannot be read: not a regular file"),
    (("export", "/none.jsonl"), "cannot be read"),
    (("doctor", "--quick=no"), "quick"),
    *((("elastic", *_SMALL, *words), pattern) for words, pattern in _ELASTIC),
    *((("trace", *words), pattern) for words, pattern in _TRACE),
    (("report",), "Missing argument 'files'"),
    (("report", "none.jsonl"), "none.jsonl: cannot be read: No such file or directory"),
    (("counts", "--check", "--json", "--expected=nope"), "nope"),
    (("project",), "WORKLOAD"),
    (("project", "mlp/tiny"), "--machine"),
    (("project", "mlp/tiny", "--machine=absent"), "absent.*8xV100-pcie"),
    (("project", "none/tiny", "--machine=4xT4-pcie"), "workload"),
    (("project", "mlp/tiny", "--machine=4xT4-pcie", "--variants=floor"), "variants.*floor"),
    (("project", "mlp/tiny", "--machine=4xT4-pcie", "--variants=absent"), "variants.*absent"),
    (("project", "mlp/tiny", "--machine=4xT4-pcie", "--batch=3"), "batch.*multiple of 4"),
    (("project", "mlp/tiny", "--machine=4xT4-pcie", "--batch=-4"), "batch"),
    (("project", "mlp/tiny", "--machine=4xT4-pcie", "--math=x"), "math"),
    (("project", "mlp/tiny", "--machine=4xT4-pcie", "--loader=nan"), "loader"),
    (("project", "mlp/tiny", "--machine=4xT4-pcie", "--loader=5e-324"), "loader"),
    (("project", "mlp/tiny", "--machine=4xT4-pcie", "--one-device=0"), "one-device: 0.* milliseconds"),
    *((("gate", *words), pattern) for words, pattern in _GATE),
)


def options() -> Iterator[Row]:
    """Return the rows on options of every command."""
    exact = {
        "--variants": {text: f"--variants: .*{escape(words)}" for text, words in _VARIANTS.items()},
        "--workloads": {text: f"--workloads: {escape(words)}" for text, words in _WORKLOADS.items()},
    }
    for table in (_COMPARE, exact):
        for option, rows in table.items():
            for value, pattern in rows.items():
                name = f"compare {option} {ascii(value)[:60]} {len(value)}"
                yield Row("options", name, ("compare", "--rounds=1", f"{option}={value}"), pattern)
    for words, pattern in _COMMANDS:
        places = {name: make for name, make in _PLACES.items() if any(name in word for word in words)}
        yield _row(words, pattern, places)
    for area, table, files in (
        ("gate", _IN_A_REPOSITORY, {**gate_files(), "fifo": os.mkfifo}),
        ("counts", _OF_A_SCRIPT, {"train.py": b""}),
        ("export", _EXPORT, {"r.jsonl": record_line({})}),
        ("report", _REPORT, {"r.jsonl": record_line({})}),
        ("compare", _OUTPUTS, {"mine": b"mine", "a/r.jsonl": record_line({})}),
        ("sweep", _SWEEP_OUTPUTS, {"s.toml": b'variants = ["single"]', "link": _link, ".git/HEAD": b""}),
        ("trace", ((("mlp/tiny", "--devices=sim*2", "--output=file"), "output: 'file' cannot"),), {"file": b"mine"}),
        ("project", ((_PROJECTION, "results: 'file' cannot be written: Not a directory"),), {"file": b"mine"}),
        ("counts", ((("--update", "--expected=file/x"), "expected: 'file/x' cannot"),), {"file": b"mine"}),
        ("elastic", ((("--results=file",), "results: 'file' cannot be written: Not a dir"),), {"file": b"mine"}),
        ("sweep", ((_SWEEP, "results/sweep-s.jsonl.*not written by dpbench"),), _FOREIGN),
        ("sweep", ((_SWEEP, "results/sweep-s.jsonl.*a symbolic link"),), {**_FOREIGN, "results/sweep-s.jsonl": _link}),
    ):
        for words, pattern in table:
            argument = ("r.jsonl",) if "r.jsonl" in files else ()
            yield _row((area, *argument, *words), pattern, files)


def _row(words: tuple[str, ...], pattern: str, files: Files) -> Row:
    name = " ".join(map(ascii, (words[0], *words[1:][-3:])))[:90]
    return Row("options", f"{name} {pattern[-20:]!a}", words, pattern, files)


def _link(path: Path) -> None:
    path.symlink_to("../s.toml")


def _large(path: Path) -> None:
    with path.open("wb") as file:
        file.truncate(65 << 20)


_OUTPUTS = (
    (("--results=mine",), "results: 'mine' cannot be written"),
    (("--csv=a",), "--csv: 'a' cannot be written: Is a directory"),
    (("--csv=none/cases.csv",), "--csv: 'none/cases.csv' cannot be written: No such file or directory"),
    (("--csv=a/r.jsonl",), "--csv: 'a/r.jsonl' cannot be written: it is a file of records"),
)
_SWEEP_OUTPUTS = (
    (("s.toml", "--csv=s.toml"), "--csv: 's.toml' cannot be written: it is an input of this command"),
    (("s.toml", "--results=r", "--csv=r/../r/sweep-s.jsonl"), "--csv: .*: it is an input of this command"),
    (("s.toml", "--csv=link"), "--csv: 'link' cannot be written: 'link' in a git checkout is a symbolic link"),
)
_PROJECTION = ("mlp/tiny", "--machine=8xV100-pcie", "--results=file")
_SWEEP = ("s.toml", "--results=results")
_FOREIGN: Files = {"s.toml": b'variants = ["single"]', "results/sweep-s.jsonl": b"milk, eggs; call mother"}
_PLACES: Files = {"fifo": os.mkfifo, "large.toml": _large}
