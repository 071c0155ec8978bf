"""The forms in which a gate's judgement is read.

    terminal            tables on standard output
    json_form           one JSON object, and the exit codes
    markdown            a comment on a pull request, and the summary of a GitHub step
    annotations         GitHub's workflow commands
    junit               JUnit XML
    bencher             Bencher Metric Format

`tables`, `what_changed` and `wording` have the rows, lines and words that these forms share.
`per_benchmark` has one finding for each benchmark, for the forms without tables.
"""
