"""The forms in which a gate's judgement is read.

forms           tables on a terminal, a comment on GitHub, one JSON object
per_benchmark   one finding for each benchmark: JUnit XML, and GitHub's annotations
tables          the tables of times, lines and words that these forms share
counters        the counters that changed, by the line of code behind them
"""
