"""What the elements of a payload are, where it passes the parts that widen and narrow them."""

from amaranth.lib import data

__all__ = ["ElementForm"]


class ElementForm(data.Struct):
    """`half`: elements have two bytes on the wire, otherwise the other fields have no meaning. They are bfloat16
    numbers, with `binary16` numbers of that format, with `as_is` integers, as which a result of the parent is
    stored."""

    half: 1
    binary16: 1
    as_is: 1
