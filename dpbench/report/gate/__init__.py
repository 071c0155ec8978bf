"""The forms in which a gate's judgement is read.

    terminal            tables on standard output
    markdown            a comment on a pull request, and the summary of a GitHub step
    json_forms          one JSON object, the exit codes, and Bencher Metric Format
    per_benchmark       one finding for each benchmark: JUnit XML, and GitHub's annotations

`tables` and `wording` have the rows, lines and words that these forms share.
"""
