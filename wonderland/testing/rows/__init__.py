"""The rows of the op table, a file per family. `op_table.load()` reads every file of this folder."""
