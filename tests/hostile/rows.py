"""The attack as a table: area, input, expected exit code, pattern of the expected text."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field

from tests.hostile.files import counts_file, gate_files, record_line, self_test

Files = Mapping[str, bytes]
NOT_TEXT = {"not UTF-8": b"\xff\xfe\x00", "NUL": b"\0" * 20, "empty": b""}
DEEP = b"[" * 100_000


_SMALL = ("--workload=mlp/tiny", "--batch=8", "--steps=9", "--checkpoint-every=5")
_ELASTIC = (
    (("--plan=kill",), "plan: 'kill' is no fault; allowed: "),
    (("--plan=stop@3:0",), "plan: 'stop@3:0' is no fault; allowed: "),
    (("--plan=kill@99:0",), "plan: kill@99:0 has no step 99; allowed: steps 0 to 8"),
    (("--faults=kill,kill", "--max-restarts=1"), "max-restarts: 1 is less than the 2 faults"),
    (("--checkpoint-format=pickle",), "checkpoint-format: 'pickle' is not allowed; allowed: torch.save, dcp"),
    (("--nproc-per-node=0",), "nproc-per-node: 0 is not allowed; allowed: 1 to 64"),
    (("--ranks=0", "--backend=dcp"), "nproc-per-node: 0 is not allowed; allowed: 1 to 64"),
    (("--ranks=2", "--backend=zip"), "checkpoint-format: 'zip' is not allowed; allowed: torch.save, dcp"),
    (("--workload=mlp/huge",), "workload: "),
    (("--plan=leave@3:1,leave@4:0",), "plan: leave@4:0 would leave no rank; allowed: "),
    (("--hang-timeout=soon",), "hang-timeout: 'soon' is no duration"),
    (("--checkpoints=/proc/none",), "checkpoints: '/proc/none' cannot be written: "),
)
_TRACE = (
    (("mlp/smal",), "workloads: 'mlp/smal'"),
    (("mlp/small,convnet/base",), "workload: 2 of them; allowed: one"),
    (("mlp/small", "--batch=64,128"), "batch: 2 of them; allowed: one"),
    (("mlp/small", "--batch=many"), "batch"),
    (("mlp/small", "--devices=cpu*2,sim*2"), "devices: 2 of them; allowed: one"),
    (("mlp/small", "--devices=cpu*x"), r"devices: 'cpu\*x' is not a device list"),
    (("mlp/small", "--devices=sim*80"), "more than the simulator can do"),
    (("mlp/small", "--devices=sim*4", "--batch=2"), "less than one item for each of the 4 lanes"),
    (("mlp/small", "--variants=best"), "variants: 'best'"),
)


@dataclass(frozen=True)
class Row:
    """One attack."""

    area: str
    name: str
    words: tuple[str, ...]
    code: int
    pattern: str
    files: Files = field(default_factory=dict)

    def __str__(self) -> str:
        return f"{self.area}: {self.name}"


def rows() -> Iterator[Row]:
    """Return the whole table."""
    yield from options()
    yield from sweep_files()
    yield from gate_settings()
    yield from records()
    yield from reports()
    yield from asv()
    yield from expected_counts()
    yield from self_tests()


def options() -> Iterator[Row]:
    """Return the rows on options of every command."""
    for option, value, pattern in (
        ("--budget", "999999999h", "--budget"),
        ("--budget", "9" * 400, "--budget"),
        ("--budget", "-1s", "--budget"),
        ("--budget", "nan", "--budget: 'nan'"),
        ("--budget", "inf", "--budget: 'inf'"),
        ("--budget", "1e9", "--budget"),
        ("--budget", "٤s", "--budget"),
        ("--timeout", "600h", "--timeout"),
        ("--timeout", "0", "--timeout"),
        ("--batch", "9" * 30, "--batch"),
        ("--batch", "8" * 5000, "--batch"),
        ("--batch", "64,64", "twice"),
        ("--batch", "", "--batch"),
        ("--rounds", "1e3", "--rounds"),
        ("--rounds", "٤", "--rounds"),
        ("--seed", "-1", "--seed"),
        ("--threads", "9" * 19, "threads"),
        ("--devices", "cpu*٤", "--devices: 'cpu\\*٤'"),
        ("--devices", "cpu*99999999999999999999", "--devices"),
        ("--devices", "cpu*" + "9" * 5000, "--devices"),
        ("--devices", "cuda:" + "9" * 5000, "devices"),
        ("--devices", "cpu+" * 5000, "--devices"),
        ("--variants", "tuned[" * 5000, "--variants"),
        ("--variants", "tuned[bucket_bytes=99999999999GiB]", "--variants"),
        ("--variants", "tuned[bucket_bytes=٤]", "--variants"),
        ("--variants", "tuned[=]", "--variants"),
        ("--workloads", "../../etc/passwd:x", "--workloads"),
        ("--workloads", "a:b:c", "--workloads"),
        ("--workloads", ":", "--workloads"),
        ("--results", "\0", "results"),
        ("--results", "~nobody-of-this-name/x/\0", "results"),
        ("--results", "a" * 5000, "results"),
        ("--results", "/proc/self/nothing", "results"),
        ("--dtypes", "\x1b[2J", "--dtypes"),
        ("--data", "digits\x07", "--data"),
        ("--dtypes", "float", "--dtypes.*float.*float32"),
        ("--data", "mnist", "--data.*mnist.*digits"),
        ("--variants", "tuned,tunde", "--variants.*tunde.*tuned"),
        ("--workloads", "mpl/tiny", "--workloads.*mpl/tiny.*mlp"),
        ("--workloads", "mlp/huge", "--workloads.*mlp/huge.*small"),
        ("--batch", "0", "--batch.*0.*from 1"),
        ("--batch", "many", "--batch.*many.*whole numbers"),
        ("--devices", "gpu:0", "devices.*gpu:0.*did you mean 'cuda:0'.*allowed: cpu"),
        ("--devices", "cuda:0*2", "devices.*cuda:0.*allowed: cpu"),
        ("--devices", "cpu*", r"--devices.*cpu\*.*cpu\*4"),
        ("--modes", "trian", "--modes.*trian.*train"),
        ("--rounds", "0", "--rounds.*0.*1 to 1000"),
        ("--steps-per-sample", "0", "--steps-per-sample.*0.*1 to 100000"),
        ("--steps-per-sample", "-1", "--steps-per-sample.*-1.*1 to 100000"),
        ("--steps-per-sample", "abc", "--steps-per-sample.*abc.*1 to 100000"),
        ("--budget", "soon", "--budget.*soon.*2m"),
        ("--budget", "168.1h", "--budget.*at most 168h"),
        ("--timeout", "9" * 400, "--timeout.*9999...9999.*at most 168h"),
        ("--threads", "4096", "threads.*4096.*1 to"),
        ("--varants", "tuned", "--varants"),
        ("--markdown", "x", "--markdown"),
    ):
        name = f"compare {option} {ascii(value)[:24]} {len(value)}"
        yield Row("options", name, ("compare", "--rounds=1", f"{option}={value}"), 2, pattern)
    for words, code, pattern in (
        (("compare", "--batch=3", "--devices=cpu*4"), 2, "batch.*3.*4 and above"),
        (("compare", "--markdown", "--json"), 2, "--markdown: cannot be combined with --json"),
        (("compair",), 2, "compair"),
        (("sweep",), 2, "(?i)spec"),
        (("sweep", ""), 2, "cannot be read"),
        (("sweep", "/"), 2, "cannot be read"),
        (("sweep", "/dev/zero"), 2, "/dev/zero"),
        (("sweep", "a\0b"), 2, r"\S"),
        (("sweep", "\x1b]0;title\x07"), 2, "cannot be read"),
        (("sweep", "a\udc80"), 2, "cannot be read"),
        (("sweep", "~nobody-of-this-name/x.toml"), 2, "cannot be read"),
        (("sweep", "--retry=all", "x.toml"), 2, "retry"),
        (("list", "x"), 2, "x"),
        (("list", "\x1b[31m"), 2, "31m"),
        (("no\x1b[31m",), 2, "31m"),
        (("counts", "--check", "--update"), 2, "--check"),
        (("counts", "--check", "--batch=4"), 2, "--batch"),
        (("counts", "--update", "--events=x"), 2, "--update: counts a set of its own; allowed: without --events"),
        (("counts", "--devices=sim*65"), 2, "devices: 'sim:64' is more than the simulator can do; allowed: sim:0 to"),
        (("counts", "--workloads=mlp/tyni"), 2, "--workloads: 'mlp/tyni' has no known size; allowed: "),
        (("counts", "--variants=stock"), 2, "--variants: 'stock' is no variant"),
        (("counts", "--batch=3"), 2, "batch: 3 is less than one item for each of the 4 lanes"),
        (("counts", "--events=e"), 2, "events: 3 cases on simulated devices; allowed: one variant"),
        (("counts", "--devices=sim*0"), 2, "--devices"),
        (("counts", "--devices=sim*٤"), 2, "--devices"),
        (("counts", "--devices=cuda:0"), 2, "devices"),
        (("counts", "--events=/no/such/folder/x"), 2, "events"),
        (("counts", "--events=/dev"), 2, "events"),
        (("counts", "--events=a\0b"), 2, "events"),
        (("counts", "--events=e", "--batch=4,8"), 2, "batch"),
        (("counts", "--events=e/", "--variants=naive"), 2, "--events.*'e/' cannot be written"),
        (("asv-machine", "--machine="), 2, "--machine"),
        (("asv-machine", "--machine=../x"), 2, "--machine"),
        (("asv-machine", "--machine=.."), 2, "--machine"),
        (("asv-machine", "--machine=a\0b"), 2, "--machine"),
        (("asv-machine", "--machine=a\x1b[31m"), 2, "--machine"),
        (("asv-machine", "--machine-file=/"), 2, "cannot be read"),
        (("asv-machine", "--machine-file=m/"), 2, "--machine-file.*'m/' cannot be written"),
        (("asv-machine", "--machine-file=/dev/zero"), 2, "/dev/zero"),
        (("asv-machine", "--machine-file=~nobody-of-this-name/x"), 2, "nobody-of-this-name"),
        (("export", "/dev/zero"), 2, r"\S"),
        (("export", "/none.jsonl"), 2, "cannot be read"),
        (("asv-machine", "--machine=a/b"), 2, "--machine: 'a/b' is not a name for a machine"),
        (("doctor", "--quick=no"), 2, "quick"),
        *((("elastic", *_SMALL, *words), 2, pattern) for words, pattern in _ELASTIC),
        *((("trace", *words), 2, pattern) for words, pattern in _TRACE),
        (("report",), 2, "Missing argument 'files'"),
        (("report", "none.jsonl"), 2, "none.jsonl: cannot be read: No such file or directory"),
        (("gate",), 3, "--base"),
        (("gate", "--base=x", "--tiers=3"), 3, "--tiers"),
        (("gate", "--base=x", "--tiers=0,0"), 3, "--tiers"),
        (("gate", "--base=x", "--tiers="), 3, "--tiers"),
        (("gate", "--base=x", "--budget=99999999h"), 3, "--budget"),
        (("gate", "--base=x", "--rounds=x"), 3, "rounds"),
        (("gate", "--base=x", "--comment=/no/such/x"), 3, "cannot be written"),
        (("gate", "--base=x", "--comment=/dev/null"), 3, "no device"),
        (("gate", "--base=x", f"--comment={'9' * 400}"), 3, "cannot be written"),
        (("gate", "--base=x", f"--junit={'9' * 400}/x"), 3, "cannot be written"),
        (("gate", "--base=HEAD", f"--comment={'x' * 300}"), 3, "File name too long"),
        (("counts", "--check", "--json", "--expected=nope"), 2, "nope"),
        (("gate", "--base=x", "--comment=a", "--junit=a"), 3, "--junit"),
        (("gate", "--base=x", "--comment=0/"), 3, "--comment.*'0/' cannot be written"),
        (("gate", "--base=x", "--junit=0/."), 3, "--junit.*'0/.' cannot be written"),
        (("gate", "--base=x", "--junit=a\0b"), 3, r"\S"),
        (("gate", "--base=x", "--worktree", "--head=y"), 3, "--head"),
        (("project",), 2, "WORKLOAD"),
        (("project", "mlp/tiny"), 2, "--machine"),
        (("project", "mlp/tiny", "--machine=absent"), 2, "absent.*8xV100-pcie"),
        (("project", "mlp/tiny", "--machine=/dev/null"), 2, "/dev/null"),
        (("project", "mlp/tiny", f"--machine={'9' * 400}"), 2, "9999"),
        (("project", "none/tiny", "--machine=4xT4-pcie"), 2, "workload"),
        (("project", "mlp/tiny", "--machine=4xT4-pcie", "--variants=floor"), 2, "variants.*floor"),
        (("project", "mlp/tiny", "--machine=4xT4-pcie", "--variants=absent"), 2, "variants.*absent"),
        (("project", "mlp/tiny", "--machine=4xT4-pcie", "--batch=3"), 2, "batch.*multiple of 4"),
        (("project", "mlp/tiny", "--machine=4xT4-pcie", "--batch=-4"), 2, "batch"),
        (("project", "mlp/tiny", "--machine=4xT4-pcie", "--math=x"), 2, "math"),
        (("project", "mlp/tiny", "--machine=4xT4-pcie", "--loader=0"), 2, "loader"),
        (("project", "mlp/tiny", "--machine=4xT4-pcie", "--loader=nan"), 2, "loader"),
        (("project", "mlp/tiny", "--machine=4xT4-pcie", "--loader=5e-324"), 2, "loader"),
        (("project", "mlp/tiny", "--machine=4xT4-pcie", "--batch=" + "9" * 5000), 2, "batch: .9999"),
        (("project", "mlp/tiny", "--machine=4xT4-pcie", "--one-device=0"), 2, "one-device: 0.* milliseconds"),
        (("gate", "--base=x"), 3, "git repository"),
        (("gate", "--base=x", "--no\x1b[31m"), 3, "31m"),
    ):
        yield Row("options", " ".join(map(ascii, (words[0], *words[1:][-3:])))[:90], words, code, pattern)


def sweep_files() -> Iterator[Row]:
    """Return the rows on sweep files."""
    for name, content in {**NOT_TEXT, "deep": b"a = " + DEEP}.items():
        if name != "empty":  # that is a sweep of all defaults
            yield Row("sweep", name, ("sweep", "s.toml"), 2, "s.toml: is not TOML", {"s.toml": content})
    # tomllib takes 8 GB for these 100 KB
    keys = {"s.toml": b"a." * 50_000 + b"a = 1"}
    yield Row("sweep", "deep keys", ("sweep", "s.toml"), 2, "s.toml: ", keys)
    for line, pattern in (
        ("timeout = 1e300", "s.toml: timeout"),
        (f"budget = {'9' * 400}", "s.toml: budget"),
        ("budget = inf", "s.toml: budget"),
        ("budget = nan", "s.toml: budget"),
        ("budget = true", "s.toml: budget"),
        ("budget = 1979-05-27", "s.toml: budget"),
        ("rounds = 1.0", "s.toml: rounds"),
        (f"rounds = {'9' * 400}", "s.toml: rounds"),
        ("rounds = true", "s.toml: rounds"),
        ("batch = [true]", "s.toml: batch"),
        ("batch = [[64]]", "s.toml: batch"),
        ("batch = {a = 1}", "s.toml: batch"),
        ("devices = [4]", "s.toml: devices"),
        ("devices = ['cpu*٤']", "s.toml: devices"),
        ('variants = ["\\u0000"]', "s.toml: variants"),
        ('variants = ["\\u001b[31m"]', "s.toml: variants"),
        ('workloads = ["\\u001b[31m/x"]', "s.toml: workloads"),
        ('"\\u001b[31m" = 1', "s.toml: "),
        ('"\\u001b]0;owned\\u0007" = 1', "s.toml: "),
        ('"\\r\\u009b2J" = 1', "s.toml: "),
        ('"a\\nb" = 1', "s.toml: "),
        ('reference = "naive"\nvariants = ["tuned"]', "s.toml: reference"),
        ("[variants]\na = 1", "s.toml: variants"),
        ('varients = ["tuned"]', "s.toml.*varients.*variants"),
        ('batch = "64"', "s.toml.*batch.*64"),
        ("steps_per_sample = 0", "s.toml.*steps_per_sample.*1 to 100000"),
        ("variants = []", "s.toml.*variants"),
        ('variants = ["tuned", "tuned"]', "s.toml.*variants.*tuned.*twice"),
        ('variants = ["tunde"]', "s.toml.*variants.*tunde.*tuned"),
        ("variants = [", "s.toml.*is not TOML"),
    ):
        yield Row("sweep", line[:40], ("sweep", "s.toml"), 2, pattern, {"s.toml": line.encode()})


def gate_settings() -> Iterator[Row]:
    """Return the rows on the gate's settings."""
    words = ("gate", "--base=HEAD~1", "--tiers=0", "--settings=g.toml")
    for name, content in {**NOT_TEXT, "deep": b"a = " + DEEP}.items():
        if name != "empty":
            yield Row("gate", name, words, 3, "g.toml: is not TOML", gate_files(content))
    for line, pattern in (
        ("alarm_rate = 0", "g.toml: alarm_rate"),
        ("alarm_rate = nan", "g.toml: alarm_rate"),
        (f"alarm_rate = {'9' * 400}", "g.toml: alarm_rate"),
        ('alarm_rate = "٤%"', "g.toml: alarm_rate"),
        ("benchmark = 1", "g.toml: benchmark"),
        ("benchmark = [1]", "g.toml: benchmark"),
        ("[[benchmark]]", "g.toml: benchmark 1"),
        ('[[benchmark]]\nname = "\\u001b[31m"', "g.toml: benchmark"),
        ('[thresholds]\n"\\u001b[31m" = 1', "g.toml: thresholds"),
        ('[[accepted]]\nbenchmark="x"\nrevision="--output=x"\nreason="r"\nexpires=2099-01-01', "revision"),
        ('[[accepted]]\nbenchmark="x"\nrevision="1234567"\nreason="r"\nexpires="٤"', "expires"),
        ('"\\u001b[31m" = 1', "g.toml: "),
    ):
        yield Row("gate", line[:50], words, 3, pattern, gate_files(line.encode()))
    for base in ("--output=x", "-h", "", "HEAD:a", "\x1b[31m", "HEAD~9", "HEAD\nHEAD", "^HEAD", "HEAD~1..HEAD", "@{0"):
        yield Row(
            "gate", f"base {base!a}", ("gate", f"--base={base}", "--tiers=0"), 3, r"--base: .*|HEAD", gate_files()
        )
    yield Row("gate", "base with NUL", ("gate", "--base=a\0b", "--tiers=0"), 3, "--base", gate_files())
    for name, content in {**NOT_TEXT, "deep": DEEP, "a list": b"[]\n", "schema 99": b'{"schema": 99}\n'}.items():
        if name != "empty":
            files = {**gate_files(), "results/gate/history.jsonl": content + b"\n"}
            yield Row("gate", f"history: {name}", ("gate", "--base=HEAD~1", "--tiers=2"), 3, "history.jsonl", files)


