from voxtui.cli import main

main()
