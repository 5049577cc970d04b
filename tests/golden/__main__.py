"""Write the files anew."""

from knft.model.names import Family
from tests.golden import FOLDER, texts

for family in Family:
    for name, text in texts(family).items():
        (FOLDER / name).write_text(text)
