"""What runs inside the sandbox, started as a script; standard library only."""
