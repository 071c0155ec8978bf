"""The forms in which a gate's judgement is read.

forms           tables on a terminal, a comment on GitHub, one JSON object
per_benchmark   one finding for each benchmark: JUnit XML, and GitHub's annotations
tables          the tables and lines that these forms share; their words are in gate/words.py
counters        the counters that changed, by the line of code behind them
"""
