"""What records mean: each number and each sentence is computed here once, and printed by every report.

summary.py           one case over its rounds
over_rounds.py       a reading over rounds, or why there is none
phase_summary.py     a step's phases, parts and ranks' lags
device_summary.py    each device: how busy it was, its memory, power, links and throttling
compare_variants.py  ratios, percentages of the limit, and the winner of each setting
ladder.py            from one device to several machines
counted.py           figures of exact counts, and copies by link
communication.py     what the ranks of a script have in common
answer.py            what to use, how sure that is, what to do next; names of settings and limits in words
threshold.py         the limits of a pytest benchmark
"""
