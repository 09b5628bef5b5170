"""One command on a machine with a GPU: is it right there, and how fast?

    python -m conformance.hardware                    writes hardware.json and hardware.md
    python -m conformance.hardware --dry-run          the same over the mock driver, very small

It runs the conformance suite on CUDA, then workloads in float32, float16 and bfloat16 against
PyTorch, torch.compile and JAX if they are installed, and sets their times against the speed at
which the GPU copies and multiplies. It keeps within its time and saves after every step, so that a
run that is cut off leaves what it has found.
"""
