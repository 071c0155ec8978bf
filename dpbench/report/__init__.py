"""Results as text: tables for a terminal and JSON for machines.

    comparison_table.py  the tables of `compare` and `sweep`: times, phases, skew and lag
    comparison_markdown.py  the same for an issue on GitHub
    device_table.py      how busy each device was, its memory, power, links and throttling
    wide_table.py        a table that goes on below itself in a narrow terminal; bars of block characters
    markdown.py          escaped texts, lists and rows of markdown
    missing.py           why figures are missing
    comparison_json.py   the same comparisons as JSON
    counts_table.py      the tables and the JSON of `counts`
    vocabulary.py        the names that `list` prints
    progress.py          the progress bar on standard error
    units.py             numbers with units and significant digits
    headline.py          what a comparison says, in sentences
    page/                one HTML page with charts
    gate/                the forms of a gate's judgement

These files do not import torch. The reports of `doctor` and of asv are in their own rooms.
"""
