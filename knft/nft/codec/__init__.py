"""How the nftables vocabulary is written: JSON for libnftables, text for people, and listings read back.

Both spellings of one thing stand side by side. libnftables' JSON is described in libnftables-json(5); the forms
here are those that 1.0.6 and 1.1.3 both accept and list again.
"""
