"""Golden vectors of reference implementations, compared with this project's functions.

    python -m lopd_repro.conformance DIR

DIR holds a manifest.json (`environment`, `entries`) and the files that its entries name. One line
per entry: name, largest absolute error of values and of gradients, ok / differs / not covered;
then a total. Exit status 0 if no covered entry differs, 1 if one does, 2 if DIR cannot be read.

An adapter module has `ENTRIES`: adapter by prefix of the entry's name, the longest prefix wins;
it may have `SOURCES`: adapter by a part of the entry's `source`, for entries of other names.
An adapter takes the entry and the path of the entry's file and returns an `Outcome`.
"""
