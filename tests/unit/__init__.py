"""The pure stages, table by table: values in, values out; no kernel, no files, no clock but the test's own."""