def records() -> Iterator[Row]:
    """Return the rows on files of records."""
    words = ("export", "r.jsonl")
    for name, line in {**NOT_TEXT, "deep": DEEP, "null": b"null", "number": b"1", "no schema": b"{}"}.items():
        if name != "empty":
            yield Row("records", name, words, 2, "r.jsonl: line 1 ", {"r.jsonl": line + b"\n"})
    for name, change in (
        ("a date that is none", {"started_at": "yesterday"}),
        ("commit is an option", {"environment.commit": "--output=owned"}),
        ("commit is a name", {"environment.commit": "HEAD"}),
        ("commit is a path", {"environment.commit": "HEAD:"}),
        ("commit is a range", {"environment.commit": "HEAD~1..HEAD"}),
        ("commit with NUL", {"environment.commit": "a\0b"}),
        ("commit with a slash", {"environment.commit": "../../x"}),
        ("overlong python", {"environment.python": "9" * 5000}),
        ("python with slashes", {"environment.python": "../../x"}),
        ("negative samples", {"samples_s": [-1.0]}),
        ("samples are text", {"samples_s": ["\x1b[31m"]}),
        ("unknown key with ESC", {"\x1b[31m": 1}),
        ("unknown outcome with ESC", {"outcome": "\x1b[31m"}),
        ("schema is true", {"schema": True}),
        ("schema is huge", {"schema": 10**30}),
        ("round is negative", {"round": -1}),
        ("month 13", {"started_at": "2025-13-01T00:00:00Z"}),
        ("no date", {"started_at": ""}),
        ("a date of NUL", {"started_at": "\0"}),
        ("commit is HEAD:", {"environment.commit": "HEAD:"}),
        ("commit with a line break", {"environment.commit": "0123456\n"}),
        ("commit is too long", {"environment.commit": "0" * 65}),
        ("commit is too short", {"environment.commit": "012345"}),
        ("python is no version", {"environment.python": "snake"}),
        ("key of the environment with ESC", {"environment.\x1b]0;title\x07": 1}),
    ):
        yield Row("records", name, words, 2, r"\S", {"r.jsonl": record_line(change)})


