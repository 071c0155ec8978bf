"""The room of `dpbench doctor`: is this machine fit to measure on? See README.md.

    findings.py    Finding: one line of the examination, with its severity and advice
    ask.py         start the child that examines, and read its findings
    child/         the examination itself: host, GPUs, links between GPUs, bandwidths
    self_test.py   compare two equal cases for a minute; the difference is the machine's noise
    report.py      the findings as tables and as JSON
    machine_file.py   measure the devices in a child, and write the machine file for `dpbench project`
    measured.py       what that child sends
    describe.py       from there to the file's text; pure, with described_*.py and numbers.py

The parent imports neither torch nor NVML. Nothing here changes a setting of the machine.
"""
