"""A solution of the lesson kernel: python -m conformance.learn solution kernel"""
# mypy: ignore-errors
from impl.choosing.products import RegisterTile


def choose_tile(limits, itemsize, rows, columns):
    width, registers = limits.elements(itemsize), limits.vector_registers

    def work(tile):
        tile_rows, vectors = tile
        panels = -(-columns // (vectors * width))
        tiles = -(-rows // tile_rows)
        return panels * rows * vectors + panels * (rows + tiles * vectors)

    fitting = [(tile_rows, vectors) for tile_rows in range(1, min(rows, registers) + 1)
               for vectors in range(1, registers)
               if tile_rows * vectors + vectors + 1 <= registers]
    return RegisterTile(*min(fitting, key=work), width)
