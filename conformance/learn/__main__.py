"""`python -m conformance.learn`: see `conformance.learn`."""

import sys

from conformance.learn import main
from conformance.runner.interruption import quietly

sys.exit(quietly(main))
