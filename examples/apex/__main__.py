"""`python -m examples.apex --switch 127.0.0.1:27000-27003`: Ape-X on this machine, with a switch that runs."""

from examples.apex.launch import main

raise SystemExit(main())
