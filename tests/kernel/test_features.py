"""may_have_nf_tables: detects nf_tables without loading the module."""

from pathlib import Path

from knft.kernel.features import may_have_nf_tables

ABSENT = Path("/nowhere/nf_tables")


def test_loaded_module_is_found() -> None:
    assert may_have_nf_tables(module=Path("/"), symbols=ABSENT)


def test_built_in_nf_tables_is_found_by_its_symbols(tmp_path: Path) -> None:
    """At any position of the list, which is read in chunks."""
    symbols = tmp_path / "kallsyms"
    symbols.write_bytes(b"0000 t x\n" * 116_508 + b"000 T nft_do_chain\n")
    assert may_have_nf_tables(ABSENT, symbols)
    symbols.write_bytes(b"0000 t x\n" * 116_508)
    assert not may_have_nf_tables(ABSENT, symbols)


def test_nf_tables_is_assumed_if_undetectable() -> None:
    assert may_have_nf_tables(ABSENT, ABSENT)
