"""The forms in which a gate's judgement is read.

forms.py             tables on a terminal, a comment on GitHub, one JSON object
per_benchmark.py     one finding for each benchmark: JUnit XML, and GitHub's annotations
verdict_tables.py    the tables and lines that these forms share; their words are in gate/words.py
changed_counters.py  the counters that changed, by the line of code behind them
"""
