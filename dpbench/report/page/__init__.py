"""One self-contained HTML page of results: charts, tables and what to do next.

    inputs.py           files in: records, the gate's history, projections
    machines.py         records by machine; a comparison for each
    parts.py            what a page consists of: panels, sections, machines
    charts/             a function for each chart: the rows of its table; and its drawing in Vega-Lite
    over_commits.py     many commits, days or gates, and two commits compared
    elastic_section.py  the outages of elastic runs, and the runs
    drawing.py          reads the charts, which are data: charts/*.vl.json in Vega-Lite; their colours
    content.py          the page's sections in their order
    plain_tables.py     tables without a chart: devices, links, failures, the environment, words, all cases
    document.py         the page's file: the template with every text escaped, and the data
    assets/             template, style, script, and the charting library with its licences

A page loads nothing and runs only its own scripts: its Content-Security-Policy names them by hash.
"""
