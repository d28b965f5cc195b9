"""Schedules of AllReduce in rounds, on networks whose switches only forward; see docs/allreduce.md.

`model` is the network, schedules, the verifier, and lower bounds. `schedulers` make schedules by
rules, `learning` by growing flow trees, with a greedy or a learned policy. `files` are schedules as JSON and XML.
`compare` runs all schedulers on one network; `table` and `plots` show what they find.
"""
