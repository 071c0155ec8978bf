"""Results as text: tables for a terminal and JSON for machines. What they say is computed in `dpbench.analysis`.

    table.py             columns over rows; goes on below itself in a narrow terminal; bars of block characters
    markdown.py          the same table in markdown; escaped texts and lists
    comparison.py        the tables of `compare`, `sweep` and the ladder, the same for an issue on GitHub, and as JSON
    phase_table.py       a step's phases, variants side by side
    device_table.py      how busy each device was, its memory, power, links and throttling; why figures are missing
    counts_table.py      the tables and the JSON of `counts`, of a step and of a script
    elastic_table.py     elastic runs and their outages
    projection_table.py  projected steps on described machines
    rows.py              records as flat rows: CSV, Parquet, github-action-benchmark
    progress.py          the progress bar on standard error
    page/                one HTML page with charts
    gate/                the forms of a gate's judgement
    trace_picture.py     a step's timeline as a picture
    trace_text.py        a step's timeline in words and as JSON

These files do not import torch. The reports of `doctor` and of asv are in their own rooms.
"""
