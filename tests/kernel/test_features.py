"""What the kernel has in it is seen without making it load anything."""

from pathlib import Path

from knft.kernel.features import has_nf_tables

ABSENT = Path("/nowhere/nf_tables")


def test_a_loaded_module_is_there() -> None:
    assert has_nf_tables(module=Path("/"), symbols=ABSENT)


def test_one_that_is_built_in_has_its_symbols(tmp_path: Path) -> None:
    """Wherever in the list they stand, which is read in pieces."""
    symbols = tmp_path / "kallsyms"
    symbols.write_bytes(b"0000 t x\n" * 116_508 + b"000 T nft_do_chain\n")
    assert has_nf_tables(ABSENT, symbols)
    symbols.write_bytes(b"0000 t x\n" * 116_508)
    assert not has_nf_tables(ABSENT, symbols)


def test_where_nothing_can_be_seen_it_is_believed_to_be_there() -> None:
    assert has_nf_tables(ABSENT, ABSENT)
