"""Values on several devices: one program for all pieces.

Chapter: spec/multi.md.

    mesh         devices with named axes; how a value lies on them
    transfers    what is sent between devices, and how many bytes that takes
    buckets      transfers that go together
    coordinates  where a device stands, as a number of its kernels
    pieces       what each device has of a value; how it is brought into another sharding
    laying       onto a mesh, and off it
    local        the form of a value, from those of its pieces
    operands     in which sharding operands are brought together
    movement     movement operations of pieces
    rows         rows that are looked up, or combined into others
    rolls        values that move round along an axis
    merged       axes that become one, of which a later one is cut
    divide       from values to the graph of pieces that every device runs
    program      the effects of a schedule, divided
"""
from impl.multi.buckets import Buckets, behind, gone_together, likeness
from impl.multi.coordinates import Coordinate
from impl.multi.divide import Divider
from impl.multi.local import LocalForm
from impl.multi.mesh import PLAIN_AXIS, Mesh, Sharding, Wish, meshes, piece, sharding_of
from impl.multi.pieces import Piece
from impl.multi.program import divided, is_spread, sharding_of_node
from impl.multi.rolls import rolled
from impl.multi.transfers import LATENCY, NOTED, PER_BYTE, PER_OPERATION, Transfer

__all__ = ["LATENCY", "NOTED", "PER_BYTE", "PER_OPERATION", "PLAIN_AXIS", "Buckets", "Coordinate",
           "Divider", "LocalForm", "Mesh", "Piece", "Sharding", "Transfer", "Wish", "behind",
           "divided", "gone_together", "is_spread", "likeness", "meshes", "piece", "rolled",
           "sharding_of", "sharding_of_node"]
