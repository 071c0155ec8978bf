"""Training under torchrun in which workers fail: what an outage costs, part by part.

request.py         the options, checked; which worker fails, leaves or joins at which step
folders.py         the folders of checkpoints and of events
job.py             what the parent hands to agents and workers
events.py          files of time stamps, one for each process
outage.py          from the time stamps to outages with their parts                   pure
same_end.py        whether a disturbed run ends as the undisturbed one did            pure
training_runs.py   the two runs: undisturbed and elastic
elastic_record.py  the record of a command; record_file.py is its file of JSON lines
child/             torchrun's agents, with time stamps, and the worker that trains
"""
