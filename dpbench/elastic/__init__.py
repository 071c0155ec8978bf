"""Training under torchrun in which workers fail: what an outage costs, part by part.

request.py         the options, checked; which worker fails, leaves or joins at which step
run_files.py       what the parent hands to agents and workers, and the time stamps of each process
outage.py          from the time stamps to outages with their parts; whether a run ended as undisturbed      pure
training_runs.py   the two runs: undisturbed and elastic
elastic_record.py  the record of a run, and its file of JSON lines
child/             torchrun's agents, with time stamps, and the worker that trains
"""
