"""Results as text: tables for a terminal and JSON for machines.

    table.py             columns over rows; goes on below itself in a narrow terminal; bars of block characters
    markdown.py          the same table in markdown; escaped texts and lists
    comparison.py        the tables of `compare`, `sweep` and the ladder, the same for an issue on GitHub, and as JSON
    phase_table.py       a step's phases, variants side by side
    device_table.py      how busy each device was, its memory, power, links and throttling; why figures are missing
    counts_table.py      the tables and the JSON of `counts`
    vocabulary.py        the names that `list` prints
    progress.py          the progress bar on standard error
    page/                one HTML page with charts
    gate/                the forms of a gate's judgement

These files do not import torch. The reports of `doctor` and of asv are in their own rooms.
"""
