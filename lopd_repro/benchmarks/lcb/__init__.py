"""LiveCodeBench (code generation): extraction, grading, a mini-suite, and the official scorer."""
