"""Results as text: tables for a terminal and JSON for machines. What they say is computed in `dpbench.analysis`.

table.py             columns over rows; goes on below itself in a narrow terminal; bars
markdown.py          the same table in markdown; escaped texts and lists
case_columns.py      the columns of a case, for all forms
comparison.py        `compare`, `sweep` and the ladder: tables, markdown for an issue, JSON
phase_table.py       a step's phases, variants side by side
device_table.py      how busy each device was; why figures are missing
counts_table.py      `counts`, of a step and of a script
elastic_table.py     elastic runs and their outages
projection_table.py  projected steps on described machines
rows.py              records as flat rows: CSV, Parquet, github-action-benchmark
progress.py          the progress bar on standard error
page/                one HTML page with charts
gate/                the forms of a gate's judgement
trace_text.py        a step's timeline in words and as JSON
"""
