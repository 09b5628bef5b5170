"""Processes that do not come: do all others say so, in time, and is nothing lost?

    python -m conformance.faults                      100 faults of a job of three processes
    python -m conformance.faults --kinds saving --count 50

Each run is a real job, started by `mpiexec`, that trains a little model and saves it after every
step. At a random moment one of its processes is killed, stopped, made to do something else, to ask
alone, to raise, or to end. Then every other process has to say, within the limit of time, which
rank it was, at which collective, and at which line; no value that was printed may be wrong; and the
last complete save has to be there. `saving` is one process of four devices, killed while it saves.
"""
