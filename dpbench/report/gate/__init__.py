"""The forms in which a gate's judgement is read.

    terminal            tables on standard output
    json_form           one JSON object, and the exit codes
    markdown            a comment on a pull request, and the summary of a GitHub step
    annotations         GitHub's workflow commands
    junit               JUnit XML
    csv_form            CSV
    bencher             Bencher Metric Format
    badge               an SVG image of the verdict
    self_test_tables    the result of a self-test, as tables and as JSON

`tables`, `what_changed` and `wording` have the rows, lines and words that these forms share.
`per_benchmark` has one finding for each benchmark, for the forms without tables.
"""
