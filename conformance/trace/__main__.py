"""`python -m conformance.trace`: see `conformance.trace`."""

import sys

from conformance.runner.interruption import quietly
from conformance.trace import main

sys.exit(quietly(main))