def reports() -> Iterator[Row]:
    """Return the rows on `report`."""
    for words, pattern in (
        (("--output=none/page.html",), "none/page.html: cannot be written: No such file or directory"),
        (("--output=folder/",), "'folder/' cannot be written, because it ends like a folder"),
        (("--reference=fast",), "reference: 'fast' is no variant"),
        (("--commits", "xy", "cd"), "--commits: 'xy' is no clean commit of the records; allowed: "),
        (("--commits", "a", "b", "--history"), "--history: cannot be combined with --commits"),
    ):
        yield Row("report", " ".join(words), ("report", "r.jsonl", *words), 2, pattern, {"r.jsonl": record_line({})})


def asv() -> Iterator[Row]:
    """Return the rows on asv's machine file."""
    words = ("asv-machine", "--machine=m", "--machine-file=m.json")
    for name, content in (
        ("not UTF-8", b"\xff"),
        ("empty", b""),
        ("deep", DEEP),
        ("deep in an entry", b'{"version": 1, "m": ' + DEEP),
        ("a list", b"[]"),
        ("version 99", b'{"version": 99}'),
        ("an entry that is a number", b'{"version": 1, "m": 1}'),
        ("key with ESC", b'{"version": 1, "\\u001b[31m": 1}'),
        ("a number of 5000 digits", b'{"version": ' + b"9" * 5000 + b"}"),
    ):
        yield Row("asv machine file", name, words, 2, r"m\.json", {"m.json": content})


