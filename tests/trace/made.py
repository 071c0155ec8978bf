"""Timelines made by hand, with known answers."""

from dpbench.trace.timeline import HOST, Doing, Moved, Span, Timeline, TimelineRow

MAIN, COPIES = TimelineRow(HOST, "main thread"), TimelineRow("device 1", "stream 2")
ZERO, ONE = TimelineRow("device 0", "stream 1"), TimelineRow("device 1", "stream 1")


def host(start, finish, *before, name="aten.mm.default", phase="forward"):
    return Span(name, Doing.HOST, MAIN, start, finish, phase, before=before)


def compute(row, start, finish, *before, phase="forward"):
    return Span("aten.mm.default", Doing.COMPUTE, row, start, finish, phase, row.group, before)


def move(start, finish, *before, moved=Moved.GRADIENTS, lane=1, row=COPIES, phase="backward"):
    return Span("copy 1 to 0", Doing.MOVE, row, start, finish, phase, None, before, moved, lane)


def timeline(*spans):
    return Timeline(spans, ("device 0", "device 1"))


def step():
    """The host issues for 1 s, both devices compute, and device 0 waits 14 s for the gradients of lane 1::

    main        0-1
    device 0      1-----3............18-20
    device 1      1--------4
      copies               4----------18
    """
    return timeline(
        host(0, 1),
        compute(ZERO, 1, 3, 0),
        compute(ONE, 1, 4, 0),
        move(4, 18, 2),
        compute(ZERO, 18, 20, 1, 3, phase="backward"),
    )
