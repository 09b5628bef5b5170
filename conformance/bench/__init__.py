"""The benchmark: what schedules cost and how fast kernels are, here and in other libraries.

    python -m conformance.bench run --against torch,jax,onnxruntime --output result.json
    python -m conformance.bench schedule --against tinygrad,jax,torch.compile --json result.json
    python -m conformance.bench table result.json

`suite` and `growing` say what is computed, in the words of `operations`; `peers` how each library
says them; `figures` what is measured; `limits` what the machine could do. `run` and `schedule` ask
the libraries in turns (`rounds`), each in a process of its own, and `table` shows the result.
"""
