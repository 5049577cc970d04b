"""Write the golden files."""

from knft.families import Family
from tests.golden import FOLDER, texts

for family in Family:
    for name, text in texts(family).items():
        (FOLDER / name).write_text(text)
