"""A slowdown of known size, planted into the wrapper of a commit's folder: for tests of the gate itself."""

from pathlib import Path

LOOPS = "DPBENCH_PLANTED_LOOPS"
"""Variable of the environment: how many empty turns of a loop each forward takes beforehand; 0 where it is not set."""

_PLANTED = f'''

def _plant() -> None:
    import os

    loops, forward = int(os.environ.get("{LOOPS}", "0")), DataParallel.forward

    def slower(self, *inputs, **kwargs):
        for _ in range(loops):
            pass
        return forward(self, *inputs, **kwargs)

    DataParallel.forward = slower


_plant()
'''


def plant(tree: Path) -> None:
    """Work, not sleep: it takes the same share of a step when the machine slows down."""
    with (tree / "dpbench/parallel/__init__.py").open("a", encoding="utf-8") as file:
        file.write(_PLANTED)


def environment(loops: int) -> dict[str, str]:
    return {LOOPS: str(loops)}
