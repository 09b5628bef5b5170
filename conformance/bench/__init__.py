"""The benchmark: what schedules cost here and in other libraries, measured in one run.

    python -m conformance.bench schedule --against tinygrad,jax,torch --json result.json
    python -m conformance.bench table result.json

`workloads` and `growing` say what is computed, `peers` how each library is asked to, `figures`
what is measured; `schedule` runs it, one process for each library, and `table` shows the result.
"""
