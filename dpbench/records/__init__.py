"""What was measured, as formats and stores; imports no torch.

row.py            the envelope of all that is kept: a schema and a kind
record.py         one case in one round, as a line of JSON
readings.py       a value or the reason why there is none; a GPU's telemetry
store.py          files of records, and the files that a run writes
count_record.py   exact counters of a step, and the lines of code they come from
script_record.py  what a script's ranks send each other
expected.py       expected counts
recording.py      recorded steps of simulated devices
baseline.py       the figures of pytest benchmarks
"""