def expected_counts() -> Iterator[Row]:
    """Return the rows on files of expected counts."""
    words = ("counts", "--check", "--expected=e")
    file = "e/torch-2.13.0-py3.11.json"
    for name, content in {
        **NOT_TEXT,
        "deep": DEEP,
        "a list": b"[]",
        "another schema": counts_file(schema=99),
        "a count that is text": counts_file(cases={"c": {"x": "\x1b[31m"}}),
        "a count of 5000 digits": b'{"cases": {"c": {"x": ' + b"9" * 5000 + b"}}}",
        "unknown key with ESC": counts_file(**{"\x1b[31m": 1}),
    }.items():
        yield Row("expected counts", name, words, 2, "holds no expected counts", {file: content})
    yield Row("expected counts", "no folder", ("counts", "--check", "--expected=/nope"), 2, "/nope")
    yield Row("expected counts", "a device", ("counts", "--check", "--expected=/dev/null"), 2, "/dev/null")
    hostile = counts_file(cases={"\x1b[31mcase": {"\x1b[31mcounter": 1}})
    yield Row("expected counts", "names with ESC", words, 1, "expected, not counted", {file: hostile})


def self_tests() -> Iterator[Row]:
    """Return the rows on the result of a self-test."""
    gate = ("gate", "--base=HEAD~1", "--tiers=1")
    file = "results/gate/self-test-x.json"
    for name, content in {
        **NOT_TEXT,
        "deep": DEEP,
        "a list": b"[]",
        "no conditions": self_test(tested=[]),
        "no rounds": self_test(spreads=[]),
        "negative counts": self_test(drawn={"slower": -5}),
        "huge counts": self_test(drawn={"slower": 10**30, "passed": 1}),
        "a date with ESC": self_test(began="\x1b[31m20250101"),
    }.items():
        yield Row("self-test", name, gate, 3, r"self-test-x\.json", {**gate_files(), file: content})
