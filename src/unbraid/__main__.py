"""`python -m unbraid` is the same as `unbraid`."""

import sys

from unbraid.cli import main

sys.exit(main())
