"""The self-test: measure how often the gate is right on this machine.

It compares a commit's wrapper with itself, and with itself after a slowdown of known size was injected:

    run_self_test   check the request, write the commit twice, and carry out the steps below
    inject          put a loop into the wrapper's forward, and find the loop's length for 5 % and 10 % of a step
    record          take real rounds and whole gates under each condition
    trials          the file of these, so that a self-test that was stopped goes on
    resample        draw thousands of gates from the recorded rounds, by the gate's own loop and rules
    result          count the verdicts: false alarms of equal code, and slowdowns that were found
"""
