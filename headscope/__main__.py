"""`python -m headscope`: the command line, where no script is on the path."""

from headscope.cli import main

main()
