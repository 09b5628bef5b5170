"""The usual ways to spread the training of a transformer, each run and held against one device.

    python -m conformance.ways                   in one process, and as four processes over MPI
    python -m conformance.ways --only pipeline --size small --devices 2,4 --over mpi --as replay

    programs   the model, and for each way where its parameters lie and what it has to send
    job        one way run on a mesh: losses, parameters, and the bytes that were sent

Each way is run as it is, and captured and replayed. The table says how far losses, gradients and
parameters are from those of one device, and how many bytes a device sends in a step, beside those
that the way needs by theory.
"""
