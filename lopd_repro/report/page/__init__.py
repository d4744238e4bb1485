"""One self-contained page of everything a workflow made: what a reader opens first.

`assemble.page_html` puts the sections together; every other module is one kind of section or one
thing sections are made of. A section whose input is absent says so and names the target that
makes it. Nothing here computes a result: numbers are those of the result files.
"""
