"""`python -m conformance`: see `conformance.runner.command`."""

import sys

from conformance.runner.command import main

sys.exit(main())
