import sys

from vbe.cli import main

sys.exit(main())
