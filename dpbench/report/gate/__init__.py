"""The forms in which a gate's judgement is read.

forms           tables on a terminal, a comment on GitHub, one JSON object, Bencher Metric Format
per_benchmark   one finding for each benchmark: JUnit XML, and GitHub's annotations
tables          the rows, lines and words that these forms share
"""
