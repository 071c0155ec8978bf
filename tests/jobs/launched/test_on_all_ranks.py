"""Four parents, as torchrun starts them for two machines of two ranks, with real children and gloo."""

import json
import os
import socket
import subprocess
import sys

import psutil
import pytest

FACTORIES = """
import os, signal, time
from dataclasses import replace
from dpbench.cases.names import Data
from dpbench.workloads.resolve import resolve

plain = resolve("mlp/tiny", Data.RANDOM)


def fine():
    return plain


def on_rank_3(action):
    def model():
        if os.environ.get("RANK") == "3":
            action()
        return plain.model()

    return replace(plain, model=model)


def dying():
    return on_rank_3(lambda: os.kill(os.getpid(), signal.SIGKILL))


def hanging():
    return on_rank_3(lambda: time.sleep(1000))
"""
SPEC = """
variants = ["ddp"]
workloads = ["mine:dying", "mine:hanging", "mine:fine"]
rounds = 1
threads = 1
case_time = "0.2s"
timeout = "{timeout}"
"""


def free_port():
    """A port whose neighbour is free too."""
    while True:
        with socket.create_server(("127.0.0.1", 0)) as one:
            port = one.getsockname()[1]
            try:
                socket.create_server(("127.0.0.1", port + 1)).close()
            except OSError:
                continue
            return port


def run(folder, *words, ranks=range(4), of_rank=lambda _: {}, timeout=300):
    """Run the parents. Return the exit code, output and errors of each rank."""
    world = {"WORLD_SIZE": "4", "LOCAL_WORLD_SIZE": "2", "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(free_port())}
    parents = [
        subprocess.Popen(
            [sys.executable, "-m", "dpbench", *of_rank(rank).get("words", words)],
            cwd=folder,
            env=environment(world, rank, of_rank(rank).get("variables", {})),
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        for rank in ranks
    ]
    try:
        texts = [parent.communicate(timeout=timeout) for parent in parents]
    finally:
        for parent in parents:
            parent.kill()
    return [(parent.returncode, *text) for parent, text in zip(parents, texts, strict=True)]


def environment(world, rank, changes):
    """The launcher's variables of a rank. A change to None removes one."""
    usual = {**os.environ, **world, "RANK": str(rank), "LOCAL_RANK": str(rank % 2)}
    return {name: text for name, text in {**usual, **changes}.items() if text is not None}


def test_a_wrong_variable_of_one_rank_is_one_line_once_and_code_2_on_all(tmp_path):
    def of_rank(rank):
        return {"variables": {"LOCAL_RANK": None}} if rank == 3 else {}

    done = run(tmp_path, "compare", of_rank=of_rank, timeout=60)
    line = f"rank 3 on {socket.gethostname()}: LOCAL_RANK: is not set; allowed: the number that torchrun sets"
    assert "".join(err for _, _, err in done) == f"dpbench: {line}\n"
    assert [code for code, _, _ in done] == [2] * 4
    assert [out for _, out, _ in done] == [""] * 4
    assert not (tmp_path / "results").exists()


@pytest.mark.parametrize("faulty", [0, 2])
def test_wrong_input_is_one_line_of_one_rank_and_code_2_on_all(tmp_path, faulty):
    (tmp_path / "my.toml").write_text("rounds = 1")

    def of_rank(rank):
        return {"words": ("sweep", "absent.toml")} if rank == faulty else {}

    done = run(tmp_path, "sweep", "my.toml", of_rank=of_rank, timeout=60)
    assert [code for code, _, _ in done] == [2] * 4
    line = "absent.toml: cannot be read: No such file or directory; allowed: a TOML file"
    prefix = "" if faulty == 0 else f"rank 2 on {socket.gethostname()}: "
    assert "".join(err for _, _, err in done) == f"dpbench: {prefix}{line}\n"
    assert not (tmp_path / "results").exists()


@pytest.mark.exhaustive
def test_a_dying_and_a_hanging_rank_end_their_case_and_the_sweep_goes_on(tmp_path):
    (tmp_path / "mine.py").write_text(FACTORIES)
    (tmp_path / "my.toml").write_text(SPEC.format(timeout="45s"))
    done = run(tmp_path, "sweep", "my.toml")
    assert [code for code, _, _ in done] == [0] * 4, done
    assert [(out, err) for _, out, err in done[1:]] == [("", "")] * 3
    records = [json.loads(line) for line in (tmp_path / "results/runs/sweep-my.jsonl").read_text().splitlines()]
    keys = [(record["case"]["id"], record["round"]) for record in records]
    assert len(set(keys)) == len(keys) == 6  # single and ddp of three workloads
    ranks = {r["case"]["workload"]: r for r in records if r["case"]["variant"] == "ddp"}
    dying, hanging, fine = (ranks[f"mine:{name}"] for name in ("dying", "hanging", "fine"))
    assert (dying["outcome"], dying["reason"].splitlines()[0]) == (
        "crashed",
        f"rank 3 on {socket.gethostname()}: killed by SIGKILL; the kernel's out-of-memory killer does this",
    )
    assert hanging["outcome"] == "time_out"
    assert (fine["outcome"], fine["case"]["machines"]) == ("ok", 2)
    assert fine["metrics"]["rank_machines"] == [socket.gethostname()] * 4
    assert fine["metrics"]["network_interface"] == "lo"
    assert fine["metrics"]["rank_link_mbit_per_s"] == [None] * 4
    assert all(r["outcome"] == "ok" for r in records if r["case"]["variant"] != "ddp")
    assert [p for p in psutil.process_iter(["cwd"]) if p.info["cwd"] == str(tmp_path)] == []
