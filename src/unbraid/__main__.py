"""`python -m unbraid` is the same as `unbraid`."""

import sys

from unbraid.cli.dispatch import main

sys.exit(main())
