"""Rows as they come, and what public facts make of them: one acceptance of numbers, types and names.

*In* come tables (CSV, Parquet, Excel, ``.npz``, arrays, data frames of any library), labels and identifiers
of people. *Out* go arrays: features, codes of classes, numbers of units. Every other room that meets rows
as they come asks this one.

=====================================  ==================================================================
:mod:`~ostraka.data.fits`              the name by which a fit that was interrupted finds what it has paid for
:mod:`~ostraka.data.nearest`           which public row is nearest to a row, under small changes of images
:mod:`~ostraka.data.units`             which rows belong to one person, however the identifier is written
:mod:`~ostraka.data.labels`            names and codes of classes: :class:`~ostraka.data.labels.Labels`
:mod:`~ostraka.data.table`             how files look; cells: text, numbers, dates, missing values
:mod:`~ostraka.data.parquet`           rows that stay in Parquet files
:mod:`~ostraka.data.columns`           the type of each column and the features that it gives
:mod:`~ostraka.data.schema`            public categories and bins, data dictionaries: rows as codes
:mod:`~ostraka.data.task`              the tables of a command as arrays to learn from
=====================================  ==================================================================

The promise: **what a private row becomes is a function of that row and of public values, bit for bit.**
Encoding, delimiter, decimal sign, header, types, formats of dates, scales, categories and bins come from
public rows, a schema or an option, never from a private row. A private cell that cannot be read is the
missing value of its column, a number outside of a range is its nearest end, and a category that nobody
declared is "other". None of them ends a run; how many there were is counted for the owner alone. Identifiers
are the exception: a row that names nobody, or names a person in two ways which cannot be joined, is refused,
because no promise to that person could be kept.
"""

from __future__ import annotations

__all__: list[str] = []
