from oolong.cli.app import main

main()
